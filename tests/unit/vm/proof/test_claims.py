# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims about devices, the guest, and the guest's pages."""

from __future__ import annotations

import copy
from dataclasses import replace

import gpu_vm
import pytest
from claims_found import failed, found, function, other_path
from gpu_vm import evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    BootCheck,
    Running,
    differences_of_domain,
)


def test_complete_evidence_proves_claims_of_every_layer():
    claims = prove(evidence())
    assert failed(claims) == []
    assert {claim.layer for claim in claims if claim.holds} == {
        "bios",
        "nic_firmware",
        "hypervisor",
        "guest_xml",
        "guest_os",
        "gpudirect",
    }
    # This VM has no guest IOMMU, and NVIDIA's driver needs no AtomicOps.
    assert [claim.claim for claim in claims if claim.holds is None] == [
        "the guest's IOMMU serves ATS (device IOTLB)",
        "GPU 0000:13:00.0 has PCIe AtomicOps in the guest",
        "GPU 0000:83:00.0 has PCIe AtomicOps in the guest",
    ]


def test_the_same_evidence_gives_the_same_claims():
    assert prove(evidence()) == prove(evidence())


UNREAD = {"guest": None, "nccl_settings": None, "nccl_topology_file": None}


def test_the_difference_of_a_topology_file_is_shown():
    one = evidence()
    one.nccl_topology_file = one.nccl_topology.replace('numaid="0"', 'numaid="1"')
    (claim,) = found(prove(one), "NCCL topology file")
    assert claim.seen == [
        "--- the plan's",
        "+++ the guest's",
        '-  <cpu numaid="0"/>',
        '+  <cpu numaid="1"/>',
    ]


def test_the_fidelity_claim_names_the_pairs_that_differ():
    one = evidence()
    (claim,) = found(prove(one), "(fidelity)")
    assert (claim.wanted, claim.seen, claim.holds) == ("6 of 6", "6 of 6", True)
    other_path(one)
    (claim,) = found(prove(one), "(fidelity)")
    assert claim.seen == [
        "3 of 6",
        "GPU 0000:13:00.0 and VF 0000:84:00.1: SYS on the host, PIX in the guest",
        "GPU 0000:83:00.0 and VF 0000:84:00.1: PIX on the host, NODE in the guest",
        "VF 0000:14:00.1 and VF 0000:84:00.1: SYS on the host, PIX in the guest",
    ]
    one.guest.functions = [item for item in one.guest.functions if item.address != "0000:64:00.0"]
    (claim,) = found(prove(one), "(fidelity)")
    assert claim.seen[0] == "3 of 6"
    assert all("not there in the guest" in line for line in claim.seen[1:])


def test_a_guest_that_was_not_read_fails_all_its_claims_and_omits_none():
    whole, without = prove(evidence()), prove(replace(evidence(), **UNREAD))
    assert [claim.claim for claim in whole] == [claim.claim for claim in without]
    for before, after in zip(whole, without):
        if before.source.startswith("guest") and before.holds is not None:
            assert (after.holds, after.seen) == (False, None), after
        else:
            assert after == before


def test_a_domain_that_was_not_read_fails_all_its_claims_and_omits_none():
    whole, without = prove(evidence()), prove(replace(evidence(), running=Running()))
    assert [claim.claim for claim in whole] == [claim.claim for claim in without]
    for before, after in zip(whole, without):
        if "QEMU" in before.source and before.holds is not None:
            assert (after.holds, after.seen) == (False, None), after


def test_huge_page_claims_fail_if_the_domain_has_no_memory_map():
    one = evidence()
    one.running.memory = []
    assert all(claim.holds is False for claim in found(prove(one), "lies in huge pages"))


def test_firmware_claims_are_not_applicable_without_a_connectx_nic():
    one = evidence()
    for each in one.host.functions:
        if each.vendor_id == 0x15B3:
            each.vendor_id = 0x8086
    claims = [claim for claim in prove(one) if claim.layer == "nic_firmware"]
    assert len(claims) == 4
    assert {claim.holds for claim in claims} == {None}
    assert {"no NVIDIA ConnectX NIC" in claim.reason for claim in claims} == {True}


def test_a_port_that_has_no_acs_by_design_is_not_applicable():
    one = evidence()
    port = function(one.host, "0000:12:00.0")
    port.vendor_id, port.device_id, port.acs = 0x104C, 0x8233, None
    (claim,) = found(prove(one), "switch port 0000:12:00.0")
    assert claim.holds is None
    assert "XIO3130" in claim.reason


