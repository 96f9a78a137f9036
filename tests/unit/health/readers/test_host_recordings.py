# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each recording of disks, BMCs, ports and memory gives the verdict of its manifest, and a healthy one no fault."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from health_nodes import failed, node, unmeasured, values, write
from redfish_bmc import RedfishBmc, collection

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    CheckSetting,
    Expected,
    ExpectedPort,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc import ipmi, redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host import edac, ethernet, nvme, rdma
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
HEALTH = Path(ORIGINALS or "/") / "health"
pytestmark = pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")
KINDS = ("disk", "bmc", "infiniband", "ethernet", "memory-edac")

PORTS = Expected(
    "gpu01",
    ports=(
        *(ExpectedPort(f"mlx5_{number}/1", rate_gbit_s=400.0) for number in (0, 1, 4, 5, 6, 7, 8, 9)),
        ExpectedPort("mlx5_bond_0/1", link_layer="Ethernet", rate_gbit_s=200.0),
    ),
)
SYSFS = {
    "h100-healthy": {},
    "edited-port-down": {"port_down": ["mlx5_4/1"]},
    "edited-rate-degraded": {"port_rate": ["mlx5_6/1"]},
    "edited-link-flap-later": {"port_link_downs": ["mlx5_7/1"], "port_symbol_errors": ["mlx5_7/1"]},
    "edited-device-missing": {"port_missing": ["mlx5_8/1"]},
}
# What the tools of a whole fabric say of the node on which they ran, node01: the others' faults are not its own.
TOOLS = {
    "healthy": {},
    "local-port-errors": {
        check: ["ibsim0/1"]
        for check in ("port_buffer_overruns", "port_integrity_errors", "port_link_downs", "port_symbol_errors")
    },
    "node02-slow-edr": {},
    "node04-unplugged": {},
    "symbol-errors-link-downed": {},
}
# The kernel's files of the counters that perfquery prints (Documentation/ABI/stable/sysfs-class-infiniband).
COUNTER_FILES = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
}
ETH = ["eth0"]
# The sample before, and the faults.
ETHTOOL = {
    "ethtool-S-mlx5-crc-symbol-errors.txt": (
        "edited-ethtool-S-mlx5-healthy.txt",
        {"ethernet_crc_errors": ETH, "ethernet_symbol_errors": ETH},
    ),
    "edited-ethtool-S-mlx5-healthy.txt": ("edited-ethtool-S-mlx5-healthy.txt", {}),
    "edited-ethtool-S-mlx5-pfc-healthy.txt": ("edited-ethtool-S-mlx5-pfc-healthy.txt", {}),
    "edited-ethtool-S-mlx5-pfc-storm-discards.txt": (
        "edited-ethtool-S-mlx5-pfc-healthy.txt",
        {"ethernet_discards": ETH, "ethernet_pause_storm": ETH, "ethernet_pause_storm_warning": ETH},
    ),
}
DISK_FOLDERS = {"nvme-healthy": {}, "nvme-critical-warning-4": {"disk_failed": ["nvme0"]}}
DISKS = {
    "nvme-cli-2.11-healthy-used.json": {},
    "edited-nvme-cli-2.11-worn-out.json": {
        "disk_failed": ["nvme0"],
        "disk_spare_low": ["nvme0"],
        "disk_used": ["nvme0"],
        "disk_media_errors": ["nvme0"],
    },
    "smartctl-nvme-failed-critical-warning-16.json": {"disk_failed": ["nvme0"]},
    "smartctl-nvme-healthy-micron-7450.json": {},
    "smartctl-nvme-healthy-samsung-pm9a3.json": {},
    # A note: it takes no node out of service.
    "smartctl-sat-error-log-exit-64.json": {"disk_error_log": ["sdx"]},
}
# The faults, and the events with their parts.
LOGS = {
    "sel-empty": ({}, []),
    "sel-psu-lost": (
        {"bmc_fan": ["FAN3"], "bmc_power_input": ["PSU2 Status"]},
        [("bmc_memory_corrected", "CPU0 DIMM_A1"), ("bmc_pci_error", "PCIe Slot 5")],
    ),
}
BAYS = ("dmtf-power-supplies", "dmtf-power-supply-bay1", "dmtf-power-supply-bay2")
DELL = ("dell-r750-psu.slot.1", "dell-r750-psu.slot.2")
# The other documents that are served with one, the expected number of supplies, the faults, the supplies present.
REDFISH = {
    "dell-r750-psu.slot.1": ((), 1, {}, 1),
    "dell-r750-psu.slot.2": ((), 1, {}, 1),
    "dell-r750-power-subsystem": (DELL, 2, {}, 2),
    "dell-r750-power": ((), 2, {}, 2),
    "lenovo-sr670-power": ((), 4, {}, 4),
    "dmtf-power-subsystem": (
        BAYS,
        1,
        {"bmc_power_supply": ["Bay1"], "bmc_redundancy": ["redundancy group 0 of Bay1, Bay2"]},
        1,
    ),
    "dmtf-power-supplies": (
        BAYS[1:],
        2,
        {"bmc_power_supply": ["Bay1"], "bmc_power_supplies": ["power supplies"]},
        1,
    ),
    "dmtf-power-supply-bay1": ((), 1, {"bmc_power_supply": ["Bay1"]}, 1),
    "dmtf-power-supply-bay2": ((), 1, {"bmc_power_supplies": ["power supplies"]}, 0),
    "dmtf-power-old-schema": ((), 1, {"bmc_power_supply": ["Power Supply Bay"]}, 1),
    "edited-psu-loss-of-input": ((), 1, {"bmc_power_input": ["Bay1"]}, 1),
}
EDAC = {
    "mixed": {"edac_uncorrected": ["mc0/csrow0", "mc0/csrow1", "mc0/csrow2"]},
    "edited-healthy": {},
    "constructed-dimm-ce": {"edac_corrected": ["mc0/P0_DIMM_B"]},
}


