# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configurations of an inventory's switches: rendered, written, parsed and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from messages import raises
from plain_system import PLAIN
from planned_switches import BOTH, one

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setitem(SYSTEMS, "plain", PLAIN)


def params(**arguments: Any) -> dict[str, Any]:
    return {"switches": BOTH, "policy": None, "hosts": None, "asics": None, "path": None, "running": None, **arguments}


def rendered(check_mode: bool = False, diff_mode: bool = False, **arguments: Any) -> dict[str, Any]:
    return configs.rendered(params(**arguments), check_mode, diff_mode)


def test_configurations_are_returned_by_switch_where_no_path_is_given():
    result = rendered()
    wanted = configs.wanted_switches(params())
    assert result == {
        "changed": False,
        "rendered": {name: PLAIN.render(wanted[name]) for name in ("leaf1", "spine1")},
    }


def test_configurations_are_written_under_the_names_of_switch_and_system(tmp_path):
    texts = rendered()["rendered"]
    leaf, spine = (str(tmp_path / "out" / name) for name in ("leaf1.plain", "spine1.plain"))
    path = str(tmp_path / "out")
    both_written = {"changed": True, "files": [leaf, spine], "written": [leaf, spine]}
    planned = rendered(path=path, check_mode=True)
    lines = [len(texts[name].splitlines()) for name in ("leaf1", "spine1")]
    rows = [f"  leaf1.plain   new, {lines[0]} lines", f"  spine1.plain  new, {lines[1]} lines"]
    assert planned == {**both_written, "table": [f"{path}: 2 switches, 2 files to write", *rows]}
    assert not (tmp_path / "out").exists()
    assert rendered(path=path) == {**both_written, "table": [f"{path}: 2 switches, 2 files written", *rows]}
    assert (tmp_path / "out/leaf1.plain").read_text() == texts["leaf1"]
    assert (tmp_path / "out/spine1.plain").read_text() == texts["spine1"]
    again = rendered(path=path)
    assert again == {**both_written, "changed": False, "written": [], "table": [f"{path}: 2 switches, 0 files written"]}


def test_switches_whose_marking_can_leave_links_idle_are_named_once(tmp_path):
    counts = {"a": 256, "b": 512, "c": 512}
    switches = {name: one("spectrum4", ports=ports, speed=100, cable=300)["leaf1"] for name, ports in counts.items()}
    (_summary, *_files, remark) = rendered(path=str(tmp_path), switches=switches)["table"]
    minimum = configs.wanted_switches(params(switches=switches))["b"].ports["swp0"].queues[3].ecn.minimum_bytes
    assert minimum < thresholds.busy_link_bytes(100)
    assert [fact for fact in (f"{minimum} bytes", "100 Gbit/s", "14285", "b,c") if fact not in remark] == []


def test_the_diff_shows_only_files_that_differ(tmp_path):
    texts = rendered()["rendered"]
    (tmp_path / "leaf1.plain").write_text(texts["leaf1"])
    (tmp_path / "spine1.plain").write_text("old\n")
    spine = str(tmp_path / "spine1.plain")
    result = rendered(path=str(tmp_path), diff_mode=True)
    assert result["written"] == [spine]
    assert result["diff"] == [
        {"before_header": spine, "after_header": spine, "before": "old\n", "after": texts["spine1"]}
    ]
    (tmp_path / "spine1.plain").unlink()
    assert rendered(path=str(tmp_path), diff_mode=True)["diff"] == []  # a new file is in the table


@pytest.mark.parametrize("name", ["../leaf1", "leaf/1", ".leaf1", "-leaf1", "leaf 1", "leaf1\n"])
def test_a_switch_name_that_is_no_file_name_is_refused(name):
    with raises(FabricError, name, "file name"):
        configs.file_of("/srv", Switch(name, "plain"))


def test_a_switch_name_of_letters_digits_and_signs_is_a_file_name():
    assert configs.file_of("/srv", Switch("Leaf-1_a.example", "eos")) == "/srv/Leaf-1_a.example.eos"


def test_running_configurations_are_returned_as_data():
    texts = rendered()["rendered"]
    result = configs.parsed(params(running={"spine1": texts["spine1"]}))
    assert not result["changed"]
    assert list(result["parsed"]) == ["spine1"]
    port = result["parsed"]["spine1"]["ports"]["Ethernet1"]
    assert (port["pfc"], port["ip_mtu_bytes"], port["class_to_queue"]) == ([3], 9100, {"0": 0, "3": 3, "6": 6})


def test_a_running_configuration_may_be_data_and_its_name_a_number():
    text = rendered(switches={5: one()["leaf1"]})["rendered"][5]
    assert configs.running_texts({5: json.loads(text), "a": [1]}) == {"5": json.dumps(json.loads(text)), "a": "[1]"}


