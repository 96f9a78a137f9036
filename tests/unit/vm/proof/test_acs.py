# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from gpu_vm import evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import acs

NIC_PORT, GPU_PORT, NIC = "0000:12:01.0", "0000:12:00.0", "0000:14:00.1"


def claims(change):
    one = evidence()
    change(one.host)
    return acs.ports_and_groups(one)


def failed(found):
    return [claim.claim for claim in found if claim.holds is False]


def test_a_correct_server_fails_no_claim():
    found = acs.ports_and_groups(evidence())
    assert failed(found) == []
    (claim,) = [claim for claim in found if NIC_PORT in claim.claim]
    assert (claim.wanted, claim.seen) == ("1x11101", "1011101")
    assert len([claim for claim in found if claim.claim.startswith("IOMMU groups")]) == 2


@pytest.mark.parametrize("port", [NIC_PORT, GPU_PORT, "0000:10:01.0"])
@pytest.mark.parametrize("bit", [0, 2, 3, 4])
def test_each_missing_isolation_bit_of_a_port_fails_its_claim(port, bit):
    found = claims(lambda host: setattr(host.function(port).acs, "control", 0x5D & ~(1 << bit)))
    (name,) = failed(found)
    assert port in name


def test_the_kernels_default_is_enough_for_the_port_of_a_gpu():
    assert failed(claims(lambda host: setattr(host.function(GPU_PORT).acs, "control", 0x1D))) == []


def test_a_port_without_direct_translated_p2p_is_reported_with_its_cost():
    def change(host):
        host.function(NIC_PORT).acs.capability, host.function(NIC_PORT).acs.control = 0x1F, 0x1D

    (claim,) = [claim for claim in claims(change) if claim.holds is None]
    assert "0x40: requests that the IOMMU has translated go to the root complex and back" in claim.reason


def test_nic_and_gpu_in_one_group_fail():
    found = claims(lambda host: setattr(host.function(NIC), "iommu_group", host.function("0000:13:00.0").iommu_group))
    assert failed(found) == [f"IOMMU groups of {NIC} and GPU 0000:13:00.0 are different (inline)"]


def test_ats_of_a_nic_without_a_gpu_beside_it_is_not_applicable():
    one = evidence()
    chosen = one.planned.chosen.by_setting
    chosen["gpus"] = [item for item in chosen["gpus"] if item.address == "0000:83:00.0"]
    chosen["nics"] = [item for item in chosen["nics"] if item.address == NIC]
    (device,) = [item for item in one.planned.passed() if item.function.address == NIC]
    claim = acs.ats(one, device)
    assert (claim.holds, claim.reason) == (None, acs.ELSEWHERE)
    # NVIDIA's tool has the same rule: a capability that nothing uses must be off.
    assert failed(acs.ports_and_groups(one)) == [f"NIC {NIC} has no ATS capability (numa)"]


def test_translation_blocking_matters_only_where_translated_requests_pass():
    def blocking(port):
        return failed(claims(lambda host: setattr(host.function(port).acs, "control", 0x5F)))

    assert blocking(GPU_PORT) == blocking("0000:10:01.0") == []
    (name,) = blocking(NIC_PORT)
    assert NIC_PORT in name


@pytest.mark.parametrize(
    ("vendor", "config_bytes", "holds", "reason"),
    [
        (
            0x15B3,
            4096,
            False,
            "the firmware of an NVIDIA ConnectX NIC shows the ATS capability when ATS_ENABLED is 1",
        ),
        (0x8086, 4096, None, "8086:101e has no ATS capability"),
        (0x8086, 256, False, "only 256 bytes of its config space were read: read the host as root"),
    ],
)
def test_a_nic_without_ats_has_the_reason_of_its_vendor(vendor, config_bytes, holds, reason):
    one = evidence()
    function = one.host.function(NIC)
    function.ats, function.vendor_id, function.config_bytes = None, vendor, config_bytes
    (device,) = [item for item in one.planned.passed() if item.function.address == NIC]
    claim = acs.ats(one, device)
    assert (claim.wanted, claim.seen, claim.holds, claim.reason) == (True, None, holds, reason)


@pytest.mark.parametrize(("enabled", "seen"), [(True, True), (False, False), (None, None)])
def test_ats_of_a_nic_without_a_gpu_beside_it_is_told(enabled, seen):
    one = evidence()
    one.planned.chosen.by_setting["gpus"] = [one.host.function("0000:83:00.0")]
    one.planned.chosen.by_setting["nics"] = [one.host.function(NIC)]
    function = one.host.function(NIC)
    if enabled is None:
        function.ats = None
    else:
        function.ats.enabled = enabled
    (device,) = [item for item in one.planned.passed() if item.function.address == NIC]
    claim = acs.ats(one, device)
    assert (claim.wanted, claim.seen, claim.holds) == (True, seen, None)
