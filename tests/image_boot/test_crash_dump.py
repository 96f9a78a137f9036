# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node without a disk, booted from the image of the page, whose kernel crashes: its dump, and its way back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from boot_images import follow
from boot_network import NODE, HttpServer, Network, Node
from build_host import DocumentedSite, images_of_page
from health_keeper import KEEPER
from patience import scaled_s
from sockets import wait_for_listener

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import dumps
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
    pytest.mark.skipif(not shutil.which("makedumpfile") or not shutil.which("age"), reason="no makedumpfile or age"),
]
BOOT_S = 900
PANIC = "Kernel panic - not syncing: sysrq triggered crash"
# The kernel may not find the emulator's timer.
ARGUMENTS = ["console=ttyS0", "no_timer_check"]
# By the kernel's log: what is written to a terminal is lost when a login begins there.
CRASH = """[Unit]
After=sailloft-crash.service
[Service]
Type=oneshot
ExecStart=/usr/bin/crash
[Install]
WantedBy=multi-user.target
"""
PROGRAM = """#!/bin/sh
say() { echo "<1>$*" >/dev/kmsg; }
say "CRASH KERNEL $(cat /sys/kernel/kexec_crash_loaded) $(cat /sys/kernel/kexec_crash_size)"
say "failed units:" $(systemctl --no-pager --plain --no-legend list-units --failed)
say NODE IS UP
sleep 10
! grep -q test_crash /proc/cmdline || echo c >/proc/sysrq-trigger
"""


@dataclass(frozen=True)
class CrashSite:
    """A site with the image of the page, and the secret key that opens its dumps."""

    site: DocumentedSite
    key: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> CrashSite:
    folder = tmp_path_factory.mktemp("crash")
    key = folder / "crash.key"
    subprocess.run(["age-keygen", "-o", key], check=True, capture_output=True)
    public_key = subprocess.run(["age-keygen", "-y", key], check=True, capture_output=True, text=True).stdout.strip()
    site = DocumentedSite(folder / "site")
    variables = images_of_page("how-to/crash-dumps.md")
    base = variables["node_image_layers"]["base"]
    base["roles"][0]["vars"]["node_crash_dump_key"] = public_key
    base["kernel_arguments"] += ARGUMENTS
    base["files"] = [
        {"path": "/etc/systemd/system/crash.service", "content": CRASH},
        {"path": "/usr/bin/crash", "content": PROGRAM, "mode": "0755"},
    ]
    base["services"] = {"enabled": ["crash"]}
    site.build(variables)
    return CrashSite(site, key)


class Crashing:
    """The boot server of a node that crashes as soon as it is up, with a keeper of dumps for ``most_bytes``."""

    def __init__(self, built: CrashSite, network: Network, folder: Path, most_bytes: int) -> None:
        self.built, self.network, self.dumps = built, network, folder / "dumps"
        store = Path(built.site.store.path)
        self.server = HttpServer(network, store, 8001, crash_dumps_gib=1)
        for place in (self.dumps, folder / "copies", store / "identity"):
            place.mkdir(exist_ok=True)
        socket = self.server.folder / "socket"
        arguments = [KEEPER, "--crashes", self.dumps, most_bytes, socket, store / "identity", folder / "copies"]
        keeper = network.start([sys.executable, "-I", *arguments], folder / "keeper.log")
        wait_for_listener(socket, keeper)
        network.dnsmasq([self.server.url])

    def boot(self, *arguments: str) -> Node:
        keys = self.built.site.keys
        signer = Signer(str(keys / "image.key"), str(keys / "image.pub"))
        follow(self.built.site.store, signer, [self.server.url], kernel_arguments=list(arguments))
        node = Node(self.network, [], memory_mib=2048)
        node.wait_for("NODE IS UP", BOOT_S)
        return node

    def crash(self) -> Node:
        """Return the node once it has crashed, and was reset by its crash kernel."""
        node = self.boot("test_crash=1")
        assert "CRASH KERNEL 1 " in node.console
        node.process.wait(scaled_s(BOOT_S))  # QEMU ends at a reboot
        assert f"node {NODE} has crashed" in node.console
        return node


def test_a_crashed_node_sends_its_last_lines_messages_and_memory_and_boots_again(
    built: CrashSite, network: Network, tmp_path: Path
):
    crashing = Crashing(built, network, tmp_path, 4 << 30)
    node = crashing.crash()
    assert "the crash dump has ended: rebooting" in node.console
    [dump] = dumps.read(str(crashing.dumps))
    assert (dump["node"], dump["missing"], dump["lines"][-1]) == (NODE, [], PANIC)
    assert [event["event"] for event in crashing.server.reports()] == ["booting", "crashed", "rebooting"]
    folder = crashing.dumps / NODE / dump["crashed"]
    plain = {name: tmp_path / name for name in ("dmesg", "vmcore")}
    for name, path in plain.items():
        assert b"age-encryption.org" in (folder / name).read_bytes()[:64]
        subprocess.run(["age", "-d", "-i", built.key, "-o", path, folder / name], check=True)
    messages = subprocess.run(["gzip", "-dc"], stdin=plain["dmesg"].open("rb"), capture_output=True, check=True)
    assert PANIC in messages.stdout.decode()
    # The whole memory: makedumpfile reads it as it reads that of a disk.
    with plain["vmcore"].open("rb") as stream:
        subprocess.run(["makedumpfile", "-R", tmp_path / "dump"], stdin=stream, check=True)
    subprocess.run(["makedumpfile", "--dump-dmesg", tmp_path / "dump", tmp_path / "messages"], check=True)
    assert PANIC in (tmp_path / "messages").read_text()
    node.stop()
    again = crashing.boot()
    assert "has crashed" not in again.console
    assert "failed units:\n" in again.console


def test_a_node_whose_dump_is_refused_still_sends_its_messages_and_reboots(
    built: CrashSite, network: Network, tmp_path: Path
):
    crashing = Crashing(built, network, tmp_path, 1 << 20)
    node = crashing.crash()
    assert "413" in node.console.split("has crashed")[1]
    [dump] = dumps.read(str(crashing.dumps))
    assert (dump["missing"], dump["lines"][-1]) == (["vmcore"], PANIC)


def test_a_node_whose_boot_server_is_away_reboots(built: CrashSite, network: Network, tmp_path: Path):
    crashing = Crashing(built, network, tmp_path, 4 << 30)
    node = crashing.boot("test_crash=1")
    crashing.server.stop()
    node.process.wait(scaled_s(BOOT_S))
    assert "no server for the crash dump after 300 s: rebooting" in node.console
    assert dumps.read(str(crashing.dumps)) == []
