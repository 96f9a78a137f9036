# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The calls that remediation of Dell SONiC makes, in whole, for single differences."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from dell_sonic_modules import dell, gathered, rendered
from switches import NO_QOS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic

WANTED = dell(ports=["Eth1/1"])
THERE = gathered(rendered(WANTED))
PORT = THERE["qos_interfaces"][0]
POLICY = PORT["scheduler_policy"]


def steps(running: dict[str, Any], wanted: Any = WANTED) -> list[dict[str, Any]]:
    text = dell_sonic.remediation(json.dumps(running), wanted)
    calls = json.loads(text) if text else []
    assert text == (json.dumps(calls, indent=2, sort_keys=True) + "\n" if calls else "")
    return calls


def there() -> dict[str, Any]:
    return copy.deepcopy(THERE)


def test_objects_come_before_the_ports_that_name_them():
    calls = steps({})
    assert [(call["module"], call["state"]) for call in calls] == [
        (f"sonic_{resource}", "merged")
        for resource in (
            *("qos_buffer", "qos_maps", "qos_wred", "qos_scheduler", "qos_pfc", "qos_interfaces", "interfaces"),
            "ecmp_load_share",
        )
    ]
    arguments = rendered(WANTED)
    for call in calls:
        if call["module"] != "sonic_qos_interfaces":
            assert call["config"] == arguments[call["module"]]["config"]
    configs = {call["module"]: call["config"] for call in calls}
    assert configs["sonic_qos_buffer"] == {"buffer_init": True}
    assert configs["sonic_qos_pfc"] == {"counter_poll": True, "poll_interval": 100}


def test_a_port_without_settings_needs_no_call():
    empty = dell(ports=["Eth1/1"], **NO_QOS, ip_mtu_bytes=None)
    assert [call["module"] for call in steps({}, empty)] == ["sonic_ecmp_load_share"]


@pytest.mark.parametrize(
    ("pfc", "sent"),
    [
        ({"watchdog_action": "alert"}, {"watchdog_action": "drop"}),
        ({"watchdog_detect_time": 400}, {"watchdog_detect_time": 200, "watchdog_action": "drop"}),
        ({"asymmetric": True}, {"asymmetric": False, "watchdog_action": "drop"}),
    ],
)
def test_the_action_of_the_watchdog_is_sent_with_every_change(pfc, sent):
    running = there()
    running["qos_interfaces"][0]["pfc"].update(pfc)
    (step,) = steps(running)
    assert step["module"] == "sonic_qos_interfaces"
    assert step["config"][0]["pfc"] == sent


def test_only_queues_of_another_kind_are_deleted_from_a_policy():
    running = there()
    (policy,) = running["qos_scheduler"]
    schedulers = {queue["sequence"]: queue for queue in policy["schedulers"]}
    wanted = copy.deepcopy(schedulers)
    assert sorted(schedulers) == [0, 3, 6]
    schedulers[6].update(scheduler_type="dwrr", weight=10)
    schedulers[3].update(weight=9)
    policy["schedulers"] += [{"sequence": 1, "scheduler_type": "dwrr", "weight": 5}, {"sequence": 255, "pir": 10}]
    calls = steps(running)
    assert calls[0] == {
        "module": "sonic_qos_scheduler",
        "state": "deleted",
        "config": [{"name": POLICY, "schedulers": [{"sequence": 6}, {"sequence": 1}]}],
    }
    assert (calls[1]["module"], calls[1]["state"]) == ("sonic_qos_scheduler", "merged")
    sent = {queue["sequence"]: queue["scheduler_type"] for queue in calls[1]["config"][0]["schedulers"]}
    assert sent == {number: queue["scheduler_type"] for number, queue in wanted.items()}


def test_an_unwanted_strict_queue_is_a_difference():
    running = there()
    running["qos_scheduler"][0]["schedulers"].append({"sequence": 5, "scheduler_type": "strict"})
    assert steps(running)[0]["config"] == [{"name": POLICY, "schedulers": [{"sequence": 5}]}]


def test_an_equal_map_of_groups_is_kept_whatever_its_name():
    running = there()
    entries = [{"dot1p": number, "pg_index": number} for number in range(8)]
    running["qos_maps"]["pfc_priority_pg_maps"] = [{"name": "SAILLOFT_PG", "entries": entries}]
    running["qos_interfaces"][0]["qos_maps"]["pfc_priority_pg"] = "SAILLOFT_PG"
    assert steps(running) == []
    entries[0]["pg_index"] = 1
    assert [(call["module"], call["state"], call["config"]) for call in steps(running)] == [
        (
            "sonic_qos_interfaces",
            "deleted",
            [{"name": "Eth1/1", "qos_maps": {"pfc_priority_pg": "SAILLOFT_PG"}}],
        ),
        ("sonic_qos_maps", "deleted", {"pfc_priority_pg_maps": [{"name": "SAILLOFT_PG"}]}),
    ]


def test_profiles_of_ports_outside_the_plan_are_kept():
    running = there()
    for name in ("SAILLOFT_A", "SAILLOFT_B"):
        running["qos_wred"].append({**running["qos_wred"][0], "name": name})
    running["qos_interfaces"].append({"name": "Eth1/9", "queues": [{"id": 3, "wred_profile": "SAILLOFT_A"}]})
    assert steps(running) == [{"module": "sonic_qos_wred", "state": "deleted", "config": [{"name": "SAILLOFT_B"}]}]