def test_the_ats_claim_of_a_gpu_without_the_capability_is_not_applicable():
    one = evidence()
    gpu = function(one.host, "0000:13:00.0")
    gpu.ats, gpu.config_bytes = None, 4096
    (claim,) = found(prove(one), "ATS is enabled on GPU 0000:13:00.0")
    assert claim.holds is None
    assert claim.reason == "10de:2330 has no ATS capability"


@pytest.mark.parametrize("size_bytes", [0, 64, 256])
def test_the_ats_claim_fails_if_config_space_was_not_read_completely(size_bytes):
    one = evidence()
    gpu = function(one.host, "0000:13:00.0")
    gpu.ats, gpu.config_bytes = None, size_bytes
    claims = prove(one)
    assert failed(claims) == ["ATS is enabled on GPU 0000:13:00.0"]
    (claim,) = found(claims, "ATS is enabled on GPU 0000:13:00.0")
    assert claim.seen is None
    assert claim.reason == f"only {size_bytes} bytes of its config space were read: read the host as root"


def test_the_acs_claim_fails_for_a_bridge_that_could_not_be_read():
    one = evidence()
    port = function(one.host, "0000:12:00.0")
    port.acs, port.port_type, port.config_bytes = None, None, 64
    claims = prove(one)
    assert failed(claims) == ["switch port 0000:12:00.0 has the ACS capability"]
    assert found(claims, "switch port 0000:12:00.0 has")[0].seen is None


def test_a_conventional_pci_bridge_has_no_claim():
    one = evidence()
    port = function(one.host, "0000:12:00.0")
    port.acs, port.port_type, port.config_bytes = None, None, 256
    assert not [claim for claim in prove(one) if "0000:12:00.0" in claim.claim]


def test_the_bar_claim_fails_if_no_bars_were_read():
    one = evidence()
    function(one.host, "0000:13:00.0").bars = []
    function(one.guest, "0000:23:00.0").bars = []
    assert failed(prove(one)) == ["GPU 0000:13:00.0 has all its memory windows in the guest (BAR sizes)"]


def test_the_fidelity_claim_of_a_guest_with_one_device_is_not_applicable():
    one = evidence()
    one.planned.root.ports.pop()
    one.planned.root.ports[0].ports[0].ports[0].ports.pop()
    (claim,) = found(prove(one), "(fidelity)")
    assert (claim.holds, claim.reason) == (None, "vm1 has fewer than two devices, so no pair of them")


def test_a_domain_that_was_not_compared_is_a_difference():
    for key, kind in (("differences", "defined"), ("live_differences", "running")):
        assert differences_of_domain({**gpu_vm.domain(), key: None}) == [f"{kind}: it was not compared with its plan"]


def test_two_ports_of_a_nic_have_one_set_of_firmware_claims():
    one = evidence()
    second = copy.deepcopy(function(one.host, "0000:14:00.0"))
    second.address, second.sriov = "0000:14:00.7", None
    one.host.functions.append(second)
    assert failed(prove(one)) == []
    assert not found(prove(one), "NIC 0000:14:00.0: ATS is as")[1:]


def test_a_read_only_register_is_not_applicable_only_if_pci_tuning_reports_it():
    one = evidence()
    function(one.host, "0000:13:00.0").max_read_request_bytes = 128
    assert failed(prove(one)) == ["MaxReadReq of GPU 0000:13:00.0"]
    result = gpu_vm.on_host()
    # pci_tuning reports this for a register that kept its value after a write.
    result["outcomes"]["pci_tuning"]["devices"]["0000:13:00.0"] = {
        "max_read_request_bytes": 128,
        "not_writable": ["max_read_request_bytes"],
    }
    one.host_settings = BootCheck.of_result(result)
    claim = found(prove(one), "MaxReadReq of GPU 0000:13:00.0")[0]
    assert (claim.holds, claim.wanted, claim.seen) == (None, "4096 B", "128 B")
    assert "read-only" in claim.reason


@pytest.mark.parametrize(
    ("on_hypervisor", "name"), [("0000:13:00.0", "GPU 0000:13:00.0"), ("0000:14:00.0", "VF 0000:14:00.1")]
)
def test_the_guests_value_of_a_read_only_register_is_not_proof(on_hypervisor, name):
    one = evidence()
    one.host_settings.read_only = [on_hypervisor]
    (claim,) = found(prove(one), f"MaxReadReq of {name} in the guest")
    assert (claim.holds, claim.seen) == (None, "4096 B")
    assert "VFIO's copy" in claim.reason
    # A guest that was not read is no excuse, either.
    (claim,) = found(prove(replace(one, guest=None)), f"MaxReadReq of {name} in the guest")
    assert claim.holds is False
