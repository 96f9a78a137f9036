# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gpu_acceptance_proof for runs whose output is made up."""

from __future__ import annotations

import json

import pytest
import tool_outputs as printed
from acceptance_runs import board, gpus, rail, ran
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import BARE_METAL
from ansible_collections.sailloft.fleet.plugins.modules import gpu_acceptance_proof

NODES, RAIL = "all_reduce_perf over several nodes", "ib_write_bw, rail 1, GPU memory"


@pytest.fixture
def prove(call, tmp_path):
    """Return a function that proves with changed arguments and returns the result and {claim: its JSON}."""
    host = board(BARE_METAL)

    def once(check_mode=False, **changes):
        given = {
            "path": str(tmp_path / "proofs"),
            "name": "a",
            "machine": "bare_metal",
            "topology": host.to_dict(),
            "nvbandwidth": ran(printed.nvbandwidth(gpus(host), [55.0] * 8)),
            "nccl": ran(printed.nccl(478.0)),
            "nccl_nodes": ran(printed.nccl(80.0)),
            "rails": [
                {
                    "run": ran(printed.perftest(394.0), port_gbit_s=400.0, gpu_memory=True),
                    "rail": rail(host, number),
                    "server_topology": host.to_dict(),
                }
                for number in (0, 1)
            ],
        }
        result = call(gpu_acceptance_proof, {**given, **changes}, check_mode)
        written = tmp_path / "proofs/acceptance-a.json"
        claims = json.loads(written.read_text())["claims"] if written.exists() else []
        return result, {claim["claim"]: claim for claim in claims if claim["layer"] == "acceptance"}

    return once


def test_the_runs_of_all_tools_are_judged(prove):
    result, claims = prove()
    copies = [f"{way}_memcpy_ce, GPU {gpu}" for way in ("device_to_host", "host_to_device") for gpu in range(8)]
    assert sorted(claims) == sorted(
        [
            "all_reduce_perf within the node",
            NODES,
            "device_to_device_memcpy_read_ce, the slowest of 56 pairs of GPUs",
            *copies,
            "ib_write_bw, rail 0, GPU memory",
            RAIL,
        ]
    )
    assert (result["changed"], result["holds"]) == (True, True)
    assert claims["all_reduce_perf within the node"]["seen"] == {"GB/s": 478.0}
    # Two ports of 400 Gbit/s are 100 GB/s.
    assert (claims[NODES]["wanted"], claims[NODES]["seen"]) == ({"at least GB/s": 75.0}, {"GB/s": 80.0})
    assert claims[RAIL]["source"] == "ib_write_bw, a mlx5_1 to b mlx5_1"


def test_check_mode_judges_and_writes_nothing(prove):
    result, claims = prove(check_mode=True)
    assert (result["changed"], result["holds"], claims) == (True, True, {})


@pytest.mark.parametrize("ports", [[400.0, None], [None, None], []])
def test_a_collective_is_not_judged_unless_the_rate_of_each_port_is_known(prove, ports):
    host = board(BARE_METAL)
    rails = [
        {"run": ran(printed.perftest(394.0), port_gbit_s=rate), "rail": rail(host, number)}
        for number, rate in enumerate(ports)
    ]
    claim = prove(rails=rails)[1][NODES]
    assert (claim["holds"], claim["reason"]) == (
        None,
        "measured, not judged: the rate of a NIC's port is not known",
    )


NO_LOSS = {"out_of_sequence": 0, "dropped_by_port": 0, "ecn_marked_received": 7, "pause_received": [0, 0, 0, 5, None]}


