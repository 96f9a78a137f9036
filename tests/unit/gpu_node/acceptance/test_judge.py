# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
import tool_outputs as printed
from acceptance_runs import board, gpus, rail, ran

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import judge, rails
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)

ABSENT = {"status": "not measured", "reason": "x is not installed"}


def test_each_nic_is_measured_with_the_gpu_below_its_switch():
    host = board()
    found = rails.of_node(host)
    assert len(found) == 8
    for one in found:
        assert host.function(one["nic"]).parent is not None
        assert host.path(one["nic"])[:-2][-1] == host.path(one["gpu"])[:-2][-1]
    assert len({one["gpu"] for one in found}) == 8


def test_a_node_without_gpus_is_measured_with_host_memory():
    host = board()
    host.functions = [item for item in host.functions if item.kind != "gpu"]
    assert {one["gpu"] for one in rails.of_node(host)} == {None}


def test_pcie_copies_are_compared_with_the_link_rate():
    host = board()
    output = printed.nvbandwidth(gpus(host)[:2], [55.1, 27.0])
    claims = judge.claims(judge.of_nvbandwidth(ran(output), host))
    slow = [claim for claim in claims if claim.holds is False]
    assert [claim.claim for claim in slow] == ["device_to_host_memcpy_ce, GPU 1", "host_to_device_memcpy_ce, GPU 1"]
    # 5.0 x16 is 63 GB/s: 32 GT/s, 128 of 130 bits, 16 lanes.
    assert slow[0].wanted == {"at least GB/s": 50.41}
    assert slow[0].seen == {"GB/s": 27.0}
    assert claims[:2] == slow
    assert [claim.holds for claim in claims[2:]] == [None, True, True]
    assert "NVLink" in claims[2].reason


def test_a_narrow_link_is_reported_as_the_cause():
    host = board()
    host.function(gpus(host)[0]).link.width = 8
    (claim, *_others) = judge.claims(judge.of_nvbandwidth(ran(printed.nvbandwidth(gpus(host)[:1], [27.0])), host))
    assert f"the link of {gpus(host)[0]} has 8 of 16 lanes" in claim.reason


def test_copies_over_an_unknown_link_are_measured_but_not_judged():
    host = board()
    host.function(gpus(host)[0]).link = None
    claims = judge.claims(judge.of_nvbandwidth(ran(printed.nvbandwidth(gpus(host)[:1], [55.0], None)), host))
    assert {claim.holds for claim in claims} == {None}
    assert any("measured, not judged" in claim.reason for claim in claims)


@pytest.mark.parametrize(
    ("gbit_s", "port", "holds"), [(394.2, 400.0, True), (200.0, 400.0, False), (394.2, None, None), (99.0, 100.0, True)]
)
def test_a_rail_is_compared_with_the_rate_of_its_port(gbit_s, port, holds):
    host = board()
    run = ran(printed.perftest(gbit_s), port_gbit_s=port, gpu_memory=True)
    (claim,) = judge.claims([judge.of_rail(run, rail(host), (host, host), ("cause; remedy: x",))])
    assert claim.holds is holds
    assert claim.source == "ib_write_bw, a mlx5_0 to b mlx5_0"
    assert ("cause; remedy: x" in claim.reason) == (holds is False)


def test_a_rail_with_a_slower_pcie_link_is_compared_with_that_link():
    host = board()
    for address in (rail(host)["client"]["gpu"], rail(host)["client"]["nic"]):
        host.function(address).link.max_speed_gt_s = 16.0
    run = ran(printed.perftest(210.0), port_gbit_s=400.0, gpu_memory=True)
    result = judge.of_rail(run, rail(host), (host, host), ())
    assert result.limit == pytest.approx(judge.COPY_SHARE * 31.5, rel=0.01)
    assert "PCIe link of" in result.basis


def test_a_rail_with_host_memory_has_no_gpudirect_causes():
    run = ran(printed.perftest(100.0), port_gbit_s=400.0, gpu_memory=False)
    result = judge.of_rail(run, rail(board()), (board(), board()), ("cause",))
    assert result.causes == ()
    assert "host memory" in result.what


@pytest.mark.parametrize(("bus", "holds"), [(48.0, True), (27.0, False)])
def test_the_collective_is_compared_with_the_rate_of_all_ports(bus, holds):
    # The figures are from NVIDIA/nccl#949: a node with two ports of 200 Gbit/s.
    (claim,) = judge.claims([judge.of_nccl(ran(printed.nccl(bus)), 50.0, ("cause",), "all_reduce_perf")])
    assert claim.holds is holds


