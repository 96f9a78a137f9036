# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remediation of Dell SONiC leads to the wanted configuration and sends only the differences."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dell_sonic_modules import PORTS, dell, gathered, held, rendered, validate
from hypothesis import given
from hypothesis import strategies as st
from messages import raises
from switches import policies

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import ECMP_FIELDS, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic

KEYS = ("name", "id", "dot1p", "dscp", "fwd_group", "sequence")


def same_entry(mine: dict, other: dict) -> bool:
    key = next(key for key in KEYS if key in other)
    return mine.get(key) == other[key]


def merge(there, given):
    """Merge like the modules' state ``merged``: options replace options, and lists are merged by their keys."""
    if isinstance(there, dict) and isinstance(given, dict):
        return {**there, **{key: merge(there.get(key), each) for key, each in given.items()}}
    if isinstance(there, list) and isinstance(given, list):
        found = list(there)
        for each in given:
            old = next((at for at, mine in enumerate(found) if same_entry(mine, each)), None)
            if old is None:
                found.append(each)
            else:
                found[old] = merge(found[old], each)
        return found
    return given


def delete(there, given):
    """Remove like the modules' state ``deleted``: an option by name and value, a list's element by its key alone."""
    if isinstance(there, dict) and isinstance(given, dict):
        found = {}
        for key, value in there.items():
            left = value
            if isinstance(given.get(key), (dict, list)):
                left = delete(value, given[key])
            elif key in given and key not in KEYS:
                assert given[key] == value, f"{key}: {given[key]!r} is to go, and {value!r} is there"
                left = None
            if left is not None:
                found[key] = left
        return found
    for each in given:
        assert any(same_entry(mine, each) for mine in there), f"{each} is to go, and is not there"
    found = []
    for mine in there:
        named = next((each for each in given if same_entry(mine, each)), None)
        if named is None or len(named) > 1:
            found.append(mine if named is None else delete(mine, named))
    return found


def after(running: str, steps: str) -> str:
    """Return the resources gathered after ``steps``, each of which the module's own validation accepts."""
    config = json.loads(running)
    for step in json.loads(steps or "[]"):
        valid = validate(step["module"], {"config": step["config"], "state": step["state"]})
        assert not valid.error_messages, (step, valid.error_messages)
        given_config = json.loads(json.dumps(valid.validated_parameters["config"]), object_hook=without_none)
        if step["state"] == "deleted" and step["module"] == "sonic_qos_interfaces":  # as remove_default_entries does
            for each in given_config:
                each.pop("cable_length", None)
                for option in ("asymmetric", "watchdog_action"):
                    each.get("pfc", {}).pop(option, None)
        resource = step["module"][len("sonic_") :]
        if step["state"] == "deleted" and resource == "ecmp_load_share":  # the module sets its defaults
            config[resource] = {family: dict.fromkeys(options, True) for family, options in given_config.items()}
            continue
        there = config.get(resource, [] if isinstance(given_config, list) else {})
        config[resource] = (delete if step["state"] == "deleted" else merge)(there, given_config)
    return json.dumps(config)


def without_none(options: dict) -> dict:
    return {key: each for key, each in options.items() if each is not None}


def text_of(wanted: Switch) -> str:
    return json.dumps(gathered(rendered(wanted)), default=str)


LOSSY_BETWEEN = {"classes": {"roce": {"mode": "lossy", "dscp": 24}}}
OLD = {"classes": {"old": {"dscp": 10, "traffic_class": 5, "bandwidth_percent": 30}}, "cnp": {"dscp": 46}}


def by_hand() -> dict:
    """Return the reference with names that are not ours."""
    return json.loads(text_of(dell()).replace("SAILLOFT_", "MY_"))


