# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpu_vm
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import of_each, once
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import (
    PlannedCell,
    PlannedDevice,
    VspherePlan,
)

GPU, NIC = "0000:83:00.0", "0000:14:00.1"


def evidence(*devices: str, cells: tuple[int, ...] = ()) -> VsphereEvidence:
    """Return evidence with these host addresses and cells in the plan, in this order."""
    planned = VspherePlan(
        "vm1",
        "esx01",
        [PlannedCell(cell, cell, 1024, [cell]) for cell in cells],
        [PlannedDevice(address, "gpu", None, None, [address]) for address in devices],
        {},
        [],
    )
    return VsphereEvidence("esx01", gpu_vm.host(), planned, None, None)


def kind(one: VsphereEvidence, function: Function) -> Claim:
    return compare("bios", f"kind of {function.address} on {one.host_name}", "gpu", function.kind, "vCenter")


def node(one: VsphereEvidence, function: Function) -> Claim:
    return compare("bios", f"node of {function.address} on {one.host_name}", 1, function.numa_node, "vCenter")


def memory(one: VsphereEvidence, cell: PlannedCell) -> Claim:
    return compare("guest_xml", f"memory of {cell.id} on {one.host_name}", 1024, cell.memory_mib, "vCenter")


def cpus(one: VsphereEvidence, cell: PlannedCell) -> Claim:
    return compare("guest_xml", f"CPUs of {cell.id} on {one.host_name}", [1], cell.vcpus, "vCenter")


def results(claims) -> list[tuple]:
    return [(claim.claim, claim.seen, claim.holds) for claim in claims]


def test_a_row_of_one_claim_is_about_the_virtual_machine():
    row = once(lambda one: compare("guest_xml", "it exists", "vm1", one.plan.name, "vCenter"))
    assert row(evidence()) == [Claim("guest_xml", "it exists", "vm1", "vm1", True, "vCenter")]


def test_each_device_has_all_claims_of_a_row_before_the_next_device():
    assert results(of_each(VsphereEvidence.functions, kind, node)(evidence(GPU, NIC))) == [
        (f"kind of {GPU} on esx01", "gpu", True),
        (f"node of {GPU} on esx01", 1, True),
        (f"kind of {NIC} on esx01", "nic", False),
        (f"node of {NIC} on esx01", 0, False),
    ]
    assert results(of_each(VsphereEvidence.functions, node)(evidence(NIC))) == [(f"node of {NIC} on esx01", 0, False)]


def test_each_cell_has_all_claims_of_a_row_before_the_next_cell():
    assert results(of_each(VsphereEvidence.cells, memory, cpus)(evidence(cells=(1, 0)))) == [
        ("memory of 1 on esx01", 1024, True),
        ("CPUs of 1 on esx01", [1], True),
        ("memory of 0 on esx01", 1024, True),
        ("CPUs of 0 on esx01", [0], False),
    ]


def test_a_row_without_devices_cells_or_claims_is_empty():
    assert of_each(VsphereEvidence.functions, kind, node)(evidence(cells=(0,))) == []
    assert of_each(VsphereEvidence.cells, memory, cpus)(evidence(GPU)) == []
    assert of_each(VsphereEvidence.functions)(evidence(GPU)) == []
    assert of_each(VsphereEvidence.cells)(evidence(cells=(0,))) == []


def test_a_planned_device_that_the_host_lacks_is_refused():
    with raises(TopologyError, "function 0000:99:00.0"):
        of_each(VsphereEvidence.functions, kind)(evidence(GPU, "0000:99:00.0"))
