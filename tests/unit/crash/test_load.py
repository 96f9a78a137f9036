# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The loading of a crash kernel: for which NIC, with which command line, and why it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernel_trees import VERSION

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import load
from ansible_collections.sailloft.fleet.plugins.module_utils.crash.errors import CrashError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report

KEY = "age1" + "q" * 58
MAC = "52:54:00:aa:bb:01"
REPORT = {
    "format": boot_report.FORMAT,
    "node": "bm01",
    "image": "a" * 64,
    "name": "node",
    "kernel": VERSION,
    "arguments": "initrd=first-stage console=ttyS0 crashkernel=512M hugepages=900 iommu=pt isolcpus=2-9 "
    "sailloft.node=bm01 sailloft.servers=http://10.9.0.9 BOOTIF=01-52-54-00-aa-bb-01",
    "layers": [{"name": "base", "sha256": "b" * 64, "root_sha256": "", "verity": True}],
    "server": "http://10.9.0.1",
    "writable_bytes": 1,
    "phases": [],
    "warnings": [],
    "mac": MAC,
    "report_url": "http://10.9.0.1/report",
    "servers": ["http://10.9.0.1", "http://10.9.0.2"],
}
NIC = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The tree of a node that was booted from an image, with 512 MiB for its crash kernel."""
    for path, text in {
        "run/sailloft/boot.json": json.dumps(REPORT),
        "sys/kernel/kexec_crash_size": str(512 << 20),
        "sys/kernel/kexec_crash_loaded": "0",
        f"sys{NIC}/virtio0/net/eth0/address": f"{MAC}\n",
        "sys/devices/virtual/net/br0/address": f"{MAC}\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / f"sys{NIC}/virtio0/net/eth0/device").symlink_to("../..")
    nets = tmp_path / "sys/class/net"
    nets.mkdir(parents=True)
    (nets / "eth0").symlink_to(f"../..{NIC}/virtio0/net/eth0")
    (nets / "br0").symlink_to("../../devices/virtual/net/br0")
    return tmp_path


def test_the_nic_that_booted_is_the_only_device_of_the_crash_kernel(node: Path):
    assert load.device(MAC, str(node)) == NIC
    assert load.device("52:54:00:00:00:00", str(node)) == ""


def test_the_crash_kernel_gets_the_modules_of_the_watchdogs_and_of_the_devices_that_have_them(node: Path):
    assert load.watchdogs(str(node)) == []
    bridge = "devices/pci0000:00/0000:00:1f.0"
    for device, driver, is_loaded in (
        (bridge, "lpc_ich", True),
        (f"{bridge}/iTCO_wdt.1.auto", "iTCO_wdt", True),
        ("devices/platform/wdat_wdt", "wdat_wdt", True),
        ("devices/platform/softdog", "softdog", False),
    ):
        for folder in (f"sys/{device}/driver", f"sys/module/{driver}"):
            (node / folder).mkdir(parents=True)
        (node / f"sys/{device}/driver/module").symlink_to(node / f"sys/module/{driver}")
        if is_loaded:
            (node / f"sys/module/{driver}/initstate").write_text("live\n")
    for number, device in enumerate(
        (f"{bridge}/iTCO_wdt.1.auto", "devices/platform/wdat_wdt", "devices/platform/softdog")
    ):
        (node / f"sys/{device}/watchdog/watchdog{number}").mkdir(parents=True)
        (node / f"sys/{device}/watchdog/watchdog{number}/device").symlink_to("../..")
        (node / "sys/class/watchdog").mkdir(exist_ok=True)
        (node / f"sys/class/watchdog/watchdog{number}").symlink_to(f"../../{device}/watchdog/watchdog{number}")
    assert load.watchdogs(str(node)) == ["lpc_ich", "iTCO_wdt", "wdat_wdt"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_command_line_is_the_nodes_without_what_takes_memory_or_boots(node: Path, machine: str):
    report = boot_report.load(json.dumps(REPORT), "bm01")
    words = load.command_line(report, NIC, ["lpc_ich", "iTCO_wdt"], KEY, machine).split()
    assert words[:2] == ["console=ttyS0", "iommu=pt"]
    assert not [word for word in words if word.startswith(("crashkernel", "hugepages", "isolcpus", "initrd"))]
    given = dict(word.split("=", 1) for word in words if word.startswith(("sailloft.", "BOOTIF")))
    assert given == {
        "sailloft.crash": KEY,
        "sailloft.device": NIC,
        "sailloft.watchdogs": "lpc_ich,iTCO_wdt",
        "sailloft.node": "bm01",
        "sailloft.image": "a" * 64,
        "sailloft.servers": "http://10.9.0.1,http://10.9.0.2",
        "sailloft.report": "http://10.9.0.1/report",
        "BOOTIF": "01-52-54-00-aa-bb-01",
    }
    assert {"nr_cpus=1", "panic=10"} <= set(words)


def test_a_command_line_that_the_kernel_would_cut_is_refused(node: Path):
    report = boot_report.load(json.dumps({**REPORT, "arguments": "x=y " * 500}), "bm01")
    with pytest.raises(CrashError):
        load.command_line(report, NIC, [], KEY, "x86_64")


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [("sys/kernel/kexec_crash_size", "0", "crashkernel="), ("run/sailloft/boot.json", None, "boot.json")],
)
def test_a_node_that_cannot_dump_says_why(node: Path, path: str, text: str | None, named: str):
    (node / path).unlink() if text is None else (node / path).write_text(text)
    with pytest.raises(CrashError) as error:
        load.load(KEY, str(node))
    assert named in str(error.value)