def test_each_line_of_the_manifest_has_a_test():
    lines = (HEALTH / "MANIFEST.tsv").read_text(encoding="utf-8").splitlines()[1:]
    paths = [line.split("\t")[0] for line in lines]
    own = [path for path in paths if path.split("/")[0] in KINDS]
    assert sorted(own) == sorted(
        [
            *(f"infiniband/sysfs/{name}.tar.xz" for name in SYSFS),
            *(f"infiniband/tools/{name}/" for name in TOOLS),
            *(f"ethernet/{name}" for name in ETHTOOL),
            *(f"disk/{name}/" for name in DISK_FOLDERS),
            *(f"disk/{name}" for name in DISKS),
            *(f"bmc/ipmitool/{name}/" for name in LOGS),
            "bmc/ipmitool/sel-c-elist-published-mixed.csv",
            *(f"bmc/redfish/{name}.json" for name in REDFISH),
            *(f"memory-edac/{name}/sys/devices/system/edac/" for name in EDAC),
        ]
    )


@pytest.mark.parametrize("name", SYSFS)
def test_ports_of_rdma_devices(tmp_path, name):
    readings = []
    for each in ("h100-healthy", name):
        with tarfile.open(HEALTH / f"infiniband/sysfs/{each}.tar.xz") as archive:
            # Debian 12's Python has no filters.
            archive.extractall(tmp_path / each, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        # A port that is down is a fault in the second round.
        first = rdma.read(node(tmp_path / each, PORTS))
        readings.append(rdma.read(node(tmp_path / each, PORTS, kept=first.kept)))
    assert failed(*readings, expected=PORTS) == SYSFS[name]
    # Lost links of this port cannot be seen, which is no pass.
    assert unmeasured(*readings, expected=PORTS)["port_link_downs"] == ["mlx5_1/1"]


def tree(root, name):
    """Write the files that the kernel has of the port which ibstat and perfquery show."""
    folder = HEALTH / "infiniband/tools" / name
    fields = dict(re.findall(r"\t\t(.+): (.+)", (folder / "ibstat.txt").read_text()))
    counters = dict(re.findall(r"(?m)^(\w+):\.+(\d+)$", (folder / "perfquery.txt").read_text()))
    port = "/sys/class/infiniband/ibsim0/ports/1"
    files = {
        "state": f"4: {fields['State'].upper()}",
        "phys_state": f"5: {fields['Physical state']}",
        "rate": f"{fields['Rate']} Gb/sec (4X HDR)",
        **{f"counters/{file}": counters[counter] for counter, file in COUNTER_FILES.items()},
    }
    write(root, {f"{port}/{file}": text for file, text in files.items()})
    return root


@pytest.mark.parametrize("name", TOOLS)
def test_the_own_port_of_the_node_that_ran_the_tools_of_a_fabric(tmp_path, name):
    expected = Expected("node01", ports=(ExpectedPort("ibsim0/1", rate_gbit_s=104.0),))
    roots = [tree(tmp_path / each, each) for each in ("healthy", name)]
    assert failed(*(rdma.read(node(root, expected)) for root in roots), expected=expected) == TOOLS[name]


@pytest.mark.parametrize("name", ETHTOOL)
def test_statistics_of_ethernet_ports(name):
    before, expected = ETHTOOL[name]
    readings = []
    for each in (before, name):
        text = (HEALTH / "ethernet" / each).read_text(encoding="utf-8")
        measured = tuple(ethernet.judged(ethernet.parse(text), Place("port", "eth0"), "eth0"))
        readings.append(Reading("ethernet", measured))
    assert failed(*readings) == expected
    # Old errors are none.
    assert failed(readings[1], readings[1]) == {}


def disk(name, text):
    """Return the reading of a file of nvme-cli or smartctl."""
    place = Place("disk", "sdx") if "sat" in name else Place("nvme", "nvme0")
    if "smartctl" in name:
        return Reading("nvme", tuple(nvme.parse_smartctl(text, place)))
    return Reading("nvme", tuple(nvme.parse_nvme(text, place, "nvme")))


@pytest.mark.parametrize("version", ["debian12", "debian13", "unstable"])
@pytest.mark.parametrize("name", DISK_FOLDERS)
def test_disks_by_three_versions_of_the_tools(name, version):
    folder = HEALTH / "disk" / name / version
    commands = (line.split("\t") for line in (folder / "COMMANDS.tsv").read_text().splitlines()[1:])
    logs = [
        file
        for file, _status, _command in commands
        if file.endswith(".json") and ("smart-log" in file or "smartctl-nvme" in file)
    ]
    assert len(logs) == 3
    for file in logs:
        text = (folder / file).read_text(encoding="utf-8")
        if text.strip():
            once = disk(file, text)
            assert failed(once, once) == DISK_FOLDERS[name]
    with pytest.raises(NotMeasuredError):
        disk("smartctl", (folder / "smartctl-absent.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DISKS)
def test_published_logs_of_disks(name):
    before = "nvme-cli-2.11-healthy-used.json" if "2.11" in name else name
    readings = [disk(each, (HEALTH / "disk" / each).read_text(encoding="utf-8")) for each in (before, name)]
    assert failed(*readings) == DISKS[name]


@pytest.mark.parametrize("version", ["debian12", "unstable"])
@pytest.mark.parametrize("log", ["ipmitool-c-sel-elist.csv", "ipmitool-Z-c-sel-elist.csv"])
@pytest.mark.parametrize("name", LOGS)
def test_event_logs(name, log, version):
    folder = HEALTH / "bmc/ipmitool" / name / version
    once = ipmi.parse((folder / log).read_text(), (folder / "ipmitool-sdr-elist.txt").read_text())
    assert failed(once) == LOGS[name][0]
    assert [(event.check, event.place.name) for event in once.events] == LOGS[name][1]


def test_published_lines_of_event_logs():
    once = ipmi.parse((HEALTH / "bmc/ipmitool/sel-c-elist-published-mixed.csv").read_text(), "")
    assert failed(once) == {"bmc_power_input": ["Power Supply Status"], "bmc_voltage": ["Voltage PVPP"]}


def documents(name):
    """Return a document, with those that belong to it, as the BMC of one chassis has them."""
    others, *_checks = REDFISH[name]
    served = {}
    for each in (name, *others):
        document = json.loads((HEALTH / f"bmc/redfish/{each}.json").read_text(encoding="utf-8"))
        served[document.get("@odata.id", "")] = document
    path = json.loads((HEALTH / f"bmc/redfish/{name}.json").read_text(encoding="utf-8"))
    chassis = "/".join(path.get("@odata.id", "").split("/")[:5]) or "/redfish/v1/Chassis/1"
    kind = (
        "Power" if "PowerSupplies" in path and "PowerSubsystem" not in path.get("@odata.id", "") else "PowerSubsystem"
    )
    supplies = [each for each in served if "/PowerSupplies/" in each]
    served.setdefault(
        f"{chassis}/PowerSubsystem", {"PowerSupplies": {"@odata.id": f"{chassis}/PowerSubsystem/PowerSupplies"}}
    )
    served.setdefault(f"{chassis}/PowerSubsystem/PowerSupplies", collection(*supplies))
    served |= {
        "/redfish/v1/Chassis": collection(chassis),
        chassis: {kind: {"@odata.id": f"{chassis}/{kind}"}},
        "/redfish/v1/Systems": collection(),
    }
    return served


@pytest.mark.parametrize("name", REDFISH)
def test_documents_of_redfish(tmp_path, name):
    _others, number, expected, present = REDFISH[name]
    server = RedfishBmc(tmp_path, documents(name))
    try:
        once = redfish.read(server.target())
    finally:
        server.stop()
    plan = Expected("gpu01", settings={"bmc_power_supplies": CheckSetting(limit=number)})
    assert failed(once, expected=plan) == expected
    assert values(once)["bmc_power_supplies", "power supplies"] == present
    # These BMCs do not say whether there is input power, which is no pass.
    assert ("bmc_power_input" in unmeasured(once, expected=plan)) == name.startswith(
        ("dell-r750-psu", "dell-r750-power-s")
    )


@pytest.mark.parametrize("name", EDAC)
def test_memory(tmp_path, name):
    shutil.copytree(HEALTH / "memory-edac" / name, tmp_path / "after")
    shutil.copytree(HEALTH / "memory-edac" / name, tmp_path / "before")
    counts = [path for path in (tmp_path / "before").rglob("*_count") if path.is_file()]
    write(tmp_path / "before", {str(path.relative_to(tmp_path / "before")): "0" for path in counts})
    readings = [edac.read(node(tmp_path / each)) for each in ("before", "after")]
    assert failed(*readings) == EDAC[name]
