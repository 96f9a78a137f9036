# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The arguments that are computed from the settings and the host: exact texts."""

from __future__ import annotations

import shutil

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.hugepages import Pool
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import (
    acs_argument,
    boot_loader,
    kernel_arguments,
)

ACS = "pci=config_acs=1x11101@0000:12:00.0"


@pytest.mark.parametrize(
    ("counts", "arguments"),
    [
        ({}, []),
        ({(0, 2): 0}, []),
        ({(0, 2): 4}, ["default_hugepagesz=2M", "hugepagesz=2M", "hugepages=0:4"]),
        ({(1, 1024): 1, (0, 1024): 0}, ["default_hugepagesz=1G", "hugepagesz=1G", "hugepages=1:1"]),
        ({(0, 2048): 3}, ["default_hugepagesz=2G", "hugepagesz=2G", "hugepages=0:3"]),
        (
            {(1, 2): 7, (0, 2): 5, (0, 1024): 1},
            ["default_hugepagesz=1G", "hugepagesz=1G", "hugepages=0:1", "hugepagesz=2M", "hugepages=0:5,1:7"],
        ),
    ],
)
def test_pages_become_arguments_by_size_and_node(counts, arguments):
    assert kernel_arguments.for_pages({Pool(*pool): count for pool, count in counts.items()}) == arguments


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        ({}, []),
        ({"iommu": "passthrough"}, ["intel_iommu=on", "iommu=pt"]),
        ({"iommu": "translated", "arguments": ["quiet"]}, ["intel_iommu=on", "iommu=nopt", "quiet"]),
        (
            {
                "arguments": ["module_blacklist=a,nouveau"],
                "vfio_binding": {"devices": ["10de:*"], "keep_drivers_off": True},
            },
            ["module_blacklist=a,nouveau,nova_core,nvidia,nvidiafb"],
        ),
        ({"vfio_binding": {"devices": ["10de:*"]}}, []),
    ],
)
def test_an_image_gets_the_arguments_of_every_host(data, arguments):
    assert kernel_arguments.for_any_host(data) == arguments


@pytest.mark.parametrize(
    ("mode", "vendor", "arguments"),
    [
        (None, "GenuineIntel", []),
        ("passthrough", "GenuineIntel", ["intel_iommu=on", "iommu=pt"]),
        ("translated", "AuthenticAMD", ["iommu=nopt"]),
        ("translated", None, ["iommu=nopt"]),
    ],
)
def test_the_iommu_is_turned_on_by_its_vendors_argument(mode, vendor, arguments):
    assert kernel_arguments.for_iommu(mode, vendor) == arguments


@pytest.mark.parametrize("table", ["DMAR", "IVRS", None])
def test_the_vendor_of_the_iommu_is_that_of_its_table_or_else_of_the_cpu(server, table):
    server.remove("/sys/firmware/acpi/tables/DMAR")
    server.put("/proc/cpuinfo", "processor : 0\nvendor_id\t: Other\nmodel name : x\n")
    if table:
        server.put(f"/sys/firmware/acpi/tables/{table}", "")
    expected = {"DMAR": "GenuineIntel", "IVRS": "AuthenticAMD", None: "Other"}[table]
    assert kernel_arguments.iommu_vendor(server) == expected
    server.remove("/proc/cpuinfo")
    assert kernel_arguments.iommu_vendor(server) == (expected if table else None)


def test_computed_arguments_come_before_others_and_once(server):
    acs = acs_argument.AcsDecision(ACS, None)
    data = {"arguments": ["quiet", "x"], "remove": ["y"]}
    assert kernel_arguments.wanted(server, data, acs, ["nouveau"], ["x", "initcall_blacklist=a"]) == (
        ["quiet", "x", "module_blacklist=nouveau", "initcall_blacklist=a", ACS],
        ["y"],
    )


def test_an_acs_argument_by_hand_takes_precedence(server):
    server.put(boot_loader.DEFAULTS, "")
    server.put("/proc/sys/kernel/osrelease", "6.15.0\n")
    # The downstream port of the NIC gets the root port's ACS capability.
    root, port = (f"{server.directory(address)}/config" for address in ("0000:10:00.0", "0000:12:01.0"))
    server.put(port, server.read_bytes(port)[:0x100] + server.read_bytes(root)[0x100:])
    given = {"acs_by_port": {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}}
    assert kernel_arguments.ensure(server, given, check=True).facts["arguments"] == [
        "pci=config_acs=1x11101@0000:12:01.0"
    ]
    by_hand = kernel_arguments.ensure(server, {**given, "arguments": [ACS]}, check=True).facts
    assert by_hand["acs"] == {"argument": None, "reason": None, "not_taken": []}
    assert by_hand["arguments"] == [ACS]


def test_a_host_without_proc_is_refused(server):
    server.remove("/proc/cmdline")
    with raises(HostError, "kernel_arguments", "/proc/cmdline"):
        kernel_arguments.ensure(server, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iommu=nopt"], "kernel_arguments: iommu=pt and iommu=nopt contradict each other; leave one out"),
        (
            ["intel_iommu=off"],
            "kernel_arguments: intel_iommu=on and intel_iommu=off contradict each other; leave one out",
        ),
    ],
)
def test_contradicting_arguments_are_refused(server, arguments, message):
    with pytest.raises(HostError) as error:
        kernel_arguments.ensure(server, {"iommu": "passthrough", "arguments": arguments})
    assert str(error.value) == message


def test_the_topology_is_read_only_if_an_argument_depends_on_it(server):
    server.put(boot_loader.DEFAULTS, "")
    shutil.rmtree(server.path("/sys/devices/system"))
    assert kernel_arguments.ensure(server, {"arguments": ["quiet"]}, check=True).facts["arguments"] == ["quiet"]
    for given in (
        {"acs_by_port": {"devices": ["gpu"], "purpose": "virtual_machines"}},
        {"vfio_binding": {"devices": ["gpu"]}},
    ):
        with pytest.raises(HostError, match="/sys"):
            kernel_arguments.ensure(server, given, check=True)


@pytest.mark.parametrize(
    ("value", "refused"), [(True, True), (1, True), ("True", True), ("1", True), (False, False), (0, False)]
)
def test_ats_off_beside_firmware_that_offers_it_is_refused(server, value, refused):
    server.put(boot_loader.DEFAULTS, "")
    firmware = [
        {"devices": ["15b3:*"], "values": {"NUM_OF_VFS": 8}},
        {"devices": ["15b3:*"], "values": {"ATS_ENABLED": value}},
    ]
    given = {"arguments": ["pci=noats"], "nic_firmware": firmware}
    if refused:
        with raises(HostError, "pci=noats", "ATS_ENABLED"):
            kernel_arguments.ensure(server, given, check=True)
    else:
        assert kernel_arguments.ensure(server, given, check=True).facts["arguments"] == ["pci=noats"]
    assert kernel_arguments.ensure(server, {"nic_firmware": firmware}, check=True).facts["arguments"] == []
