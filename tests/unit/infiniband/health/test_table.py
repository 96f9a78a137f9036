# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Two readings of a fabric's counters give faults with their cause; what was not read is not healthy."""

from __future__ import annotations

import ib_sites
import pytest
from made_up_ports import counters, found
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import (
    from_stored,
    read_counters,
    stored,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import table
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan

SITE, GUIDS = ib_sites.small()
PLAN = plan(SITE, "compute", {}, GUIDS)
FOUND = found(PLAN.fabric)
HOUR_S = 3600
LEAF, SPINE, NODE = ("leaf-1-2", 4), ("spine-2", 2), ("node-2 mlx5_1", 1)
CABLE = "leaf-1-2 ib4 - spine-2 ib2"


def made(later, earlier=None, seconds=HOUR_S, unread=(), **others):
    first = read_counters(counters(earlier or {}), 0)
    return table(PLAN, others.pop("found", FOUND), first, read_counters(counters(later, unread), seconds), **others)


def parts(result):
    return {tuple(fault["links"]): fault["part"] for fault in result.faults}


def test_a_fabric_without_new_errors_is_healthy():
    old = {LEAF: {"SymbolErrorCounter": 60000, "LinkDownedCounter": 200}}
    result = made(old, old)
    assert (result.holds, result.healthy, result.lines) == (True, 16, [])


@pytest.mark.parametrize(
    ("later", "part", "cause"),
    [
        ({LEAF: {"SymbolErrorCounter": 500}, SPINE: {"SymbolErrorCounter": 300}}, "cable", Mentions(CABLE)),
        ({LEAF: {"LinkDownedCounter": 5}, SPINE: {"LinkDownedCounter": 5}}, "cable", Mentions(CABLE)),
        ({LEAF: {"SymbolErrorCounter": 500}}, "switch", Mentions("transmitter", "spine-2 ib2")),
        ({("leaf-1-2", 2): {"SymbolErrorCounter": 500}}, "HCA", Mentions("transmitter", "node-2 mlx5_1")),
        ({NODE: {"SymbolErrorCounter": 500}}, "switch", Mentions("transmitter", "leaf-1-2 ib2")),
        ({("leaf-1-2", 2): {"LinkDownedCounter": 5}}, "HCA", Mentions("node-2 mlx5_1", "reset")),
    ],
)
def test_the_cause_follows_from_the_ends_that_count(later, part, cause):
    (fault,) = made(later).faults
    assert (fault["part"], fault["cause"]) == (part, cause)


def test_most_links_of_one_switch_have_its_fault():
    result = made({("spine-1", number): {"SymbolErrorCounter": 500} for number in (1, 2, 3)})
    (fault,) = result.faults
    assert (fault["part"], len(fault["links"]), fault["cause"]) == (
        "switch",
        3,
        Mentions("switch spine-1", "3 of its 4"),
    )
    assert result.faulty == 3


def test_an_end_that_did_not_answer_is_not_said_to_count_nothing():
    result = made({LEAF: {"SymbolErrorCounter": 500}}, unread=[SPINE, ("node-1 mlx5_0", 1)])
    (fault,) = result.faults
    assert fault["cause"] == Mentions("spine-2 ib2", "did not answer")
    # The other link whose port did not answer.
    assert (result.faulty, result.unknown, result.healthy, result.holds) == (1, 1, 14, False)


def test_a_restarted_node_is_no_fault_and_a_counter_that_began_anew_counts_whole():
    nodes_restart = {("leaf-1-2", 2): {"LinkDownedCounter": 1}}
    assert made(nodes_restart, {NODE: {"LinkDownedCounter": 4}}).holds
    result = made({LEAF: {"SymbolErrorCounter": 200}}, {LEAF: {"SymbolErrorCounter": 5000}})
    assert len(result.faults) == 1


def test_the_average_is_judged_over_a_time_longer_than_that_of_the_limit():
    errors = {LEAF: {"SymbolErrorCounter": 500}}
    assert made(errors, seconds=24 * HOUR_S).holds
    assert not made(errors, seconds=2 * HOUR_S).holds
    assert not made(errors, seconds=60).holds


def test_a_counter_at_its_end_shows_no_increase_and_is_named():
    end = {LEAF: {"LinkDownedCounter": 255}}
    result = made(end, end)
    assert result.holds
    assert result.lines == [Mentions("leaf-1-2 ib4", "ibqueryerrors -k")]


def test_nothing_is_known_at_the_first_reading():
    result = table(PLAN, FOUND, None, read_counters(counters({LEAF: {"SymbolErrorCounter": 9000}}), 0))
    assert (result.holds, result.unknown, result.faults) == (False, 16, [])


def test_cables_that_are_not_as_planned_are_in_the_table_and_isolated_links_apart():
    link = "4x SDR - SW  2 2 0x2 ( 'leaf-1-2' - 'spine-2' )"
    slow = FOUND.replace(link, f"1{link[1:]}")
    (fault,) = made({}, found=slow).faults
    assert (fault["links"], fault["checks"]) == ([CABLE], ["port_rate"])
    (fault,) = made({}, found=found(PLAN.fabric, [LEAF])).faults
    assert fault["checks"] == ["port_down"]
    line = '0x1 "   leaf-1-2"  3    4[  ] ==(                Down/Disabled)==>             [  ] "" ( )\n'
    result = made({}, found=found(PLAN.fabric, [LEAF]), disabled=line)
    assert result.holds
    assert result.lines == [Mentions("isolated", "ib_fabric_restore='leaf-1-2 ib4'")]


def test_the_worst_fault_is_first_and_says_whether_its_link_may_be_isolated():
    later = {
        LEAF: {"SymbolErrorCounter": 500},
        SPINE: {"SymbolErrorCounter": 500},
        ("leaf-2-1", 3): {"PortRcvErrors": 500},
    }
    for spare, expected in ((1, "isolate it: -e ib_fabric_isolate='leaf-1-2 ib4'"), (0, "would have 1 of 2 up links")):
        lines = made(later, spare=spare).lines
        assert lines[0] == Mentions("1 link", "many symbol errors", "cable")
        assert lines[1] == Mentions("person", "docs/reference/runbooks.md#port-errors")
        assert any(expected in line for line in lines[2:6])
        assert next(at for at, line in enumerate(lines) if "leaf-2-1 ib3" in line) > 4


def test_a_reading_is_the_same_after_it_was_stored():
    reading = read_counters(counters({LEAF: {"SymbolErrorCounter": 5}}, [SPINE]), 7)
    assert from_stored(stored(reading), "a.json") == reading


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format": "other"}', "[]", '{"format": "sailloft-infiniband-counters/1"}']
)
def test_a_file_that_is_no_reading_is_refused(content):
    with raises(InfinibandError, "a.json"):
        from_stored(content, "a.json")


@pytest.mark.parametrize(
    "port",
    [
        '{"node": "leaf", "number": Infinity, "values": {}}',
        '{"node": "leaf", "number": 1, "values": {"link_downed": "many"}}',
        '{"node": "leaf", "number": 1, "values": ["link_downed"]}',
    ],
)
def test_a_damaged_reading_is_refused(port):
    content = stored(read_counters(counters({}), 7))
    with raises(InfinibandError, "a.json"):
        from_stored(content.replace('"ports": []', f'"ports": [{port}]'), "a.json")


@pytest.mark.parametrize(
    "output", ["", "ibwarn: mad_rpc failed", "## Summary: 2 nodes checked\n##          3 PMA query failures\n"]
)
def test_output_that_leaves_ports_out_is_refused(output):
    with raises(InfinibandError, "counters"):
        read_counters(output, 0)
