# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ConfigSpecs as they are sent, for settings that the simulator does not keep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from messages import raises
from pyVmomi import vim
from pyVmomi.SoapAdapter import SerializeToStr
from vsphere_requests import server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import place
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import versions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.config_spec import Builder, signed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.wanted import configure, differences

V8, V7 = "vim.version.v8_0_0_1", "vim.version.v7_0"


def wanted(**more: Any) -> dict[str, Any]:
    [request] = parse([vm(interfaces=[], **more)])
    [placement] = place(server(), [request.spec], {}, lambda _spec: 768)
    return configure(request, placement, "8.0.3", 2500, (8, 0, 3, 0), request.vsphere.hardware_version)


def text(config: dict[str, Any], target: Any = None, version: str = V8, have: dict[str, Any] | None = None) -> str:
    target = target or SimpleNamespace(pciPassthrough=[], vendorDeviceGroupInfo=[])
    networks = {"DC0_DVPG0": (None, "dvportgroup-1", "uuid")}
    builder = Builder("train", server(), lambda: target, networks, "DC0_DVPG0", None)
    return SerializeToStr(builder.build(config, have, "store"), version=version)


def test_the_spec_contains_every_setting():
    spec = text(wanted())
    for part in (
        "<version>vmx-21</version>",
        "<firmware>efi</firmware>",
        "<numCPUs>4</numCPUs>",
        "<memoryMB>65536</memoryMB>",
        "<memoryReservationLockedToMax>true</memoryReservationLockedToMax>",
        "<reservation>65536</reservation>",
        "<level>high</level>",
        "<coresPerNumaNode>",
        "<numaNode>1</numaNode>",
        "<key>pciPassthru.64bitMMIOSizeGB</key>",
        "<vmPathName>[store]</vmPathName>",
    ):
        assert part in spec, part


def test_two_threads_of_a_core_reserve_the_frequency_of_one_core():
    host = server()
    for node in host.numa_nodes:
        node.cpus = list(range(node.id * 8, node.id * 8 + 8))
        node.siblings = [node.cpus[at : at + 2] for at in range(0, 8, 2)]
    [request] = parse([vm(vcpus=8)])
    [placement] = place(host, [request.spec], {}, lambda _spec: 768)
    config = configure(request, placement, "8.0.3", 2500, (8, 0, 3, 0))
    assert (config["vcpus"], config["threads_per_core"], config["cpu_reservation_mhz"]) == (8, 2, 4 * 2500)
    assert "<simultaneousThreads>2</simultaneousThreads>" in text({**config, "devices": [], "networks": []})


def test_settings_that_an_old_version_would_drop_are_refused():
    config = wanted()
    assert "virtualNuma" not in text(config, version=V7)
    found = versions.missing("train", config, (7, 0))
    assert {"numa_node", "cores_per_numa_node"} <= versions.used(config)
    assert {item.severity for item in found} == {"refuse"}
    assert versions.missing("train", config, (8, 0, 0, 1)) == []


def test_virtual_hardware_without_virtual_numa_is_a_warning():
    older = wanted(vsphere={"hardware_version": "vmx-19"})
    [found] = versions.missing("train", older, (8, 0, 3, 0))
    assert (found.severity, found.why.split(": ")[0]) == (
        "warn",
        "they need API 8.0.0.1 and vmx-20, it has API 8.0.3.0 and vmx-19",
    )


def test_a_vendor_id_is_signed():
    assert (signed(0x10DE), signed(0x8086)) == (0x10DE, -32634)
    assert "<vendorId>4318</vendorId>" in text(wanted())


def test_a_dynamic_device_names_its_model():
    spec = text(wanted(vsphere={"passthrough": "dynamic"}))
    assert "<vendorId>4318</vendorId><deviceId>9008</deviceId>" in spec
    assert 'xsi:type="VirtualPCIPassthroughDynamicBackingInfo"' in spec