@pytest.mark.parametrize(
    ("sender", "receiver", "holds"),
    [
        (NO_LOSS, NO_LOSS, [True, True]),
        (NO_LOSS, {**NO_LOSS, "out_of_sequence": 3}, [True, False]),
        ({**NO_LOSS, "roce_dropped": 1}, {**NO_LOSS, "dropped_by_port": None}, [False, True]),
        (dict.fromkeys(NO_LOSS), None, [None]),  # a driver that counts nothing, and a NIC of InfiniBand
    ],
)
def test_the_nics_of_a_measured_rail_must_have_lost_no_packets(prove, sender, receiver, holds):
    host = board(BARE_METAL)
    counters = [{"mlx5_0": values} if values else {} for values in (sender, receiver)]
    rails = [{"run": ran(printed.perftest(394.0), port_gbit_s=400.0), "rail": rail(host)}]
    claims = [claim for name, claim in prove(rails=rails, counters=counters)[1].items() if "loses" in name]
    assert [claim["holds"] for claim in claims] == holds
    if holds[0]:
        assert claims[0]["reason"] == Mentions("ECN", 7, "pauses", 5)
    unmeasured = {"status": "not measured", "reason": "it is not installed"}
    claims = prove(rails=[{**rails[0], "run": unmeasured}], counters=counters)[1]
    assert not [name for name in claims if "loses" in name]


def virtual():
    """Return the host of a guest, whose GPUs and NICs are bound to vfio-pci."""
    host = board()
    for item in host.functions:
        if item.kind in ("gpu", "nic"):
            item.driver = "vfio-pci"
    return host


SLOW = "27% of 100.0 GB/s of a node's NICs; "


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "no known cause was found on this host"),
        ({"topology": board().to_dict()}, "ACS of port 0000:02:01.0 is 0011101, wanted xx000x0, "),
        ({"machine": "guest", "topology": board().to_dict()}, "no known cause was found on this host"),
        (
            {"machine": "guest", "host_topology": virtual().to_dict()},
            "ACS of port 0000:02:01.0 is 0011101, wanted 1x11101, ",
        ),
        ({"host_topology": virtual().to_dict()}, "no known cause was found on this host"),
    ],
)
def test_causes_are_those_of_the_node_or_of_the_host_of_a_guest(prove, changes, cause):
    result, claims = prove(nccl_nodes=ran(printed.nccl(27.0)), **changes)
    assert result["failed"] is True
    assert claims[NODES]["holds"] is False
    assert claims[NODES]["reason"].startswith(SLOW + cause)


def test_a_run_is_compared_with_its_baseline(prove, tmp_path):
    prove()
    baseline = tmp_path / "proofs/acceptance-a.json"
    (tmp_path / "earlier.json").write_bytes(baseline.read_bytes())
    result, _claims = prove(nccl=ran(printed.nccl(400.0)), baseline=str(tmp_path / "earlier.json"))
    assert result["failed"] is True
    assert "baseline" in result["msg"]
    assert "84% of the baseline's 478.00 GB/s" in baseline.read_text()


@pytest.mark.parametrize(
    ("text", "why"), [(None, "No such file or directory"), ("{", "Expecting property name enclosed in double quotes")]
)
def test_an_unreadable_baseline_is_refused(prove, tmp_path, text, why):
    place = tmp_path / "earlier.json"
    if text:
        place.write_text(text)
    message = prove(baseline=str(place))[0]["msg"]
    assert message.startswith(f"a: baseline {place}: ")
    assert why in message
    assert message.endswith("; give the JSON file that an earlier run of accept.yml wrote")


@pytest.mark.parametrize(("token", "holds"), [("p2pdma", True), ("nvfs", False)])
def test_gpudirect_storage_is_compared_with_the_node_s_settings(prove, tmp_path, token, holds):
    output = f"DRIVER CONFIGURATION:\nNVMe : {token}, compat\n"
    storage = {**ran(output), "mode": "p2pdma", "settings": {"properties.allow_compat_mode": False}}
    prove(storage=storage)
    claims = json.loads((tmp_path / "proofs/acceptance-a.json").read_text())["claims"]
    named = {claim["claim"]: claim["holds"] for claim in claims if claim["layer"] == "gpudirect storage"}
    assert named["cuFile uses p2pdma for NVMe drives"] is holds
    assert named["properties.allow_compat_mode is in force"] is False
