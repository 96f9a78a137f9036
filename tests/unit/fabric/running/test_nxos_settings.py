# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each setting of NX-OS's QoS is read up to the limits of its numbers."""

from __future__ import annotations

import pytest
from messages import Mentions, raises
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import nxos

MAPS = (
    "class-map type qos match-any A",
    "  match dscp 0,63",
    "class-map type qos match-any B",
    "  match dscp 0,8",
    "policy-map type qos IN",
    "  class A",
    "    set qos-group 7",
    "  class type qos B",
    "    set qos-group 2",
)
OUT = "policy-map type queuing OUT"
NET = "policy-map type network-qos NET"
ATTACH = {
    "IN": "  service-policy type qos input IN",
    "OUT": "  service-policy type queuing output OUT",
    "NET": "  service-policy type network-qos NET",
}
PFC = "priority-flow-control mode on"


def read(*lines, global_lines=(), attach=()):
    """Return Ethernet1/1 with ``lines`` of its own; ``whole``: lines at the margin; ``attach``: system policies."""
    system = ["system qos", *(ATTACH[name] for name in attach)] if attach else []
    text = ["hostname leaf1", *global_lines, *system, "interface Ethernet1/1", *(f"  {line}" for line in lines)]
    return nxos.parse("\n".join(text) + "\n", "leaf1").ports["Ethernet1/1"]


def refusal(*lines, global_lines=(), attach=()):
    with pytest.raises(FabricError) as refused:
        read(*lines, global_lines=global_lines, attach=attach)
    return str(refused.value)


def test_the_first_matching_class_decides_a_dscps_group():
    qos = read(global_lines=MAPS, attach=["IN"])
    assert qos.dscp_to_class == (7, *(0,) * 7, 2, *(0,) * 54, 7)
    assert qos.class_to_queue == qos.class_to_priority == qos.priority_to_queue
    assert qos.class_to_queue == (0, None, 2, None, None, None, None, 7)
    with_default = (*MAPS, "  class class-default", "    set qos-group 5")
    assert read(global_lines=with_default, attach=["IN"]).dscp_to_class == (7, *(5,) * 7, 2, *(5,) * 54, 7)
    assert read(global_lines=MAPS).dscp_to_class == (None,) * 64
    assert read("service-policy type qos input IN", global_lines=MAPS).dscp_to_class == qos.dscp_to_class
    port_policy = ("policy-map type qos OWN", "  note", "  class B", "    set qos-group 1")
    port_read = read("service-policy type qos input OWN", global_lines=(*MAPS, *port_policy), attach=["IN"])
    assert port_read.dscp_to_class == (1, *(0,) * 7, 1, *(0,) * 55)


def test_a_default_policy_classifies_nothing():
    assert read("service-policy type qos input default-in", global_lines=MAPS).dscp_to_class == (None,) * 64
    with refuses("leaf1: line 3 'service-policy type qos input NONE'", "policy-map type qos NONE"):
        read("service-policy type qos input NONE")


@pytest.mark.parametrize("action", ["set dscp 5", "set precedence 3"])
def test_an_action_that_sets_the_dscp_rewrites(action):
    assert read(global_lines=(*MAPS, f"    {action}"), attach=["IN"]).rewrites_dscp is True
    assert read(global_lines=(*MAPS, f"    {action}")).rewrites_dscp is False
    assert read(global_lines=(*MAPS, "    set cos 3"), attach=["IN"]).rewrites_dscp is False


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("set qos-group 7", "set qos-group 8", "'8' is not a number from 0 to 7"),
        ("class A", "class C", "class-map type qos C"),
        ("class-map type qos match-any A", "class-map match-other A", "'class-map match-other A'"),
        ("match dscp 0,63", "match dscp 64", "'64' is not a number from 0 to 63"),
    ],
)
def test_maps_that_cannot_be_understood_are_refused(old, new, fact):
    assert fact in refusal(global_lines=[line.replace(old, new) for line in MAPS], attach=["IN"])


