# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rollouts of a made-up system whose configuration and changes differ in what they show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plain_system import PLAIN
from planned_switches import one
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Headroom, Queue, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs, rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

FULL = switch("plain", ["swp0", "swp1"], cable_m=30)
BARE = Switch("leaf1", "plain", {"swp0": rollout.EMPTY, "other": rollout.EMPTY}, ("source_ip",))


def comparable(monkeypatch: pytest.MonkeyPatch, seen: Switch, wanted: Switch, *not_held: str) -> Switch:
    monkeypatch.setitem(SYSTEMS, "plain", replace(PLAIN, not_held=dict.fromkeys(not_held, "a reason")))
    return rollout._comparable(seen, wanted)


def test_only_wanted_ports_are_compared_and_a_missing_one_is_without_qos(monkeypatch):
    ports = comparable(monkeypatch, BARE, FULL).ports
    assert ports == dict.fromkeys(("swp0", "swp1"), replace(rollout.EMPTY, cable_m=30))


def test_settings_that_a_system_does_not_show_have_the_wanted_value(monkeypatch):
    wanted = FULL.ports["swp0"]
    port = comparable(monkeypatch, BARE, FULL, "headroom", "watchdog").ports["swp0"]
    assert port == replace(rollout.EMPTY, headroom=wanted.headroom, watchdog=wanted.watchdog, cable_m=30)
    assert wanted.headroom[3] == Headroom(19_456, 38_912, 19_456, 0)
    assert wanted.watchdog == Watchdog(200, 200, "drop")


def test_a_cable_that_a_system_shows_is_compared(monkeypatch):
    seen = replace(FULL, ports={"swp0": replace(FULL.ports["swp0"], cable_m=5), "swp1": FULL.ports["swp1"]})
    ports = comparable(monkeypatch, seen, FULL).ports
    assert [port.cable_m for port in ports.values()] == [5, 30]


def test_hash_fields_are_compared_unless_the_system_does_not_show_them(monkeypatch):
    assert comparable(monkeypatch, BARE, FULL).ecmp_fields == ("source_ip",)
    assert comparable(monkeypatch, BARE, FULL, "ecmp_fields").ecmp_fields == FULL.ecmp_fields
    assert comparable(monkeypatch, replace(BARE, ecmp_fields=None), FULL).ecmp_fields is None


def test_a_switch_whose_system_has_nothing_to_change_has_no_stage(monkeypatch):
    """The terms differ: queue 5 of the made-up system is always there, and no change removes it."""

    def parse(_text: str, name: str) -> Switch:
        goal = wanted[name].ports["swp0"]
        port = replace(goal, queues=(*goal.queues[:5], Queue(False, 0), *goal.queues[6:]))
        return replace(wanted[name], ports=dict.fromkeys(wanted[name].ports, port))

    system = replace(PLAIN, not_held={}, parse=parse, remediation=lambda _running, _wanted: "")
    monkeypatch.setitem(SYSTEMS, "plain", system)
    request = {"switches": one(), "policy": None, "hosts": None, "asics": None}
    wanted = configs.wanted_switches(request)
    request.update(dict.fromkeys(("nics", "nics_wanted", "backup_path")), running={"leaf1": "text"})
    result = rollout.planned(request, True, False)
    assert (result["changed"], result["stages"], result["whole"]) == (False, [], {})
    assert "diff" not in result