def edited() -> dict:
    """Return the reference after somebody has changed its maps, policy and ports."""
    config = json.loads(text_of(dell()))
    config["qos_maps"]["pfc_priority_queue_maps"][0]["entries"] += [{"dot1p": 1, "queue_index": 1}]
    config["qos_maps"]["dscp_maps"][0]["entries"][26]["fwd_group"] = "1"
    schedulers = config["qos_scheduler"][0]["schedulers"]
    schedulers[2] = {"sequence": 6, "scheduler_type": "dwrr", "weight": 10}
    schedulers.append({"sequence": 1, "scheduler_type": "dwrr", "weight": 10})
    schedulers.append({"sequence": 255, "pir": 10})
    config["qos_wred"][0]["green"]["enable"] = False
    config["qos_maps"]["pfc_priority_pg_maps"] = [{"name": "pg", "entries": [{"dot1p": 3, "pg_index": 4}]}]
    port = config["qos_interfaces"][0]
    port["qos_maps"]["pfc_priority_pg"] = "pg"
    port["pfc"] = {
        "asymmetric": True,
        "priorities": [{"dot1p": 4, "enable": True}, {"dot1p": 3, "enable": False}],
        "watchdog_action": "alert",
        "watchdog_detect_time": 400,
    }
    port["queues"] = [{"id": 5, "wred_profile": config["qos_wred"][0]["name"]}]
    config["qos_interfaces"].append({"name": "CPU", "scheduler_policy": "copp"})
    config["qos_scheduler"].append({"name": "copp", "schedulers": []})
    return config