def network(*lines, mtu=9000, pfc=PFC):
    return read(pfc, f"mtu {mtu}", global_lines=(*MAPS, NET, *(f"  {line}" for line in lines)), attach=["IN", "NET"])


def test_pauses_stop_the_queue_of_their_group():
    qos = network("class type network-qos c-8q-nq7", "  mtu 9216", "  pause pfc-cos 3")
    assert qos.pfc == (3,)
    assert qos.class_to_priority == (0, None, 2, None, None, None, None, 3)
    assert qos.priority_to_queue == (0, None, 2, 7, None, None, None, None)
    off = network("class type network-qos c-8q-nq7", "  pause pfc-cos 3", pfc="priority-flow-control mode off")
    assert off.pfc == ()
    assert off.priority_to_queue == (0, None, 2, 7, None, None, None, None)


def test_a_group_without_packets_or_with_several_priorities_pauses_too():
    qos = network("class type network-qos c-8q-nq4", "  mtu 9216", "  pause pfc-cos 0-1,5")
    assert qos.pfc == (0, 1, 5)
    assert qos.priority_to_queue == (4, 4, 2, None, None, 4, None, 7)
    off = network("class type network-qos c-8q-nq4", "  pause pfc-cos 5", pfc="priority-flow-control mode auto")
    assert off.priority_to_queue == (0, None, 2, None, None, None, None, 7)


@pytest.mark.parametrize(
    ("name", "group"),
    [("c-nq7", 7), ("c-8q-nq2", 2), ("c-8q-nq-default", 0), ("c-nq-default", 0), ("class-default", 0)],
)
def test_built_in_classes_are_those_of_their_group(name, group):
    qos = network(f"class type network-qos {name}", "  mtu 9216", "  pause pfc-cos 5")
    assert qos.class_to_priority[group] == 5


@pytest.mark.parametrize("group", [0, 7])
def test_a_class_map_gives_the_group_of_a_queue(group):
    global_lines = (
        "class-map type queuing MINE",
        f"  match qos-group {group}",
        OUT,
        "  class type queuing MINE",
        "    bandwidth percent 100",
    )
    assert read(global_lines=global_lines, attach=["OUT"]).queues[group] == Queue(False, 100)
    wrong_group = [line.replace(f"qos-group {group}", "qos-group 8") for line in global_lines]
    assert refusal(global_lines=wrong_group, attach=["OUT"]) == Mentions("'8'", "0", "7")
    none = [line.replace("match qos-group", "match cos") for line in global_lines]
    assert refusal(global_lines=none, attach=["OUT"]) == Mentions("class-map MINE", "qos-group")
    assert "class-map type queuing MINE" in refusal(global_lines=global_lines[2:], attach=["OUT"])


@pytest.mark.parametrize(
    ("line", "mtu", "read_as"),
    [
        ("mtu 576", 9000, 576),
        ("mtu 9216", 9216, 9216),
        ("mtu 9216", 9000, 9000),
        ("mtu 9000", 9216, 9000),
        ("pause no-drop", 9000, 1500),
        ("note", 1400, 1400),
    ],
)
def test_a_port_that_pauses_has_the_smaller_mtu(line, mtu, read_as):
    assert network("class type network-qos c-8q-nq7", f"  {line}", "  pause pfc-cos 3", mtu=mtu).ip_mtu_bytes == read_as
    off = "priority-flow-control mode off"
    assert (
        network("class type network-qos c-8q-nq7", f"  {line}", "  pause pfc-cos 3", mtu=mtu, pfc=off).ip_mtu_bytes
        == mtu
    )


