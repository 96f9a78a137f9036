# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Junos: what is rendered is what is read, whatever is changed is seen, and what others wrote is understood."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import switches
from hypothesis import given, settings
from hypothesis import strategies as st
from junos_switch import commit

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
# As an engineer writes it after Juniper's guides: wildcards, lists, aliases, several words a line, other settings.
BY_HAND = """
set version 23.4X100-D20.5-EVO
set system host-name leaf1
set class-of-service apply-macro sailloft queue-buffer-bytes 20000000
set class-of-service classifiers dscp mydscp forwarding-class CNP loss-priority low code-points nc1
set class-of-service classifiers dscp mydscp forwarding-class NO-LOSS loss-priority low code-points [ 011010 af32 ]
set class-of-service drop-profiles dp1 interpolate fill-level [ 55 90 ]
set class-of-service drop-profiles dp1 interpolate drop-probability [ 0 100 ]
set class-of-service shared-buffer ingress buffer-partition lossless percent 66
set class-of-service forwarding-classes class CNP queue-num 3
set class-of-service forwarding-classes class NO-LOSS queue-num 4 no-loss pfc-priority 3
set class-of-service forwarding-classes class mcast queue-num 8
set class-of-service congestion-notification-profile cnp pfc-watchdog
set class-of-service congestion-notification-profile cnp input dscp code-point 011010 pfc
set class-of-service congestion-notification-profile cnp input dscp code-point 011100 pfc
set class-of-service congestion-notification-profile cnp output ieee-802.1 code-point 011 flow-control-queue 4
set class-of-service interfaces et-* congestion-notification-profile cnp
set class-of-service interfaces et-* scheduler-map sm1
set class-of-service interfaces et-* unit * classifiers dscp mydscp
set class-of-service scheduler-maps sm1 forwarding-class CNP scheduler s2-cnp
set class-of-service scheduler-maps sm1 forwarding-class NO-LOSS scheduler s1
set class-of-service schedulers s1 drop-profile-map loss-priority any protocol any drop-profile dp1
set class-of-service schedulers s1 explicit-congestion-notification
set class-of-service schedulers s2-cnp transmit-rate percent 5
set class-of-service schedulers s2-cnp priority strict-high
set interfaces et-0/0/0 description "to spine1; 400G [a]"
set interfaces et-0/0/0 mtu 9216
set interfaces et-0/0/0 unit 0 family inet mtu 9000
set interfaces et-0/0/2:0 flexible-vlan-tagging
set interfaces et-0/0/2:0 mtu 9216
set interfaces lo0 unit 0 family inet address 10.0.0.1/32
"""

CNP = "set class-of-service congestion-notification-profile cnp"


def held(switch: Switch) -> Switch:
    """As it is read: Junos has no headroom in bytes, and a cable only of ports that pause (100 m unless told)."""

    def port(qos: PortQos) -> PortQos:
        return replace(qos, headroom=(None,) * 8, cable_m=(qos.cable_m or 100) if qos.pfc else None)

    return replace(switch, ports={name: port(qos) for name, qos in switch.ports.items()})


def reference(**changes: Any) -> Switch:
    return switches.switch("junos", PORTS, **{"cable_m": 7, **changes})


def test_the_reference_comes_back():
    wanted = reference()
    assert junos.parse(junos.render(wanted), wanted.name) == held(wanted)


@settings(max_examples=60, deadline=None)
@given(switches.policies())
def test_any_policy_comes_back(policy):
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


