# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage in a real kernel, and the boot from the firmware to it; `make image-boot` runs them."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from boot_images import Image, follow, sign, state
from boot_network import MAC, NODE, HttpServer, Network, Node, SoftwareTpm
from boot_reports import BOOT_S, reported

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.issue import CHANGE_S
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

pytestmark = pytest.mark.boot

STAGE_S = 90


def corrupt(path: Path) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    # nginx keeps a served file open, so the changed file must be a new inode.
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("dhcp", "firmware", "nic_driver"),
    [("full", "bios", "ipxe"), ("full", "efi", "firmware"), ("proxy", "bios", "ipxe"), ("proxy", "efi", "ipxe")],
)
def test_a_node_boots_from_the_firmware_to_systemd(
    image: Image, network: Network, dhcp: str, firmware: str, nic_driver: str
):
    good = HttpServer(network, Path(image.store.path), 8001)
    # iPXE always tries the first server first, and this one does not exist.
    servers = ["http://10.9.0.1:8009", good.url]
    follow(image.store, image.keys, servers)
    network.dnsmasq(servers, dhcp, nic_driver)
    if dhcp == "proxy":
        network.other_dhcp()
    node = Node(network, [], firmware)
    console = node.wait_for("SYSTEMD IS UP", BOOT_S)
    report = reported(console, image)
    assert all(layer.verity for layer in report.layers)
    assert report.server == good.url
    assert not report.warnings
    assert " from_the_node=1 " in report.arguments
    assert [phase.name for phase in report.phases] == ["network", "statement", "manifest", "layers", "mount"]
    for phase, following in zip(report.phases, report.phases[1:]):
        assert phase.start_s <= phase.end_s == following.start_s
    assert "LAYER top" in console
    assert "\nwritten\n" in console
    # udev has named the interface from which the node booted.
    assert "\nUNNAMED:\n" in console
    mounts = {line.split()[1]: line for line in console.splitlines() if len(line.split()) == 6}
    assert "lowerdir=/run/sailloft/lower/top:/run/sailloft/lower/base" in mounts["/"]
    assert "mpol=interleave" in mounts["/run/sailloft/layers"]
    assert "mpol=interleave" in mounts["/run/sailloft/writable"]
    assert [entry["event"] for entry in good.reports()] == ["booting"]


def test_a_corrupt_layer_is_refused_until_it_is_repaired(image: Image, network: Network, tmp_path: Path):
    base = image.manifest.layers[0]
    blob = image.blob(base.sha256)
    kept = shutil.copy(blob, tmp_path / "kept")
    corrupt(blob)
    server = HttpServer(network, Path(image.store.path), 8001)
    network.dnsmasq([server.url])
    node = Node(network, image.direct([server.url]))
    console = node.wait_for("REFUSED", STAGE_S)
    line = next(line for line in console.splitlines() if "REFUSED" in line)
    assert f"node {NODE}: blobs/{base.sha256} from {server.url}: sha256 wanted {base.sha256}, seen " in line
    deadline = time.monotonic() + 10
    while not server.reports():
        assert time.monotonic() < deadline, "no report came"
        time.sleep(0.1)
    report = server.reports()[0]
    assert (report["event"], report["node"], report["wanted"]) == ("refused", NODE, base.sha256)
    assert report["seen"] != base.sha256
    assert len(report["seen"]) == 64
    node.wait_for("trying again in", STAGE_S)
    blob.unlink()
    shutil.copy(kept, blob)
    reported(node.wait_for("SYSTEMD IS UP", BOOT_S), image)


def refused(network: Network, image: Image) -> tuple[str, dict[str, str]]:
    """Return the console and the report of a node that finds only this store, and reboots in the end."""
    server = HttpServer(network, Path(image.store.path), 8001)
    network.dnsmasq([server.url])
    node = Node(network, image.direct([server.url], "sailloft.reboot_after_s=20"))
    # QEMU exits at the reboot.
    node.process.wait(STAGE_S)
    assert "starting test-node" not in node.console
    assert server.reports()[-1]["event"] == "rebooting"
    return node.console, server.reports()[0]


def test_a_manifest_signed_by_another_key_is_refused_and_the_node_reboots(image: Image, network: Network):
    sign(image, "other")
    console, report = refused(network, image)
    assert f"REFUSED: node {NODE}: images/{image.digest}/manifest.json.minisig from http://10.9.0.1:8001: " in console
    assert "the signature does not hold: Signature key id in " in console
    assert " but the key id in the public key is " in report["reason"].replace("%20", " ")
    assert (report["event"], report["file"]) == ("refused", f"images/{image.digest}/manifest.json.minisig")


def test_a_signed_manifest_with_another_digest_is_refused(image: Image, network: Network):
    file = image.file("manifest.json")
    data = json.loads(file.read_bytes())
    file.write_text(json.dumps({**data, "writable_mib": 128}, sort_keys=True, indent=2) + "\n")
    sign(image, "key")
    console, report = refused(network, image)
    assert (
        f"images/{image.digest}/manifest.json from http://10.9.0.1:8001: sha256 wanted {image.digest}, seen " in console
    )
    assert report["wanted"] == image.digest