STARTS = {
    "nothing": {},
    "an older policy": json.loads(text_of(dell(OLD))),
    "by hand": by_hand(),
    "ours, edited": edited(),
    "broken references": {"qos_interfaces": [{"name": "Eth1/1", "scheduler_policy": "x", "queues": [{"id": 3}]}]},
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("mode", ["lossless", "lossy"])
def test_remediation_reaches_the_wanted_settings(start, mode):
    wanted = dell({"classes": {"roce": {"mode": mode}}})
    running = json.dumps(STARTS[start])
    done = after(running, dell_sonic.remediation(running, wanted))
    assert held(dell_sonic.parse(done, "leaf1")) == held(wanted)
    assert dell_sonic.remediation(done, wanted) == ""
    names = {each["name"] for each in json.loads(done)["qos_scheduler"]}
    assert sum(name.startswith("SAILLOFT_") for name in names) == (start != "by hand")


@pytest.mark.parametrize("start", ["nothing", "an older policy", "ours, edited"])
def test_remediation_interrupted_after_any_step_is_completed(start):
    wanted = dell()
    running = json.dumps(STARTS[start])
    steps = json.loads(dell_sonic.remediation(running, wanted))
    for end in range(len(steps)):
        half = after(running, json.dumps(steps[:end]))
        dell_sonic.parse(half, "leaf1")
        done = after(half, dell_sonic.remediation(half, wanted))
        assert held(dell_sonic.parse(done, "leaf1")) == held(wanted), steps[end]


def test_rewriting_of_dscps_is_detected_and_turned_off():
    config = json.loads(text_of(dell()))
    config["qos_maps"]["fwd_group_dscp_maps"] = [{"name": "fd", "entries": [{"fwd_group": "3", "dscp": 10}]}]
    config["qos_interfaces"][0]["qos_maps"]["fwd_group_dscp"] = "fd"
    running = json.dumps(config)
    assert dell_sonic.parse(running, "leaf1").ports["Eth1/1"].rewrites_dscp
    assert not dell_sonic.parse(running, "leaf1").ports["Eth1/2"].rewrites_dscp
    done = after(running, dell_sonic.remediation(running, dell()))
    assert held(dell_sonic.parse(done, "leaf1")) == held(dell())
    assert json.loads(done)["qos_maps"]["fwd_group_dscp_maps"] == config["qos_maps"]["fwd_group_dscp_maps"]


def test_a_map_entry_without_a_dscp_is_refused():
    config = json.loads(text_of(dell()))
    del config["qos_maps"]["dscp_maps"][0]["entries"][3]["dscp"]
    with raises(FabricError, "leaf1", "sonic_qos_maps", "dscp"):
        dell_sonic.remediation(json.dumps(config), dell())


def test_nothing_is_sent_if_the_settings_are_equivalent():
    assert dell_sonic.remediation(text_of(dell()), dell()) == ""
    assert dell_sonic.remediation(json.dumps(by_hand()), dell()) == ""
    assert dell_sonic.remediation(dell_sonic.render(dell()), dell()) == ""


def test_remediation_sends_differences_and_values_that_modules_would_reset():
    config = json.loads(text_of(dell(cable_m=5)))
    config["interfaces"][1]["mtu"] = 1500
    config["qos_interfaces"][0]["pfc"].update(watchdog_detect_time=400, watchdog_action="alert")
    sent = json.loads(dell_sonic.remediation(json.dumps(config), dell()))
    pfc = {"watchdog_detect_time": 200, "watchdog_action": "drop"}
    assert sent == [
        {
            "module": "sonic_qos_interfaces",
            "state": "merged",
            # The policy requests no cable length, but without the current 5 m the module would write 40 m.
            "config": [{"name": "Eth1/1", "cable_length": "5m", "pfc": pfc}],
        },
        {"module": "sonic_interfaces", "state": "merged", "config": [{"name": "Eth1/2", "mtu": 9100}]},
    ]


def test_objects_that_another_port_uses_are_kept():
    config = json.loads(text_of(dell(OLD, ports=["Eth1/1", "Eth1/9"])))
    running = json.dumps(config)
    wanted = dell(ports=["Eth1/1"])
    done = after(running, dell_sonic.remediation(running, wanted))
    seen = dell_sonic.parse(done, "leaf1").ports
    before = dell_sonic.parse(running, "leaf1").ports["Eth1/9"]
    # All ports share one map of PFC.
    assert seen["Eth1/9"] == replace(before, priority_to_queue=seen["Eth1/1"].priority_to_queue)
    assert replace(seen["Eth1/1"], cable_m=None) == held(wanted).ports["Eth1/1"]


@given(policies(), policies(), st.booleans())
def test_remediation_leads_from_any_policy_to_any_other(first, second, alike):
    ports = PORTS if alike else PORTS[:1]
    running, wanted = text_of(dell(first, ports=ports)), dell(second)
    done = after(running, dell_sonic.remediation(running, wanted))
    assert held(dell_sonic.parse(done, "leaf1")) == held(wanted)
    assert dell_sonic.remediation(done, wanted) == ""
    assert {each["name"] for each in json.loads(done)["qos_scheduler"]} == {
        each["name"] for each in rendered(wanted)["sonic_qos_scheduler"]["config"]
    }


def mapped() -> dict:
    """Return settings by hand with a map from priorities to groups, which a policy removes."""
    config = by_hand()
    config["qos_maps"]["pfc_priority_pg_maps"] = [{"name": "pg", "entries": [{"dot1p": 3, "pg_index": 4}]}]
    config["qos_interfaces"][0]["qos_maps"]["pfc_priority_pg"] = "pg"
    config["qos_interfaces"][0]["pfc"]["asymmetric"] = True
    return config


NO_QOS = {"interfaces": [{"name": port, "mtu": 1500} for port in PORTS]}


@pytest.mark.parametrize("start", [NO_QOS, by_hand(), mapped(), json.loads(text_of(dell(OLD)))])
@pytest.mark.parametrize("policies_between", [({},), (LOSSY_BETWEEN,), (LOSSY_BETWEEN, {})])
def test_restoration_leads_back_to_the_settings_before(start, policies_between):
    before = running = json.dumps(start)
    for policy in policies_between:
        running = after(running, dell_sonic.remediation(running, dell(policy)))
    back = after(running, dell_sonic.restoration(before, running, "leaf1"))
    assert dell_sonic.restoration(before, back, "leaf1") == ""
    old, new = (dell_sonic.parse(text, "leaf1") for text in (before, back))
    assert new.ports.keys() == old.ports.keys()
    assert replace(held(new), ports={}) == replace(held(old), ports={}, ecmp_fields=old.ecmp_fields or ECMP_FIELDS)
    assert held(new).ports == held(old).ports
    assert dell_sonic.restoration(before, before, "leaf1") == ""
