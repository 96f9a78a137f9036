# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re

import pytest
import tool_outputs as printed
from acceptance_runs import board, gpus, rail, ran
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import judge, rails
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim


@pytest.mark.parametrize(
    ("measured", "limit", "share", "wanted", "severity_key"),
    [
        (None, 100.0, 0.5, 50.0, (1, 0.0)),
        (40.0, None, 0.5, None, (2, 0.0)),
        (40.0, 100.0, 0.5, 50.0, (0, 0.4)),
        (50.0, 100.0, 0.5, 50.0, (3, 0.5)),
    ],
)
def test_a_result_is_worse_the_smaller_its_share_is(measured, limit, share, wanted, severity_key):
    result = judge.BandwidthResult("x", measured, limit, share, "", "")
    assert (result.wanted, result.severity_key) == (wanted, severity_key)


def test_a_rate_at_the_limit_holds():
    (claim,) = judge.claims([judge.BandwidthResult("x", 50.0, 100.0, 0.5, "100.0 GB/s of y", "z")])
    assert claim == Claim(
        "acceptance", "x", {"at least GB/s": 50.0}, {"GB/s": 50.0}, True, "z", "50% of 100.0 GB/s of y"
    )


def test_a_rate_below_the_limit_fails_with_the_known_causes():
    slow = judge.BandwidthResult("x", 40.126, 100.0, 0.51234, "100.0 GB/s of y", "z", causes=("a", "b"))
    unexplained = judge.BandwidthResult("y", 40.0, 100.0, 0.5, "100.0 GB/s of y", "z")
    assert judge.claims([slow, unexplained]) == [
        Claim(
            "acceptance",
            "y",
            {"at least GB/s": 50.0},
            {"GB/s": 40.0},
            False,
            "z",
            "40% of 100.0 GB/s of y; no known cause was found on this host",
        ),
        Claim("acceptance", "x", {"at least GB/s": 51.23}, {"GB/s": 40.13}, False, "z", "40% of 100.0 GB/s of y; a; b"),
    ]


def test_results_that_are_not_judged_have_the_reason():
    host = board()
    (rail_claim, nccl_claim, copies) = (
        judge.claims([judge.of_rail(ran(printed.perftest(80.0)), rail(host), (host, host), ())]),
        judge.claims([judge.of_nccl(ran(printed.nccl(48.0)), None, ("cause",), "all_reduce_perf")]),
        judge.claims(judge.of_nvbandwidth(ran(printed.nvbandwidth(["0000:ff:00.0"], [55.0], None)), host)),
    )
    assert rail_claim == [
        Claim(
            "acceptance",
            "ib_write_bw, rail 0, host memory",
            "a number",
            {"GB/s": 10.0},
            None,
            "ib_write_bw, a mlx5_0 to b mlx5_0",
            "measured, not judged: the rate of the port is not known",
        )
    ]
    assert nccl_claim == [
        Claim(
            "acceptance",
            "all_reduce_perf",
            "a number",
            {"GB/s": 48.0},
            None,
            "nccl-tests all_reduce_perf",
            "measured, not judged: the rate of NVLink is not in the topology",
        )
    ]
    assert [(claim.claim, claim.seen, claim.reason) for claim in copies] == [
        (
            "device_to_device_memcpy_read_ce (Waived)",
            None,
            "not measured: nvbandwidth waived it",
        ),
        *(
            (
                f"{test}, GPU 0",
                {"GB/s": 55.0},
                Mentions("measured", "PCIe", "0000:ff:00.0"),
            )
            for test in ("device_to_host_memcpy_ce", "host_to_device_memcpy_ce")
        ),
    ]


def test_output_that_cannot_be_read_is_not_a_measurement():
    host = board()
    results = [
        *judge.of_nvbandwidth(ran("{}"), host),
        judge.of_nccl(ran(""), 50.0, (), "all_reduce_perf"),
        judge.of_rail(ran(""), rail(host, 1), (host, host), ()),
        *judge.of_nvbandwidth({}, host),
    ]
    assert [(result.what, result.measured, result.limit, result.source, result.reason) for result in results] == [
        (
            Mentions("GPUs", "copies"),
            None,
            None,
            "nvbandwidth",
            Mentions("KeyError('nvbandwidth"),
        ),
        (
            "all_reduce_perf",
            None,
            None,
            "nccl-tests all_reduce_perf",
            Mentions("bounds"),
        ),
        (
            "ib_write_bw, rail 1, host memory",
            None,
            None,
            "ib_write_bw, a mlx5_1 to b mlx5_1",
            Mentions("BW"),
        ),
        (Mentions("GPUs", "copies"), None, None, "nvbandwidth", Mentions("tool")),
    ]
    (claim,) = judge.claims(results[-1:])
    assert (claim.wanted, claim.seen, claim.holds) == ("a number", None, None)


def test_a_copy_to_a_gpu_without_an_address_is_not_judged():
    text = printed.nvbandwidth(["0000:ff:00.0"], [55.0, 54.0], None)
    results = judge.of_nvbandwidth(ran(text), board())
    assert [result.basis for result in results[:2]] == [
        Mentions("PCIe", "0000:ff:00.0"),
        Mentions("PCIe"),
    ]


def test_the_slowest_pair_of_gpus_is_named():
    host = board()
    addresses = gpus(host)[:3]
    results = judge.of_nvbandwidth(ran(printed.nvbandwidth(addresses, [55.0] * 3)), host)
    assert [result for result in results if result.limit is None] == [
        judge.BandwidthResult(
            "device_to_device_memcpy_read_ce, the slowest of 6 pairs of GPUs",
            391.0,
            None,
            1,
            "the rate of NVLink is not in the topology",
            "nvbandwidth, GPU 0 and 1",
        )
    ]