@pytest.mark.parametrize("arguments", [None, {}])
def test_a_missing_running_configuration_is_refused(arguments):
    with raises(FabricError, "running", "empty"):
        configs.running_texts(arguments)


@pytest.mark.parametrize("arguments", [None, 5, True, b"x"])
def test_a_running_configuration_that_is_not_text_is_refused(arguments):
    message = "switch leaf1: its running configuration is not a string; give it as it was read"
    for call in (configs.running_texts, lambda running: configs.parse_running(running, BOTH)):
        with pytest.raises(FabricError) as refused:
            call({"leaf1": arguments})
        assert str(refused.value) == message


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"leaf1": {"system": "ios"}}, "system 'ios' is unknown"),
        ({"leaf1": {"system": ["plain"]}}, "system ['plain'] is unknown"),
    ],
)
def test_a_running_configuration_of_an_unknown_system_is_refused(switches, message):
    with raises(FabricError, "leaf1", message, "cumulus", "sonic"):
        configs.parsed(params(switches=switches, running={"leaf1": "{}"}))


def test_running_configurations_are_compared_with_the_policy():
    texts = rendered()["rendered"]
    changed = json.loads(texts["leaf1"])
    changed["ports"]["swp3"]["ip_mtu_bytes"] = 1500
    result = configs.compared(params(running={"leaf1": changed, "spine1": texts["spine1"]}))
    assert result == {
        "changed": False,
        "differences": {
            "leaf1": [
                {
                    "ports": ["swp3"],
                    "what": "largest IP packet, in bytes",
                    "wanted": "9100",
                    "seen": "1500",
                    "message": "leaf1: swp3: largest IP packet, in bytes: wanted 9100, seen 1500",
                }
            ],
            "spine1": [],
        },
        "as_wanted": False,
        "not_held": {name: {"watchdog": "this system has none"} for name in ("leaf1", "spine1")},
    }
    unchanged = configs.compared(params(running=texts))
    assert (unchanged["changed"], unchanged["as_wanted"], unchanged["differences"]) == (
        False,
        True,
        {"leaf1": [], "spine1": []},
    )


def test_a_running_configuration_of_a_switch_without_a_plan_is_refused():
    with raises(FabricError, "leaf9", "running", "switches"):
        configs.compared(params(running={"leaf9": "{}"}))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("#!/bin/sh\nset -eu\n  ip link set dev p1 mtu 9100\nsysctl -q -w x=1\n", "ip link set dev p1 mtu 9100"),
        ('[\n{"op": "add"},\n{"op": "remove"}\n]\n', '{"op": "add"},'),
        ("\n\ninterface Ethernet1/1\n   mtu 9100\n", "interface Ethernet1/1"),
        ('[{"set": {\n "qos": {"red": "on"}}}]', "set qos red on"),
        ('[{"set": {\n "qos": {"red": null}}}]', "set qos red removed"),
    ],
)
def test_the_first_line_that_the_policy_would_still_change_is_named(monkeypatch, text, line):
    wanted = Switch("a", "plain", {"p1": PortQos()})
    monkeypatch.setitem(SYSTEMS, "plain", replace(PLAIN, remediation=lambda running, goal: text))
    assert configs.left_to_change({"a": wanted}, {"a": "{}"}, "a") == [
        {
            "ports": [],
            "what": "what the policy would still change",
            "wanted": "nothing",
            "seen": line,
            "message": f"a: what the policy would still change: wanted nothing, seen {line}",
        }
    ]


def test_nothing_is_named_where_the_policy_changes_nothing(monkeypatch):
    seen = []
    monkeypatch.setitem(SYSTEMS, "plain", replace(PLAIN, remediation=lambda *arguments: seen.append(arguments) or ""))
    wanted = Switch("a", "plain")
    assert configs.left_to_change({"a": wanted}, {"a": "{}"}, "a") == []
    assert seen == [("{}", wanted)]


def test_a_refusal_of_the_system_is_what_the_policy_would_still_change(monkeypatch):
    def refuse(_running, _wanted):
        raise FabricError("it has no such port", "name another", subject="a: p1")

    monkeypatch.setitem(SYSTEMS, "plain", replace(PLAIN, remediation=refuse))
    (change,) = configs.left_to_change({"a": Switch("a", "plain")}, {"a": "{}"}, "a")
    assert change["seen"] == "a: p1: it has no such port; name another"


def test_the_users_policy_hosts_and_asics_are_used():
    lossy = configs.wanted_switches(params(policy={"classes": {"roce": {"mode": "lossy"}}}))
    assert lossy["leaf1"].ports["swp1"].pfc == ()
    with raises(FabricError, "leaf1", "swp1", "gpu01", "inventory"):
        configs.wanted_switches(params(hosts={}))
    host_switches = one("own")
    asics = {"own": {"like": "spectrum3", "source": "a test"}}
    assert list(configs.wanted_switches(params(switches=host_switches, asics=asics))) == ["leaf1"]
