# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims about what ports and NICs counted while traffic ran."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import BY_PRIORITY, COUNTERS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.traffic import (
    counted_lines,
    traffic_claims,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

POLICY = read_policy({"classes": {"roce": {"mode": "lossy"}}})
PORTS = ("p1", "p2")


def port(**counts: int | None) -> dict[str, Any]:
    """Return the differences of a port of which all counters are known; ``counts`` are those of queue 3."""
    return {counter: [0, 0, 0, counts.get(counter, 0), 0, 0, 0, 0] for counter in COUNTERS}


def claim_of(device: str, result: Any, system: str = "linux") -> Claim:
    switches = {"leaf1": {"system": system, "ports": {name: {} for name in PORTS}}}
    (claim,) = traffic_claims(POLICY, switches, {device: result})
    claim.check()
    return claim


def switch(p1: Any, p2: Any, system: str = "linux", **unknown: str) -> Claim:
    return claim_of("leaf1", {"differences": {"p1": p1, "p2": p2, "mgmt": port(dropped=7)}, "unknown": unknown}, system)


def test_a_queue_that_marks_and_drops_nothing_holds():
    claim = switch(port(ecn_marked=5), port(ecn_marked=1))
    assert (claim.holds, claim.seen["marked"], claim.seen["lost"]) == (True, 6, 0)


def test_a_queue_that_drops_fails_and_names_its_port():
    claim = switch(port(ecn_marked=5), port(dropped=2))
    assert (claim.holds, claim.seen["lost"]) == (False, 2)
    assert "p2" in claim.reason
    assert "p1" not in claim.reason


@pytest.mark.parametrize(
    ("p1", "unknown", "fact"),
    [
        (port(), {}, "no packet was marked"),
        (port(ecn_marked=5, dropped=None), {}, "p1"),
        (port(ecn_marked=None), {"ecn_marked": "no answer to `tc`"}, "no answer to `tc`"),
        ({}, {"dropped": "no answer to `tc`"}, "no answer to `tc`"),
    ],
)
def test_what_is_not_known_neither_holds_nor_fails(p1, unknown, fact):
    claim = switch(p1, port(), **unknown)
    assert claim.holds is None
    assert fact in claim.reason


@pytest.mark.parametrize("counts", [{"ecn_marked": 5}, {"dropped": 5}])
def test_counters_that_were_never_seen_are_shown_and_not_judged(counts):
    claim = switch(port(**counts), port(), "eos")
    assert claim.holds is None
    assert 5 in claim.seen.values()
    assert "eos" in claim.reason


ODD = [[1], {"differences": [], "unknown": 3}, {"differences": {"p1": None}}]


@pytest.mark.parametrize(
    "result", [None, {}, {"msg": "unreachable"}, {"counters": {}, "unknown": {"a": "no tc"}}, *ODD]
)
@pytest.mark.parametrize("device", ["leaf1", "gpu1"])
def test_a_device_without_a_second_reading_is_not_measured(device, result):
    claim = claim_of(device, result)
    assert claim.holds is None
    assert ("unreachable" in claim.reason) == ("unreachable" in str(result))
    assert counted_lines({device: result}) == []


NIC = {"out_of_sequence": 0, "roce_dropped": None, "dropped_by_port": 0, "cnp_handled": 3, "ecn_marked_received": None}


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ({}, True),
        ({"out_of_sequence": 1}, False),
        ({"dropped_by_port": 9, "cnp_handled": 0}, False),
        ({"cnp_handled": 0}, None),
        ({"cnp_handled": None}, None),
        ({"out_of_sequence": None}, None),
    ],
)
def test_a_nic_is_judged_by_its_losses_and_marks(counts, holds):
    differences = {"mlx5_0": {**NIC, **counts, **dict.fromkeys(BY_PRIORITY, [0] * 8)}}
    assert claim_of("gpu1", {"differences": differences, "unknown": {}}).holds is holds


def test_what_ports_counted_is_shown_with_drops_first():
    ports = {f"p{number}": port(ecn_marked=number) for number in range(1, 31)}
    lines = counted_lines(
        {
            "leaf1": {"differences": {**ports, "p0": port(), "p31": port(dropped=1)}},
            "gpu1": {"differences": {"mlx5_0": NIC}},
            "gpu2": None,
        }
    )
    assert "leaf1 p31: dropped [3] 1" in lines[1]
    assert len(lines) == 22
    assert "12 others" in lines[-1]
    assert counted_lines({"leaf1": {"differences": {"p0": port()}}}) == []
