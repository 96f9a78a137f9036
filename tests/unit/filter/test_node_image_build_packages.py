# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packages of a build host, by the distributions that it builds."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.filter.node_image_build_packages import node_image_build_packages

ALL = ["bubblewrap", "cryptsetup-bin", "minisign", "passwd", "squashfs-tools", "util-linux", "zstd"]


def test_each_family_adds_its_own_packages():
    upper = {"parent": "base", "packages": ["openssh-server"]}
    assert node_image_build_packages({}) == ALL
    debian = {"base": {"distribution": "debian"}, "top": upper, "other": {"distribution": "ubuntu"}}
    assert node_image_build_packages(debian) == sorted([*ALL, "debian-archive-keyring", "mmdebstrap"])
    rocky = sorted([*ALL, "busybox-static", "dmsetup", "dnf", "rpm"])
    assert node_image_build_packages({"base": {"distribution": "rocky"}, "top": upper}) == rocky


def test_a_container_image_is_copied_and_unpacked_by_its_tools():
    layer = {"distribution": "rocky", "oci": {"archive": "/srv/i.tar"}}
    assert {"skopeo", "umoci"} <= set(node_image_build_packages({"base": layer}))


def test_an_invalid_layer_needs_no_package():
    assert node_image_build_packages({"base": {"distribution": "suse"}, "odd": None}) == ALL


def test_the_signer_for_firmware_has_its_packages():
    assert set(node_image_build_packages({}, True)) - set(ALL) == {
        "debian-archive-keyring",
        "osslsigncode",
        "python3-minimal",
    }