@pytest.mark.parametrize("mtu", [1500, 9216])
def test_the_mtu_of_a_class_that_never_pauses_limits_no_port(mtu):
    default = ("class type network-qos c-8q-nq-default", f"  mtu {mtu}")
    qos = network(*default)
    assert (qos.pfc, qos.ip_mtu_bytes) == ((), 9000)
    qos = network(*default, "class type network-qos c-8q-nq7", "  mtu 9216", "  pause pfc-cos 3")
    assert (qos.pfc, qos.ip_mtu_bytes) == ((3,), 9000)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("mtu 575", "'575' is not a number from 576 to 9216"),
        ("mtu 9217", "'9217' is not a number from 576 to 9216"),
        ("pause pfc-cos 8", "'8' is not a number from 0 to 7"),
        ("pause pfc-cos 3-8", "'8' is not a number from 3 to 7"),
        ("pause pfc-cos 5-4", "'4' is not a number from 5 to 7"),
        ("pause", "not a pause command of NX-OS"),
    ],
)
def test_a_class_of_a_network_policy_beyond_its_limits_is_refused(line, fact):
    with raises(FabricError, "leaf1", "line 13", repr(line), fact):
        network("class type network-qos c-8q-nq7", f"  {line}")


def test_pauses_of_the_last_priority_and_with_other_words_are_read():
    assert network("class type network-qos c-8q-nq7", "  pause pfc-cos 0,6-7").pfc == (0, 6, 7)
    assert network("class type network-qos c-8q-nq7", "  pause no-drop pfc-cos 4").pfc == (4,)


def test_a_class_that_only_obeys_pauses_has_no_pfc():
    qos = network("class type network-qos c-8q-nq7", "  mtu 9216", "  pause pfc-cos 4 receive")
    assert (qos.pfc, qos.class_to_priority[7], qos.priority_to_queue[4]) == ((), 4, 7)
    both = network("class type network-qos c-8q-nq7", "  mtu 9216", "  pause pfc-cos 4", "  pause pfc-cos 5 receive")
    assert both.pfc == ()


def queues(*lines, global_lines=MAPS, attach=("IN", "OUT")):
    return read(global_lines=(*global_lines, OUT, *(f"  {line}" for line in lines)), attach=attach).queues


def test_queues_are_those_that_groups_lead_to_or_a_policy_serves():
    empty = Queue(False, 0)
    assert queues() == (empty, None, empty, None, None, None, None, empty)
    assert queues("class type queuing c-out-8q-q4", "  bandwidth percent 0")[4] is None
    assert queues("class type queuing c-out-q4", "  bandwidth remaining percent 1")[4] == Queue(False, 1)
    assert queues("class type queuing c-out-8q-q4", "  priority")[4] == Queue(True)
    assert queues("class type queuing c-out-8q-q4", "  priority level 2", "  bandwidth percent 5")[4] == Queue(True)
    assert queues("class type queuing c-out-8q-q-default", "  bandwidth percent 100")[0] == Queue(False, 100)
    marked = "  random-detect minimum-threshold 1 bytes maximum-threshold 2 kbytes drop-probability 3 weight 0 ecn"
    assert queues("class type queuing c-out-8q-q4", marked)[4] == Queue(False, 0, Ecn(1, 2000, 3))
    assert queues("class type queuing c-out-8q-q4", marked.replace(" weight 0 ecn", ""))[4] is None
    for line in ("random-detect", "random-detect non-ecn", marked.replace(" ecn", " non-ecn")):
        assert queues("class type queuing c-out-8q-q4", f"  {line.strip()}")[4] is None
    chosen = queues("class type queuing c-out-8q-q4", "  random-detect threshold burst-optimized ecn")[4]
    assert chosen == Queue(False, 0, unknown_ecn="random-detect threshold burst-optimized ecn")
    averaged = queues("class type queuing c-out-8q-q4", marked.replace("weight 0", "weight 15"))[4]
    assert averaged == Queue(False, 0, unknown_ecn=Mentions("1 bytes", "2 kbytes", "3%", "weight 15"))
    default = read(global_lines=MAPS, attach=["IN"]).queues
    assert default == (Queue(False, 100), *(None,) * 7)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("bandwidth percent 101", "'101' is not a number from 0 to 100; correct it on the switch"),
        ("bandwidth 5", "not a setting of NX-OS's queues; correct it on the switch"),
        ("priority high", "not a setting of NX-OS's queues; correct it on the switch"),
        (
            "random-detect minimum-threshold 1 bytes maximum-threshold 2 bytes drop-probability 3 weight 16 ecn",
            "'16' is not a number from 0 to 15",
        ),
    ],
)
def test_a_setting_of_a_queue_beyond_its_limits_is_refused(line, fact):
    with raises(FabricError, "leaf1", "line 13", repr(line), fact):
        queues("class type queuing c-out-8q-q4", f"  {line}")


