# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rollouts of a made-up system whose configuration and changes differ in what they show; what stages interrupt."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from messages import Mentions
from plain_system import PLAIN
from planned_switches import one
from proof_requests import LOSSY, params
from sonic_configs import default_config
from switches import PORTS, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Headroom, Queue, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs, rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

FULL = switch("plain", ["swp0", "swp1"], cable_m=30)
BARE = Switch("leaf1", "plain", {"swp0": rollout.EMPTY, "other": rollout.EMPTY}, ("source_ip",))


def comparable(monkeypatch: pytest.MonkeyPatch, seen: Switch, wanted: Switch, *not_held: str) -> Switch:
    monkeypatch.setitem(SYSTEMS, "plain", replace(PLAIN, not_held=dict.fromkeys(not_held, "a reason")))
    return rollout.comparable_switch(seen, wanted)


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


def test_a_stage_names_what_a_change_of_pfc_interrupts():
    """Only what the vendors say: Juniper that the port is blocked, NVIDIA that packets can be lost."""
    bare = {
        "junos": "set interfaces {} mtu 9114\n",
        "cumulus": '{{"interface": {{"{}": {{}}}}}}',
        "eos": "interface {}\n",
    }
    words = {"junos": "blocked", "cumulus": "can be lost", "eos": None}
    for system, text in bare.items():
        texts = dict.fromkeys(("leaf1", "leaf2", "spine1"), text.format(next(iter(PORTS[system]))))
        request = {**params(system, running=texts), **dict.fromkeys(("nics", "nics_wanted", "backup_path"))}
        stages = rollout.planned(request, True, False)["stages"]
        named = {what: names for stage in stages for what, names in stage["interruptions"].items()}
        assert list(named.values()) == ([list(texts)] if words[system] else []), system
        assert words[system] is None or words[system] in next(iter(named))
        if system == "junos":
            (marking,) = rollout.planned({**request, "policy": LOSSY}, True, False)["stages"]
            assert marking["interruptions"] == {}


def test_a_stage_of_sonic_names_the_loss_while_pauses_are_off():
    """Only where a class that pauses gets its headroom under another key, and then pauses again."""
    config = default_config()
    whole, rest = {}, {}
    for key, entry in config["BUFFER_PG"].items():
        (whole if key.endswith("|3-4") else rest)[key] = entry
    parts = {key.replace("3-4", one): entry for key, entry in whole.items() for one in "34"}
    separate = {**config, "BUFFER_PG": {**rest, **parts}}
    for running, interrupted in ((config, ["leaf1"]), (separate, []), ({**config, "PORT_QOS_MAP": {}}, [])):
        ports = {port: {"speed_gbit_s": 400, "cable_m": 5} for port in config["PORT"]}
        request = params("sonic", running={"leaf1": json.dumps(running)})
        request["switches"] = {"leaf1": {"system": "sonic", "asic": "as_imaged", "ports": ports}}
        request.update(dict.fromkeys(("nics", "nics_wanted", "backup_path")))
        stages = rollout.planned(request, True, False)["stages"]
        named = {name for stage in stages for names in stage["interruptions"].values() for name in names}
        assert named == set(interrupted)


def test_the_plan_names_nics_that_no_port_has_as_its_peer():
    """Such as where the inventory has a port twice, of which YAML keeps the last one."""
    request = {**params("sonic"), **dict.fromkeys(("nics", "nics_wanted", "backup_path"))}
    peers = [port["peer"] for settings in request["switches"].values() for port in settings["ports"].values()]
    nics: dict[str, dict[str, dict[str, int]]] = {}
    for peer in (peer for peer in peers if "host" in peer):
        nics.setdefault(peer["host"], {})[peer["port"]] = {}
    hosts = {**nics, "leaf1": None, "gpu8": {"mlx5_9": {}}, "gpu9": {"mlx5_9": {}}}
    linked = rollout.planned({**request, "hosts": {**nics, "leaf1": None}}, True, False)
    unlinked = rollout.planned({**request, "hosts": hosts}, True, False)
    assert nics
    (warning,) = [line for line in unlinked["table"] if line not in linked["table"]]
    assert warning == Mentions("warning", "mlx5_9", "gpu[8-9]")
    assert {**unlinked, "table": 0} == {**linked, "table": 0}
