# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from gpu_nodes import ARCHIVE, KEY

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import files, request
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.packages import Package

HEAD = "# Written by sailloft.fleet.gpu_node; changes here are lost.\n"
MODULES = "/etc/modules-load.d/sailloft-gpu-node.conf"
OTHER = {**ARCHIVE, "name": "doca", "url": "file:/mirror", "suite": "noble", "components": ["main", "extra"]}


def test_apt_gets_a_source_and_a_key_for_each_archive():
    asked = request.read({"repositories": [ARCHIVE, OTHER]})
    assert files.repositories(asked, "apt") == {
        "/etc/apt/keyrings/sailloft-cuda.asc": KEY,
        "/etc/apt/sources.list.d/sailloft-cuda.list": (
            f"{HEAD}deb [signed-by=/etc/apt/keyrings/sailloft-cuda.asc] https://mirror.example/cuda/debian12/x86_64 /\n"
        ),
        "/etc/apt/keyrings/sailloft-doca.asc": KEY,
        "/etc/apt/sources.list.d/sailloft-doca.list": (
            f"{HEAD}deb [signed-by=/etc/apt/keyrings/sailloft-doca.asc] file:/mirror noble main extra\n"
        ),
    }


def test_dnf_gets_a_repository_and_a_key_for_each_archive():
    assert files.repositories(request.read({"repositories": [ARCHIVE]}), "dnf") == {
        "/etc/pki/rpm-gpg/RPM-GPG-KEY-sailloft-cuda": KEY,
        "/etc/yum.repos.d/sailloft-cuda.repo": (
            f"{HEAD}[sailloft-cuda]\nname=cuda\nbaseurl=https://mirror.example/cuda/debian12/x86_64\nenabled=1\n"
            "gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-sailloft-cuda\n"
        ),
    }


def test_packages_of_one_version_share_a_pin():
    packages = [
        Package("nvidia-persistenced", "595.91.07"),
        Package("ethtool"),
        Package("doca-ofed", "3.1"),
        Package("nvidia-dkms-open", "595.91.07"),
    ]
    assert files.pins(packages) == (
        f"{HEAD}\n"
        "Package: nvidia-persistenced nvidia-dkms-open nvidia-* libnvidia-*\n"
        "Pin: version 595.91.07*\nPin-Priority: 1001\n\n"
        "Package: doca-ofed\nPin: version 3.1.*\nPin-Priority: 1001\n"
    )


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("nvidia-utils-580-server", " nvidia-* libnvidia-*"),
        ("nvidia-persistenced", " nvidia-* libnvidia-*"),
        ("nvidia-fs", ""),
    ],
)
def test_only_the_pin_with_a_package_of_the_driver_is_for_all_its_packages(name, more):
    assert files.pins([Package(name, "1.2.3")]) == (
        f"{HEAD}\nPackage: {name}{more}\nPin: version 1.2.3*\nPin-Priority: 1001\n"
    )


def test_the_stream_of_a_branch_is_enabled():
    assert files.stream(580) == ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n\n")


def test_the_default_settings_have_modules_and_limits():
    assert files.settings(request.read({}), "none") == {
        "/etc/modprobe.d/sailloft-gpu-node.conf": f"{HEAD}blacklist nouveau\noptions nouveau modeset=0\n",
        MODULES: f"{HEAD}nvidia\nnvidia-uvm\n",
        "/etc/security/limits.d/sailloft-gpu-node.conf": (
            f"{HEAD}* soft memlock unlimited\n* hard memlock unlimited\n"
            "root soft memlock unlimited\nroot hard memlock unlimited\n"
        ),
        "/etc/systemd/system.conf.d/sailloft-gpu-node.conf": f"{HEAD}[Manager]\nDefaultLimitMEMLOCK=infinity\n",
    }


def test_the_rails_on_one_subnet_get_their_arp_settings():
    content_by_path = files.settings(request.read({"rails_on_one_subnet": True}), "none")
    assert content_by_path["/etc/sysctl.d/60-sailloft-gpu-node.conf"] == (
        f"{HEAD}net.ipv4.conf.all.arp_announce = 1\nnet.ipv4.conf.all.arp_filter = 1\n"
        "net.ipv4.conf.all.arp_ignore = 2\n"
    )


@pytest.mark.parametrize(
    ("settings", "fabric", "more"),
    [
        ({"gpudirect": "peermem"}, "none", ["nvidia-peermem"]),
        ({"gpudirect": "none"}, "nvswitch", []),
        ({"storage": "nvidia_fs"}, "none", ["nvidia-fs"]),
        ({}, "nvlink5", ["ib_umad"]),
        ({"gpudirect": "peermem", "storage": "nvidia_fs"}, "nvlink5", ["nvidia-peermem", "nvidia-fs", "ib_umad"]),
    ],
)
def test_modules_are_loaded_at_boot_for_what_is_asked(settings, fabric, more):
    text = files.settings(request.read(settings), fabric)[MODULES]
    assert text == HEAD + "".join(f"{module}\n" for module in ("nvidia", "nvidia-uvm", *more))
