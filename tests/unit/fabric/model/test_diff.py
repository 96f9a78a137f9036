# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch's QoS as data, and differences in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.diff import UNUSED, differences, to_data
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Watchdog,
)

PORTS = ["swp1", "swp2", "swp3", "swp4", "swp5"]
WANTED = switch("plain", PORTS)
QOS = WANTED.ports["swp1"]


def seen(**changes):
    return replace(WANTED, ports=dict.fromkeys(PORTS, replace(QOS, **changes)))


def put(field, index, value):
    values = list(getattr(QOS, field))
    values[index] = value
    return {field: tuple(values)}


def test_to_data_returns_the_settings_as_plain_data():
    data = json.loads(json.dumps(to_data(WANTED)))
    assert (data["name"], data["system"], data["ecmp_fields"][0]) == ("leaf1", "plain", "destination_ip")
    port = data["ports"]["swp5"]
    assert (port["dscp_to_class"]["26"], len(port["dscp_to_class"])) == (3, 64)
    assert port["class_to_queue"] == {"0": 0, "3": 3, "6": 6}
    assert port["queues"]["3"]["ecn"] == {
        "minimum_bytes": 150_000,
        "maximum_bytes": 1_500_000,
        "probability_percent": 100,
    }
    assert port["queues"]["6"] == {"strict": True, "bandwidth_percent": None, "ecn": None}
    assert list(port["headroom"]) == ["3"]
    assert (port["pfc"], port["watchdog"]["action"], port["ip_mtu_bytes"]) == ([3], "drop", 9100)
    empty = to_data(replace(WANTED, ports={"swp1": PortQos()}, ecmp_fields=None))
    assert (empty["ecmp_fields"], empty["ports"]["swp1"]["queues"]) == (None, {})


def test_equal_settings_give_no_difference_and_extra_ports_are_ignored():
    assert differences(WANTED, switch("plain", PORTS), ()) == []
    # Parts of the running configuration that the wanted one does not have belong to others.
    assert differences(WANTED, replace(WANTED, ports={**WANTED.ports, "mgmt": PortQos()}), ()) == []


DIFFERENT = [
    (put("dscp_to_class", 26, 1), "traffic class of DSCP 26: wanted 3, seen 1"),
    ({"dscp_to_class": (None,) * 64}, "traffic class of DSCP 0-25,27-47,49-63: wanted 0, seen none"),
    (put("class_to_queue", 3, None), "queue of traffic class 3: wanted 3, seen none"),
    (put("class_to_priority", 3, 4), "priority of pauses of traffic class 3: wanted 3, seen 4"),
    (put("priority_to_queue", 3, 4), "queue of paused priority 3: wanted 3, seen 4"),
    (
        put("queues", 3, Queue(False, 50, Ecn(150_000, 1_500_000, 5))),
        "queue 3: wanted 50%, ECN 150000 to 1500000 bytes at 100%, seen 50%, ECN 150000 to 1500000 bytes at 5%",
    ),
    (put("queues", 6, Queue(False, 14)), "queue 6: wanted strict, no ECN, seen 14%, no ECN"),
    (put("queues", 0, Queue(False)), "queue 0: wanted 50%, no ECN, seen no share, no ECN"),
    (put("queues", 6, None), "queue 6: wanted strict, no ECN, seen none"),
    ({"pfc": ()}, "priorities with PFC: wanted 3, seen none"),
    ({"pfc": (3, 4)}, "priorities with PFC: wanted 3, seen 3, 4"),
    (
        put("headroom", 3, Headroom(19_456, 1, 19_456, 3)),
        "headroom of priority 3: wanted xoff_bytes 38912, alpha_exponent 0, seen xoff_bytes 1, alpha_exponent 3",
    ),
    (
        {"watchdog": Watchdog(200, 400, "drop")},
        "PFC watchdog: wanted restoration_ms 200, seen restoration_ms 400",
    ),
    ({"watchdog": None}, "PFC watchdog: wanted detection_ms 200, restoration_ms 200, action drop, seen none"),
    ({"ip_mtu_bytes": 1500}, "largest IP packet, in bytes: wanted 9100, seen 1500"),
    ({"ip_mtu_bytes": None}, "largest IP packet, in bytes: wanted 9100, seen none"),
]


@pytest.mark.parametrize(("changes", "expected"), DIFFERENT, ids=[expected[:50] for _rest, expected in DIFFERENT])
def test_a_difference_names_ports_setting_wanted_and_seen_value(changes, expected):
    differences_found = differences(WANTED, seen(**changes), ())
    assert expected in [str(replace(difference, ports=())) for difference in differences_found]
    assert all(difference.ports == tuple(PORTS) for difference in differences_found)
    (field,) = changes
    assert differences(WANTED, seen(**changes), {field}) == []


