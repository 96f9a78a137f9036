# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A machine that no inventory has: from its firmware over the inspection image of the page to its report and reboot."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
import secure_boot
import shown_boots
from boot_images import Parts, follow
from boot_network import MAC, SERVER, HttpServer, Network, Node
from boot_server_role import render
from build_host import DocumentedSite, images_of_page
from health_keeper import KEEPER
from patience import scaled_s
from sockets import wait_for_listener

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import pending
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
]
BOOT_S = 900
# The kernel may not find the emulator's timer.
ARGUMENTS = ["console=ttyS0", "no_timer_check"]
# What a switch says every second on the machine's side of its cable; tests/cabling has the real lldpd.
SWITCH = """
import socket, struct, time
values = [(1, b"\\4\\2\\0\\0\\0\\0\\1"), (2, b"\\5Ethernet0"), (3, b"\\0\\x78"), (5, b"leaf1-1")]
values += [(7, b"\\0\\x14\\0\\4"), (0, b"")]
frame = bytes.fromhex("0180c200000e020000000001") + b"\\x88\\xcc"
frame += b"".join(struct.pack("!H", kind << 9 | len(value)) + value for kind, value in values)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("tap0", 0))
while True:
    wire.send(frame)
    time.sleep(1)
"""
# A BMC that has no network, and the numbers of the firmware.
MACHINE = ["-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-kcs,bmc=bmc"]
MACHINE += ["-smbios", "type=1,manufacturer=Maker,product=Model 8,serial=S-42"]


def test_an_unknown_machine_boots_the_image_of_the_page_reports_itself_and_reboots_as_a_node(
    network: Network, tmp_path: Path
):
    site = DocumentedSite(tmp_path / "site")
    variables = images_of_page("how-to/discover-nodes.md")
    variables["node_image_layers"]["inspection"]["kernel_arguments"] = ARGUMENTS
    digest = site.build(variables)
    store, reports = Path(site.store.path), tmp_path / "reports"
    discovery = {"image": digest, "ranges": ["10.9.0.200-10.9.0.209"]}
    server = HttpServer(network, store, 8001, discovery=discovery)
    for folder in (reports, tmp_path / "copies", store / "identity"):
        folder.mkdir(exist_ok=True)
    place = server.folder / "socket"
    arguments = [KEEPER, "--pending", store / "nodes", reports, place, store / "identity", tmp_path / "copies"]
    keeper = network.start([sys.executable, "-I", *arguments], tmp_path / "keeper.log")
    wait_for_listener(place, keeper)
    script = render("unknown.ipxe.j2", boot_server_servers=[server.url], boot_server_discovery=discovery)
    (store / "nodes").mkdir(exist_ok=True)
    (store / "nodes/unknown.ipxe").write_text(script)
    # The role's server has the port that the test's has not.
    network.dnsmasq([server.url], discovery=discovery, altered={f"http://{SERVER}/nodes": f"{server.url}/nodes"})
    network.start([sys.executable, "-c", SWITCH], tmp_path / "switch.log")

    node = Node(network, MACHINE, memory_mib=2048)
    node.wait_for(f"node unknown-{MAC.replace(':', '')}: no node of this site", BOOT_S)
    node.wait_for("it has the report", BOOT_S)
    found = pending.read(str(reports), time.time(), [MAC])
    assert found["refused"] == []
    [machine] = found["machines"]
    assert (machine["vendor"], machine["product"], machine["serial"]) == ("Maker", "Model 8", "S-42")
    [nic] = machine["nics"]
    assert (nic["mac"], nic["driver"], nic["link"]) == (MAC, "virtio_net", True)
    assert (nic["neighbour"], nic["ports"]) == ("leaf1-1", ("Ethernet0",))
    assert machine["topology"]["functions"]
    # ipmitool has reached the BMC through the kernel.
    assert [problem for problem in machine["problems"] if "Could not open device" in problem] == []
    requests = server.requests()
    assert "/nodes/statement" not in requests
    assert f"/images/{digest}/manifest.json" in requests

    follow(site.store, Signer(str(site.keys / "image.key"), str(site.keys / "image.pub")), [server.url])
    node.wait_for("this machine is a node now", BOOT_S)
    node.process.wait(scaled_s(BOOT_S))  # QEMU ends at a reboot
    assert list(reports.iterdir()) == []
    assert [event["event"] for event in server.reports()] == ["booting"]


@pytest.mark.skipif(not shutil.which("virt-fw-vars"), reason="no virt-fw-vars (requirements-dev.txt)")
@pytest.mark.parametrize("trusted", ["site", "other"])
def test_an_unknown_machine_with_secure_boot_boots_the_signed_image_if_it_has_the_key_of_the_site(
    parts: Parts, stage: Path, network: Network, tmp_path: Path, trusted: str
):
    """The image has only BusyBox, and shows what its stage would report."""
    signed = shown_boots.made(parts, stage, tmp_path, "inspection")
    image, store = signed.image, Path(signed.image.store.path)
    discovery = {"image": image.digest, "ranges": ["10.9.0.200-10.9.0.209"], "secure_boot": True}
    server = HttpServer(network, store, 8001, discovery=discovery)
    # As the role names it.
    (store / "nodes/unknown.efi").symlink_to(f"../images/{image.digest}/boot.efi")
    signer = signed.signer if trusted == "site" else secure_boot.make_pair(tmp_path, "other")
    secure_boot.enrolled(network.folder / "variables.fd", signer)
    network.dnsmasq([server.url], signed=store, discovery=discovery)
    node = Node(network, [], "secure")
    if trusted == "other":
        assert "first stage" not in node.wait_for("Access Denied", BOOT_S)
        assert "nodes/unknown.efi" in (network.folder / "dnsmasq.log").read_text()
        return
    console = node.wait_for(shown_boots.UP, BOOT_S)
    text = (shown_boots.shown(console, tmp_path / "shown") / boot_report.PATH.lstrip("/")).read_text()
    name = f"unknown-{MAC.replace(':', '')}"
    report = boot_report.load(text, name)
    assert (report.node, report.mac, report.name) == (name, MAC, "inspection")
    assert (report.servers, report.warnings) == ((server.url,), ())
    assert "/nodes/statement" not in server.requests()
