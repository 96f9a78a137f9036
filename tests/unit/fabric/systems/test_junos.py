# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Junos: rendered settings are read back, and remediation leads to them from configurations by others."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import switches
from hypothesis import given
from hypothesis import strategies as st
from junos_switch import BY_HAND, commit
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    BufferShares,
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import junos

PORTS = ["et-0/0/1", "et-0/0/0", "et-0/0/2:0"]


def held(switch: Switch) -> Switch:
    """Return the switch as Junos shows it: no headroom in bytes, a cable (default 100 m) only where a port pauses."""

    def port(qos: PortQos) -> PortQos:
        return replace(qos, headroom=(None,) * 8, cable_m=(qos.cable_m or 100) if qos.pfc else None)

    return replace(switch, ports={name: port(qos) for name, qos in switch.ports.items()})


def reference(**changes: Any) -> Switch:
    return switches.switch("junos", PORTS, **{"cable_m": 7, **changes})


def test_the_rendered_reference_is_read_back():
    wanted = reference()
    assert junos.parse(junos.render(wanted), wanted.name) == held(wanted)


@given(switches.policies())
def test_any_rendered_policy_is_read_back(policy):
    wanted = switches.switch("junos", PORTS, policy)
    text = junos.render(wanted)
    assert text == junos.render(copy.deepcopy(wanted))
    assert junos.parse(text, wanted.name) == held(wanted)
    assert junos.remediation(text, wanted) == ""


def test_a_class_may_have_another_priority_and_queue_than_its_number():
    policy = {
        "classes": {"roce": {"traffic_class": 1, "priority": 4, "queue": 2}},
        "cnp": {"traffic_class": 2, "priority": 1, "queue": 7},
        "default": {"traffic_class": 5, "priority": 0, "queue": 3},
        "ecmp_fields": ["source_port", "source_ip"],
        "pfc_watchdog": {"detection_ms": 300, "restoration_ms": 500, "action": "forward"},
    }
    wanted = switches.switch("junos", PORTS, policy)
    assert junos.parse(junos.render(wanted), "leaf1") == held(wanted)


