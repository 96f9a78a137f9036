# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole findings on devices: used, isolated, and what they lose without an error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from baseboards import hgx, hgx_nvlink5, vm, with_vfs
from machines import lab, plan

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Acs, Ats, Bar, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices, obstacle
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import devices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

GPU, NIC, VF, GPU2 = "0000:13:00.0", "0000:14:00.0", "0000:15:10.0", "0000:83:00.0"


def one_gpu(host: Host, **more: Any) -> Any:
    return plan(host, **{"gpus": {"addresses": [GPU]}, "nics": {}, "vcpus": 2, "memory_mib": 1024, **more})


def refusal(what: str, why: str, remedy: str) -> Finding:
    return Finding("gpu-vm", what, why, remedy, REFUSE)


def warning(what: str, why: str, remedy: str) -> Finding:
    return Finding("gpu-vm", what, why, remedy, WARN)


def used(host: Host, made: Any, holder: dict[str, str] | None = None) -> list[Finding]:
    return list(devices.in_use(made, HostDevices(host, holder or {})))


def test_a_gpu_whose_bar_is_small_or_has_no_address_is_a_warning():
    host = lab()
    made = one_gpu(host, gpus={"addresses": [GPU, GPU2]}, memory_mib=2048)
    assert not any("BAR" in item.what for item in devices.losses(made, HostDevices(host)))
    for address, region in ((GPU, 1), (GPU2, 1)):
        function = host.function(address)
        function.vendor_id, function.device_id = 0x10DE, 0x26B9
        function.bars = [Bar(region, 256 << 20, "memory", 64, True)]
    (found,) = [item for item in devices.losses(made, HostDevices(host)) if "BAR" in item.what]
    assert (found.severity, GPU in found.what, GPU2 in found.what) == (WARN, True, True)
    assert "256 MiB" in found.what
    host.function(GPU).unassigned_bars = [1]
    assert "cannot enable it" in str(obstacle(HostDevices(host), host.function(GPU), "a", []))
    # With no BAR left, whether or not the kernel still shows them; beside a GPU that has some.
    host.function(GPU).bars = []
    assert obstacle(HostDevices(host), host.function(GPU), "a", []) is not None
    host.function(GPU).unassigned_bars = []
    assert obstacle(HostDevices(host), host.function(GPU), "a", []) is not None
    # A copy that lacks all addresses says nothing.
    host.function(GPU).unassigned_bars = [1]
    for function in host.functions:
        function.bars = []
    assert obstacle(HostDevices(host), host.function(GPU), "a", []) is None


@pytest.mark.parametrize(
    ("host", "kind", "missing"), [(hgx, "gpu", "7 of 8 GPUs"), (hgx, "nvswitch", "3 of 4 NVSwitches"),
                                  (hgx_nvlink5, "gpu", "7 of 8 GPUs"), (hgx, None, None)],
)  # fmt: skip
def test_an_incomplete_board_is_a_warning(host, kind, missing):
    host = host()
    if kind:
        host.functions.remove([item for item in host.functions if item.kind == kind][-1])
    gpus = {"addresses": [item.address for item in host.functions if item.kind == "gpu"]}
    made = plan_domains(host, parse_specs([vm("a", 0, gpus=gpus)]))[0]
    found = [item for item in devices.losses(made, HostDevices(host)) if "incomplete" in item.what]
    assert [(item.severity, missing in item.what) for item in found] == [(WARN, True)] * bool(missing)
    assert any(missing in note for note in made.notes) if missing else not any("present" in note for note in made.notes)


def test_a_gpu_without_bars_is_refused_before_it_starts():
    host = lab()
    made = one_gpu(host)
    for function in host.functions:
        function.bars = []
    (found,) = used(host, made)
    assert (found.severity, GPU in found.what) == (REFUSE, True)
    host.source = "hwloc"
    assert used(host, made) == []