@settings(max_examples=200, deadline=None)
@given(st.integers(1000, 1 << 38), st.integers(1, 1 << 38), st.integers(1, 1 << 38))
def test_attainable_thresholds_are_never_above_those_asked_for_and_come_back(buffer, one, other):
    asked = Ecn(min(one, other), max(one, other), 20)
    queues = (Queue(False, 50, asked), *reference().ports["et-0/0/0"].queues[1:])
    wanted = replace(reference(queues=queues), queue_buffer_bytes=buffer)
    if min(asked.maximum_bytes, switches.ECN.maximum_bytes) * 100 < buffer:
        with pytest.raises(FabricError, match="below 1%"):
            junos.attainable(wanted.ports["et-0/0/0"], buffer)
        return
    made = {port: junos.attainable(qos, buffer) for port, qos in wanted.ports.items()}
    got = made["et-0/0/0"].queues[0].ecn
    assert got.minimum_bytes <= asked.minimum_bytes
    assert got.maximum_bytes <= asked.maximum_bytes
    assert got.minimum_bytes < got.maximum_bytes
    wanted = replace(wanted, ports=made)
    assert junos.parse(junos.render(wanted), "leaf1") == held(wanted)
    assert {port: junos.attainable(qos, buffer) for port, qos in made.items()} == made


def test_ports_that_differ_share_what_is_alike():
    alike = reference()
    first = alike.ports["et-0/0/1"]
    mixed = replace(alike, ports={**alike.ports, "et-0/0/0": replace(first, pfc=(), watchdog=None, ip_mtu_bytes=1500)})
    text = junos.render(mixed)
    assert text.count("scheduler-map sailloft-") == 3
    assert len({line for line in text.splitlines() if " interfaces et-" in line and "congestion" in line}) == 2
    seen = junos.parse(text, "leaf1")
    assert seen.ports["et-0/0/1"] == held(alike).ports["et-0/0/1"]
    assert seen.ports["et-0/0/0"].pfc == ()


def test_every_line_that_is_taken_away_is_seen():
    wanted = reference()
    lines = junos.render(wanted).splitlines()
    for at, line in enumerate(lines):
        try:
            seen = junos.parse("\n".join(lines[:at] + lines[at + 1 :]), "leaf1")
        except FabricError:
            continue
        assert (seen == held(wanted)) == line.endswith("priority low"), line  # low is what it is by itself


def test_every_number_that_is_changed_is_seen():
    wanted = reference()
    lines = junos.render(wanted).splitlines()
    for at, line in enumerate(lines):
        *words, last = line.split(" ")
        other = {"strict-high": "low", "low": "strict-high"}.get(last)
        if last.isdigit():
            other = {"100": "99", "111111": "000000"}.get(last, "111111" if len(last) == 6 else str(int(last) + 1))
        if words[-1] == "mru":  # more would be as good
            other = str(int(last) - 1)
        if other is None:
            continue
        try:
            seen = junos.parse("\n".join([*lines[:at], " ".join([*words, other]), *lines[at + 1 :]]), "leaf1")
        except FabricError:
            continue
        assert seen != held(wanted), line


