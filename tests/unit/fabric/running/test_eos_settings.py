# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each setting of EOS's QoS is read up to the limits of its numbers."""

from __future__ import annotations

import pytest
from messages import Mentions
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos


def read(*lines, global_lines=()):
    """Return Ethernet1 with ``lines`` of its own, on a switch with ``whole``, lines at the margin."""
    text = ["hostname leaf1", *global_lines, "interface Ethernet1", *(f"   {line}" for line in lines)]
    return eos.parse("\n".join(text) + "\n", "leaf1").ports["Ethernet1"]


def routed(*lines, global_lines=()):
    return read("no switchport", *lines, global_lines=global_lines)


def refuse(subject, *facts, lines=(), global_lines=()):
    with refuses(f"leaf1: {subject}", *facts):
        routed(*lines, global_lines=global_lines)


DEFAULT = (*(1,) * 8, *(0,) * 8, *(dscp // 8 for dscp in range(16, 64)))


def test_a_routed_port_trusts_the_dscp_and_a_switched_port_does_not():
    assert routed().dscp_to_class == DEFAULT
    assert read().dscp_to_class == (None,) * 64
    assert (routed().ip_mtu_bytes, read().ip_mtu_bytes) == (1500, None)
    assert read("qos trust dscp").dscp_to_class == DEFAULT
    assert routed("qos trust cos").dscp_to_class == (None,) * 64
    assert routed("no qos trust").dscp_to_class == (None,) * 64


@pytest.mark.parametrize("mtu", [68, 9000, 65535])
def test_an_mtu_is_read(mtu):
    assert routed(f"mtu {mtu}").ip_mtu_bytes == read(f"mtu {mtu}").ip_mtu_bytes == mtu


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("mtu 67", ("'67'", "68 to 65535")),
        ("mtu 65536", ("'65536'", "68 to 65535")),
        ("priority-flow-control priority 8 no-drop", ("'8'", "0 to 7")),
        ("priority-flow-control priority 3 maybe", ()),
        ("priority-flow-control pause watchdog port action reboot", ()),
        ("uc-tx-queue 8", ("'8'", "0 to 7")),
        ("qos trust ip", ()),
    ],
)
def test_a_setting_beyond_its_limits_is_refused(line, facts):
    refuse(f"line 4 {line!r}", *facts, lines=[line])


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("bandwidth percent 0", ("'0'", "1 to 100")),
        ("bandwidth percent 101", ("'101'", "1 to 100")),
        ("bandwidth 5", ()),
        ("priority high", ()),
        ("random-detect ecn", ()),
    ],
)
def test_a_setting_of_a_queue_beyond_its_limits_is_refused(line, facts):
    refuse(f"line 5 {line!r}", *facts, lines=["uc-tx-queue 3", f"   {line}"])


@pytest.mark.parametrize(
    ("line", "word", "maximum"),
    [
        ("qos map dscp 5 to traffic-class {}", "8", 7),
        ("qos map traffic-class {} to tx-queue 0", "8", 7),
        ("qos map traffic-class 0-{} to tx-queue 0", "8", 7),
        ("qos map traffic-class 0 to tx-queue {}", "8", 7),
        ("qos map dscp {} to traffic-class 0", "64", 63),
    ],
)
def test_a_map_beyond_its_limits_is_refused(line, word, maximum):
    routed(global_lines=(line.format(maximum),))
    refuse(f"line 2 {line.format(word)!r}", f"'{word}'", f"0 to {maximum}", global_lines=(line.format(word),))


def test_maps_of_ranges_and_lists_are_read():
    lines = ("qos map dscp 0-63 to traffic-class 7", "qos map dscp 0,63 to traffic-class 0")
    assert routed(global_lines=lines).dscp_to_class == (0, *(7,) * 62, 0)
    queues = ("qos map traffic-class 0-2,4 7 to tx-queue 7", "qos map traffic-class 6 to uc-tx-queue 0")
    assert routed(global_lines=queues).class_to_queue == (7, 7, 7, 3, 7, 5, 0, 7)
    descending = "qos map traffic-class 3-2 to tx-queue 7"
    refuse(f"line 2 {descending!r}", "'2'", "3 to 7", global_lines=(descending,))


def test_the_first_and_the_last_queue_and_priority_are_read():
    qos = routed(
        "priority-flow-control on",
        "priority-flow-control priority 0 no-drop",
        "priority-flow-control priority 7 no-drop",
        "uc-tx-queue 0",
        "   no priority",
        "   bandwidth percent 1",
        "tx-queue 7",
        "   no priority",
        "   bandwidth percent 100",
    )
    assert qos.pfc == (0, 7)
    assert (qos.queues[0], qos.queues[7]) == (Queue(False, 1), Queue(False, 100))
    assert qos.queues[1:7] == (Queue(False),) * 6


WEIGHTED = ("uc-tx-queue 3", "   no priority", "   bandwidth percent 50")