DOG = "priority-flow-control watch-dog-interval"
INTERVAL = "priority-flow-control watch-dog interval"
SHUTDOWN = "priority-flow-control watch-dog shutdown-multiplier"
RESTORE = "priority-flow-control auto-restore multiplier"


@pytest.mark.parametrize(
    ("port_lines", "global_lines", "watchdog"),
    [
        ((), (), None),
        ((f"{DOG} on",), (), None),
        ((), (f"{DOG} on",), None),
        ((f"{DOG} off",), (f"{DOG} on",), None),
        ((f"{DOG} on",), (f"{DOG} on", f"{DOG} off"), None),
        ((f"{DOG} on",), (f"{DOG} on",), Watchdog(100, 1000, "drop")),
        ((f"{DOG} on disable-action",), (f"{DOG} on",), Watchdog(100, 1000, "disable-action")),
        ((f"{DOG} on interface-multiplier 1",), (f"{DOG} on", f"{SHUTDOWN} 5"), Watchdog(100, 1000, "drop")),
        ((f"{DOG} on interface-multiplier 10",), (f"{DOG} on",), Watchdog(1000, 1000, "drop")),
        (
            (f"{DOG} on",),
            (f"{DOG} on", f"{INTERVAL} 1000", f"{SHUTDOWN} 2", f"{RESTORE} 3"),
            Watchdog(2000, 3000, "drop"),
        ),
        ((f"{DOG} on",), (f"{DOG} on", f"{RESTORE} 0"), Watchdog(100, 0, "drop")),
    ],
)
def test_the_watchdog_acts_where_switch_and_port_have_it_on(port_lines, global_lines, watchdog):
    assert read(*port_lines, global_lines=global_lines).watchdog == watchdog


@pytest.mark.parametrize(
    ("port_lines", "global_lines", "fact"),
    [
        ((f"{DOG} on interface-multiplier 0",), (), "'0' is not a number from 1 to 10"),
        ((f"{DOG} on interface-multiplier 11",), (), "'11' is not a number from 1 to 10"),
        ((), (f"{INTERVAL} 1001",), "'1001' is not a number from 0 to 1000"),
        ((), (f"{INTERVAL} x 5",), "not a setting of the watchdog"),
        (("mtu 67",), (), "'67' is not a number from 68 to 65535"),
        (("mtu 65536",), (), "'65536' is not a number from 68 to 65535"),
        (("priority-flow-control mode maybe",), (), "not a setting of NX-OS's QoS"),
        ((), ("ip load-sharing address source",), "not a load-sharing method of NX-OS"),
        ((), ("mtu 9000",), "it is not in a section that it could belong to"),
    ],
)
def test_a_setting_beyond_its_limits_is_refused(port_lines, global_lines, fact):
    assert f": {fact}; " in refusal(*port_lines, global_lines=global_lines)


@pytest.mark.parametrize("mtu", [68, 65535])
def test_an_mtu_is_read_up_to_its_limits(mtu):
    assert read(f"mtu {mtu}").ip_mtu_bytes == mtu


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("destination", ("destination_ip",)),
        ("source-destination", ("destination_ip", "source_ip")),
        ("destination port destination", ("destination_ip", "destination_port", "protocol")),
        (
            "source-destination port source-destination",
            ("destination_ip", "destination_port", "protocol", "source_ip", "source_port"),
        ),
        (
            "source-destination port destination rotate 5",
            ("destination_ip", "destination_port", "protocol", "source_ip"),
        ),
        ("destination port source-destination", ("destination_ip", "destination_port", "protocol", "source_port")),
    ],
)
def test_the_hash_is_read(method, fields):
    text = f"hostname leaf1\nip load-sharing address {method}\ninterface Ethernet1/1\n"
    assert nxos.parse(text, "leaf1").ecmp_fields == fields