def test_settings_of_unused_classes_are_one_difference_beside_those_of_used_ones():
    every = tuple(range(8))
    room = Headroom(0, 1, 2, 3)
    changed = {
        "class_to_queue": every,
        "priority_to_queue": every,
        "queues": tuple(queue or Queue(False, 5) for queue in QOS.queues),
        "headroom": (room, *QOS.headroom[1:4], room, *QOS.headroom[5:]),
        "pfc": (3, 4),
    }
    named = {difference.what: difference for difference in differences(WANTED, seen(**changed), ())}
    assert named.keys() == {UNUSED, "priorities with PFC", "headroom of priority 0"}
    assert named[UNUSED].ports == tuple(PORTS)
    assert set(named[UNUSED].seen.split("; ")) == {
        "queue of traffic class 1-2,4-5,7",
        "queue of paused priority 1-2,4-5,7",
        "queue 1-2,4-5,7",
        "headroom of priority 4",
    }
    hidden = differences(WANTED, seen(**changed), {"queues", "headroom"})
    assert {difference.what for difference in hidden} == {UNUSED, "priorities with PFC"}
    assert not any("headroom" in difference.seen for difference in hidden)


def test_unused_strict_queues_are_named_because_they_take_the_bandwidth_of_others():
    queues = tuple(queue or Queue(True) for queue in QOS.queues)
    assert [difference.what for difference in differences(WANTED, seen(queues=queues), ())] == ["queue 1-2,4-5,7"]


def test_cable_length_is_compared_only_if_it_is_wanted():
    five, nine = (replace(WANTED, ports={"swp1": replace(QOS, cable_m=metres)}) for metres in (5, 9))
    none = replace(WANTED, ports={"swp1": QOS})
    (difference,) = differences(five, nine, ())
    assert str(difference) == "swp1: longest cable, in metres: wanted 5, seen 9"
    assert differences(none, five, ()) == differences(five, nine, {"cable_m"}) == []


def test_a_wanted_cable_length_that_was_not_read_differs():
    five, none = (replace(WANTED, ports={"swp1": replace(QOS, cable_m=metres)}) for metres in (5, None))
    (difference,) = differences(five, none, ())
    assert str(difference) == "swp1: longest cable, in metres: wanted 5, seen none"


def test_a_missing_strict_queue_is_named_before_differences_in_shares():
    shares = {0: Queue(False, 44), 3: Queue(False, 44, QOS.queues[3].ecn), 6: Queue(False, 12)}
    queues = tuple(shares.get(number) for number in range(8))
    differences_found = differences(
        WANTED, replace(WANTED, ports=dict.fromkeys(WANTED.ports, replace(QOS, queues=queues))), ()
    )
    assert [difference.what for difference in differences_found] == ["queue 6", "queue 0", "queue 3"]
    assert (differences_found[0].wanted, differences_found[0].seen) == ("strict, no ECN", "12%, no ECN")


@pytest.mark.parametrize(
    ("seen_queues", "order"),
    [
        ({6: Queue(False, 12), 3: QOS.queues[3]}, ["queue 6", "queue 0"]),
        ({6: Queue(False, 12), 0: QOS.queues[0], 1: Queue(False, 5), 3: QOS.queues[3]}, ["queue 6", UNUSED]),
        ({0: Queue(False, 1), 3: QOS.queues[3]}, ["queue 6", "queue 0"]),
        ({0: Queue(False, 1), 3: QOS.queues[3], 5: Queue(True), 6: Queue(True)}, ["queue 5", "queue 0"]),
    ],
)
def test_an_absent_queue_counts_as_weighted(seen_queues, order):
    queues = tuple(seen_queues.get(number) for number in range(8))
    assert [difference.what for difference in differences(WANTED, seen(queues=queues), ())] == order


@pytest.mark.parametrize(
    ("count", "ports_shown"),
    [(1, "swp1"), (2, "swp1, swp2"), (3, "swp1, swp2, swp3"), (4, "swp1, swp2, swp3 and 1 more")],
)
def test_a_difference_names_at_most_three_ports(count, ports_shown):
    before_change = dict.fromkeys(PORTS[:count], QOS)
    after_change = dict.fromkeys(PORTS[:count], replace(QOS, rewrites_dscp=True))
    (difference,) = differences(replace(WANTED, ports=before_change), replace(WANTED, ports=after_change), ())
    assert str(difference) == f"{ports_shown}: rewrites dscp: wanted no, seen yes"


def test_differences_name_a_single_port_and_a_missing_port():
    ports = {**WANTED.ports, "swp2": replace(QOS, pfc=())}
    del ports["swp4"]
    texts = [str(difference) for difference in differences(WANTED, replace(WANTED, ports=ports), ())]
    assert texts == [
        "swp2: priorities with PFC: wanted 3, seen none",
        "swp4: the port: wanted configured, seen not there",
    ]


@pytest.mark.parametrize(("fields", "expected"), [(None, "not set"), ((), "none"), (("source_ip",), "source_ip")])
def test_ecmp_fields_are_compared_per_switch(fields, expected):
    (difference,) = differences(WANTED, replace(WANTED, ecmp_fields=fields), ())
    assert str(difference).endswith(f"source_ip, source_port, seen {expected}")
    assert str(difference).startswith("what ECMP hashes: wanted ")
    assert differences(WANTED, replace(WANTED, ecmp_fields=fields), {"ecmp_fields": ""}) == []
