# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The counters of a port of each system, whole, damaged and missing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from shown_counters import JUNOS, PORTS, SHOWN

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import Answers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import COUNTERS, read_counters
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

READABLE = sorted(SHOWN)


def read(system: str, shown: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    table = SYSTEMS[system].counters
    assert table is not None
    return read_counters(table, Answers(shown, {}))


def test_every_system_but_dells_has_counters():
    assert sorted(name for name, system in SYSTEMS.items() if system.counters) == READABLE


@pytest.mark.parametrize("system", READABLE)
def test_counters_are_read_by_priority_and_queue(system):
    ports, reasons = read(system, SHOWN[system])
    port = ports[PORTS[system]]
    expected = {"pause_received": 31, "pause_sent": 32, "ecn_marked": 33, "dropped": 34, "watchdog": 1}
    assert port["up"] is True
    known = {counter: port[counter][3] for counter in COUNTERS if counter not in reasons}
    assert known == {counter: value for counter, value in expected.items() if counter not in reasons}
    assert {counter for counter in COUNTERS if port[counter] == [None] * 8} == set(reasons)
    assert len(reasons) <= 3


@pytest.mark.parametrize("system", READABLE)
def test_text_of_json_is_read_as_its_value(system):
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in SHOWN[system].items()}
    assert read(system, texts) == read(system, SHOWN[system])


def test_a_watchdog_without_an_event_has_counted_0_and_one_that_is_not_shown_nothing():
    quiet = {**SHOWN["eos"], "show priority-flow-control counters watchdog": {"interfaces": {}}}
    assert read("eos", quiet)[0]["Ethernet1/1"]["watchdog"] == [0] * 8
    for refused in (None, "", {}, {"errors": ["x"]}, {"interfaces": None}):
        ports, reasons = read("eos", {**quiet, "show priority-flow-control counters watchdog": refused})
        assert ports["Ethernet1/1"]["watchdog"] == [None] * 8
        assert "watchdog" in reasons


def test_links_that_are_down_are_told_from_unknown_ones():
    shown = json.loads(json.dumps(SHOWN["nxos"]))
    shown["show interface status"]["TABLE_interface"]["ROW_interface"]["state"] = "notconnec"
    assert read("nxos", shown)[0]["Ethernet1/1"]["up"] is False
    del shown["show interface status"]
    assert read("nxos", shown)[0]["Ethernet1/1"]["up"] is None
    assert read("linux", SHOWN["linux"])[0]["p2"]["up"] is False


def test_nxos_marks_and_drops_are_read_beside_the_rows_of_other_statistics():
    port = read("nxos", SHOWN["nxos"])[0]["Ethernet1/1"]
    assert (port["ecn_marked"][3], port["dropped"][3]) == (33, 34)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value of a tree."""
    yield path
    for key, below in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(below, (*path, key))


def damaged(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(tree)
    changed[path[0]] = damaged(tree[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("system", sorted(set(READABLE) - {"junos"}))
def test_a_damaged_answer_is_never_a_count_of_its_own(system):
    whole = read(system, SHOWN[system])[0][PORTS[system]]
    for path in list(places(SHOWN[system]))[1:]:
        for value in (None, True, -1, "n/a", "9" * 30, [], [None], {"3": None}):
            ports, _reasons = read(system, damaged(SHOWN[system], path, value))
            port = ports.get(PORTS[system])
            for counter in COUNTERS if port else ():
                for seen, real in zip(port[counter], whole[counter]):
                    # A watchdog that has not the port in its table has seen no event there. The handle of a Linux qdisc
                    # gives the number of its queue, so another handle moves a count.
                    counts = (None, *whole[counter]) if system == "linux" else (None, real)
                    assert seen in counts or (counter == "watchdog" and seen == 0), (path, value, counter)


@pytest.mark.parametrize("cut", range(0, len(JUNOS), 137))
def test_truncated_xml_is_no_answer(cut):
    ports, reasons = read("junos", {"show interfaces extensive": JUNOS[:cut]})
    assert ports == {}
    assert set(reasons) >= set(COUNTERS)


@pytest.mark.parametrize("text", ["<a/>", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "error: syntax", 5, {"a": 1}])
def test_other_xml_is_no_answer(text):
    assert read("junos", {"show interfaces extensive": text})[0] == {}


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "", "٣", "<b>3</b>"])
def test_a_count_in_xml_that_is_no_number_is_not_known(text):
    damaged_text = JUNOS.replace(">34<", f">{text}<").replace(">31<", f">{text}<")
    port = read("junos", {"show interfaces extensive": damaged_text})[0]["et-0/0/24"]
    assert (port["dropped"][3], port["pause_received"][3], port["pause_sent"][3]) == (None, None, 32)