def test_a_device_group_is_added_in_one_request():
    device = vim.vm.device.VirtualPCIPassthrough(
        backing=vim.vm.device.VirtualPCIPassthrough.DynamicBackingInfo(deviceName="", customLabel="nvlink")
    )
    group = SimpleNamespace(
        deviceGroupName="Nvidia:2@nvlink", componentDeviceInfo=[SimpleNamespace(device=device) for _number in range(2)]
    )
    target = SimpleNamespace(pciPassthrough=[], vendorDeviceGroupInfo=[group])
    spec = text(wanted(nics={}, vsphere={"device_group": "Nvidia:2@nvlink"}), target)
    assert "<deviceGroupName>Nvidia:2@nvlink</deviceGroupName>" in spec
    assert spec.count("<groupInstanceKey>1</groupInstanceKey>") == 3
    assert "<sequenceId>1</sequenceId>" in spec
    with raises(DomainError, "train", "device group", "'Nvidia:8@nvlink'", "Nvidia:2@nvlink"):
        text(wanted(nics={}, vsphere={"device_group": "Nvidia:8@nvlink"}), target)


def test_the_spec_omits_settings_that_are_equal():
    config = wanted()
    spec = text(config, have=config)
    assert "numCPUs" not in spec
    assert "extraConfig" not in spec
    assert "VirtualPCIPassthrough" not in spec


def test_interrupt_remapping_enables_the_virtual_iommu():
    assert "<vvtdEnabled>true</vvtdEnabled>" in text(wanted(interrupt_remapping=True))
    assert "vvtdEnabled" not in text(wanted())


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({}, []),
        ({"disks_mib": [40960]}, ["disks_mib"]),
        ({"extra": {}}, None),
        ({"vcpus": 8, "networks": ["x"]}, ["vcpus", "networks"]),
    ],
)
def test_each_setting_that_differs_is_one_difference(change, paths):
    config = wanted()
    found = [item["path"] for item in differences({**config, **change}, config)]
    assert found == (paths if paths is not None else [f"extra.{key}" for key in config["extra"]])


def test_a_larger_or_additional_disk_is_not_a_difference():
    config = wanted()
    assert differences(config, {**config, "disks_mib": [99999, 1]}) == []


def present(*devices: Any) -> str:
    """Return the spec for a virtual machine with these devices that needs a disk of 20 GiB and two networks."""
    target = SimpleNamespace(pciPassthrough=[], vendorDeviceGroupInfo=[])
    networks = {"flat": (vim.Network("network-1"), None, None), "spread": (None, "dvportgroup-1", "uuid")}
    config = SimpleNamespace(hardware=SimpleNamespace(device=list(devices)))
    builder = Builder("train", server(), lambda: target, networks, "", config)
    plan = {**wanted(gpus={}, nics={}), "networks": ["flat", "spread"]}
    return SerializeToStr(builder.build(plan, {**plan, "networks": []}, "store"), version=V8)


def card(name: str) -> Any:
    backing = vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName=name)
    return vim.vm.device.VirtualVmxnet3(key=4000, macAddress="00:50:56:00:00:01", backing=backing)


def disk(size_kib: int) -> Any:
    return vim.vm.device.VirtualDisk(key=2000, unitNumber=0, controllerKey=1000, capacityInKB=size_kib)


def test_standard_and_distributed_networks_have_different_backings():
    spec = present(card("other"), disk(20 << 20))
    assert spec.count("<operation>edit</operation>") == spec.count("<operation>add</operation>") == 1
    assert "<deviceName>flat</deviceName>" in spec
    assert "<macAddress>00:50:56:00:00:01</macAddress>" in spec
    assert "<portgroupKey>dvportgroup-1</portgroupKey>" in spec
    assert "<deviceName>spread</deviceName>" not in spec


def test_a_correct_network_card_is_not_changed():
    assert "<operation>edit</operation>" not in present(card("flat"), disk(20 << 20))


@pytest.mark.parametrize(("size_kib", "grows"), [(10 << 20, True), (20 << 20, False), (40 << 20, False)])
def test_a_disk_only_grows(size_kib, grows):
    spec = present(card("flat"), disk(size_kib))
    assert ("<operation>edit</operation>" in spec) == grows
    assert ("<capacityInKB>20971520</capacityInKB>" in spec) == grows