def test_a_queue_is_strict_above_all_weighted_ones_only():
    global_lines = ("qos map dscp 0-62 to traffic-class 0", "qos map dscp 63 to traffic-class 5")

    def kinds(*lines):
        return [queue and queue.strict for queue in routed(*lines, global_lines=global_lines).queues]

    none = [None] * 8
    assert kinds() == [True, *none[:4], True, None, None]
    assert kinds(*WEIGHTED) == [False, None, None, False, None, True, None, None]
    assert kinds("uc-tx-queue 0", "   no priority") == [False, *none[:4], True, None, None]
    assert kinds("uc-tx-queue 5", "   no priority") == [False, *none[:4], False, None, None]
    assert kinds("uc-tx-queue 3", "   priority strict") == [True, None, None, True, None, True, None, None]
    assert kinds("uc-tx-queue 0", "   bandwidth percent 5") == [True, *none[:4], True, None, None]
    assert routed("uc-tx-queue 0", "   bandwidth percent 5", global_lines=global_lines).queues[0] == Queue(True)


def test_thresholds_are_read_in_their_units():
    def ecn(line):
        return routed(*WEIGHTED, f"   random-detect ecn {line}").queues[3].ecn

    assert ecn("minimum-threshold 1 bytes maximum-threshold 2 kbytes") == Ecn(1, 2000, 100)
    assert ecn("minimum-threshold 3 mbytes maximum-threshold 4 mbytes max-mark-probability 5 weight 0") == Ecn(
        3_000_000, 4_000_000, 5
    )
    for line in ("1 segments maximum-threshold 2 bytes", "1 bytes maximum-threshold 2 segments"):
        queue = routed(*WEIGHTED, f"   random-detect ecn minimum-threshold {line}").queues[3]
        assert (queue.ecn, queue.unknown_ecn) == (None, Mentions("segments", "bytes"))


@pytest.mark.parametrize("weight", [1, 15])
def test_thresholds_of_an_average_are_not_bytes_of_the_queue(weight):
    line = f"   random-detect ecn minimum-threshold 1 kbytes maximum-threshold 2 kbytes weight {weight}"
    queue = routed(*WEIGHTED, line).queues[3]
    assert (queue.ecn, queue.unknown_ecn) == (None, Mentions("1 kbytes", "2 kbytes", f"weight {weight}"))


def test_a_weight_beyond_its_limit_is_refused():
    line = "random-detect ecn minimum-threshold 1 kbytes maximum-threshold 2 kbytes weight 16"
    refuse(f"line 7 {line!r}", "'16'", "0 to 15", lines=[*WEIGHTED, f"   {line}"])


def test_pfc_needs_the_port_and_the_switch():
    paused = "priority-flow-control priority 3 no-drop"
    assert routed("priority-flow-control mode on", paused).pfc == (3,)
    assert routed("priority-flow-control on", paused).pfc == (3,)
    assert routed(paused).pfc == ()
    for no in ("no priority-flow-control", "no priority-flow-control on", "no priority-flow-control mode on"):
        assert routed("priority-flow-control on", paused, no).pfc == ()
    assert routed("priority-flow-control on", paused, global_lines=("priority-flow-control all off",)).pfc == ()
    assert routed(paused, global_lines=("priority-flow-control all off",)).pfc == ()
    assert routed("priority-flow-control on", "priority-flow-control priority 3 drop").pfc == ()


DOG = "priority-flow-control pause watchdog"
TIMER = f"{DOG} port timer timeout 0.2 polling-interval 0.1 recovery-time 0.3"


@pytest.mark.parametrize(
    ("lines", "global_lines", "watchdog"),
    [
        ((), (), None),
        ((DOG,), (), None),
        ((TIMER,), (), None),
        ((DOG, TIMER), (), Watchdog(200, 300, "errdisable")),
        ((TIMER, DOG, f"no {DOG}"), (), None),
        ((DOG, TIMER.replace("0.1", "auto") + " forced"), (), Watchdog(200, 300, "errdisable")),
        ((DOG, TIMER, f"{DOG} port action drop"), (), Watchdog(200, 300, "drop")),
        ((DOG, TIMER, f"{DOG} port action notify-only"), (), Watchdog(200, 300, "notify-only")),
        ((DOG, TIMER), (f"{DOG} action drop",), Watchdog(200, 300, "drop")),
        ((DOG, TIMER, f"{DOG} port action errdisable"), (f"{DOG} action drop",), Watchdog(200, 300, "errdisable")),
        ((DOG, TIMER), (f"{DOG} override action drop",), Watchdog(200, 300, "drop")),
        ((DOG, TIMER, f"{DOG} port action notify-only"), (f"{DOG} override action drop",), Watchdog(200, 300, "drop")),
        ((), (f"{DOG} default timeout 1.5",), Watchdog(1500, 0, "errdisable")),
        ((), (f"{DOG} default timeout 1", f"{DOG} default recovery-time 0.01"), Watchdog(1000, 10, "errdisable")),
        ((f"no {DOG}",), (f"{DOG} default timeout 1",), None),
        ((), (f"{DOG} default recovery-time 1",), None),
        ((DOG,), (f"{DOG} default recovery-time 1",), None),
        ((TIMER,), (f"{DOG} default timeout 9",), Watchdog(200, 300, "errdisable")),
        ((DOG, TIMER.replace("0.1", "0.25")), (), Watchdog(250, 300, "errdisable")),
        ((DOG, TIMER.replace("0.1", "5")), (), Watchdog(5000, 5000, "errdisable")),
        ((DOG, TIMER), (f"{DOG} default polling-interval 5",), Watchdog(200, 300, "errdisable")),
        ((), (f"{DOG} default timeout 1", f"{DOG} default polling-interval 2.5"), Watchdog(2500, 2500, "errdisable")),
    ],
)
def test_the_watchdog_acts_with_a_timeout_where_it_is_on(lines, global_lines, watchdog):
    assert routed(*lines, global_lines=global_lines).watchdog == watchdog


