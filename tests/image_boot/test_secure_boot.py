# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes whose firmware verifies what it starts: OVMF with Secure Boot and the site's keys, by network."""

from __future__ import annotations

import base64
import gzip
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import secure_boot
from boot_images import Image, Parts, follow, made_image, state
from boot_network import MAC, HttpServer, Network, Node, SoftwareTpm
from boot_reports import BOOT_S, reported

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import measurements
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.issue import CHANGE_S
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured, policy

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
    pytest.mark.skipif(not shutil.which("virt-fw-vars"), reason="no virt-fw-vars (requirements-dev.txt)"),
]
FIRMWARE_S = 300
DENIED = "Access Denied"


# A unit that shows on the console what the TPM has measured, after the node is up.
MEASURED = """[Unit]
After=proof.service multi-user.target
[Service]
Type=oneshot
StandardOutput=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh -c 'cd /sys/class/tpm/tpm0/pcr-sha256; for pcr in 4 7 8 11 12 13; do echo PCR $$pcr $$(cat $$pcr); \
done; echo LOG $$(gzip -c /sys/kernel/security/tpm0/binary_bios_measurements | base64 -w 0); echo ALL IS READ'
"""


def start(
    network: Network,
    image: Image,
    program: bytes,
    devices: Sequence[object] = (),
    stated: dict[str, object] | None = None,
    port: int = 8001,
) -> Node:
    """Start a node whose image has this program, and whose firmware has its keys; ``devices`` are QEMU's options.

    ``stated`` is what the statement says in place of the image.
    """
    secure_boot.publish(image, program)
    server = HttpServer(network, Path(image.store.path), port)
    follow(image.store, image.keys, [server.url], kernel_arguments=[], secure_boot=True)
    if stated:
        # The image before, which this statement also names, boots for an hour.
        state(image.store, image.keys, stated, time.time() - 2 * CHANGE_S)
    network.dnsmasq([server.url], signed=Path(image.store.path))
    return Node(network, [*devices], "secure")


def test_a_signed_kernel_boots_from_the_firmware_to_systemd(image: Image, network: Network, tmp_path: Path):
    site = secure_boot.make_pair(tmp_path, "site")
    secure_boot.enrolled(network.folder / "variables.fd", site)
    node = start(network, image, secure_boot.signed(image, site, tmp_path))
    console = node.wait_for("SYSTEMD IS UP", BOOT_S + FIRMWARE_S)
    report = reported(console, image)
    assert not report.warnings
    assert "sailloft.signed=1" in report.arguments
    assert "BOOTIF" not in report.arguments


@dataclass(frozen=True)
class Measured:
    """A boot with a TPM: what the image predicts, what was measured, and what is not as predicted, by PCR."""

    prediction: measured.Prediction
    seen: measured.Seen
    console: str

    @property
    def wrong(self) -> dict[str, str]:
        return {one.pcr: one.problem for one in measured.verdicts(self.prediction, self.seen) if one.problem}


@pytest.fixture
def measure(parts: Parts, stage: Path, network: Network, tmp_path: Path):
    """measure(options of QEMU): boot an image that shows on the console what the TPM has measured."""

    def boot(*options: object) -> Measured:
        units = tmp_path / "tree/etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True)
        (units / "measured.service").write_text(MEASURED)
        (units / "multi-user.target.wants/measured.service").symlink_to("../measured.service")
        (tmp_path / "tree/etc/layer").write_text("top\n")
        squash = ["mksquashfs", tmp_path / "tree", tmp_path / "upper", "-quiet", "-no-progress", "-all-root"]
        subprocess.run([*squash, "-comp", "zstd"], check=True)
        image = made_image(parts, stage, tmp_path, tmp_path / "upper")
        site = secure_boot.make_pair(tmp_path, "site")
        secure_boot.enrolled(network.folder / "variables.fd", site)
        program = secure_boot.signed(image, site, tmp_path)
        # It is made from program and digest, before anything has booted.
        prediction = measured.load(site.predict(image.digest, program), image.digest)
        node = start(network, image, program, [*SoftwareTpm(network).options(), *options])
        console = node.wait_for("ALL IS READ", BOOT_S + FIRMWARE_S)
        lines = [line.split() for line in console.splitlines()]
        pcrs = {words[1]: words[2].lower() for words in lines if words[:1] == ["PCR"]}
        text = next(words[1] for words in lines if words[:1] == ["LOG"])
        log = measurements.parse_log(gzip.decompress(base64.b64decode(text)))
        assert not reported(console, image).warnings
        return Measured(prediction, measured.Seen(pcrs, log), console)

    return boot


