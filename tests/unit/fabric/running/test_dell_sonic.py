# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts that Dell's modules gather from a switch are read or refused."""

from __future__ import annotations

import copy
import json

import pytest
from dell_sonic_modules import dell, read, rendered

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic

# Settings that Switch has no field for.
NO_TERM = {
    ("sonic_qos_buffer", "buffer_init"),
    ("sonic_qos_pfc", "counter_poll"),
    ("sonic_qos_pfc", "poll_interval"),
    ("sonic_qos_interfaces", "asymmetric"),
    ("sonic_qos_interfaces", "watchdog_action"),  # "drop" where it is not set
    ("sonic_qos_scheduler", "dwrr"),  # not strict, the same as without a type
}


def leaves(value, path=()):
    for index, element in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(element, (dict, list)):
            yield from leaves(element, (*path, index))
        else:
            yield (*path, index), element


def outcome(config):
    try:
        return read(config)
    except FabricError as error:
        return str(error)


def test_each_removed_setting_is_detected():
    arguments = rendered(dell({"classes": {"roce": {"bandwidth_percent": 60}}}, ports=["Eth1/1"]))
    original = read(arguments)
    count = 0
    for path, value in leaves(arguments):
        if path[1] == "state":
            continue
        broken = copy.deepcopy(arguments)
        holder = broken
        for key in path[:-1]:
            holder = holder[key]
        del holder[path[-1]]
        no_term = {(path[0], path[-1]), (path[0], value)} & NO_TERM
        assert (outcome(broken) == original) is bool(no_term), path
        count += not no_term
    assert count > 150


def test_gathered_facts_in_the_documented_forms_are_read():
    """The forms are those of the examples in the documentation of sonic_qos_interfaces and sonic_qos_maps 3.2.0."""
    config = {
        "interfaces": [{"name": "Eth1/5", "mtu": 9100}, {"name": "Vlan10", "mtu": 9100}, {"name": "Loopback0"}],
        "qos_maps": {
            "dscp_maps": [{"name": "dscp_map1", "entries": [{"dscp": 3, "fwd_group": "3"}]}],
            "pfc_priority_pg_maps": [{"name": "pfc_pg_map1", "entries": [{"dot1p": 3, "pg_index": 4}]}],
            "fwd_group_pg_maps": [{"name": "fwd_pg_map1", "entries": [{"fwd_group": "3", "pg_index": 4}]}],
        },
        "qos_scheduler": [
            {
                "name": "policy1",
                "schedulers": [
                    {"sequence": 3, "scheduler_type": "dwrr", "weight": 15},
                    {"sequence": 4, "scheduler_type": "wrr", "weight": 45},
                    {"sequence": 255, "pir": 10},
                ],
            }
        ],
        "qos_wred": [
            {"name": "off", "green": {"enable": False, "min_threshold": 1000, "max_threshold": 5000}},
            {"name": "on", "ecn": "green", "green": {"enable": True, "min_threshold": 1000, "max_threshold": 5000}},
        ],
        "qos_interfaces": [
            {
                "name": "Eth1/5",
                "cable_length": "40m",
                "scheduler_policy": "policy1",
                "queues": [{"id": 3, "wred_profile": "on"}, {"id": 4, "wred_profile": "off"}, {"id": 5}],
                "qos_maps": {
                    "dscp_fwd_group": "dscp_map1",
                    "fwd_group_pg": "fwd_pg_map1",
                    "pfc_priority_pg": "pfc_pg_map1",
                },
                "pfc": {
                    "asymmetric": False,
                    "watchdog_action": "alert",
                    "watchdog_detect_time": 100,
                    "watchdog_restore_time": 200,
                    "priorities": [{"dot1p": 3, "enable": True}, {"dot1p": 4, "enable": False}],
                },
            },
            {"name": "CPU", "scheduler_policy": "policy1"},
        ],
    }
    switch = read(config)
    assert switch.ecmp_fields is None
    assert list(switch.ports) == ["Eth1/5"]
    qos = switch.ports["Eth1/5"]
    assert qos.dscp_to_class[3] == 3
    assert qos.class_to_priority[3] == 3
    assert qos.pfc == (3,)
    assert qos.queues[3] == Queue(False, 25, Ecn(1000, 5000, 0))
    assert qos.queues[4] == Queue(False, 75)
    assert qos.watchdog == Watchdog(100, 200, "alert")
    assert qos.cable_m == 40


def test_an_empty_configuration_has_no_settings():
    assert read({}) == Switch("leaf1", "dell_sonic", {}, None)
    assert read({"qos_interfaces": [{"name": "Eth1/1"}]}).ports == {"Eth1/1": PortQos()}


def put(module, *path_and_value):
    *path, last, value = path_and_value

    def change(arguments):
        holder = arguments.setdefault(module, {})
        for key in path:
            holder = holder[key]
        holder[last] = value

    return change


