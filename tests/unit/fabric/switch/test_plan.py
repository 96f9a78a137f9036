# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches of an inventory, checked and planned."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import plain_system
import pytest
from hypothesis import given, settings
from switches import policies, port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Ecn, Headroom, Pools
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import registry
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan


def attainable(qos, buffer):
    """Thresholds in whole percents of ``buffer``, at least one."""

    def whole(number):
        return max(1, number * 100 // buffer) * buffer // 100

    def held(queue):
        if queue is None or queue.ecn is None:
            return queue
        return replace(queue, ecn=Ecn(whole(queue.ecn.minimum_bytes), whole(queue.ecn.maximum_bytes), 100))

    return replace(qos, queues=tuple(held(queue) for queue in qos.queues))


def check_cable(subject, cable):
    if cable != 3:
        raise FabricError(subject, f"not {cable}", "take 3")


SYSTEMS = {
    "plain": plain_system,
    "few": SimpleNamespace(NOT_HELD={}, ASICS=("spectrum3",), NOT_ASICS={"jericho2": "few has other queues there"}),
    "named": SimpleNamespace(NOT_HELD={}, PORT=re.compile("Ethernet[0-9]+"), PORT_EXAMPLE="Ethernet0"),
    "parts": SimpleNamespace(NOT_HELD={}, BUFFER_SHARES=BufferShares(50)),
    "cut": SimpleNamespace(NOT_HELD={}, DEFAULT_SHARES=BufferShares(9, 45)),
    "pools": SimpleNamespace(NOT_HELD={}, HAS_POOLS=True),
    "sizes": SimpleNamespace(NOT_HELD={"headroom": "", "cable_m": ""}, SIZES_HEADROOM=True, check_cable=check_cable),
    "steps": SimpleNamespace(NOT_HELD={"headroom": "", "cable_m": ""}, held_cable_m=lambda cable: 40),
    "soft": SimpleNamespace(NOT_HELD={"pfc": "it sends none", "headroom": "none"}),
    "percents": SimpleNamespace(NOT_HELD={}, attainable=attainable),
    "reckons": SimpleNamespace(NOT_HELD={"headroom": "it reckons it"}),
}
STORAGE = {"dscp": 20, "traffic_class": 4, "bandwidth_percent": 20}
LEAF = {
    "system": "plain",
    "asic": "spectrum3",
    "ports": {
        "swp1": {"speed_gbit_s": 200, "cable_m": 3, "peer": {"host": "gpu01", "port": "mlx5_0"}},
        "swp2": {"speed_gbit_s": 200, "cable_m": 3, "peer": {"host": "gpu01", "port": "mlx5_1"}},
        "swp3": {"speed_gbit_s": 400, "cable_m": 30, "peer": {"switch": "spine1", "port": "Ethernet1"}},
    },
}
SPINE = {
    "system": "plain",
    "asic": "tomahawk3",
    "ports": {"Ethernet1": {"speed_gbit_s": 400, "cable_m": 30, "peer": {"switch": "leaf1", "port": "swp3"}}},
}
BOTH = {"leaf1": LEAF, "spine1": SPINE}
HOSTS = {"gpu01": {"mlx5_0": {"speed_gbit_s": 200}, "mlx5_1": {}}, "gpu02": {}, "gpu03": None}


def read(switches=None, hosts=..., asics=None):
    hosts = HOSTS if hosts is ... else hosts
    return read_switches(BOTH if switches is None else switches, hosts, asics, SYSTEMS)


def planned(policy=None, switches=None, **given):
    return plan(read_policy(policy), read(switches, **given))


def one(asic="spectrum3", ports=2, speed=400, cable=5, **settings):
    lines = {f"swp{at}": {"speed_gbit_s": speed, "cable_m": cable} for at in range(ports)}
    return {"leaf1": {"system": "plain", "asic": asic, "ports": lines, **settings}}


def test_the_reference_policy():
    wanted = planned()
    assert list(wanted) == ["leaf1", "spine1"]
    leaf, spine = wanted["leaf1"], wanted["spine1"]
    assert (leaf.name, leaf.system, list(leaf.ports)) == ("leaf1", "plain", ["swp1", "swp2", "swp3"])
    assert leaf.ecmp_fields == read_policy(None).ecmp_fields
    policy = read_policy(None)
    own = Headroom(19_456, 120_832, 0, 0, 19_456)
    assert leaf.ports["swp1"] == port_qos(policy, Ecn(300_000, 3_000_000, 100), own)
    fast = Headroom(47_104, 250_880, 9_216, 0, 37_888)
    assert leaf.ports["swp3"] == port_qos(policy, Ecn(600_000, 6_000_000, 100), fast)
    assert spine.ports["Ethernet1"].headroom[3] == Headroom(2_540, 195_326, 2_540, -2, 2_540)


def test_ports_that_are_alike_are_one_object():
    wanted = planned(switches={**BOTH, "leaf2": one(ports=64)["leaf1"]})
    assert wanted["leaf1"].ports["swp1"] is wanted["leaf1"].ports["swp2"]
    assert len({id(qos) for qos in wanted["leaf2"].ports.values()}) == 1
    full = {f"leaf{at}": one(ports=32)["leaf1"] for at in range(3)}
    assert len({id(qos) for switch in planned(switches=full).values() for qos in switch.ports.values()}) == 1


def test_two_classes_at_once():
    classes = {"roce": {}, "storage": STORAGE}
    (switch,) = planned({"classes": classes}, one()).values()
    qos = switch.ports["swp0"]
    assert qos.pfc == (3, 4)
    assert qos.headroom[3] == qos.headroom[4] == Headroom(47_104, 212_992, 9_216, 0, 37_888)
    assert [qos.dscp_to_class[dscp] for dscp in (26, 20, 48, 0)] == [3, 4, 6, 0]
    assert [queue and queue.bandwidth_percent for queue in qos.queues] == [30, None, None, 50, 20, None, None, None]
    assert qos.queues[3].ecn == qos.queues[4].ecn == Ecn(600_000, 6_000_000, 100)
    lossy = planned({"classes": {"roce": {}, "storage": {**STORAGE, "mode": "lossy"}}}, one())["leaf1"].ports["swp0"]
    assert (lossy.pfc, lossy.headroom[4], lossy.queues[4]) == ((3,), None, qos.queues[4])


def test_a_lossy_policy_needs_no_headroom_and_no_cable():
    ports = change(("leaf1", "ports", "swp0", "cable_m"), None, one())
    qos = planned({"classes": {"roce": {"mode": "lossy"}}}, ports)["leaf1"].ports["swp0"]
    assert (qos.pfc, qos.headroom, qos.watchdog) == ((), (None,) * 8, None)
    assert qos.queues[3].ecn == Ecn(600_000, 6_000_000, 100)
    with pytest.raises(FabricError, match="switch leaf1: port swp0: cable_m is missing, on which"):
        planned(None, ports)


def test_a_system_that_sends_no_pauses_needs_no_asic():
    soft = {"sw01": {"system": "soft", "ports": {"eth1": {"speed_gbit_s": 10}}}}
    qos = planned({"classes": {"roce": {"mode": "lossy"}}}, soft)["sw01"].ports["eth1"]
    assert qos.headroom == (None,) * 8
    assert qos.queues[3].ecn == thresholds.reference_ecn(10, 9100)


def test_a_system_that_sends_no_pauses_can_have_no_lossless_class():
    two = {"classes": {"roce": {"mode": "lossy"}, "storage": {**STORAGE, "mode": "lossless"}}}
    for policy, name in ((None, "roce"), (two, "storage")):
        with pytest.raises(FabricError) as refused:
            planned(policy, {"sw01": {"system": "soft", "ports": {"eth1": {"speed_gbit_s": 10}}}})
        assert str(refused.value) == (
            f"switch sw01: the policy's class {name} is lossless, and soft has no PFC: it sends none; make the class "
            "lossy (roce_policy: classes: mode), or take this switch out of roce_switches"
        )


def test_a_system_that_reckons_headroom_itself_is_told_the_cable():
    reckons = change(("leaf1", "system"), "reckons")
    wanted = planned(None, reckons)
    assert [qos.cable_m for qos in wanted["leaf1"].ports.values()] == [3, 3, 30]
    assert wanted["spine1"].ports["Ethernet1"].cable_m is None
    assert planned({"classes": {"roce": {"mode": "lossy"}}}, reckons)["leaf1"].ports["swp1"].cable_m is None


def test_a_system_that_counts_in_percent_is_given_what_it_can_hold():
    given = one(ports=32, queue_buffer_bytes=7_000_000)
    given["leaf1"]["system"] = "percents"
    switch = planned(None, given)["leaf1"]
    assert switch.queue_buffer_bytes == 7_000_000
    # Of 73,000 and 730,000 bytes, of which 1% and 10% are the most that is not more.
    assert switch.ports["swp0"].queues[3].ecn == Ecn(70_000, 700_000, 100)
    given["leaf1"]["queue_buffer_bytes"] = 30_000_000
    with pytest.raises(FabricError, match=r"ECN of 300000 to 600000 bytes at 100% marks 0\.00% of packets, and"):
        planned(None, given)
    other = deepcopy(given["leaf1"])
    given["leaf1"]["queue_buffer_bytes"] = 7_000_000
    with pytest.raises(FabricError, match="switch leaf2: port swp0"):  # what leaf1 can hold is not taken for it
        planned(None, {**given, "leaf2": other})
    assert planned(None, {**given, "leaf2": one(ports=32)["leaf1"]})["leaf2"].ports["swp0"].queues[3].ecn == Ecn(
        73_000, 730_000, 100
    )
    del given["leaf1"]["queue_buffer_bytes"]
    with pytest.raises(FabricError, match="switch leaf1: roce_switch_queue_buffer_bytes is missing, of which this"):
        planned(None, given)
    given["leaf1"]["queue_buffer_bytes"] = 7_000
    with pytest.raises(FabricError, match="queue_buffer_bytes 7000 is not a whole number of 100000 to 64000000000"):
        planned(None, given)


def test_a_system_is_planned_with_the_parts_into_which_it_cuts_the_buffer():
    taken = 32 * (47_104 + 212_992)
    (whole,), (parts,) = (planned(None, one(ports=32, system=each)).values() for each in ("plain", "parts"))
    assert whole.ports["swp0"].queues[3].ecn == Ecn(73_000, 730_000, 100)
    half = thresholds.pfc_queue_bytes(Fraction(60_817_392 - taken, 2), 32, 3, 0)
    assert parts.ports["swp0"].queues[3].ecn.minimum_bytes == int(half / Fraction(28, 10)) // 1000 * 1000


def test_a_system_with_pools_is_told_those_that_it_was_planned_with():
    taken = 32 * (47_104 + 212_992)
    own = planned(None, one(ports=32, system="pools"))["leaf1"].pools
    assert own == Pools((60_817_392 - taken) // 2, 0, 60_817_392 - taken)
    shared = planned(None, one("tomahawk3", ports=32, system="pools"))["leaf1"].pools
    assert shared == Pools(66_394_076, 27_200_352)
    lossy = {"classes": {"roce": {"mode": "lossy"}}}
    assert planned(lossy, one(ports=32, system="pools"))["leaf1"].pools is None
    assert planned(None, one(ports=32))["leaf1"].pools is None


def test_a_system_with_default_parts_is_planned_with_them_unless_the_pools_are_the_users():
    given = one("tomahawk3", ports=32, system="cut")
    switch = planned(None, given)["leaf1"]
    q = thresholds.pfc_queue_bytes(Fraction(66_394_076 * 9, 100), 32, 3, -2)
    assert switch.shares == BufferShares(9, 45)
    assert switch.ports["swp0"].queues[3].ecn == Ecn(10_000, (10_000 + int((q - 10_000) * 5)) // 1000 * 1000, 100)
    own = {"like": "tomahawk3", "source": "a test", "pool_bytes": 40_000_000, "headroom_pool_bytes": 16_000_000}
    switch = planned(None, {"leaf1": {**given["leaf1"], "asic": "own"}}, asics={"own": own})["leaf1"]
    assert switch.shares == BufferShares(61, 25)  # of 66,394,076, in whole percents that are as much
    assert switch.ports["swp0"].queues[3].ecn.minimum_bytes > 60_000


def test_a_system_that_sizes_headroom_alone_needs_no_rows():
    own = {"source": "a test", "buffer_bytes": 40_000_000, "pool_bytes": 20_000_000, "cell_bytes": 208}
    own["lossless_classes"] = 1
    given = one("own", ports=32, system="sizes", cable=3)
    ports = planned(None, given, asics={"own": {**own, "alpha_exponent": 0}})["leaf1"].ports
    assert ports["swp0"].headroom == (None,) * 8
    assert ports["swp0"].cable_m == 3
    assert ports["swp0"].queues[3].ecn == Ecn(55_000, 550_000, 100)  # 20,000,000 / 128 / 2.8
    with pytest.raises(FabricError) as refused:
        planned(None, given, asics={"own": own})
    assert str(refused.value) == (
        "switch leaf1: how much of the pool one priority of own may use before it pauses is not known; give the "
        "exponent of alpha as alpha_exponent in roce_asics"
    )
    with pytest.raises(FabricError, match="switch leaf1: port swp0: not 4; take 3"):
        planned(None, one("tomahawk3", system="sizes", cable=4))


def test_a_system_that_keeps_headroom_for_some_lengths_is_planned_with_these():
    assert planned(None, one("tomahawk3", system="steps"))["leaf1"].ports["swp0"].headroom[3].xoff_bytes == 201_930


def test_a_system_is_not_planned_on_an_asic_that_it_does_not_run_on():
    assert planned(None, one("spectrum3", system="few"))
    with pytest.raises(FabricError) as refused:
        planned(None, one("tomahawk3", system="few"))
    assert str(refused.value) == (
        "switch leaf1: few runs on no switch with Broadcom Tomahawk 3; there are spectrum3; or give the switch's own "
        "numbers and their source in roce_asics"
    )
    with pytest.raises(FabricError, match="switch leaf1: few has other queues there; there are spectrum3; or give"):
        planned(None, one("jericho2", system="few"))
    own = {"tomahawk3": {"like": "tomahawk3", "source": "a test"}}
    assert planned(None, one("tomahawk3", system="few"), asics=own)


@pytest.mark.parametrize(
    ("system", "asics"),
    [
        ("cumulus", {"spectrum", "spectrum2", "spectrum3", "spectrum4"}),
        ("junos", {"tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"}),
        ("eos", {"tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"}),
        ("dell_sonic", {"tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"}),
        ("nxos", set()),
        ("sonic", set(ASICS)),
    ],
)
def test_which_system_runs_on_which_asic(system, asics):
    module = registry.SYSTEMS[system]
    name = {"sonic": "Ethernet0", "cumulus": "swp1", "junos": "et-0/0/1", "eos": "Ethernet1/1", "nxos": "Ethernet1/1"}
    taken = set()
    for asic in ASICS:
        each = one(asic, ports=0)["leaf1"]
        each = {**each, "system": system, "ports": {name.get(system, "Eth1/1"): {"speed_gbit_s": 100}}}
        each["queue_buffer_bytes"] = 5_000_000
        if asic in asics:
            assert read_switches({"leaf1": each})
            taken.add(asic)
            continue
        with pytest.raises(FabricError, match=r"runs on no switch with|EOS has the queues of Jericho 2 as tx-queue"):
            read_switches({"leaf1": each})
    assert taken == asics
    assert not hasattr(module, "ASICS") or set(module.ASICS) == asics


@pytest.mark.parametrize(
    ("system", "good", "bad", "example"),
    [
        ("sonic", ["Ethernet0", "Ethernet511"], ["swp1", "Ethernet01", "Ethernet0 ", "Eth1/1"], "Ethernet0"),
        ("cumulus", ["swp1", "swp64s7"], ["Ethernet0", "swp"], "swp1, or swp1s0 for a part of one"),
        ("eos", ["Ethernet1/1", "Port-Channel9"], ["Et1/1", "swp1"], "Ethernet1/1, or Port-Channel1"),
        ("nxos", ["Ethernet1/1", "port-channel9"], ["eth1/1", "Ethernet1"], "Ethernet1/1, or port-channel1"),
        ("junos", ["et-0/0/1", "et-0/0/1:3"], ["et0", "ae0"], "et-0/0/1"),
        (
            "dell_sonic",
            ["Eth1/1", "Eth1/1/2", "Ethernet0"],
            ["swp1", "Eth1"],
            "Eth1/1, or Ethernet0 where interface naming is native",
        ),
        (
            "linux",
            ["eth1", "enp1s0f0np0"],
            ["a b", "sixteen-letters-"],
            "enp1s0f0np0: 15 letters, digits, '_', '.' and '-' at most",
        ),
    ],
)
def test_a_port_is_named_as_its_system_does(system, good, bad, example):
    def read_one(port):
        own = {"source": "a test", "buffer_bytes": 9_000_000, "pool_bytes": 9_000_000, "cell_bytes": 64}
        given = {"system": system, "asic": "own", "ports": {port: {"speed_gbit_s": 100}}}
        return read_switches(
            {"leaf1": {**given, "queue_buffer_bytes": 5_000_000}}, asics={"own": {**own, "lossless_classes": 2}}
        )

    for port in good:
        assert list(read_one(port)[0].ports) == [port]
    for port in bad:
        with pytest.raises(FabricError) as refused:
            read_one(port)
        assert str(refused.value) == (
            f"switch leaf1: port {port}: the system has no port of such a name; write it as {example}"
        )


def test_marking_is_lowered_where_ports_are_many():
    """The calculation covers the whole switch: 128 ports, and the smallest alpha."""
    few, many = planned(None, one(ports=2))["leaf1"], planned(None, one(ports=128))["leaf1"]
    assert few.ports["swp0"].queues[3].ecn.minimum_bytes == 600_000
    taken = 128 * (47_104 + 212_992)
    q = Fraction(60_817_392 - taken, 2) / (128 * 4)
    assert many.ports["swp0"].queues[3].ecn == Ecn(10_000, (10_000 + int(q - 10_000) * 5) // 1000 * 1000, 100)
    asics = {
        "own": {
            "source": "a test",
            "buffer_bytes": 60_000_000,
            "pool_bytes": 50_000_000,
            "cell_bytes": 254,
            "lossless_classes": 2,
            "headroom": [
                {"speed_gbit_s": 100, "cable_m": 9, "reserved_bytes": 0, "xoff_bytes": 60_000, "alpha_exponent": 0},
                {"speed_gbit_s": 400, "cable_m": 9, "reserved_bytes": 0, "xoff_bytes": 160_000, "alpha_exponent": -6},
            ],
        }
    }
    mixed = one("own", ports=30, speed=100)
    mixed["leaf1"]["ports"]["up"] = {"speed_gbit_s": 400, "cable_m": 5}
    wanted = planned(None, mixed, asics=asics)["leaf1"].ports
    assert wanted["swp0"].queues[3].ecn == wanted["up"].queues[3].ecn
    assert wanted["up"].queues[3].ecn.minimum_bytes < 50_000_000 / 64 / 31


def test_own_headroom():
    own = [{"speed_gbit_s": 400, "cable_m": 10, "headroom_bytes": 90_000}]
    assert planned(None, one(headroom=own))["leaf1"].ports["swp0"].headroom[3].xoff_bytes == 90_000


@pytest.mark.parametrize("asic", ASICS)
def test_each_asic_full_of_its_fastest_ports(asic):
    speed = max(speed for speed, _rest in ASICS[asic].headroom)
    ports = 18 if asic == "jericho2" else 64 if speed >= 800 else 32
    wanted = planned(None, one(asic, ports=ports, speed=speed, cable=3))
    assert wanted["leaf1"].ports["swp0"].queues[3].ecn.minimum_bytes >= 10_000


@settings(deadline=None)
@given(policies())
def test_any_policy_is_planned_as_it_says(given):
    policy = read_policy(given)
    for switch in planned(given, BOTH).values():
        for qos in switch.ports.values():
            assert qos.pfc == tuple(sorted(each.priority for each in policy.lossless))
            assert tuple(at for at in range(8) if qos.headroom[at]) == qos.pfc
            for each in policy.classes:
                assert qos.queues[qos.class_to_queue[qos.dscp_to_class[each.dscp]]].ecn.maximum_bytes
                assert qos.priority_to_queue[each.priority] == each.queue
            assert qos.queues[policy.cnp.queue].strict


def change(path, value, switches=None):
    """``switches`` with one thing other; value None takes it away."""
    changed = deepcopy(BOTH if switches is None else switches)
    at = changed
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


UP = ("leaf1", "ports", "swp3")
DOWN = ("spine1", "ports", "Ethernet1")
FAR = {"switch": "spine1", "port": "Ethernet1"}
BAD_SWITCHES = [
    ({}, "switches: there are none"),
    ([LEAF], "switches: there are none"),
    ({"leaf1": None}, "switch leaf1: not a dictionary"),
    (change(("leaf1", "os"), "x"), "switch leaf1: unknown setting 'os'"),
    (
        change(("leaf1", "system"), None),
        "roce_switch_system is missing; there are cut, few, named, parts, percents, plain, pools, reckons, sizes",
    ),
    (
        change(("leaf1", "system"), "ios"),
        "switch leaf1: system 'ios' is unknown; there are cut, few, named, parts, percents, plain, pools, reckons",
    ),
    (change(("leaf1", "asic"), None), "switch leaf1: roce_switch_asic is missing; there are jericho2, "),
    (change(("leaf1", "asic"), "asic9"), "switch leaf1: ASIC 'asic9' is unknown; there are jericho2, "),
    (change(("leaf1", "ports"), None), "switch leaf1: no ports are given"),
    (change(("leaf1", "ports"), {}), "switch leaf1: no ports are given"),
    (change(("leaf1", "ports"), ["swp1"]), "switch leaf1: ports: not a dictionary"),
    (
        change(("leaf1", "ports", "a\nb"), {}),
        "port 'a\\nb': 'a\\nb' contains '\\n', which is not a printable character",
    ),
    (change(("leaf1", "ports", ""), {}), "switch leaf1: port '': the text is empty"),
    (change(("leaf1", "ports", 5), {}), "switch leaf1: port 5: 5 is not text; write it in quotes"),
    (
        change(("leaf1", "system"), "named"),
        "switch leaf1: port swp1: the system has no port of such a name; write it as Ethernet0",
    ),
    (change((*UP, "peer", "port"), "a\0"), "port swp3: peer: port: 'a\\x00' contains '\\x00', which is not a"),
    (change(("leaf1", "ports", "SWP1"), {"speed_gbit_s": 200}), "port SWP1 is there twice, the other time as swp1"),
    (change(("leaf1", "ports", "swp1"), "up"), "switch leaf1: port swp1: not a dictionary"),
    (change((*UP, "speed_gbit_s"), None), "port swp3: speed_gbit_s is missing"),
    (change((*UP, "speed_gbit_s"), 399), "port swp3: speed_gbit_s 399 is no speed of Ethernet; there are 1, 2,"),
    (change((*UP, "speed_gbit_s"), "400G"), "port swp3: speed_gbit_s '400G' is not a whole number"),
    (change((*UP, "cable_m"), 0), "port swp3: cable_m 0 is not"),
    (change((*UP, "lane"), 1), "port swp3: unknown setting 'lane'"),
    (change((*UP, "peer"), "spine1"), "port swp3: peer: not a dictionary"),
    (change((*UP, "peer"), {"port": "x"}), "peer: not one host or one switch"),
    (change((*UP, "peer"), {**FAR, "host": "x"}), "peer: not one host or one switch"),
    (change((*UP, "peer"), {"switch": "spine1"}), "peer: port is missing"),
    (change((*UP, "peer"), {"switch": "spine1", "port": 1}), "peer: port 1 is not a text"),
    (change((*UP, "peer", "switch"), "spine2"), "port swp3: its peer, switch spine2, is not in the inventory"),
    (change((*UP, "peer", "port"), "Ethernet2"), "port swp3: its peer, switch spine1, has no port Ethernet2"),
    (
        change((*DOWN, "peer", "port"), "swp2"),
        "switch leaf1: port swp3: it names switch spine1's Ethernet1 as its peer, ",
    ),
    (change((*DOWN, "peer"), None), "which names none; correct"),
    (
        change((*UP, "peer"), {"switch": "leaf1", "port": "swp3"}),
        "it names switch leaf1's swp3 as its peer, which names switch leaf1's swp3",
    ),
    (
        change((*UP, "speed_gbit_s"), 200),
        "its speed_gbit_s is 200, and 400 at the other end, switch spine1's Ethernet1",
    ),
    (change((*DOWN, "cable_m"), 31), "switch leaf1: port swp3: its cable_m is 30, and 31 at the other end"),
    (change((*DOWN, "cable_m"), None), "its cable_m is 30, and None at the other end"),
    (change(("leaf1", "ports", "swp1", "peer", "host"), "spine1"), "its peer, host spine1, is a switch"),
    (change(("leaf1", "ports", "swp1", "peer", "host"), "gpu09"), "its peer, host gpu09, is not in the inventory"),
    (
        change(("leaf1", "ports", "swp1", "peer", "host"), "gpu02"),
        "has no NIC mlx5_0 in roce_host_nics; describe gpu02's",
    ),
    (
        change(("leaf1", "ports", "swp1", "peer", "port"), "mlx5_7"),
        "has no NIC mlx5_7 in roce_host_nics; there are mlx5_0",
    ),
    (change(("leaf1", "ports", "swp1", "speed_gbit_s"), 100), "is 100, and 200 at the other end, host gpu01's mlx5_0"),
    (
        change(("leaf1", "ports", "swp1", "peer", "port"), "mlx5_1"),
        "switch leaf1: port swp2: host gpu01's mlx5_1 is at switch leaf1: port swp1 too",
    ),
    (change(("leaf1", "headroom"), {}), "switch leaf1: headroom is not a list"),
    (change(("leaf1", "headroom"), [{"speed_gbit_s": 400}]), "headroom, row 1: cable_m is missing"),
    (
        change(("leaf1", "headroom"), [{"speed_gbit_s": 400, "cable_m": 5, "headroom_bytes": 60_000}] * 2),
        "headroom, row 2: 400 Gbit/s and 5 m are there twice",
    ),
]


@pytest.mark.parametrize(("switches", "message"), BAD_SWITCHES, ids=[message for _rest, message in BAD_SWITCHES])
def test_switches_refused(switches, message):
    with pytest.raises(FabricError) as refused:
        read(switches)
    assert message in str(refused.value)


def test_a_host_whose_nics_are_not_given_is_only_looked_for():
    (leaf, *_others) = read(change(("leaf1", "ports", "swp1", "peer", "host"), "gpu03"))
    assert str(leaf.ports["swp1"].peer) == "host gpu03's mlx5_0"
    both = change(("leaf1", "ports", "swp1", "peer"), {"host": "gpu03", "port": "a"})
    both["leaf1"]["ports"]["swp2"]["peer"] = {"host": "gpu03", "port": "a"}
    with pytest.raises(FabricError, match="port swp2: host gpu03's a is at switch leaf1: port swp1 too"):
        read(both)


def test_hosts_that_are_not_given_are_not_looked_for():
    (leaf, _spine) = read(change(("leaf1", "ports", "swp1", "peer", "host"), "gpu09"), hosts=None)
    assert str(leaf.ports["swp1"].peer) == "host gpu09's mlx5_0"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ({"gpu01": 5}, "host gpu01: roce_host_nics: not a dictionary"),
        ({"gpu01": {"mlx5_0": 5}}, "host gpu01: roce_host_nics: mlx5_0: not a dictionary"),
    ],
)
def test_hosts_refused(hosts, message):
    with pytest.raises(FabricError, match=message):
        read(hosts=hosts)


THREE = {"roce": {}, "storage": STORAGE, "third": {"dscp": 1, "traffic_class": 5, "bandwidth_percent": 5}}
NARROW = {
    "narrow": {
        "source": "a test",
        "buffer_bytes": 9_000_000,
        "pool_bytes": 5_000_000,
        "cell_bytes": 64,
        "lossless_classes": 1,
        "unicast_queues": 6,
    }
}


@pytest.mark.parametrize(
    ("policy", "switches", "message"),
    [
        (
            {"classes": THREE},
            BOTH,
            "switch leaf1: the policy has 3 lossless classes (roce, storage, third), and NVIDIA Spectrum-3's profiles "
            "are for 2",
        ),
        (None, one("narrow"), "switch leaf1: class cnp is to go to queue 6, and narrow has queues 0 to 5"),
        (None, one("trident4", speed=50), "switch leaf1: port swp0: Broadcom Trident 4 has no headroom profile for 50"),
        (None, one(cable=999), "switch leaf1: port swp0: a cable of 999 m is longer than"),
        (
            None,
            one("spectrum", ports=84, speed=100, cable=300),
            "switch leaf1: the headroom of 1 lossless class on 84 ports, 14020608 bytes, does not fit into NVIDIA "
            "Spectrum's buffer of 13945824",
        ),
        (
            None,
            one("tomahawk5", ports=64, speed=800, cable=300),
            "switch leaf1: the headroom of 1 lossless class on 64 ports is 103778304 bytes, more than 2 times the pool "
            "of 33690560 bytes that they share on Broadcom Tomahawk 5",
        ),
        (
            None,
            one("spectrum", ports=64, speed=100, cable=300),
            "switch leaf1: port swp0: PFC may pause from 6373 bytes of queue on, and ECN cannot mark before: one "
            "packet has 9122",
        ),
        (
            {"classes": {"roce": {"ecn": {"minimum_bytes": 10**6, "maximum_bytes": 2 * 10**6}}}},
            one(ports=32),
            "switch leaf1: port swp0: PFC could pause before class roce marks: at 205055 bytes of queue, from which on "
            "PFC may pause here, its ECN of 1000000 to 2000000 bytes at 100% marks 0.00% of packets, and must mark 20%",
        ),
        (
            {"classes": {"roce": {"ecn": {"minimum_bytes": 1_000, "maximum_bytes": 9_999}}}},
            one(ports=32),
            "switch leaf1: port swp0: class roce: ecn's maximum_bytes 9999 is less than one packet, of 9122 bytes, so "
            "all would be marked; give 10000 or more, or leave ecn out: then it is compiled",
        ),
        (
            None,
            one(headroom=[{"speed_gbit_s": 400, "cable_m": 5, "headroom_bytes": 120}]),
            "switch leaf1: port swp0: headroom_bytes of 120 bytes for 400 Gbit/s, 5 m and IP packets of 9100 bytes is "
            "less than the 78690 that may arrive after a pause was sent",
        ),
    ],
)
def test_what_an_asic_cannot_do(policy, switches, message):
    with pytest.raises(FabricError) as refused:
        planned(policy, switches, asics=NARROW)
    assert message in str(refused.value)


def test_the_same_input_gives_the_same_plan():
    assert planned() == planned()