def test_a_configuration_by_hand_is_understood():
    seen = junos.parse(BY_HAND, "leaf1")
    assert list(seen.ports) == ["et-0/0/0", "et-0/0/2:0"]
    assert seen.queue_buffer_bytes == 20_000_000
    assert seen.ecmp_fields is None
    port = seen.ports["et-0/0/0"]
    assert {dscp: at for dscp, at in enumerate(port.dscp_to_class) if at is not None} == {26: 4, 28: 4, 48: 3}
    assert port.class_to_queue == (None, None, None, 3, 4, None, None, None)
    assert port.class_to_priority == (None, None, None, None, 3, None, None, None)
    assert port.priority_to_queue == (None, None, None, 4, None, None, None, None)
    assert port.queues[3:5] == (Queue(True), Queue(False, 0, Ecn(11_000_000, 18_000_000, 100)))
    assert (port.pfc, port.watchdog) == ((3,), Watchdog(200, 200, "drop"))
    assert port.ip_mtu_bytes == 9000
    assert seen.ports["et-0/0/2:0"].ip_mtu_bytes == 9216 - 22


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("input dscp code-point 011100 pfc", "input dscp code-point 011101 pfc", "pfc", ()),
        ("flow-control-queue 4", "flow-control-queue 3", "pfc", ()),
        (f"{CNP} output ieee-802.1 code-point 011 flow-control-queue 4\n", "", "priority_to_queue",
         (None, None, None, 3, 4, None, None, None)),
        ("no-loss pfc-priority 3", "pfc-priority 3", "pfc", ()),
        ("pfc-priority 3", "pfc-priority 5", "pfc", ()),
        ("set class-of-service interfaces et-* congestion-notification-profile cnp\n", "", "pfc", ()),
        ("pfc-watchdog\n", "pfc-watchdog detection 5\n", "watchdog", Watchdog(500, 200, "drop")),
        ("set interfaces et-0/0/0 mtu 9216\n", "", "ip_mtu_bytes", None),
        # 9,000 bytes do not fit into the 2,500 that headroom is reckoned for, nor into those of one of two DSCPs.
        ("set system", "set system", "cable_m", 0),
        ("011100 pfc", "011100 pfc mru 9014", "cable_m", 0),
        ("mtu 9000", "mtu 2486", "cable_m", 100),
        ("mtu 9000", "mtu 2487", "cable_m", 0),
        ("set system", "deactivate class-of-service interfaces et-* congestion-notification-profile\nset system", "pfc",
         ()),
        ("set system", "set class-of-service interfaces et-0/0/0 unit 7 classifiers dscp default\nset system",
         "dscp_to_class", (None,) * 64),
    ],
)  # fmt: skip
def test_what_breaks_it_is_seen(old, new, field, value):
    assert old in BY_HAND
    assert getattr(junos.parse(BY_HAND.replace(old, new), "leaf1").ports["et-0/0/0"], field) == value


def test_the_mru_of_all_dscps_is_the_packets():
    text = BY_HAND.replace("011010 pfc", "011010 pfc mru 9014").replace("011100 pfc", "011100 pfc mru 9014")
    assert junos.parse(text, "leaf1").ports["et-0/0/0"].cable_m == 100
    text += f"{CNP} input cable-length 30\n"
    assert junos.parse(text, "leaf1").ports["et-0/0/0"].cable_m == 30


