# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The changes of settings, devices, networks and disks in a ConfigSpec, as objects of the API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from messages import raises
from pyVmomi import vim
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.config_spec import Builder, signed

DIRECT = vim.vm.device.VirtualPCIPassthrough
CARD = vim.vm.device.VirtualEthernetCard
PLAIN: dict[str, Any] = {
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
FLAT = vim.Network("network-1")
NETWORKS = {"flat": (FLAT, None, None), "rails": (None, "dvportgroup-1", "uuid-1")}


def build(
    want: dict[str, Any],
    have: dict[str, Any] | None = None,
    devices: tuple[Any, ...] | None = None,
    groups: Any = None,
) -> Any:
    """Return the spec that changes ``have`` (changes of PLAIN; None: a new machine) into ``want`` (changes, too)."""
    target = SimpleNamespace(
        pciPassthrough=[
            SimpleNamespace(systemId=f"system-{number}", pciDevice=SimpleNamespace(id=address))
            for number, address in enumerate(("0000:14:00.0", "0000:13:00.0", "0000:15:10.0"))
        ],
        vendorDeviceGroupInfo=groups,
    )
    config = None if devices is None else SimpleNamespace(hardware=SimpleNamespace(device=list(devices)))
    builder = Builder("train", server(), lambda: target, NETWORKS, "rails", config)
    return builder.build({**PLAIN, **want}, None if have is None else {**PLAIN, **have}, "store")


def told(spec: Any) -> dict[str, Any]:
    """Return the properties that a spec sets, except empty lists."""
    values = {info.name: getattr(spec, info.name) for info in spec._GetPropertyList()}
    return {name: value for name, value in values.items() if value not in (None, [])}


def changes(spec: Any) -> list[tuple[str, Any]]:
    return [(item.operation, item.device) for item in spec.deviceChange]


@pytest.mark.parametrize(
    ("number", "short"), [(0, 0), (0x10DE, 0x10DE), (0x7FFF, 32767), (0x8000, -32768), (0x8086, -32634), (0xFFFF, -1)]
)
def test_an_id_is_a_signed_short(number, short):
    assert signed(number) == short


def test_a_new_machine_gets_its_name_version_and_files():
    found = told(build({}))
    assert found.pop("files").vmPathName == "[store]"
    assert found.pop("memoryAllocation").reservation == 0
    assert found.pop("cpuAllocation").reservation == 0
    assert found.pop("latencySensitivity").level == "normal"
    # Virtual threads, virtual nodes and an IOMMU are off without being set: an old API does not have them.
    assert found == {
        "name": "train",
        "version": "vmx-21",
        "guestId": "otherLinux64Guest",
        "firmware": "efi",
        "memoryMB": 4096,
        "numCPUs": 4,
        "numCoresPerSocket": 2,
        "memoryReservationLockedToMax": False,
    }


def test_a_new_machine_gets_the_settings_that_are_on():
    found = told(build({"threads_per_core": 2, "cores_per_numa_node": 1, "iommu": True}))
    assert (found["simultaneousThreads"], found["virtualNuma"].coresPerNumaNode) == (2, 1)
    assert found["flags"].vvtdEnabled is True


@pytest.mark.parametrize(
    ("key", "value", "name", "inner"),
    [
        ("guest_id", "ubuntu64Guest", "guestId", None),
        ("firmware", "bios", "firmware", None),
        ("memory_mib", 8192, "memoryMB", None),
        ("vcpus", 8, "numCPUs", None),
        ("cores_per_socket", 4, "numCoresPerSocket", None),
        ("memory_locked", True, "memoryReservationLockedToMax", None),
        ("memory_reservation_mib", 8192, "memoryAllocation", "reservation"),
        ("cpu_reservation_mhz", 5000, "cpuAllocation", "reservation"),
        ("latency_sensitivity", "high", "latencySensitivity", "level"),
        ("threads_per_core", 2, "simultaneousThreads", None),
        ("cores_per_numa_node", 2, "virtualNuma", "coresPerNumaNode"),
        ("iommu", True, "flags", "vvtdEnabled"),
    ],
)
def test_only_a_setting_that_differs_is_sent_and_it_can_be_taken_back(key, value, name, inner):
    for want, have, sent in (({key: value}, {}, value), ({}, {key: value}, PLAIN[key])):
        found = told(build(want, have))
        assert list(found) == [name]
        assert (getattr(found[name], inner) if inner else found[name]) == sent
    assert told(build({key: value}, {key: value})) == {}


def test_the_version_is_upgraded_by_another_request():
    assert told(build({}, {"hardware_version": "vmx-20"})) == {}


def test_own_keys_are_set_and_removed_and_others_stay():
    want = {"numa.nodeAffinity": "0", "pciPassthru.allowP2P": "TRUE", "foreign": "x"}
    have = {"numa.nodeAffinity": "0,1", "pciPassthru.allowP2P": "TRUE", "pciPassthru.use64bitMMIO": "TRUE"}
    found = [(item.key, item.value) for item in build({"extra": want}, {"extra": have}).extraConfig]
    assert found == [("pciPassthru.use64bitMMIO", ""), ("numa.nodeAffinity", "0")]
    found = [(item.key, item.value) for item in build({"extra": want}).extraConfig]
    assert found == [("pciPassthru.allowP2P", "TRUE"), ("numa.nodeAffinity", "0")]


def row(kind: str, of_id: str, node: int | None = None) -> dict[str, Any]:
    return {"type": kind, "id": of_id, "numa_node": node}


def present(address: str, node: int | None = None, grouped: bool = False) -> Any:
    device = DIRECT(key=13000, backing=DIRECT.DeviceBackingInfo(id=address), numaNode=node)
    if grouped:
        device.deviceGroupInfo = vim.vm.device.VirtualDevice.DeviceGroupInfo(groupInstanceKey=1, sequenceId=0)
    return device


def test_devices_are_added_with_their_backing_node_and_a_key_of_their_own():
    spec = build({"devices": [row("fixed", "0000:13:00.0", 0), row("sriov", "0000:15:10.0", 1)]})
    (first, fixed), (second, function) = changes(spec)
    assert (first, second) == ("add", "add")
    assert (fixed.key, function.key) == (-101, -102)
    assert (fixed.numaNode, function.numaNode) == (0, 1)
    backing = fixed.backing
    assert (backing.id, backing.deviceId, backing.vendorId, backing.systemId, backing.deviceName) == (
        "0000:13:00.0", "2330", 0x10DE, "system-1", "gpu 0000:13:00.0",
    )  # fmt: skip
    assert (function.backing.port.portgroupKey, function.backing.port.switchUuid) == ("dvportgroup-1", "uuid-1")
    assert function.sriovBacking.virtualFunctionBacking.id == "0000:15:10.0"
    assert function.sriovBacking.virtualFunctionBacking.systemId == "system-2"
    physical = function.sriovBacking.physicalFunctionBacking
    # vCenter does not offer the physical function, so its system is not known.
    assert (physical.id, physical.vendorId, physical.systemId) == ("0000:15:00.0", -32634, "")
    assert function.allowGuestOSMtuChange is True


def test_a_dynamic_device_has_the_ids_of_its_model_and_no_node():
    ((_operation, device),) = changes(build({"devices": [row("dynamic", "10de:2330")]}))
    (allowed,) = device.backing.allowedDevice
    assert (allowed.vendorId, allowed.deviceId, device.numaNode, device.key) == (0x10DE, 0x2330, None, -101)


def test_devices_that_are_equal_stay_and_the_others_are_removed_first():
    kept, other_node, gone = present("0000:13:00.0", 0), present("0000:83:00.0", 0), present("0000:14:00.0")
    want = [row("fixed", "0000:13:00.0", 0), row("fixed", "0000:83:00.0", 1)]
    spec = build({"devices": want}, {"devices": []}, devices=(kept, other_node, gone))
    found = changes(spec)
    assert [(operation, device.backing.id) for operation, device in found] == [
        ("remove", "0000:83:00.0"), ("remove", "0000:14:00.0"), ("add", "0000:83:00.0"),
    ]  # fmt: skip
    assert found[0][1] is other_node
    assert found[2][1].numaNode == 1


def test_two_equal_devices_are_kept_as_two():
    both = present("0000:13:00.0"), present("0000:13:00.0")
    twice = [row("fixed", "0000:13:00.0")] * 2
    assert changes(build({"devices": twice}, {"devices": []}, devices=both)) == []
    ((operation, device),) = changes(build({"devices": twice[:1]}, {"devices": twice}, devices=both))
    assert (operation, device) == ("remove", both[1])


def group(*keys: str) -> Any:
    return SimpleNamespace(
        deviceGroupName="Nvidia:2@nvlink",
        componentDeviceInfo=[SimpleNamespace(device=present(key)) for key in keys],
    )


def test_a_device_group_adds_all_of_its_devices_in_order():
    spec = build({"device_group": "Nvidia:2@nvlink"}, groups=[group("0000:13:00.0", "0000:83:00.0")])
    (made,) = spec.deviceGroups.deviceGroup
    assert (made.groupInstanceKey, made.deviceGroupName) == (1, "Nvidia:2@nvlink")
    assert [
        (operation, device.backing.id, device.key, info.groupInstanceKey, info.sequenceId)
        for operation, device in changes(spec)
        for info in [device.deviceGroupInfo]
    ] == [("add", "0000:13:00.0", -101, 1, 0), ("add", "0000:83:00.0", -102, 1, 1)]


def test_a_group_that_stays_keeps_its_devices_and_a_group_that_goes_loses_them():
    inside, outside = present("0000:13:00.0", grouped=True), present("0000:83:00.0")
    both = {"device_group": "Nvidia:2@nvlink", "devices": [row("fixed", "0000:83:00.0")]}
    # A virtual function is removed beside the group.
    spec = build({**both, "devices": []}, both, devices=(inside, outside))
    assert changes(spec) == [("remove", outside)]
    assert spec.deviceGroups is None
    spec = build({"devices": both["devices"]}, both, devices=(inside, outside))
    assert changes(spec) == [("remove", inside)]
    assert spec.deviceGroups.deviceGroup == []


@pytest.mark.parametrize(("groups", "there"), [(None, "none"), ([group()], "Nvidia:2@nvlink")])
def test_a_group_that_the_host_does_not_offer_is_refused(groups, there):
    with raises(DomainError, "train", "'Nvidia:8@nvlink'", there):
        build({"device_group": "Nvidia:8@nvlink"}, groups=groups)


def test_a_missing_network_is_refused_with_those_that_exist():
    with raises(DomainError, "train", "'other'", "flat", "rails"):
        build({"networks": ["other"]})


def test_network_cards_are_added_connected():
    spec = build({"networks": ["flat", "rails"]})
    (_first, flat), (_second, rails) = changes(spec)
    assert [operation for operation, _device in changes(spec)] == ["add", "add"]
    assert (flat.key, rails.key) == (-101, -102)
    assert (flat.backing.deviceName, flat.backing.network) == ("flat", FLAT)
    assert (rails.backing.port.portgroupKey, rails.backing.port.switchUuid) == ("dvportgroup-1", "uuid-1")
    for card in (flat, rails):
        on = card.connectable
        assert (on.startConnected, on.allowGuestControl, on.connected) == (True, True, True)


def card(name: str, key: int) -> Any:
    backing = CARD.NetworkBackingInfo(deviceName=name)
    if name == "rails":
        backing = CARD.DistributedVirtualPortBackingInfo(port=vim.dvs.PortConnection(portgroupKey="dvportgroup-1"))
    return vim.vm.device.VirtualVmxnet3(key=key, macAddress="00:50:56:00:00:01", backing=backing)


def test_network_cards_are_changed_in_order_and_surplus_ones_are_removed():
    have = [card("rails", 4000), card("flat", 4001), card("flat", 4002), card("flat", 4003)]
    spec = build({"networks": ["rails", "rails"]}, {"networks": ["x"]}, devices=tuple(have))
    assert [(operation, device.key) for operation, device in changes(spec)] == [
        ("edit", 4001), ("remove", 4002), ("remove", 4003),
    ]  # fmt: skip
    assert have[1].backing.port.portgroupKey == "dvportgroup-1"
    spec = build({"networks": ["flat", "rails", "flat"]}, {"networks": ["x"]}, devices=(card("flat", 4000),))
    assert [(operation, device.key) for operation, device in changes(spec)] == [("add", -101), ("add", -102)]


def disk(size_kib: int, unit: int = 0) -> Any:
    return vim.vm.device.VirtualDisk(key=2000 + unit, unitNumber=unit, controllerKey=1000, capacityInKB=size_kib)


def test_disks_of_a_new_machine_are_on_a_controller_of_its_own():
    spec = build({"disks_mib": [20480] * 8})
    (operation, adapter), *disks = changes(spec)
    assert (operation, adapter.key, adapter.busNumber, adapter.sharedBus) == ("add", -101, 0, "noSharing")
    assert [
        (kind, each.key, each.controllerKey, each.unitNumber, each.capacityInKB) for kind, each in disks
    ] == [
        # Unit 7 is the controller.
        ("add", -102 - number, -101, unit, 20480 * 1024) for number, unit in enumerate((0, 1, 2, 3, 4, 5, 6, 8))
    ]  # fmt: skip
    backing = disks[0][1].backing
    assert (backing.fileName, backing.diskMode, backing.thinProvisioned) == ("[store]", "persistent", True)
    assert [item.fileOperation for item in spec.deviceChange] == [None] + ["create"] * 8


def test_disks_are_added_at_free_units_of_the_first_controller_and_grow_only():
    controllers = [
        vim.vm.device.VirtualIDEController(key=200, busNumber=0),
        vim.vm.device.ParaVirtualSCSIController(key=1000, busNumber=0, scsiCtlrUnitNumber=7),
        vim.vm.device.ParaVirtualSCSIController(key=1001, busNumber=1, scsiCtlrUnitNumber=7),
    ]
    small, large = disk(1024 * 1024 - 1), disk(4 * 1024 * 1024, unit=2)
    spec = build({"disks_mib": [1024, 2048, 10, 11]}, {}, devices=(*controllers, small, large))
    (edited, grown), *new = changes(spec)
    assert (edited, grown, grown.capacityInKB, grown.capacityInBytes) == ("edit", small, 1024 * 1024, None)
    assert [(kind, each.key, each.controllerKey, each.unitNumber, each.capacityInKB) for kind, each in new] == [
        ("add", -101, 1000, 1, 10240), ("add", -102, 1000, 3, 11264),
    ]  # fmt: skip
    assert large.capacityInKB == 4 * 1024 * 1024
    assert changes(build({"disks_mib": [1024]}, {}, devices=(*controllers, disk(1024 * 1024), large))) == []


def test_the_last_unit_of_a_controller_is_used():
    spec = build({"disks_mib": [1] * 15})
    assert [device.unitNumber for _operation, device in changes(spec)[1:]] == [*range(7), *range(8, 16)]
    with raises(DomainError, "train", "disks[15]"):
        build({"disks_mib": [1] * 16})
