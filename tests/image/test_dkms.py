# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A real package with a module that DKMS builds: the same bytes on two hosts, without a key or with the site's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from build_host import BASE
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# linux/scripts/sign-file.c: a signed module ends with this line.
SIGNED = b"~Module signature appended~\n"
MODULE = {"packages": ["acpi-call-dkms"]}
IMAGES = {name: {"layer": name, "writable_mib": 64} for name in ("unsigned", "signed")}


@pytest.fixture(scope="module")
def requested(tmp_path_factory) -> dict:
    """Layers of two images. In one, a layer has a key of the site in another place than DKMS's own."""
    folder = tmp_path_factory.mktemp("key")
    key, certificate = folder / "site.key", folder / "site.der"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=site", "-outform", "DER"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    setting = "mok_signing_key=/etc/site/site.key\nmok_certificate=/etc/site/site.der\n"
    site = [
        {"path": "/etc/dkms/framework.conf.d/site.conf", "content": setting},
        {"path": "/etc/site/site.key", "source": str(key), "mode": "0600"},
        {"path": "/etc/site/site.der", "source": str(certificate)},
    ]
    return {
        "base": BASE,
        "tools": {"parent": "base", "packages": ["dkms", "linux-headers-cloud-amd64", "openssl"]},
        "unsigned": {"parent": "tools", **MODULE},
        "site": {"parent": "tools", "files": site, "published_keys": ["/etc/site"]},
        "signed": {"parent": "site", **MODULE},
    }


@pytest.mark.long
def test_modules_of_dkms_have_the_same_bytes_on_two_hosts(site, other, requested, tmp_path):
    for host in (site, other):
        host.build(requested, IMAGES)
    for name in IMAGES:
        assert site.store.current(name) == other.store.current(name)
        tree = tmp_path / name
        layer = site.tree(name)[name] / "layer.squashfs"
        subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-d", tree, layer], check=True)
        (module,) = Path(tree, "usr/lib/modules").glob("*/updates/dkms/acpi_call.ko")
        assert module.read_bytes().endswith(SIGNED) == (name == "signed")
        assert not list(tree.glob("var/lib/dkms/mok.*"))
        assert not list(tree.glob("etc/dkms/framework.conf.d/*"))


@pytest.mark.long
def test_the_key_of_the_site_is_refused_unless_it_is_named(site, requested):
    without = {**requested, "site": {**requested["site"], "published_keys": []}}
    with raises(ImageError, "site", "etc/site/site.key", "PEM"):
        site.checking().build(without, IMAGES)
