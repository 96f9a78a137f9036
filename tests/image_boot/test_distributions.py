# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images of distributions other than the lab's: built twice from their own archives by the real builder, and booted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from boot_images import ARGUMENTS, PROOF, Image, Parts
from boot_network import HttpServer, Network, Node
from boot_reports import BOOT_S, reported
from build_host import BuildHost, make_keys

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
]
DISTRIBUTIONS = {
    # minisign, which the first stage uses, is in universe.
    "ubuntu noble": ("http://archive.ubuntu.com/ubuntu", ["main", "universe"], "linux-image-virtual"),
    "debian trixie": ("http://deb.debian.org/debian", ["main"], "linux-image-cloud-amd64"),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_an_image_of_another_distribution_is_reproducible_and_boots(name: str, network: Network, tmp_path: Path):
    url, components, kernel = DISTRIBUTIONS[name]
    distribution, suite = name.split()
    keyring = f"/usr/share/keyrings/{distribution}-archive-keyring.gpg"
    base = {
        "distribution": distribution,
        "suite": suite,
        "architecture": "amd64",
        "archives": [{"url": url, "suites": [suite], "components": components, "keyring": keyring}],
        "packages": [kernel, "systemd-sysv", "udev", "dbus", "kmod", "passwd"],
        "kernel_arguments": list(ARGUMENTS),
    }
    top = {
        "parent": "base",
        "packages": ["openssh-server"],
        "files": [
            {"path": "/etc/layer", "content": "top\n"},
            {"path": "/etc/systemd/system/proof.service", "content": PROOF},
        ],
        "services": {"enabled": ["proof", "ssh"]},
    }
    keys = make_keys(tmp_path / "keys")
    hosts = [BuildHost(tmp_path / folder, keys) for folder in ("one", "two")]
    for host in hosts:
        host.build({"base": base, "top": top}, {"test-node": {"layer": "top", "writable_mib": 64}})
    store = hosts[0].store
    digest = store.current("test-node")
    assert digest == hosts[1].store.current("test-node")

    manifest = store.manifest(digest)
    assert (manifest.distribution, manifest.suite) == (distribution, suite)
    pair = (str(keys / "image.key"), str(keys / "image.pub"))
    image = Image(store, digest, manifest, Parts(tmp_path, manifest.kernel.version), Signer(*pair))
    server = HttpServer(network, Path(store.path), 8001)
    network.dnsmasq([server.url])
    console = Node(network, image.direct([server.url])).wait_for("SYSTEMD IS UP", BOOT_S)
    report = reported(console, image)
    assert all(layer.verity for layer in report.layers)
    assert "LAYER top" in console
    assert "\nUNNAMED:\n" in console
