# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine's configuration, read from objects of the API that are made here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyVmomi import vim
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import read_back

DIRECT = vim.vm.device.VirtualPCIPassthrough
CARD = vim.vm.device.VirtualEthernetCard
SRIOV = vim.vm.device.VirtualSriovEthernetCard


def fixed(address: str, key: int = 13000, node: int | None = None, group: int | None = None) -> Any:
    device = DIRECT(key=key, backing=DIRECT.DeviceBackingInfo(id=address, deviceId="2330", vendorId=0x10DE))
    device.numaNode = node
    if group is not None:
        device.deviceGroupInfo = vim.vm.device.VirtualDevice.DeviceGroupInfo(groupInstanceKey=group, sequenceId=0)
    return device


def dynamic(*models: tuple[int, int], assigned: str | None = None, key: int = 13000) -> Any:
    allowed = [DIRECT.AllowedDevice(vendorId=vendor, deviceId=device) for vendor, device in models]
    return DIRECT(key=key, backing=DIRECT.DynamicBackingInfo(allowedDevice=allowed, assignedId=assigned))


def sriov(address: str | None, key: int = 4000, node: int | None = None) -> Any:
    function = DIRECT.DeviceBackingInfo(id=address) if address else None
    backing = SRIOV.SriovBackingInfo(virtualFunctionBacking=function)
    return SRIOV(key=key, macAddress="00:50:56:00:00:02", sriovBacking=backing, numaNode=node)


def card(backing: Any, key: int = 4001) -> Any:
    return vim.vm.device.VirtualVmxnet3(key=key, macAddress="00:50:56:00:00:01", backing=backing)


def spread(key: str) -> Any:
    return CARD.DistributedVirtualPortBackingInfo(port=vim.dvs.PortConnection(portgroupKey=key))