def test_the_baseline_shows_a_loss_that_is_within_the_port_limit():
    # The figures are from NVIDIA/nccl-tests#380: a node with four ports of 400 Gbit/s, with 320 GB/s on bare metal and
    # 180 in VMs.
    result = judge.of_nccl(ran(printed.nccl(180.0)), 200.0, ("cause",), "all_reduce_perf")
    ports, compared = judge.claims([result], baseline={"all_reduce_perf": 320.0})
    assert (ports.holds, compared.holds) == (True, False)
    assert "56% of the baseline's 320.00 GB/s" in compared.reason


def test_a_result_with_wrong_values_is_not_a_measurement():
    (claim,) = judge.claims([judge.of_nccl(ran(printed.nccl(wrong=1)), 400.0, (), "all_reduce_perf")])
    assert claim.holds is None
    assert "1 wrong values" in claim.reason


def test_results_of_an_absent_tool_are_not_measured_and_not_judged():
    host = board()
    results = [
        *judge.of_nvbandwidth(ABSENT, host),
        judge.of_nccl(ABSENT, None, (), "all_reduce_perf"),
        judge.of_rail(ABSENT, rail(host), (host, host), ()),
    ]
    assert len(results) == 3
    for claim in judge.claims(results, baseline={}):
        assert claim.holds is None
        assert claim.reason == "not measured: x is not installed"


def test_the_worst_results_are_listed_first():
    host = board()
    results = [
        judge.of_rail(ran(printed.perftest(gbit), port_gbit_s=400.0), rail(host, number), (host, host), ())
        for number, gbit in enumerate((399.0, 100.0, 300.0))
    ]
    results += [
        judge.of_nccl(ABSENT, None, (), "all_reduce_perf"),
        judge.of_nccl(ran(printed.nccl()), None, (), "inside"),
    ]
    lines = [
        (claim.holds, claim.claim.split(",")[1] if "," in claim.claim else claim.claim)
        for claim in judge.claims(results)
    ]
    assert lines == [
        (False, " rail 1"),
        (False, " rail 2"),
        (None, "all_reduce_perf"),
        (None, "inside"),
        (True, " rail 0"),
    ]


def test_a_guest_is_compared_with_the_baseline_of_the_server():
    host = board()
    before = judge.claims(judge.of_nvbandwidth(ran(printed.nvbandwidth(gpus(host)[:2], [55.0, 55.0], 391.0)), host))
    results = judge.of_nvbandwidth(ran(printed.nvbandwidth(gpus(host)[:2], [54.0, 51.0], 200.0)), host)
    against = [claim for claim in judge.claims(results, judge.measured(before)) if claim.layer == judge.BASELINE_LAYER]
    assert [(claim.claim.split(",")[1], claim.holds) for claim in against] == [
        (" the slowest of 2 pairs of GPUs", False),
        *((" GPU 1", False),) * 2,
        *((" GPU 0", True),) * 2,
    ]
    assert against[0].reason.startswith("51% of the baseline's 391.00 GB/s")
    unknown = [claim for claim in judge.claims(results, {}) if claim.layer == judge.BASELINE_LAYER]
    assert {claim.holds for claim in unknown} == {None}


@pytest.mark.parametrize(("guest", "purpose"), [(True, VIRTUAL_MACHINES), (False, BARE_METAL)])
def test_known_causes_depend_on_the_purpose(guest, purpose):
    assert judge.known_causes(board(purpose), guest) == ()
    other = BARE_METAL if guest else VIRTUAL_MACHINES
    causes = judge.known_causes(board(other), guest)
    remedy = "gpu_host_acs: auto" if guest else "gpu_node_pci.acs: bare_metal"
    assert causes
    assert all(cause.startswith("ACS of port") and remedy in cause for cause in causes)


def test_a_guest_without_hypervisor_data_has_no_known_causes():
    assert judge.known_causes(None, guest=True) == ()


def test_a_link_with_all_its_lanes_is_not_reported_as_a_cause():
    host = board()
    (claim, *_others) = judge.claims(judge.of_nvbandwidth(ran(printed.nvbandwidth(gpus(host)[:1], [27.0])), host))
    assert claim.holds is False
    assert "lanes" not in claim.reason


def test_a_baseline_has_only_the_measured_rates_of_an_acceptance():
    of = judge.LAYER
    before = [
        Claim(of, "a", {"at least GB/s": 1}, {"GB/s": "48.5"}, True, "x"),
        Claim(of, "no number", "a number", "48.5 GB/s", None, "x", "not measured"),
        Claim(of, "another unit", "a number", {"GiB": 3}, True, "x"),
        Claim(judge.BASELINE_LAYER, "b", "a number", {"GB/s": 3}, True, "x"),
    ]
    assert judge.measured(before) == {"a": 48.5}