@pytest.mark.parametrize(("driver", "severity"), [("gim", None), (None, REFUSE), ("vfio-pci", REFUSE)])
def test_a_virtual_function_of_a_gpu_needs_the_driver_that_made_it(driver, severity):
    host = lab()
    virtual = host.function(GPU)
    virtual.vendor_id, virtual.device_id, virtual.physical_function = 0x1002, 0x74B5, GPU2
    host.function(GPU2).driver = driver
    made = one_gpu(host)
    found = list(devices.host_drivers(made, HostDevices(host)))
    assert [item.severity for item in found] == [severity] * bool(severity)
    assert all(GPU2 in item.what and "gim" in item.remedy for item in found)


def test_a_free_device_has_no_finding():
    host = lab()
    assert used(host, one_gpu(host)) == []


def test_a_device_in_use_and_one_without_a_group_are_refused():
    host = lab()
    made = one_gpu(host)
    host.function(GPU).used_by_host = ["carries a route", "has an address"]
    assert used(host, made) == [
        refusal(
            f"PCI device {GPU} is in use by the host",
            "carries a route; has an address",
            "free it on the host, or choose another device",
        )
    ]
    host.function(GPU).used_by_host = []
    host.function(GPU).iommu_group = None
    assert used(host, made) == [
        refusal(
            f"PCI device {GPU} is in no IOMMU group",
            "the host's IOMMU is off, and VFIO needs it",
            "enable it in the BIOS and boot with intel_iommu=on or amd_iommu=on",
        )
    ]


def test_no_iommu_is_one_finding_for_all_devices():
    host = lab()
    made = plan(host)
    for function in host.functions:
        function.iommu_group = None
    (found,) = [item for item in used(host, made) if "IOMMU group" in item.what]
    assert "3 more" in found.what


def test_a_group_with_a_foreign_driver_is_refused_with_the_ports_without_acs():
    host = lab()
    made = one_gpu(host)
    host.function("0000:15:00.0").iommu_group = host.function(GPU).iommu_group
    remedy = "assign that device to the same virtual machine, unbind it from igb, or use a slot whose ports have ACS"
    what = f"PCI device {GPU}: its IOMMU group 16 also holds 0000:15:00.0 (driver igb)"
    why = "VFIO takes a group only as a whole, and QEMU reports that it is not viable"
    without = " (no ACS, which would split the group: port 0000:12:00.0)"
    assert used(host, made) == [refusal(what, why + without, remedy)]
    # A port that could not be read completely may have ACS.
    host.function("0000:12:00.0").config_bytes = 4095
    assert used(host, made) == [refusal(what, why, remedy)]
    host.function("0000:12:00.0").config_bytes = 4096
    host.function("0000:12:00.0").acs = Acs(0, 0)
    assert used(host, made) == [refusal(what, why, remedy)]
    host.function("0000:10:00.0").acs = host.function("0000:12:00.0").acs = None
    without = " (no ACS, which would split the group: port 0000:10:00.0, 0000:12:00.0)"
    assert used(host, made) == [refusal(what, why + without, remedy)]


def isolated(host: Host, made: Any, **holder: str) -> list[Finding]:
    host_devices = {address: name for name, address in holder.items()}
    return list(devices.isolation(made, HostDevices(host, {GPU: "gpu-vm", **host_devices})))


def weakened(control: int, off: str, neighbours: str) -> Finding:
    return refusal(
        f"ACS of port 0000:10:00.0 above GPU {GPU} is weakened (ACSCtl {control:#04x}, without {off})",
        f"devices of virtual machine {neighbours} are below the same switch or port, and each virtual machine could "
        "write to the other's devices",
        "turn ACS on (gpu_host_acs), or assign all devices of that switch to one virtual machine",
    )