def test_a_tpm_measures_what_the_image_predicts(measure):
    found = measure()
    assert found.wrong == {}, f"{found.seen}, {found.prediction.programs}"
    # The stub starts the kernel in the program by itself.
    programs = [digest for digest in found.seen.log if digest not in measured.TRIES]
    assert programs == list(found.prediction.programs[:1])
    # So the TPM opens secrets that are bound to what was booted.
    assert policy.boot_policy(found.seen.pcrs).hex() in found.prediction.policies


def test_what_a_hypervisor_adds_to_the_command_line_is_measured(measure):
    """The stub takes more arguments from the SMBIOS, though the firmware has verified the program."""
    found = measure("-smbios", "type=11,value=io.systemd.stub.kernel-cmdline-extra=added=1")
    assert "added=1" in found.console
    assert list(found.wrong) == ["12"], f"{found.wrong}, {found.seen}"
    assert policy.boot_policy(found.seen.pcrs).hex() not in found.prediction.policies


def test_a_signed_kernel_of_another_image_than_the_statements_boots_nothing(
    image: Image, network: Network, tmp_path: Path
):
    """A boot server, or who answers in its place, gives an older program that the site has signed."""
    site = secure_boot.make_pair(tmp_path, "site")
    secure_boot.enrolled(network.folder / "variables.fd", site)
    other = {"digest": "0" * 64, "servers": ["http://10.9.0.1:8001"], "report": "http://10.9.0.1:8001/report"}
    node = start(network, image, secure_boot.signed(image, site, tmp_path), stated=other)
    console = node.wait_for("REFUSED", BOOT_S + FIRMWARE_S)
    assert f"the signed kernel is that of image {image.digest}, but statement" in console
    assert "starting test-node" not in console


@pytest.mark.parametrize("change", ["none", "other key", "one byte", "revoked", "iPXE"])
def test_a_kernel_that_the_site_has_not_signed_is_refused(image: Image, network: Network, tmp_path: Path, change: str):
    site, other = (secure_boot.make_pair(tmp_path, name) for name in ("site", "other"))
    revoked = (other,) if change == "revoked" else ()
    secure_boot.enrolled(network.folder / "variables.fd", site, *revoked, revoked=revoked)
    program = bytearray(secure_boot.unsigned(image, site, tmp_path))
    if change == "iPXE":
        program = bytearray(Path("/usr/lib/ipxe/ipxe.efi").read_bytes())
    elif change != "none":
        program = bytearray((site if change == "one byte" else other).sign(bytes(program), 0))
    if change == "one byte":
        # In the command line.
        program[program.index(b"sailloft.signed=1")] ^= 1
    node = start(network, image, bytes(program))
    console = node.wait_for(DENIED, FIRMWARE_S)
    assert "first stage" not in console


def test_firmware_boots_the_signed_kernel_by_http(image: Image, network: Network, tmp_path: Path):
    """UEFI HTTP boot, by the role's answer to the vendor class HTTPClient, and no TFTP."""
    site = secure_boot.make_pair(tmp_path, "site")
    secure_boot.enrolled(network.folder / "variables.fd", site)
    # OVMF tries PXE before HTTP, unless this is off (its PlatformPei reads it).
    by_http = [f"name=opt/org.tianocore/IPv{version}PXESupport,string=no" for version in (4, 6)]
    options = [word for setting in by_http for word in ("-fw_cfg", setting)]
    program = secure_boot.signed(image, site, tmp_path)
    # The role's URL of the program has no port.
    start(network, image, program, options, port=80).wait_for("sailloft: first stage", BOOT_S + FIRMWARE_S)
    assert f"GET /nodes/{MAC.replace(':', '-')}.efi" in (network.folder / "nginx-80/access.log").read_text()
    assert "sent " not in (network.folder / "dnsmasq.log").read_text()


def test_a_node_trusts_both_keys_while_they_are_rotated(image: Image, network: Network, tmp_path: Path):
    """The old certificate stays in db until all images are signed by the new key."""
    old, new = (secure_boot.make_pair(tmp_path, name) for name in ("old", "new"))
    secure_boot.enrolled(network.folder / "variables.fd", old, new)
    node = start(network, image, secure_boot.signed(image, new, tmp_path))
    assert DENIED not in node.wait_for("sailloft: network:", BOOT_S + FIRMWARE_S)