def test_thresholds_are_not_seen_where_the_profile_is_not_used():
    profile = "drop-profile-map loss-priority any protocol any drop-profile dp1"
    for what in ("explicit-congestion-notification", profile):
        line = f"set class-of-service schedulers s1 {what}\n"
        assert line in BY_HAND
        assert junos.parse(BY_HAND.replace(line, ""), "leaf1").ports["et-0/0/0"].queues[4] == Queue(False, 0)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("scheduler-map sm1", "scheduler-map sm2", "et-0/0/0: scheduler-maps sm2 is not there"),
        ("classifiers dscp mydscp\n", "classifiers dscp other\n", "classifiers dscp other is not there"),
        ("congestion-notification-profile cnp\n", "congestion-notification-profile x\n", "profile x is not there"),
        ("scheduler s1\n", "scheduler s9\n", "schedulers s9 is not there"),
        ("drop-profile dp1", "drop-profile dp9", "schedulers s1: drop-profiles dp9 is not there"),
        ("sm1 forwarding-class CNP", "sm1 forwarding-class CNQ", "forwarding class CNQ is not there"),
        ("class CNP queue-num 3", "class CNP priority low", "class CNP: it has no queue-num"),
        ("queue-num 4", "queue-num four", "queue-num 'four'"),
        ("fill-level [ 55 90 ]", "fill-level [ 90 55 ]", "dp1: fill levels"),
        ("fill-level [ 55 90 ]", "fill-level 55", "dp1: fill levels"),
        ("fill-level [ 55 90 ]", "fill-level [ 55 90", "line 7: a list"),
        ("fill-level [ 55 90 ]", "fill-level [ 55 900 ]", "'900'"),
        ("drop-probability [ 0 100 ]", "drop-probability [ 5 100 ]", "no straight line"),
        ("code-points nc1", "code-points nc9", "'nc9'"),
        ("set class-of-service apply-macro sailloft queue-buffer-bytes 20000000\n", "", "how many bytes that has"),
        ("set system host-name leaf1", "system { host-name leaf1; }", "line 3: 'system"),
        ("forwarding-class CNP loss-priority low code-points nc1", "import mydscp", "imports itself"),
        ("mtu 9216", "mtu jumbo", "et-0/0/0: mtu 'jumbo'"),
        ("mtu 9216", "mtu 65536", "et-0/0/0: mtu '65536'"),
        ("mtu 9216", "mtu 255", "et-0/0/0: mtu '255'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(old, new, named):
    assert old in BY_HAND
    with pytest.raises(FabricError) as caught:
        junos.parse(BY_HAND.replace(old, new), "leaf1")
    assert str(caught.value).startswith("leaf1: Junos configuration: ")
    assert named in str(caught.value)


@pytest.mark.parametrize("mtu", [256, 65535])
def test_the_least_and_the_largest_mtu_are_read(mtu):
    lines = (line for line in BY_HAND.replace("mtu 9216", f"mtu {mtu}").splitlines() if "family inet" not in line)
    seen = junos.parse("\n".join(lines), "leaf1")
    assert seen.ports["et-0/0/0"].ip_mtu_bytes == mtu - 14  # an untagged frame's header


def test_ports_that_give_a_class_another_meaning_are_refused():
    alike = reference()
    first = alike.ports["et-0/0/1"]

    def moved(field, old, new):
        values = getattr(first, field)
        return tuple(values[old] if at == new else None if at == old else each for at, each in enumerate(values))

    def said(**changes):
        mixed = replace(alike, ports={**alike.ports, "et-0/0/0": replace(first, **changes)})
        with pytest.raises(FabricError) as refused:
            junos.render(mixed)
        return str(refused.value)

    def at(field, place, value):
        return tuple(value if each == place else number for each, number in enumerate(getattr(first, field)))

    rest = "differs between its ports, and Junos keeps one for the whole switch; give all ports the same"
    queue = {"class_to_queue": at("class_to_queue", 3, 5), "queues": moved("queues", 3, 5)}
    assert said(**queue, priority_to_queue=at("priority_to_queue", 3, 5)) == f"leaf1: the queue of class 3 {rest}"
    priority = {"class_to_priority": at("class_to_priority", 3, 5), "pfc": (5,), "headroom": moved("headroom", 3, 5)}
    priority["priority_to_queue"] = moved("priority_to_queue", 3, 5)
    assert said(**priority) == f"leaf1: the priority of class 3 {rest}"


@pytest.mark.parametrize("text", ["", "\n\n", "## Last commit\n", "hello", "error: syntax error", "{}", "set", '"'])
def test_what_is_no_configuration_is_refused(text):
    with pytest.raises(FabricError, match="leaf1"):
        junos.parse(text, "leaf1")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"queues": (Queue(False, 50, Ecn(150_001, 1_500_000, 100)), *reference().ports["et-0/0/0"].queues[1:])},
         "give 150000 and 1500000"),
        ({"queues": (Queue(False, 50, Ecn(150_000, 15_000_000, 100)), *reference().ports["et-0/0/0"].queues[1:])},
         "give 150000 and 14850000"),
        ({"queues": (Queue(False, 50, Ecn(1, 100, 1)), *reference().ports["et-0/0/0"].queues[1:])}, "below 1%"),
        ({"ip_mtu_bytes": 9203}, "9217 bytes"),
        ({"watchdog": Watchdog(250, 200, "drop")}, "multiple of 100"),
        ({"pfc": (), "headroom": (None,) * 8}, "watchdog without"),
        ({"priority_to_queue": (0, None, None, 6, None, None, 3, None)}, "stops another queue"),
        ({"class_to_queue": (0, None, None, None, None, None, 6, None)}, "has queue None"),
    ],
)  # fmt: skip
def test_what_junos_cannot_hold_is_refused(changes, why):
    with pytest.raises(FabricError, match=why):
        junos.render(reference(**changes))