BAD = [
    (lambda arguments: arguments.update(sonic_qos_wred=[]), "leaf1: sonic_qos_wred: [] is not an object"),
    (put("sonic_qos_wred", "config", "x"), "leaf1: sonic_qos_wred: 'x' is not a list"),
    (put("sonic_qos_wred", "config", ["x"]), "leaf1: sonic_qos_wred: 'x' is not an object"),
    (put("sonic_qos_wred", "config", [{}]), "leaf1: sonic_qos_wred name: it is missing"),
    (put("sonic_qos_wred", "config", [{"name": "a"}, {"name": "a"}]), "leaf1: sonic_qos_wred a: it is listed twice"),
    (put("sonic_qos_wred", "config", []), "sonic_qos_wred has no profile 'SAILLOFT_ECN"),
    (put("sonic_qos_wred", "config", 0, "green", "min_threshold", 2000000), "is above max_threshold 1500000"),
    (put("sonic_qos_wred", "config", 0, "green", "drop_probability", 101), "drop_probability 101 is not"),
    (put("sonic_qos_wred", "config", 0, "green", "min_threshold", True), "min_threshold True is not"),
    (put("sonic_qos_scheduler", "config", []), "leaf1: sonic_qos_interfaces Eth1/1 scheduler_policy: sonic_qos_sched"),
    (put("sonic_qos_scheduler", "config", 0, "schedulers", 0, "weight", 0), "weight 0 is not a whole number from 1 to"),
    (put("sonic_qos_scheduler", "config", 0, "schedulers", 0, "scheduler_type", ["x"]), "scheduler_type ['x'] is unk"),
    (put("sonic_qos_interfaces", "config", 0, "cable_length", ["x"]), "cable_length ['x']"),
    (put("sonic_qos_maps", "config", []), "leaf1: sonic_qos_maps: [] is not an object"),
    (put("sonic_qos_maps", "config", "dscp_maps", []), "Eth1/1 dscp_fwd_group: dscp_maps has no map 'SAILLOFT_DSCP"),
    (put("sonic_qos_maps", "config", "dscp_maps", 0, "entries", 0, "dscp", 64), "dscp 64 is not a whole number from 0"),
    (put("sonic_qos_maps", "config", "dscp_maps", 0, "entries", 0, "fwd_group", "8"), "fwd_group '8' is not a whole"),
    (put("sonic_qos_maps", "config", "dscp_maps", 0, "entries", 0, {}), "entries dscp: it is missing"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "priorities", [{"dot1p": 8}]), "dot1p 8 is not a whole number"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_action", "panic"), "watchdog_action 'panic'"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_detect_time", 20), "watchdog_detect_time 20 is not"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_detect_time", 5001), "watchdog_detect_time 5001 is not"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_restore_time", 99), "watchdog_restore_time 99 is not"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_restore_time", 60001), "watchdog_restore_time 60001 is"),
    (
        put("sonic_qos_interfaces", "config", 0, "cable_length", "7m"),
        "sonic_qos_interfaces Eth1/1: cable_length '7m'",
    ),
    (put("sonic_qos_interfaces", "config", 0, "scheduler_policy", ["x"]), "no policy ['x']"),
    (put("sonic_qos_interfaces", "config", 0, "queues", 0, "wred_profile", ["x"]), "no profile ['x']"),
    (put("sonic_interfaces", "config", 0, "mtu", 100), "leaf1: sonic_interfaces Eth1/1: mtu 100"),
    (put("sonic_ecmp_load_share", "config", "ipv4", 1), "leaf1: sonic_ecmp_load_share ipv4: 1 is not an object"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=range(len(BAD)))
def test_an_invalid_configuration_is_refused_with_a_remedy(change, message):
    arguments = rendered(dell(ports=["Eth1/1"]))
    change(arguments)
    with pytest.raises(FabricError) as refused:
        read(arguments)
    assert message in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(("detection", "restoration"), [(100, 100), (5000, 60000)])
def test_watchdog_times_are_read_up_to_their_limits(detection, restoration):
    arguments = rendered(dell(ports=["Eth1/1"]))
    pfc = arguments["sonic_qos_interfaces"]["config"][0]["pfc"]
    pfc.update(watchdog_detect_time=detection, watchdog_restore_time=restoration)
    assert read(arguments).ports["Eth1/1"].watchdog == Watchdog(detection, restoration, pfc["watchdog_action"])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_text_that_is_not_json_of_module_facts_is_refused(text):
    with pytest.raises(FabricError, match=r"leaf1: configuration: .*gather"):
        dell_sonic.parse(text, "leaf1")


def test_marking_of_all_colours_is_that_of_green_packets():
    """Version 4 of Dell's collection gathers "all"; version 3 gathers "green"."""
    switch = dell(ports=["Eth1/1"])
    arguments = rendered(switch)
    for profile in arguments["sonic_qos_wred"]["config"]:
        profile["ecn"] = "all"
    assert read(arguments) == read(rendered(switch))
    assert dell_sonic.remediation(json.dumps(arguments), switch) == dell_sonic.remediation(
        json.dumps(rendered(switch)), switch
    )
    for profile in arguments["sonic_qos_wred"]["config"]:
        profile["ecn"] = "none"
    assert read(arguments) != read(rendered(switch))