def config(*devices: Any, extra: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Return a configuration with these devices; everything that vCenter may leave out is left out."""
    hardware = SimpleNamespace(memoryMB=4096, numCPU=4, numCoresPerSocket=2, device=list(devices))
    values: dict[str, Any] = {
        "guestId": "otherLinux64Guest",
        "version": "vmx-21",
        "firmware": "efi",
        "hardware": hardware,
        "flags": None,
        "memoryAllocation": None,
        "memoryReservationLockedToMax": None,
        "cpuAllocation": None,
        "latencySensitivity": None,
        "extraConfig": [SimpleNamespace(key=key, value=value) for key, value in (extra or {}).items()],
    }
    return SimpleNamespace(**{**values, **changes})


PLAIN = {
    "guest_id": "otherLinux64Guest",
    "hardware_version": "vmx-21",
    "firmware": "efi",
    "memory_mib": 4096,
    "vcpus": 4,
    "cores_per_socket": 2,
    "threads_per_core": 1,
    "cores_per_numa_node": 0,
    "iommu": False,
    "memory_reservation_mib": 0,
    "memory_locked": False,
    "cpu_reservation_mhz": 0,
    "latency_sensitivity": "normal",
    "device_group": "",
    "extra": {},
    "devices": [],
    "networks": [],
    "disks_mib": [],
}


def test_what_vcenter_leaves_out_is_off():
    assert read_back.read(config(), {}) == PLAIN
    assert read_back.read(config(extraConfig=None), {}) == PLAIN
    empty = {
        "flags": SimpleNamespace(vvtdEnabled=None),
        "memoryAllocation": SimpleNamespace(reservation=None),
        "cpuAllocation": SimpleNamespace(reservation=None),
        "numaInfo": SimpleNamespace(coresPerNumaNode=None, autoCoresPerNumaNode=False),
        "deviceGroups": SimpleNamespace(deviceGroup=None),
    }
    assert read_back.read(config(**empty), {}) == PLAIN


def test_every_setting_is_read():
    one = config(
        flags=SimpleNamespace(vvtdEnabled=True),
        memoryAllocation=SimpleNamespace(reservation=4096),
        memoryReservationLockedToMax=True,
        cpuAllocation=SimpleNamespace(reservation=10000),
        latencySensitivity=vim.LatencySensitivity(level="high"),
        numaInfo=SimpleNamespace(coresPerNumaNode=2, autoCoresPerNumaNode=False),
        deviceGroups=SimpleNamespace(
            deviceGroup=[
                SimpleNamespace(deviceGroupName="Nvidia:2@nvlink"),
                SimpleNamespace(groupInstanceKey=1),
                SimpleNamespace(deviceGroupName="other"),
            ]
        ),
        extra={"numa.nodeAffinity": "0,1", "pciPassthru.64bitMMIOSizeGB": 64, "foreign": "x"},
    )
    one.hardware.simultaneousThreads = 2
    assert read_back.read(one, {}) == {
        **PLAIN,
        "threads_per_core": 2,
        "cores_per_numa_node": 2,
        "iommu": True,
        "memory_reservation_mib": 4096,
        "memory_locked": True,
        "cpu_reservation_mhz": 10000,
        "latency_sensitivity": "high",
        "device_group": "Nvidia:2@nvlink,other",
        "extra": {"numa.nodeAffinity": "0,1", "pciPassthru.64bitMMIOSizeGB": "64"},
    }


def test_nodes_that_vsphere_chose_itself_are_not_a_setting():
    numa = SimpleNamespace(coresPerNumaNode=2, autoCoresPerNumaNode=True)
    assert read_back.read(config(numaInfo=numa), {})["cores_per_numa_node"] == 0


def test_devices_networks_and_disks_are_read():
    devices = [
        vim.vm.device.VirtualDisk(key=2000, capacityInKB=20480 * 1024 + 1023),
        vim.vm.device.ParaVirtualSCSIController(key=1000),
        sriov("0000:15:10.0", node=1),
        card(CARD.NetworkBackingInfo(deviceName="flat")),
        card(spread("dvportgroup-1")),
        card(spread("dvportgroup-2")),
        card(None),
        fixed("0000:83:00.0", node=-1),
        fixed("0000:13:00.0", node=0),
        fixed("0000:99:00.0", group=1),
        dynamic((0x10DE, 0x2330), (-32634, -1)),
        vim.vm.device.VirtualDisk(key=2001, capacityInKB=1024),
    ]
    found = read_back.read(config(*devices), {"dvportgroup-1": "rails"})
    assert found["devices"] == [
        {"type": "dynamic", "id": "10de:2330,8086:ffff", "numa_node": None},
        {"type": "fixed", "id": "0000:13:00.0", "numa_node": 0},
        {"type": "fixed", "id": "0000:83:00.0", "numa_node": None},
        {"type": "sriov", "id": "0000:15:10.0", "numa_node": 1},
    ]
    assert found["networks"] == ["flat", "rails", "dvportgroup-2", ""]
    assert found["disks_mib"] == [20480, 1]


def test_equal_devices_are_ordered_by_node_with_those_without_a_node_first():
    def on(node: int | None) -> Any:
        device = dynamic((0x10DE, 0x2330))
        device.numaNode = node
        return device

    found = read_back.read(config(on(1), on(0), on(None)), {})["devices"]
    assert [row["numa_node"] for row in found] == [None, 0, 1]


@pytest.mark.parametrize(
    ("device", "address"),
    [
        (fixed("0000:13:00.0"), "0000:13:00.0"),
        (dynamic((1, 2)), None),
        (dynamic((1, 2), assigned="0000:83:00.0"), "0000:83:00.0"),
        (sriov("0000:15:10.0"), "0000:15:10.0"),
        (sriov(None), None),
        (SRIOV(key=1), None),
    ],
)
def test_the_host_address_of_a_device_is_read_from_its_backing(device, address):
    assert read_back.address_of(device) == address


def test_each_kind_of_device_is_recognised():
    devices = [fixed("0000:13:00.0"), sriov("0000:15:10.0"), card(None), vim.vm.device.VirtualDisk()]
    assert [read_back.is_passed(device) for device in devices] == [True, True, False, False]
    assert [read_back.is_network(device) for device in devices] == [False, False, True, False]
    assert [read_back.is_disk(device) for device in devices] == [False, False, False, True]
    assert [read_back.is_grouped(device) for device in [fixed("a"), fixed("a", group=7)]] == [False, True]


def test_slots_are_numbered_by_kind_in_the_order_of_keys():
    devices = [
        fixed("0000:83:00.0", key=13001),
        fixed("0000:13:00.0", key=13000),
        sriov("0000:15:10.0", key=4001),
        card(None, key=4000),
        dynamic((1, 2), key=13002),
    ]
    extra = {
        "pciPassthru0.pciSlotNumber": "17",
        "pciPassthru1.pciSlotNumber": "34",
        "pciPassthru2.pciSlotNumber": "35",
        "ethernet0.pciSlotNumber": "18",
        "ethernet1.pciSlotNumber": "1216",
        "pciBridge0.pciSlotNumber": "22",
        "pciBridge5.pciSlotNumber": "23",
        "pciPassthru0.cfg.pciSlotNumber": "99",
    }
    assert read_back.ways(config(*devices, extra=extra)) == {
        "0000:13:00.0": ["11.0"],
        "0000:83:00.0": ["16.0", "02.0"],
        "0000:15:10.0": ["17.1", "00.0"],
    }
    # A number that is not set yet, and a bridge that is missing.
    for name in ("pciPassthru1.pciSlotNumber", "pciBridge5.pciSlotNumber"):
        extra[name] = "-1"
    assert read_back.ways(config(*devices, extra=extra)) == {"0000:13:00.0": ["11.0"]}
    assert read_back.ways(config(*devices)) == {}


def held(name: str = "a", level: str | None = "high", affinity: str = "0,1", vcpus: int = 4) -> Any:
    one = config(extra={"numa.nodeAffinity": affinity})
    one.hardware.numCPU = vcpus
    one.latencySensitivity = vim.LatencySensitivity(level=level) if level else None
    return {name: one}


def test_a_machine_holds_its_devices_and_its_memory_on_its_nodes():
    one = config(fixed("0000:83:00.0"), dynamic((1, 2)), sriov("0000:15:10.0"), card(None))
    assert read_back.holdings({"a": one}, server()) == {
        "a": Holdings(["0000:15:10.0", "0000:83:00.0"], [], {}, page_mib=None)
    }
    assert read_back.holdings(held(affinity="1, 0", level=None), server()) == {
        "a": Holdings([], [], {0: 2048, 1: 2048}, page_mib=None)
    }
    assert read_back.holdings(held(affinity="1", level="normal"), server()) == {
        "a": Holdings([], [], {1: 4096}, page_mib=None)
    }
    # A node that the host does not have, and a node whose number begins with that of another.
    assert read_back.holdings(held(affinity="10,1"), server())["a"].memory_mib == {1: 4096}


def test_a_machine_with_high_sensitivity_holds_cpus_from_the_end_of_each_node():
    """The emulated server has CPUs 0-3 on node 0 and 4-7 on node 1."""
    assert read_back.holdings(held(), server())["a"].cpus == [2, 3, 6, 7]
    assert read_back.holdings(held(affinity="1", vcpus=3), server())["a"].cpus == [5, 6, 7]
    both = read_back.holdings({**held("b", vcpus=2), **held("a"), **held("c", vcpus=8)}, server())
    assert {name: own.cpus for name, own in both.items()} == {"a": [2, 3, 6, 7], "b": [1, 5], "c": [0, 4]}
    assert read_back.holdings(held(affinity=""), server())["a"].cpus == []
    assert read_back.holdings(held(level="normal"), server())["a"].cpus == []


def test_cpus_of_interleaved_nodes_are_in_order():
    host = server()
    for node in host.numa_nodes:
        node.cpus = [node.id, node.id + 2, node.id + 4]
    assert read_back.holdings(held(), host)["a"].cpus == [2, 3, 4, 5]


@pytest.mark.parametrize("extra", [{"pciPassthru0.pciSlotNumber": ""}, {"pciBridge.present": "7"}])
def test_keys_that_are_no_slot_and_values_that_are_no_number_are_ignored(extra):
    assert read_back.ways(config(fixed("0000:13:00.0"), extra=extra)) == {}