def test_a_transfer_is_resumed_after_a_restart_of_the_server(image: Image, network: Network):
    server = HttpServer(network, Path(image.store.path), 8001, slow_kib_s=12 << 10)
    network.dnsmasq([server.url])
    node = Node(network, image.direct([server.url]))
    node.wait_for("layer base", STAGE_S)
    time.sleep(4)
    server.stop()
    node.wait_for("bytes are here", STAGE_S)
    node.wait_for("trying again in", STAGE_S)
    server.start()
    console = node.wait_for("SYSTEMD IS UP", BOOT_S)
    reported(console, image)
    base = image.manifest.layers[0]
    # The download was resumed, not restarted: the bytes that were here when the server was lost, and one response with
    # the rest. The interrupted response is not in the log, because nginx was stopped during it.
    sent = [line.split() for line in server.requests().splitlines() if base.sha256 in line]
    here_bytes = int(re.search(r"(\d+) bytes are here", console).group(1))
    assert [fields[8] for fields in sent] == ["206"]
    assert 0 < here_bytes == base.size_bytes - int(sent[0][9])
    assert "REFUSED" not in console


def test_too_little_memory_for_the_layers_is_reported(image: Image, network: Network):
    server = HttpServer(network, Path(image.store.path), 8001)
    network.dnsmasq([server.url])
    node = Node(network, image.direct([server.url], "mem=128M"))
    console = node.wait_for("FAILED", STAGE_S)
    assert f"FAILED: node {NODE}: the layers need " in console
    assert MAC not in console.split("FAILED")[1]


def test_a_node_with_a_tpm_refuses_an_older_statement_than_it_has_seen(image: Image, network: Network):
    """A first boot by a statement, and one in which the boot server has the one before, which has not expired."""
    server = HttpServer(network, Path(image.store.path), 8001)
    network.dnsmasq([server.url])
    node = {"digest": image.digest, "servers": [server.url], "report": f"{server.url}/report"}
    old = state(image.store, image.keys, node)
    tpm = SoftwareTpm(network)
    boot = image.direct([server.url], "sailloft.reboot_after_s=20")
    before, after = statement.load(old, "old").sequence, statement.sequence_in(image.store)
    assert before < after
    first = Node(network, [*boot, *tpm.options()])
    report = reported(first.wait_for("SYSTEMD IS UP", BOOT_S), image)
    assert (report.statement, report.rollback, report.clock) == (after, "TPM", "")
    first.stop()
    Path(image.store.place("nodes", "statement")).write_bytes(old)
    second = Node(network, [*boot, *tpm.options()])
    second.process.wait(STAGE_S)
    assert f"statement {before} is older than {after}, which this node has seen" in second.console
    assert "starting test-node" not in second.console
    assert (server.reports()[-2]["event"], server.reports()[-2]["file"]) == ("refused", "nodes/statement")


@pytest.mark.parametrize("change", ["expired", "other key", "altered", "another image"])
def test_a_node_boots_by_no_statement_that_does_not_hold(image: Image, network: Network, change: str):
    server = HttpServer(network, Path(image.store.path), 8001)
    network.dnsmasq([server.url])
    boot = image.direct([server.url], "sailloft.reboot_after_s=20")
    node = {"digest": image.digest, "servers": [server.url], "report": f"{server.url}/report"}
    if change == "expired":
        state(image.store, image.keys, node, time.time() - 91 * 86400)
    elif change == "other key":
        folder = image.parts.folder
        state(image.store, Signer(str(folder / "other.sec"), str(folder / "other.pub")), node)
    elif change == "altered":
        path = Path(image.store.place("nodes", "statement"))
        path.write_bytes(path.read_bytes().replace(b'"name": "', b'"name": "x'))
    else:
        # The command line names another image than the statement. For an hour, the one before may boot too.
        state(image.store, image.keys, {**node, "digest": "0" * 64}, time.time() - 2 * CHANGE_S)
    machine = Node(network, boot)
    machine.process.wait(STAGE_S)
    causes = {"expired": "has expired at", "another image": f"names image {image.digest}, the statement {'0' * 64}"}
    assert causes.get(change, "the signature does not hold") in machine.console
    assert "starting test-node" not in machine.console


def test_a_node_without_a_clock_boots_and_names_it(image: Image, network: Network):
    server = HttpServer(network, Path(image.store.path), 8001)
    network.dnsmasq([server.url])
    machine = Node(network, [*image.direct([server.url]), "-rtc", "base=1970-01-02T00:00:00"])
    report = reported(machine.wait_for("SYSTEMD IS UP", BOOT_S), image)
    assert report.clock.startswith("a clock is wrong: statement ")
    assert report.warnings == (report.clock,)