@pytest.mark.parametrize(
    ("capability", "control", "off"),
    [
        (0x5F, 0x1D, None),
        (0x5F, 0x5D, None),
        (0x5F, 0x1C, "0x01"),
        (0x5F, 0x19, "0x04"),
        (0x5F, 0x15, "0x08"),
        (0x5F, 0x0D, "0x10"),
        (0x5F, 0x00, "0x1d"),
        # Bits that the port does not have, or that do not isolate.
        (0x1C, 0x1C, None),
        (0x5F, 0x1F, None),
        (0x00, 0x00, None),
    ],
)
def test_each_isolating_bit_that_is_off_is_refused_beside_another_machine(capability, control, off):
    host = lab()
    made = one_gpu(host)
    host.function("0000:10:00.0").acs = Acs(capability, control)
    assert isolated(host, made, b=NIC) == ([weakened(control, off, "b")] if off else [])
    # Nobody else is below the port.
    assert isolated(host, made) == []
    assert isolated(host, made, b=VF) == []
    assert isolated(host, made, **{"gpu-vm": NIC}) == []
    assert isolated(host, made, b="0000:99:00.0") == []


def test_a_port_is_named_once_and_all_neighbours_with_it():
    host = lab()
    extra = [replace(host.function(NIC), address=f"0000:14:00.{number}", iommu_group=None) for number in (1, 2)]
    host.functions += extra
    made = plan(host, gpus={"addresses": [GPU]}, nics={"addresses": [NIC]}, vcpus=2)
    host.function("0000:10:00.0").acs = Acs(0x5F, 0)
    found = isolated(host, made, c="0000:14:00.1", b="0000:14:00.2")
    assert found == [weakened(0, "0x1d", "b, c")]


def lost(host: Host, made: Any) -> list[Finding]:
    return [item for item in devices.losses(made, HostDevices(host)) if "ats has no effect:" not in str(item)]


def test_a_correct_plan_loses_nothing():
    host = lab()
    assert lost(host, one_gpu(host)) == []


def test_unknown_address_bits_are_a_warning():
    host = lab()
    host.cpu.physical_address_bits = None
    assert lost(host, one_gpu(host)) == [
        warning(
            "the host's physical address bits are not known",
            "whether a window of 32 GiB for large BARs fits could not be checked",
            "read the topology on the host itself",
        )
    ]


def test_devices_whose_node_is_unknown_are_a_warning():
    host = lab()
    for function in host.functions:
        if function.root_complex == "pci0000:80":
            function.numa_node = None
    host.root_complexes[2].numa_node = None

    def told(what: str) -> list[Finding]:
        return [
            warning(
                f"the host does not report which NUMA node {what} on",
                "its cells are on node 0, and it is not known which of them is near a device",
                "look for a BIOS setting or update that gives root bridges their node (_PXM), or choose with "
                "numa_nodes",
            )
        ]

    both = plan(host, gpus={"addresses": [GPU, GPU2]}, nics={}, vcpus=2)
    assert lost(host, both) == told(f"{GPU2} is")
    three = plan(host, gpus={"addresses": [GPU, GPU2]}, nics={"addresses": ["0000:84:00.0"]}, vcpus=2)
    assert lost(host, three) == told(f"{GPU2}, 0000:84:00.0 are")


def test_gpus_of_several_models_are_a_warning_if_any_may_be_chosen_or_both_are():
    host = lab()
    host.function(GPU2).device_id = 0x1044

    def told(own: str) -> list[Finding]:
        return [
            warning(
                f"the GPUs of this host are of several models: 1 of 1af4:1043 ({GPU}), 1 of 1af4:1044 ({GPU2})",
                f"gpus.count takes those of one model; it gets {own}",
                "list those that are not GPUs under accelerators, or choose them with gpus.addresses, which can mix "
                "models",
            )
        ]

    assert lost(host, one_gpu(host)) == []
    assert lost(host, one_gpu(host, gpus={"count": 1})) == told("1 of 1af4:1043")
    assert lost(host, plan(host, gpus={"addresses": [GPU, GPU2]}, nics={})) == told("1 of 1af4:1043, 1 of 1af4:1044")
    none = one_gpu(host, gpus={}, nics={"addresses": [NIC]})
    assert lost(host, none) == []
    none.spec.gpus.count = 1
    assert lost(host, none) == told("none")