@given(st.integers(1000, 1 << 38), st.integers(1, 1 << 38), st.integers(1, 1 << 38))
def test_attainable_thresholds_do_not_exceed_the_wanted_ones_and_are_read_back(buffer, first, second):
    wanted_ecn = Ecn(min(first, second), max(first, second), 20)
    queues = (Queue(False, 50, wanted_ecn), *reference().ports["et-0/0/0"].queues[1:])
    wanted = replace(reference(queues=queues), queue_buffer_bytes=buffer)
    try:
        attained = {port: junos.attainable(qos, buffer) for port, qos in wanted.ports.items()}
    except FabricError:
        assert min(wanted_ecn.minimum_bytes, switches.ECN.minimum_bytes) * 100 < 2 * buffer
        return
    got = attained["et-0/0/0"].queues[0].ecn
    assert 0 < got.minimum_bytes <= max(wanted_ecn.minimum_bytes, -(-buffer // 100))
    assert got.minimum_bytes < got.maximum_bytes <= wanted_ecn.maximum_bytes
    wanted = replace(wanted, ports=attained)
    assert junos.parse(junos.render(wanted), "leaf1") == held(wanted)
    assert {port: junos.attainable(qos, buffer) for port, qos in attained.items()} == attained


def test_differing_ports_share_equal_objects():
    equal_ports = reference()
    first = equal_ports.ports["et-0/0/1"]
    mixed = replace(
        equal_ports, ports={**equal_ports.ports, "et-0/0/0": replace(first, pfc=(), watchdog=None, ip_mtu_bytes=1500)}
    )
    text = junos.render(mixed)
    assert text.count("scheduler-map sailloft-") == 3
    assert len({line for line in text.splitlines() if " interfaces et-" in line and "congestion" in line}) == 2
    seen = junos.parse(text, "leaf1")
    assert seen.ports["et-0/0/1"] == held(equal_ports).ports["et-0/0/1"]
    assert seen.ports["et-0/0/0"].pfc == ()


def test_every_missing_line_is_detected():
    wanted = reference()
    lines = junos.render(wanted).splitlines()
    for position, line in enumerate(lines):
        try:
            seen = junos.parse("\n".join(lines[:position] + lines[position + 1 :]), "leaf1")
        except FabricError:
            continue
        assert (seen == held(wanted)) == line.endswith(("priority low", "layer2-payload")), line  # the defaults


def test_every_changed_number_is_detected():
    wanted = reference()
    lines = junos.render(wanted).splitlines()
    for position, line in enumerate(lines):
        *parents, last = line.split(" ")
        replacement = {"strict-high": "low", "low": "strict-high"}.get(last)
        if last.isdecimal():
            replacement = {"100": "99", "111111": "000000"}.get(
                last, "111111" if len(last) == 6 else str(int(last) + 1)
            )
        if parents[-1] == "mru":  # a larger value would be accepted
            replacement = str(int(last) - 1)
        if replacement is None:
            continue
        try:
            seen = junos.parse(
                "\n".join([*lines[:position], " ".join([*parents, replacement]), *lines[position + 1 :]]), "leaf1"
            )
        except FabricError:
            continue
        assert seen != held(wanted), line


def test_ports_with_another_queue_or_priority_of_a_class_are_refused():
    equal_ports = reference()
    first = equal_ports.ports["et-0/0/1"]

    def moved(field, old, new):
        values = getattr(first, field)
        return tuple(values[old] if at == new else None if at == old else each for at, each in enumerate(values))

    def refusal(**changes):
        mixed = replace(equal_ports, ports={**equal_ports.ports, "et-0/0/0": replace(first, **changes)})
        with pytest.raises(FabricError) as refused:
            junos.render(mixed)
        return str(refused.value)

    def at(field, place, value):
        return tuple(value if each == place else number for each, number in enumerate(getattr(first, field)))

    queue = {"class_to_queue": at("class_to_queue", 3, 5), "queues": moved("queues", 3, 5)}
    assert refusal(**queue, priority_to_queue=at("priority_to_queue", 3, 5)).startswith("leaf1: the queue of class 3 ")
    priority = {"class_to_priority": at("class_to_priority", 3, 5), "pfc": (5,), "headroom": moved("headroom", 3, 5)}
    priority["priority_to_queue"] = moved("priority_to_queue", 3, 5)
    assert refusal(**priority).startswith("leaf1: the priority of class 3 ")


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"queues": (Queue(False, 50, Ecn(150_001, 1_500_000, 100)), *reference().ports["et-0/0/0"].queues[1:])},
         "give 150000 and 1500000"),
        ({"queues": (Queue(False, 50, Ecn(150_000, 15_000_000, 100)), *reference().ports["et-0/0/0"].queues[1:])},
         "give 150000 and 14850000"),
        ({"queues": (Queue(False, 50, Ecn(1, 100, 1)), *reference().ports["et-0/0/0"].queues[1:])},
         "give 150000 and 300000"),
        ({"queues": (Queue(False, None), *reference().ports["et-0/0/0"].queues[1:])}, "has None as its share"),
        ({"queues": (Queue(False, 0), *reference().ports["et-0/0/0"].queues[1:])}, "has 0 as its share"),
        ({"queues": (Queue(False, 101), *reference().ports["et-0/0/0"].queues[1:])}, "has 101 as its share"),
        ({"ip_mtu_bytes": 9203}, "9217 bytes"),
        ({"watchdog": Watchdog(250, 200, "drop")}, "multiple of 100"),
        ({"pfc": (), "headroom": (None,) * 8}, "watchdog, but no lossless priority"),
        ({"priority_to_queue": (0, None, None, 6, None, None, 3, None)}, "stops another queue"),
        ({"class_to_queue": (0, None, None, None, None, None, 6, None)}, "has queue None"),
    ],
)  # fmt: skip
def test_settings_that_junos_cannot_represent_are_refused(changes, fact):
    with pytest.raises(FabricError, match=fact):
        junos.render(reference(**changes))


def test_thresholds_without_the_queue_buffer_size_are_refused():
    with pytest.raises(FabricError, match="queue_buffer_bytes"):
        junos.render(replace(reference(), queue_buffer_bytes=None))


RUNNING = {
    "nothing of it": "set system host-name leaf1\nset interfaces et-0/0/0 mtu 9216\n",
    "by hand": BY_HAND + "set class-of-service interfaces et-0/0/0 unit 0 classifiers dscp mydscp\n"
    "set forwarding-options enhanced-hash-key inet no-l4-source-port\n",
    "an older policy of ours": junos.render(
        switches.switch("junos", [*PORTS, "et-0/0/9"], {"classes": {"old": {"dscp": 10, "traffic_class": 5}}})
    ),
    "ours, partly off": junos.render(reference()) + "deactivate class-of-service interfaces et-0/0/1\n",
}


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("changes", [{}, {"pfc": (), "headroom": (None,) * 8, "watchdog": None}])
def test_remediation_reaches_the_wanted_settings_and_keeps_other_settings(name, changes):
    wanted = reference(**changes)
    running = RUNNING[name]
    lines = junos.remediation(running, wanted)
    changed = commit(running, lines)
    seen = junos.parse("".join(f"{line}\n" for line in changed.splitlines() if "et-0/0/9" not in line), "leaf1")
    assert {port: seen.ports[port] for port in PORTS} == held(wanted).ports
    assert seen.ecmp_fields == wanted.ecmp_fields
    assert junos.remediation(changed, wanted) == ""
    foreign = [line for line in running.splitlines() if "sailloft" not in line and "interfaces" not in line]
    assert [line for line in foreign if line and " ".join(line.split()) not in changed.splitlines()] == [
        line
        for line in foreign
        if "no-l4-source-port" in line or (wanted.ports[PORTS[0]].pfc and "class CNP queue-" in line)
    ]


