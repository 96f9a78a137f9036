# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dell SONiC: the modules accept the rendered arguments, which are read back unchanged."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from dell_sonic_modules import dell, gathered, held, read, rendered, validate
from hypothesis import given
from messages import raises
from switches import policies

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.dell_sonic import SHAPES
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts import dell_sonic_render

TWO = {
    "classes": {
        "roce": {"bandwidth_percent": 40},
        "storage": {"dscp": 34, "traffic_class": 4, "bandwidth_percent": 20},
    }
}


def test_the_reference_is_rendered():
    arguments = rendered(dell(ports=["Eth1/1"]))
    assert {call["state"] for call in arguments.values()} == {"merged"}
    config = {module: call["config"] for module, call in arguments.items()}
    assert list(config) == sorted(module for module in SHAPES if module.startswith("sonic_"))
    [interface] = config["sonic_qos_interfaces"]
    assert interface["name"] == "Eth1/1"
    assert interface["pfc"] == {
        "asymmetric": False,
        "priorities": [{"dot1p": 3, "enable": True}],
        "watchdog_action": "drop",
        "watchdog_detect_time": 200,
        "watchdog_restore_time": 200,
    }
    bound = interface["qos_maps"]
    maps = config["sonic_qos_maps"]
    [dscp] = maps["dscp_maps"]
    assert dscp["name"] == bound["dscp_fwd_group"]
    assert dscp["entries"][26] == {"dscp": 26, "fwd_group": "3"}
    assert dscp["entries"][48] == {"dscp": 48, "fwd_group": "6"}
    [queue] = maps["fwd_group_queue_maps"]
    assert queue["name"] == bound["fwd_group_queue"]
    assert queue["entries"] == [{"fwd_group": str(number), "queue_index": number} for number in (0, 3, 6)]
    [stops] = maps["pfc_priority_queue_maps"]
    assert stops["name"] == bound["pfc_priority_queue"] == "SAILLOFT_PFC"
    assert stops["entries"] == [{"dot1p": number, "queue_index": number} for number in (0, 3, 6)]
    [policy] = config["sonic_qos_scheduler"]
    assert policy["name"] == interface["scheduler_policy"]
    assert policy["schedulers"] == [
        {"sequence": 0, "scheduler_type": "dwrr", "weight": 50},
        {"sequence": 3, "scheduler_type": "dwrr", "weight": 50},
        {"sequence": 6, "scheduler_type": "strict"},
    ]
    [wred] = config["sonic_qos_wred"]
    assert interface["queues"] == [{"id": 3, "wred_profile": wred.pop("name")}]
    assert wred == {
        "ecn": "green",
        "green": {"enable": True, "min_threshold": 150000, "max_threshold": 1500000, "drop_probability": 100},
    }
    assert config["sonic_qos_buffer"] == {"buffer_init": True}
    assert config["sonic_interfaces"] == [{"name": "Eth1/1", "mtu": 9100}]
    assert config["sonic_ecmp_load_share"]["ipv6"]["ipv6_next_hdr"] is True
    assert len(config["sonic_ecmp_load_share"]["ipv4"]) == 5


@given(policies())
def test_rendered_arguments_are_accepted_by_the_modules_and_read_back(policy):
    wanted = dell(policy)
    arguments = rendered(wanted)
    assert read(arguments) == held(wanted)
    again = read(gathered(arguments))
    # The modules gather a cable's length of 40 m where none was set.
    assert held(again) == held(wanted)


def test_two_lossless_classes_are_read_back():
    wanted = dell(TWO)
    assert read(rendered(wanted)) == held(wanted)
    assert wanted.ports["Eth1/1"].pfc == (3, 4)


def test_the_modules_refuse_wrong_arguments():
    """The modules refuse wrong arguments, so the test above can fail."""
    arguments = rendered(dell())
    for module, path, value, fact in [
        ("sonic_qos_wred", (0, "ecn"), "ecn_all", "value of ecn must be one of: green, got: ecn_all"),
        (
            "sonic_qos_scheduler",
            (0, "schedulers", 0, "scheduler_type"),
            "STRICT",
            "value of scheduler_type must be one of: dwrr, wrr, strict, got: STRICT",
        ),
        ("sonic_qos_interfaces", (0, "pfc", "watchdog"), 200, "config.pfc.watchdog. Supported parameters include: "),
        ("sonic_qos_maps", ("dscp_maps", 0, "entries", 0, "dscp"), "x", "argument 'dscp' is of type str"),
        ("sonic_qos_buffer", ("buffer_init",), "x", "argument 'buffer_init' is of type str"),
        ("sonic_interfaces", (0, "mtu"), "x", "argument 'mtu' is of type str"),
    ]:
        broken = copy.deepcopy(arguments[module])
        holder = broken["config"]
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        (message,) = validate(module, broken).error_messages
        assert message.startswith(fact)
        assert validate(module, arguments[module]).error_messages == []


@pytest.mark.parametrize(
    ("cable_m", "length", "seen"), [(1, "5m", 5), (5, "5m", 5), (6, "40m", 40), (300, "300m", 300)]
)
def test_the_cable_length_is_rounded_up_to_a_supported_length(cable_m, length, seen):
    wanted = dell(cable_m=cable_m)
    arguments = rendered(wanted)
    assert arguments["sonic_qos_interfaces"]["config"][0]["cable_length"] == f"{seen}m"
    assert read(arguments).ports["Eth1/1"].cable_m == seen


def thresholds(minimum, maximum):
    return {"queues": (Queue(False, 50, Ecn(minimum, maximum, 1)), *[None] * 7)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cable_m": 301}, "a cable of 301 m, but this system has headroom for at most 300 m; use a shorter one"),
        (
            {"pfc": (2, 3, 4)},
            "PFC is on for priorities 2, 3, 4, but this system supports 2 per port; make another class lossy",
        ),
        *(
            (
                thresholds(*pair),
                f"an ECN threshold of {wrong} bytes, but this system supports 1000 to 12480000; "
                "set the class's thresholds in this range",
            )
            for wrong, pair in ((999, (999, 5000)), (12_480_001, (1000, 12_480_001)))
        ),
    ],
)
def test_settings_that_dell_sonic_cannot_represent_are_refused(changes, message):
    with raises(FabricError, "leaf1", "Eth1/1", message):
        dell_sonic.render(dell(**changes))


def test_differing_pfc_maps_of_ports_are_refused():
    wanted = dell()
    other_port = replace(wanted.ports["Eth1/1"], priority_to_queue=(None,) * 8)
    with raises(FabricError, "leaf1", "ports", "queues", "one map"):
        dell_sonic.render(replace(wanted, ports={**wanted.ports, "Eth1/2": other_port}))


def test_the_same_input_gives_the_same_bytes_with_sorted_keys():
    text = dell_sonic.render(dell())
    dell_sonic_render.text_of_ports.cache_clear()
    assert dell_sonic.render(copy.deepcopy(dell())) == text
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_no_buffer_settings_are_rendered_for_a_lossy_switch():
    arguments = rendered(dell({"classes": {"roce": {"mode": "lossy"}}}))
    assert not {"sonic_qos_buffer", "sonic_qos_pfc"} & arguments.keys()
    assert "pfc" not in arguments["sonic_qos_interfaces"]["config"][0]