POLICY = (
    "class-map type qos match-any A",
    "   match ip dscp 0,63",
    "class-map type qos match-any B",
    "   match dscp 0 cs1",
    "policy-map type quality-of-service P",
    "   note",
    "   class A",
    "      set traffic-class 7",
    "      set cos 3",
    "   class B",
    "      set traffic-class 0",
)
INPUT = "service-policy type qos input P"


def test_a_policy_map_overrides_the_switchs_map_with_the_first_class_that_matches():
    qos = routed(INPUT, global_lines=POLICY)
    assert qos.dscp_to_class == (7, *DEFAULT[1:8], 0, *DEFAULT[9:63], 7)
    assert qos.rewrites_dscp is False
    with_default = (*POLICY, "   class class-default", "      set traffic-class 5")
    assert routed(INPUT, global_lines=with_default).dscp_to_class == (7, *(5,) * 7, 0, *(5,) * 54, 7)
    assert routed(INPUT, global_lines=[line.replace("quality-of-service", "qos") for line in POLICY]) == qos


@pytest.mark.parametrize(
    ("old", "new", "subject", "facts"),
    [
        ("set traffic-class 7", "set traffic-class 8", "line 9 'set traffic-class 8'", ("'8'", "0 to 7")),
        ("   class A", "   class C", "line 8 'class C'", ("class-map C",)),
        ("-service P", "-service Q", f"line 15 '{INPUT}'", ("policy-map P",)),
    ],
)
def test_a_policy_map_that_cannot_be_understood_is_refused(old, new, subject, facts):
    refuse(subject, *facts, lines=[INPUT], global_lines=[line.replace(old, new) for line in POLICY])


def test_rewriting_is_read_from_the_switch_or_a_policy_map():
    assert routed(global_lines=("qos rewrite dscp",)).rewrites_dscp is True
    marks = [line.replace("set cos 3", "set dscp 5") for line in POLICY]
    assert routed(INPUT, global_lines=marks).rewrites_dscp is True
    assert routed(global_lines=marks).rewrites_dscp is False
    assert routed(INPUT, global_lines=(*POLICY, "qos rewrite dscp")).rewrites_dscp is True


def test_a_ports_own_map_is_refused():
    refuse("line 4 'qos map dscp to traffic-class M'", "whole switch", lines=["qos map dscp to traffic-class M"])


def test_a_ports_lines_override_its_profiles():
    profile = (
        "qos profile x",
        "   qos trust dscp",
        "   uc-tx-queue 3",
        "      no priority",
        "      bandwidth percent 9",
    )
    qos = read("service-profile x", "uc-tx-queue 3", "   bandwidth percent 8", global_lines=profile)
    assert (qos.queues[3], qos.dscp_to_class) == (Queue(False, 8), DEFAULT)
    assert read("service-profile x", "qos trust cos", global_lines=profile).queues[3] == Queue(False, 9)
    refuse("line 4 'service-profile y'", "qos profile y", lines=["service-profile y"])


def test_ports_with_the_same_queues_but_other_shares_differ():
    text = "\n".join(
        f"interface Ethernet{number}\n   uc-tx-queue 3\n      no priority\n      bandwidth percent {number}"
        for number in (1, 2)
    )
    ports = eos.parse(f"hostname leaf1\n{text}\n", "leaf1").ports
    assert [ports[f"Ethernet{number}"].queues[3] for number in (1, 2)] == [Queue(False, 1), Queue(False, 2)]


@pytest.mark.parametrize(
    ("fields", "read_as"),
    [
        ("source-ip", ("source_ip",)),
        ("destination-ip source-ip", ("destination_ip", "source_ip")),
        ("source-port", ("protocol", "source_port")),
        ("destination-port ttl", ("destination_port", "protocol")),
        ("ttl", ()),
    ],
)
def test_the_hash_has_the_protocol_with_its_ports(fields, read_as):
    for family in ("ip", "ipv6"):
        text = f"hostname leaf1\nip load-sharing trident fields {family} {fields}\n"
        assert eos.parse(text, "leaf1").ecmp_fields == read_as


def test_the_hash_has_what_it_has_of_both_families():
    lines = ("ip load-sharing trident fields ip source-ip source-port", "ip load-sharing trident fields ipv6 source-ip")
    assert eos.parse("\n".join(("hostname leaf1", *lines, "")), "leaf1").ecmp_fields == ("source_ip",)
