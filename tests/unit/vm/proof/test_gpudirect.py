# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_vm import evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import gpudirect

PAIRS = [("0000:13:00.0", "0000:14:00.1"), ("0000:83:00.0", "0000:84:00.1")]


def claims(change=lambda one: None):
    one = evidence()
    change(one)
    return gpudirect.pairs(one)


def test_each_gpu_with_its_nearest_nic_is_direct():
    found = claims()
    assert [claim.holds for claim in found] == [True, True]
    assert [f"GPU {gpu} and NIC {nic}" in claim.claim for claim, (gpu, nic) in zip(found, PAIRS)] == [True, True]
    assert {claim.seen for claim in found} == {
        "direct: PIX on the host, PIX in the guest, ATS yes, ACS 1011101, relaxed ordering on, MaxReadReq 4096, "
        "huge pages yes"
    }


def test_a_slow_pair_comes_first_with_cause_and_remedy_and_does_not_hold():
    worst, other = claims(lambda one: setattr(one.host.function("0000:82:01.0").acs, "control", 0x1D))
    assert (worst.holds, other.holds) == (None, True)
    assert PAIRS[1][1] in worst.claim
    assert "ACS of port 0000:82:01.0 is 0011101, wanted 1x11101" in worst.reason
    assert "remedy: gpu_host_acs: auto" in worst.reason


@pytest.mark.parametrize(
    ("host_bits", "guest_bits", "verdict"), [(39, 52, "slow"), (None, 52, "not known"), (48, None, "not known")]
)
def test_a_pair_is_not_direct_if_the_iommu_may_lack_addresses(host_bits, guest_bits, verdict):
    def change(one):
        one.host.iommu.address_bits, one.planned.address_bits = host_bits, guest_bits

    assert [(claim.holds, claim.seen.split(":")[0]) for claim in claims(change)] == [(None, verdict)] * 2


def test_a_pair_of_a_gpu_without_bars_is_not_known_to_be_direct():
    worst, other = claims(lambda one: setattr(one.host.function(PAIRS[1][0]), "bars", []))
    assert (worst.holds, other.holds) == (None, True)
    assert PAIRS[1][0] in worst.reason


def test_pairs_fail_if_the_guest_was_not_read():
    found = gpudirect.pairs(replace(evidence(), guest=None))
    assert {(claim.holds, claim.seen) for claim in found} == {(False, None)}


def test_a_pair_with_a_device_missing_in_the_guest_is_not_direct():
    def change(one):
        place = one.planned.guest_addresses()[PAIRS[0][1]]
        one.guest.functions = [item for item in one.guest.functions if item.address != place]

    assert [claim.holds for claim in claims(change)] == [None, True]


def test_there_is_no_pair_without_a_gpu():
    assert claims(lambda one: one.planned.chosen.by_setting.update(gpus=[])) == []