def test_virtual_functions_are_no_second_model_beside_their_gpus():
    host = with_vfs(hgx(switches=0), 6)
    for functions in ("pf", "vf"):
        (made,) = plan_domains(host, parse_specs([vm("a", 0, gpus={"count": 2, "functions": functions})]))
        assert [item for item in devices.losses(made, HostDevices(host)) if "models" in item.what] == []


def ats(host: Host, made: Any) -> list[Finding]:
    return [item for item in devices.losses(made, HostDevices(host)) if item.what.startswith("ats")]


WITHOUT = warning(
    "ats has no effect",
    "none of its devices has the ATS capability, and virtio devices translate through guest_iommu only",
    "turn ATS on in the NIC's firmware (gpu_host_nic_firmware), or set ats: false",
)


def with_nic(host: Host, **more: Any) -> Any:
    return one_gpu(host, nics={"addresses": [NIC]}, **more)


def test_ats_without_a_capable_device_is_a_warning_unless_the_guest_translates():
    host = lab()
    for function in host.functions:
        function.ats = None
    assert ats(host, with_nic(host)) == [WITHOUT]
    assert ats(host, one_gpu(host)) == []
    assert ats(host, with_nic(host, ats=False)) == []
    assert ats(host, with_nic(host, guest_iommu=True)) == []
    host.function(GPU).ats = Ats(False, 0)
    assert ats(host, with_nic(host)) == []
    # Without config space, nothing is known of ATS.
    host.function(GPU).ats = None
    for function in host.functions:
        function.config_bytes = 0
    assert ats(host, with_nic(host)) == []


def test_a_port_that_blocks_the_translated_requests_of_a_nic_is_a_warning():
    host = lab()
    for address in ("0000:12:00.0", "0000:12:01.0"):
        host.function(address).acs = Acs(0x5F, 0x1D)
    host.function(NIC).ats = Ats(True, 0)
    both = {"gpus": {"addresses": [GPU]}, "nics": {"addresses": [NIC]}, "vcpus": 2, "memory_mib": 1024}
    assert ats(host, plan(host, **both)) == [
        warning(
            f"ats has no effect on peer-to-peer traffic through port 0000:12:01.0 above NIC {NIC}",
            "its ACS does not let translated requests go straight (direct translated P2P), so they go to the root "
            "complex and back",
            "set it with the role gpu_host (gpu_host_acs: auto)",
        )
    ]
    for acs in (Acs(0x5F, 0x5D), Acs(0x1F, 0x1D), None):
        host.function("0000:12:01.0").acs = acs
        assert ats(host, plan(host, **both)) == []
    host.function("0000:12:01.0").acs = Acs(0x5F, 0x1D)
    # A NIC that cannot make such requests.
    host.function(NIC).ats = None
    assert ats(host, plan(host, **both)) == []


def test_a_port_above_a_nic_without_ats_is_no_warning_about_another_nic():
    host = lab()
    for address in ("0000:12:00.0", "0000:12:01.0", "0000:82:00.0", "0000:82:01.0"):
        host.function(address).acs = Acs(0x5F, 0x5D)
    host.function("0000:82:01.0").acs = Acs(0x5F, 0x1D)
    host.function(NIC).ats = host.function(GPU2).ats = Ats(True, 0)
    host.function("0000:84:00.0").ats = None
    both = {"gpus": {"addresses": [GPU, GPU2]}, "nics": {"addresses": [NIC, "0000:84:00.0"]}}
    assert ats(host, plan(host, **both)) == []
    host.function("0000:84:00.0").ats = Ats(True, 0)
    assert [item.what.rpartition("port ")[2] for item in ats(host, plan(host, **both))] == [
        "0000:82:01.0 above NIC 0000:84:00.0"
    ]


def test_ats_that_the_kernel_turns_off_is_a_warning():
    host = lab()
    host.kernel_arguments.append("pci=realloc,noats")
    made = one_gpu(host)
    (found,) = [item for item in devices.losses(made, HostDevices(host)) if "ats" in item.what]
    assert (found.severity, "pci=noats" in found.why) == (WARN, True)
    assert [item for item in devices.losses(one_gpu(host, ats=False), HostDevices(host)) if "ats" in item.what] == []