@pytest.mark.parametrize("place", ["et-0/0/0 unit 0", "et-0/0/0 unit *", "et-0/0/0", "et-0/0/0* unit 0"])
@pytest.mark.parametrize("rule", ["dscp mark", "dscp default", "dscp-ipv6 mark", "inet-precedence mark"])
def test_rewriting_of_dscps_is_detected_and_turned_off(place, rule):
    line = f"set class-of-service interfaces {place} rewrite-rules {rule}\n"
    text = junos.render(reference()) + line
    seen = junos.parse(text, "leaf1").ports
    assert [port for port in PORTS if seen[port].rewrites_dscp] == ["et-0/0/0"]
    lines = junos.remediation(text, reference())
    assert lines == line.replace("set ", "delete ", 1)
    assert junos.parse(commit(text, lines), "leaf1") == held(reference())


def test_settings_below_our_macro_are_removed_and_other_macros_are_kept():
    old = "set class-of-service apply-macro sailloft colour blue\n"
    foreign = "set class-of-service apply-macro site colour blue\n"
    text = junos.render(reference()) + old + foreign
    assert junos.remediation(text, reference()) == "delete class-of-service apply-macro sailloft colour blue\n"


def test_a_small_mtu_of_a_unit_is_removed_only_from_wanted_ports():
    units = [
        "set interfaces et-0/0/0 unit 0 family inet mtu 1500\n",
        "set interfaces et-0/0/0 unit 1 family inet6 mtu 9099\n",
        "set interfaces et-0/0/0 unit 2 family inet mtu 9100\n",
        "set interfaces et-0/0/9 unit 0 family inet mtu 1500\n",
        "set protocols et-0/0/0 unit 0 mtu 1500\n",
    ]
    lines = junos.remediation(junos.render(reference()) + "".join(units), reference())
    assert lines == "".join(line.replace("set ", "delete ", 1) for line in units[:2])


def test_rewriting_of_ethernet_priorities_is_accepted():
    text = junos.render(reference()) + "set class-of-service interfaces et-0/0/0 unit 0 rewrite-rules ieee-802.1 mark\n"
    assert junos.parse(text, "leaf1") == held(reference())
    assert junos.remediation(text, reference()) == ""


def test_a_port_without_settings_is_read():
    text = "set interfaces xe-0/0/7 unit 0 family inet\nset interfaces em0 mtu 1500\n"
    assert junos.parse(text, "leaf1").ports == {"xe-0/0/7": PortQos(ip_mtu_bytes=1500)}


def cut(lossless: int, headroom: int) -> str:
    prefix = "set class-of-service shared-buffer ingress buffer-partition"
    remaining = 100 - lossless - headroom
    parts = {"lossless": lossless, "lossless-headroom": headroom, "lossy": remaining}
    return "".join(f"{prefix} {name} percent {percent}\n" for name, percent in parts.items())


@pytest.mark.parametrize(
    ("running", "planned", "fact"),
    [
        (cut(5, 45), BufferShares(9, 45), "lossless percent: it is 5, but the plan assumes 9"),
        (cut(66, 24), BufferShares(9, 45), "lossless-headroom percent: it is 24, but the plan assumes 45"),
        ("", BufferShares(61, 25), "lossless percent: it is the default of an unknown model, but the plan assumes 61"),
    ],
)
def test_partitions_smaller_than_planned_are_refused(running, planned, fact):
    wanted = replace(switches.switch("junos", ["et-0/0/0"]), shares=planned)
    with raises(FabricError, "leaf1", fact, "roce_asics"):
        junos.remediation("set system host-name leaf1\n" + running, wanted)


def test_partitions_as_large_as_planned_are_kept():
    wanted = switches.switch("junos", ["et-0/0/0"])
    for running, planned in (
        ("", BufferShares(9, 45, default_of="QFX5120")),
        (cut(66, 25), BufferShares(61, 25)),
        (cut(5, 0), None),
    ):
        lines = junos.remediation("set system host-name leaf1\n" + running, replace(wanted, shares=planned))
        assert "scheduler-maps" in lines
        assert "shared-buffer" not in lines
