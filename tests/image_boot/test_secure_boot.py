# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes whose firmware verifies what it starts: OVMF with Secure Boot and the site's keys, by network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import secure_boot
from boot_images import Image, follow
from boot_network import HttpServer, Network, Node
from boot_reports import BOOT_S, reported

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
    pytest.mark.skipif(not shutil.which("virt-fw-vars"), reason="no virt-fw-vars (requirements-dev.txt)"),
]
FIRMWARE_S = 300
DENIED = "Access Denied"


def start(network: Network, image: Image, program: bytes) -> Node:
    """Start a node whose image has this program, and whose firmware has its keys."""
    secure_boot.publish(image, program)
    server = HttpServer(network, Path(image.store.path), 8001)
    follow(image.store, image.keys, [server.url], kernel_arguments=[], secure_boot=True)
    network.dnsmasq([server.url], signed=Path(image.store.path))
    return Node(network, [], "secure")


def test_a_signed_kernel_boots_from_the_firmware_to_systemd(image: Image, network: Network, tmp_path: Path):
    site = secure_boot.make_pair(tmp_path, "site")
    secure_boot.enrolled(network.folder / "variables.fd", site)
    node = start(network, image, secure_boot.signed(image, site, tmp_path))
    console = node.wait_for("SYSTEMD IS UP", BOOT_S + FIRMWARE_S)
    report = reported(console, image)
    assert not report.warnings
    assert "sailloft.signed=1" in report.arguments
    assert "BOOTIF" not in report.arguments


@pytest.mark.parametrize("change", ["none", "other key", "one byte", "revoked"])
def test_a_kernel_that_the_site_has_not_signed_is_refused(image: Image, network: Network, tmp_path: Path, change: str):
    site, other = (secure_boot.make_pair(tmp_path, name) for name in ("site", "other"))
    revoked = (other,) if change == "revoked" else ()
    secure_boot.enrolled(network.folder / "variables.fd", site, *revoked, revoked=revoked)
    program = bytearray(secure_boot.unsigned(image, site, tmp_path))
    if change != "none":
        program = bytearray((site if change == "one byte" else other).sign(bytes(program), 0))
    if change == "one byte":
        # In the command line.
        program[program.index(b"sailloft.signed=1")] ^= 1
    node = start(network, image, bytes(program))
    console = node.wait_for(DENIED, FIRMWARE_S)
    assert "first stage" not in console


def test_a_node_trusts_both_keys_while_they_are_rotated(image: Image, network: Network, tmp_path: Path):
    """The old certificate stays in db until all images are signed by the new key."""
    old, new = (secure_boot.make_pair(tmp_path, name) for name in ("old", "new"))
    secure_boot.enrolled(network.folder / "variables.fd", old, new)
    node = start(network, image, secure_boot.signed(image, new, tmp_path))
    assert DENIED not in node.wait_for("sailloft: network:", BOOT_S + FIRMWARE_S)
