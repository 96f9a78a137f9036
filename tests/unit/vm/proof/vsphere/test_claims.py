# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof on vSphere, with vCenter's part from the simulator and a made-up guest, and the faults that break it."""

from __future__ import annotations

import copy

import pytest
from messages import raises
from simulated_vcenter import esxi, serving, site
from vsphere_guest import guest, started
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import BootCheck
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest import nccl_topology

NCCL = {"NCCL_IB_TIMEOUT": "22"}


@pytest.fixture(scope="module")
def read():
    """The result of vsphere_gpu_vm_info for a running virtual machine with two GPUs and two virtual functions."""
    with serving(site(esxi(server(), "esx01"))) as vcenter:
        return started(vcenter)


@pytest.fixture
def whole(read) -> VsphereEvidence:
    topology, domain = read["hosts"][0]["topology"], copy.deepcopy(read["domains"][0])
    host = read_saved(topology)
    evidence = VsphereEvidence.of_domain(
        "esx01",
        topology,
        domain,
        guest=guest(host, domain["ways"]),
        guest_settings=BootCheck([]),
        nccl=dict(NCCL),
        nccl_settings="NCCL_IB_TIMEOUT=22\n",
        nccl_topology_asked=True,
    )
    evidence.guest_settings.max_read_request_bytes = dict.fromkeys(evidence.places().values(), 4096)
    text = nccl_topology.render(evidence.plan, host, evidence.guest, evidence.places())
    evidence.nccl_topology_file = text
    return evidence


def failed(claims: list[Claim]) -> list[str]:
    return [claim.claim for claim in claims if claim.holds is False]


def test_claims_hold_or_are_not_applicable_with_reason_and_cost(whole):
    claims = prove(whole)
    assert failed(claims) == []
    assert len([claim for claim in claims if claim.holds]) > 30
    assert {claim.layer for claim in claims} == {
        "bios", "nic_firmware", "hypervisor", "guest_xml", "guest_os", "gpudirect",
    }  # fmt: skip
    names = [claim.claim for claim in claims if claim.holds is None]
    for words in ("ACSCtl", "ATS is enabled", "MaxReadReq of the devices on the host", "(fidelity)", "other directly"):
        (claim,) = [claim for claim in claims if words in claim.claim][:1]
        assert claim.claim in names
        assert "cost: " in claim.reason
    assert claims == prove(whole)


def config(evidence, **changes):
    evidence.configuration.update(changes)


BREAKS = {
    "memory not reserved": (lambda e: config(e, memory_reservation_mib=0), ["all memory is reserved"]),
    "normal latency": (lambda e: config(e, latency_sensitivity="normal"), ["latency sensitivity"]),
    "no affinity": (lambda e: e.configuration["extra"].pop("numa.nodeAffinity"), ["on the planned host nodes"]),
    "P2P off": (lambda e: e.configuration["extra"].update({"pciPassthru.allowP2P": "FALSE"}), ["devices may reach"]),
    "a GPU is gone": (
        lambda e: e.configuration["devices"].pop(0),
        ["the virtual machine has fixed device 0000:13:00.0"],
    ),
    "differs from the plan": (lambda e: e.differences.append("networks: x"), ["vCenter has the virtual machine"]),
    "not active": (
        lambda e: setattr(e.host.function("0000:13:00.0").passthrough, "active", False),
        ["GPU 0000:13:00.0 is active for passthrough"],
    ),
    "passthrough not told": (
        lambda e: setattr(e.host.function("0000:13:00.0"), "passthrough", None),
        ["GPU 0000:13:00.0 is active for passthrough"],
    ),
    "a virtual function is gone": (
        lambda e: [item.sriov.vfs.clear() for item in e.host.functions if item.sriov],
        ["is a virtual function of its NIC now"] * 2,
    ),
    "a device on the other node": (
        lambda e: setattr(e.guest.function("0000:03:00.0"), "numa_node", 1),
        ["is on guest NUMA node 0", "NCCL topology file is the plan's"],
    ),
    "node not told in the guest": (
        lambda e: setattr(e.guest.function("0000:03:00.0"), "numa_node", None),
        ["is on guest NUMA node 0"],
    ),
    "a small memory window": (
        lambda e: setattr(e.guest.function("0000:03:00.0").bars[0], "size_bytes", 1 << 28),
        ["has its large memory window"],
    ),
    "CPUs of a node": (
        lambda e: setattr(e.guest.numa_nodes[0], "cpus", [0]),
        ["guest NUMA node 0 has its CPUs", "NCCL topology file is the plan's"],
    ),
    "MaxReadReq": (
        lambda e: setattr(e.guest.function("0000:03:00.0"), "max_read_request_bytes", 512),
        ["MaxReadReq of GPU"],
    ),
    "NCCL's settings": (lambda e: setattr(e, "nccl_settings", ""), ["NCCL has its settings"]),
    "NCCL's file is flat": (
        lambda e: setattr(e, "nccl_topology_file", '<system version="1">\n</system>\n'),
        ["NCCL topology file is the plan's", "as near in NCCL's topology file"],
    ),
    "NCCL's file is not there": (
        lambda e: setattr(e, "nccl_topology_file", ""),
        ["NCCL topology file is the plan's", "as near in NCCL's topology file"],
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_fault_fails_its_claims_and_no_others(whole, name):
    breaks, words = BREAKS[name]
    breaks(whole)
    found = failed(prove(whole))
    assert len(found) == len(words), found
    for word in words:
        assert any(word in claim for claim in found), (word, found)


def test_a_requested_device_group_has_a_claim(whole):
    whole.plan.configuration["device_group"] = "Nvidia:2@nvlink"
    assert failed(prove(whole)) == ["the devices are a device group"]
    config(whole, device_group="Nvidia:2@nvlink")
    assert failed(prove(whole)) == []


def test_claims_about_the_guest_do_not_hold_if_it_was_not_read(whole):
    before = [claim.claim for claim in prove(whole) if claim.holds]
    whole.guest = whole.guest_settings = whole.nccl_settings = whole.nccl_topology_file = None
    claims = {claim.claim: claim for claim in prove(whole)}
    held = [claim for claim in before if claims[claim].holds]
    assert not any("in the guest" in claim or "NCCL" in claim or "guest NUMA node" in claim for claim in held)
    assert "GPU 0000:13:00.0 is in the guest" in failed(list(claims.values()))


def test_devices_with_unknown_slots_fail_their_claims(whole):
    whole.ways = {}
    found = failed(prove(whole))
    # There are two GPUs and two virtual functions, each two of one model.
    assert sum(claim.endswith(" is in the guest") for claim in found) == 4
    assert "the guest's NCCL topology file is the plan's" in found


def test_a_missing_virtual_machine_fails_its_claims(read, whole):
    domain = {**read["domains"][0], "exists": False, "configuration": None, "ways": {}, "state": "absent"}
    evidence = VsphereEvidence.of_domain("esx01", whole.host.to_dict(), domain)
    claims = prove(evidence)
    assert not any(claim.holds for claim in claims if claim.layer == "guest_xml")
    assert "all memory is reserved, in MiB" in failed(claims)


def test_a_virtual_machine_without_a_plan_is_refused_with_the_reason(read):
    domain = {**read["domains"][0], "plan": None, "unplanned": "requests 9 GPUs, and 2 are there; request fewer"}
    with raises(ProofError, "9 GPUs"):
        # The host of the machine was not read.
        VsphereEvidence.of_domain("esx01", {}, domain)