def test_copies_have_the_link_rate_as_their_limit():
    host = board()
    address = gpus(host)[0]
    result = judge.of_nvbandwidth(ran(printed.nvbandwidth([address], [55.0], None)), host)[0]
    assert result.limit == pytest.approx(63.015, abs=0.001)
    assert (result.what, result.measured, result.share, result.basis, result.causes) == (
        "host_to_device_memcpy_ce, GPU 0",
        55.0,
        judge.COPY_SHARE,
        Mentions("63.0", "GB/s", "PCIe", address),
        (),
    )
    host.function(address).link.width = 8
    narrow = judge.of_nvbandwidth(ran(printed.nvbandwidth([address], [55.0], None)), host)[0]
    assert narrow.causes == (Mentions(address, "8", "16"),)
    for width, most in ((None, 16), (8, None), (16, 16)):
        host.function(address).link.width, host.function(address).link.max_width = width, most
        assert judge.of_nvbandwidth(ran(printed.nvbandwidth([address], [55.0], None)), host)[0].causes == ()


@pytest.mark.parametrize(
    ("gpu_memory", "slow", "limit", "name"),
    [
        (True, ("client", "gpu"), judge.COPY_SHARE * 31.5077, "PCIe link of {} of a"),
        (True, ("server", "nic"), judge.COPY_SHARE * 31.5077, "PCIe link of {} of b"),
        (False, ("server", "nic"), judge.COPY_SHARE * 31.5077, "PCIe link of {} of b"),
        (False, ("client", "gpu"), 50.0, "port"),
    ],
)
def test_a_rail_is_compared_with_its_slowest_link_of_both_ends(gpu_memory, slow, limit, name):
    """Equal nodes have devices with equal addresses."""
    hosts = {"client": board(), "server": board()}
    ends = {**rails.between(hosts["client"], hosts["server"])[0], "from": "a", "to": "b"}
    end, part = slow
    address = ends[end][part]
    hosts[end].function(address).link.max_speed_gt_s = 16.0
    run = ran(printed.perftest(394.0), port_gbit_s=400.0, gpu_memory=gpu_memory)
    result = judge.of_rail(run, ends, (hosts["client"], hosts["server"]), ("cause",))
    assert result.limit == pytest.approx(limit, abs=0.001)
    assert result.basis == f"{limit:.1f} GB/s of the {name.format(address)}"
    assert (result.share, result.causes) == (judge.PORT_SHARE, ("cause",) if gpu_memory else ())
    assert result.what == f"ib_write_bw, rail 0, {'GPU' if gpu_memory else 'host'} memory"


def test_a_rail_without_topologies_is_compared_with_its_port():
    ends = {**rail(board()), "client": {"device": "x", "nic": None, "gpu": None}}
    result = judge.of_rail(ran(printed.perftest(80.0), port_gbit_s=100.0, gpu_memory=True), ends, (board(), None), ())
    assert (result.measured, result.limit, result.basis) == (10.0, 12.5, "12.5 GB/s of the port")


def test_the_collective_has_the_rate_of_all_ports_as_its_limit():
    result = judge.of_nccl(ran(printed.nccl(48.0)), 50.0, ("cause",), "all_reduce_perf")
    assert result == judge.BandwidthResult(
        "all_reduce_perf", 48.0, 50.0, 0.75, "50.0 GB/s of a node's NICs", "nccl-tests all_reduce_perf", "", ("cause",)
    )


def test_rates_are_compared_with_the_baseline_the_worst_share_first():
    def result(what, measured, *causes):
        return judge.BandwidthResult(what, measured, None, 1, "x", "tool", causes=causes)

    results = [
        result("same", 95.0),
        result("worse", 94.0, "a", "b"),
        result("new", 1.0),
        result("unmeasured", None),
        result("zero", 1.0),
        result("also worse", 94.0),
    ]
    baseline = {"same": 100.0, "worse": 100.0, "unmeasured": 1.0, "zero": 0.0, "also worse": 100.0}
    layer = judge.BASELINE_LAYER
    found = [claim for claim in judge.claims(results, baseline) if claim.layer == layer]
    limit, ratio = {"at least GB/s": 95.0}, "94% of the baseline's 100.00 GB/s"
    assert found == [
        Claim(layer, "also worse", limit, {"GB/s": 94.0}, False, "tool", ratio),
        Claim(layer, "worse", limit, {"GB/s": 94.0}, False, "tool", f"{ratio}; a; b"),
        Claim(layer, "same", limit, {"GB/s": 95.0}, True, "tool", "95% of the baseline's 100.00 GB/s"),
        Claim(layer, "new", "a number", None, None, "tool", "the baseline did not measure it"),
        Claim(layer, "zero", "a number", None, None, "tool", "the baseline did not measure it"),
    ]
    assert [claim.layer for claim in judge.claims(results)] == ["acceptance"] * 6


def test_known_causes_are_those_of_gpus_and_nics_the_worst_first():
    host = board()
    causes = judge.known_causes(host, guest=True)
    assert len(causes) == len(set(causes)) > 0
    assert all(re.fullmatch(r".+, which costs: .+; remedy: .+", cause) for cause in causes)
    for function in host.functions:
        if function.driver == "vfio-pci":
            function.driver = None
    assert judge.known_causes(host, guest=True) == ()
    assert judge.known_causes(host, guest=False) != ()