def test_without_the_size_of_a_queue_there_are_no_thresholds():
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
def test_remediation_makes_the_wanted_of_what_is_there_and_leaves_the_rest(name, changes):
    wanted = reference(**changes)
    running = RUNNING[name]
    lines = junos.remediation(running, wanted)
    after = commit(running, lines)
    seen = junos.parse("".join(f"{line}\n" for line in after.splitlines() if "et-0/0/9" not in line), "leaf1")
    assert {port: seen.ports[port] for port in PORTS} == held(wanted).ports
    assert seen.ecmp_fields == wanted.ecmp_fields
    assert junos.remediation(after, wanted) == ""
    foreign = [line for line in running.splitlines() if "sailloft" not in line and "interfaces" not in line]
    assert [line for line in foreign if line and " ".join(line.split()) not in after.splitlines()] == [
        line for line in foreign if "no-l4-source-port" in line
    ]


@pytest.mark.parametrize("where", ["et-0/0/0 unit 0", "et-0/0/0 unit *", "et-0/0/0", "et-0/0/0* unit 0"])
@pytest.mark.parametrize("rule", ["dscp mark", "dscp default", "dscp-ipv6 mark", "inet-precedence mark"])
def test_a_port_that_rewrites_dscps_is_seen_and_stops(where, rule):
    line = f"set class-of-service interfaces {where} rewrite-rules {rule}\n"
    text = junos.render(reference()) + line
    seen = junos.parse(text, "leaf1").ports
    assert [port for port in PORTS if seen[port].rewrites_dscp] == ["et-0/0/0"]
    lines = junos.remediation(text, reference())
    assert lines == line.replace("set ", "delete ", 1)
    assert junos.parse(commit(text, lines), "leaf1") == held(reference())


def test_a_port_that_rewrites_priorities_of_ethernet_may():
    text = junos.render(reference()) + "set class-of-service interfaces et-0/0/0 unit 0 rewrite-rules ieee-802.1 mark\n"
    assert junos.parse(text, "leaf1") == held(reference())
    assert junos.remediation(text, reference()) == ""


def test_a_port_without_settings_is_a_port():
    text = "set interfaces xe-0/0/7 unit 0 family inet\nset interfaces em0 mtu 1500\n"
    assert junos.parse(text, "leaf1").ports == {"xe-0/0/7": PortQos()}


def cut(lossless: int, headroom: int) -> str:
    at = "set class-of-service shared-buffer ingress buffer-partition"
    rest = 100 - lossless - headroom
    parts = {"lossless": lossless, "lossless-headroom": headroom, "lossy": rest}
    return "".join(f"{at} {name} percent {percent}\n" for name, percent in parts.items())


@pytest.mark.parametrize(
    ("running", "planned", "why"),
    [
        (cut(5, 45), BufferShares(9, 45), "lossless percent: it is 5, and the plan assumes 9"),
        (cut(66, 24), BufferShares(9, 45), "lossless-headroom percent: it is 24, and the plan assumes 45"),
        ("", BufferShares(61, 25), "lossless percent: it is 9, and the plan assumes 61"),
    ],
)
def test_smaller_partitions_than_those_planned_with_are_refused(running, planned, why):
    wanted = replace(switches.switch("junos", ["et-0/0/0"]), shares=planned)
    with pytest.raises(FabricError) as refused:
        junos.remediation("set system host-name leaf1\n" + running, wanted)
    assert str(refused.value) == (
        f"leaf1: class-of-service shared-buffer ingress buffer-partition {why}; describe the switch's pools in "
        "roce_asics (like, source, pool_bytes, headroom_pool_bytes), or set it when no traffic has to pass, for "
        "changing it stops all ports"
    )


def test_partitions_as_large_as_planned_with_stay():
    wanted = switches.switch("junos", ["et-0/0/0"])
    for running, planned in (("", BufferShares(9, 45)), (cut(66, 25), BufferShares(61, 25)), (cut(5, 0), None)):
        lines = junos.remediation("set system host-name leaf1\n" + running, replace(wanted, shares=planned))
        assert "scheduler-maps" in lines
        assert "shared-buffer" not in lines
