# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches and hosts of an inventory are read or refused."""

from __future__ import annotations

import pytest
from messages import raises
from planned_switches import LEAF, change, one, read
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError

UP = ("leaf1", "ports", "swp3")


DOWN = ("spine1", "ports", "Ethernet1")


FAR = {"switch": "spine1", "port": "Ethernet1"}


ROW = {"speed_gbit_s": 400, "cable_m": 5, "headroom_bytes": 60_000}


BAD_SWITCHES = [
    ({}, "switches: there are none"),
    ([LEAF], "switches: there are none"),
    ({"leaf1": None}, "switch leaf1: not a dictionary"),
    (change(("leaf1", "os"), "x"), "switch leaf1: unknown setting 'os'"),
    (
        change(("leaf1", "system"), None),
        "roce_switch_system is missing; valid values: cut, few, named, parts, percents, plain, reckons, sizes",
    ),
    (
        change(("leaf1", "system"), "ios"),
        "switch leaf1: system 'ios' is unknown; valid values: cut, few, named, parts, percents, plain, reckons",
    ),
    (change(("leaf1", "asic"), None), "switch leaf1: roce_switch_asic is missing; valid values: jericho2, "),
    (change(("leaf1", "asic"), "asic9"), "switch leaf1: ASIC 'asic9' is unknown; valid values: jericho2, "),
    (change(("leaf1", "ports"), None), "switch leaf1: no ports are given"),
    (change(("leaf1", "ports"), {}), "switch leaf1: no ports are given"),
    (change(("leaf1", "ports"), ["swp1"]), "switch leaf1.ports: not a dictionary"),
    (
        change(("leaf1", "ports", "a\nb"), {}),
        "port 'a\\nb': 'a\\nb' contains '\\n', which is not a printable character",
    ),
    (change(("leaf1", "ports", ""), {}), "switch leaf1: port '': the text is empty"),
    (change(("leaf1", "ports", 5), {}), "switch leaf1: port 5: 5 "),
    (
        change(("leaf1", "system"), "named"),
        "switch leaf1: port swp1: not a valid port name on this system; write it as Ethernet0",
    ),
    (change((*UP, "peer", "port"), "a\0"), "port swp3.peer: port: 'a\\x00' contains '\\x00', which is not a"),
    (change(("leaf1", "ports", "SWP1"), {"speed_gbit_s": 200}), "port SWP1 is listed twice, also as swp1"),
    (change(("leaf1", "ports", "swp1"), "up"), "switch leaf1: port swp1: not a dictionary"),
    (change((*UP, "speed_gbit_s"), None), "port swp3: speed_gbit_s is missing"),
    (change((*UP, "speed_gbit_s"), 399), "port swp3: speed_gbit_s: 399 is unknown"),
    (change((*UP, "speed_gbit_s"), "400G"), "port swp3: speed_gbit_s: '400G' is unknown"),
    (change((*UP, "cable_m"), 0), "port swp3: cable_m: 0 is not valid"),
    (change((*UP, "cable_m"), 120_001), "port swp3: cable_m: 120001 is not valid; use a whole number from 1 to 120000"),
    (change((*UP, "lane"), 1), "port swp3: unknown setting 'lane'"),
    (change((*UP, "peer", "lane"), 1), "port swp3.peer: unknown setting 'lane'; "),
    (change((*UP, "peer"), "spine1"), "port swp3.peer: not a dictionary"),
    (change((*UP, "peer"), {"port": "x"}), "peer: not one host or one switch"),
    (change((*UP, "peer"), {**FAR, "host": "x"}), "peer: not one host or one switch"),
    (change((*UP, "peer"), {"switch": "spine1"}), "peer: port is missing"),
    (change((*UP, "peer"), {"switch": "spine1", "port": 1}), "peer: port: 1 is not text"),
    (change((*UP, "peer", "switch"), "spine2"), "port swp3: its peer, switch spine2, is not in the inventory"),
    (change((*UP, "peer", "port"), "Ethernet2"), "port swp3: its peer, switch spine1, has no port Ethernet2"),
    (
        change((*DOWN, "peer", "port"), "swp2"),
        "switch leaf1: port swp3: it names switch spine1's Ethernet1 as its peer, ",
    ),
    (change((*DOWN, "peer"), None), "but that port names none; correct"),
    (
        change((*UP, "peer"), {"switch": "leaf1", "port": "swp3"}),
        "port swp3: its peer is a port of the same switch",
    ),
    (
        change((*UP, "speed_gbit_s"), 200),
        "its speed_gbit_s is 200, but 400 at the other end, switch spine1's Ethernet1",
    ),
    (change((*DOWN, "cable_m"), 31), "switch leaf1: port swp3: its cable_m is 30, but 31 at the other end"),
    (change((*DOWN, "cable_m"), None), "its cable_m is 30, but None at the other end"),
    (change(("leaf1", "ports", "swp1", "peer", "host"), "spine1"), "its peer, host spine1, is a switch"),
    (change(("leaf1", "ports", "swp1", "peer", "host"), "gpu09"), "its peer, host gpu09, is not in the inventory"),
    (
        change(("leaf1", "ports", "swp1", "peer", "host"), "gpu02"),
        "has no NIC mlx5_0 in roce_host_nics; describe gpu02's",
    ),
    (
        change(("leaf1", "ports", "swp1", "peer", "port"), "mlx5_7"),
        "has no NIC mlx5_7 in roce_host_nics; valid names: mlx5_0",
    ),
    (change(("leaf1", "ports", "swp1", "speed_gbit_s"), 100), "is 100, but 200 at the other end, host gpu01's mlx5_0"),
    (
        change(("leaf1", "ports", "swp1", "peer", "port"), "mlx5_1"),
        "switch leaf1: port swp2: host gpu01's mlx5_1 is also connected to switch leaf1: port swp1",
    ),
    (change(("leaf1", "headroom"), {}), "switch leaf1: headroom: "),
    (change(("leaf1", "headroom"), [{"speed_gbit_s": 400}]), "headroom[0]: cable_m is missing"),
    (change(("leaf1", "headroom"), [{**ROW, "alpha": 1}]), "headroom[0]: unknown setting 'alpha'; "),
    (change(("leaf1", "headroom"), [ROW, {**ROW, "cable_m": 0}]), "headroom[1]: cable_m: 0 is not valid"),
    (
        change(("leaf1", "headroom"), [{**ROW, "cable_m": 120_001}]),
        "headroom[0]: cable_m: 120001 is not valid; use a whole number from 1 to 120000",
    ),
    (
        change(("leaf1", "headroom"), [{**ROW, "headroom_bytes": 0}]),
        "headroom[0]: headroom_bytes: 0 is not valid; use a whole number from 1 to 64000000000",
    ),
    (change(("leaf1", "ports", "p" * 65), {"speed_gbit_s": 200}), "'... has 65 characters; use 64 at most"),
    (
        change(("leaf1", "headroom"), [{"speed_gbit_s": 400, "cable_m": 5, "headroom_bytes": 60_000}] * 2),
        "headroom[1]: 400 Gbit/s and 5 m are listed twice",
    ),
]


@pytest.mark.parametrize(("switches", "message"), BAD_SWITCHES, ids=[message for _rest, message in BAD_SWITCHES])
def test_invalid_switches_are_refused(switches, message):
    with pytest.raises(FabricError) as refused:
        read(switches)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["leaf1\n", "leaf\t1", "leaf\x7f"])
def test_a_switch_name_that_cannot_be_printed_is_refused(name):
    with raises(FabricError, repr(name)):
        read({name: one()["leaf1"]})


def test_ports_beyond_the_bandwidth_of_their_asic_are_refused():
    assert read(one("tomahawk5", ports=64, speed=800))
    with raises(FabricError, "switch leaf1", "160000", "51200", "Tomahawk 5"):
        read(one("tomahawk5", ports=200, speed=800))
    ports = {**one("tomahawk5", ports=64, speed=800)["leaf1"]["ports"], "service": {"speed_gbit_s": 25, "cable_m": 3}}
    assert read({"leaf1": {**one("tomahawk5")["leaf1"], "ports": ports}})
    assert read(one("own", ports=200, speed=800), asics={"own": {"like": "tomahawk5", "source": "a chassis"}})


def test_a_speed_that_an_asic_lacks_is_refused_where_no_headroom_is_planned():
    assert read(one("trident3", ports=1, speed=100, system="sizes"))
    with raises(FabricError, "switch leaf1: port swp0", "1600", "100", "Trident 3"):
        read(one("trident3", ports=1, speed=1600, system="sizes"))


def test_the_smallest_and_largest_numbers_and_names_are_accepted():
    leaf = one(ports=1, cable=1, headroom=[{"speed_gbit_s": 1, "cable_m": 1, "headroom_bytes": 1}])["leaf1"]
    leaf["ports"]["p" * 64] = {"speed_gbit_s": 800, "cable_m": 120_000}
    leaf["headroom"].append({"speed_gbit_s": 800, "cable_m": 120_000, "headroom_bytes": 64_000_000_000})
    (spec,) = read({"leaf1": leaf})
    assert {name: (port.speed_gbit_s, port.cable_m) for name, port in spec.ports.items()} == {
        "swp0": (400, 1),
        "p" * 64: (800, 120_000),
    }
    assert spec.own_headroom == {(1, 1): 1, (800, 120_000): 64_000_000_000}
    assert spec.queue_buffer_bytes is None


@pytest.mark.parametrize("size", [100_000, 64_000_000_000])
def test_the_smallest_and_largest_queue_buffers_are_accepted(size):
    (spec,) = read({"leaf1": {**one()["leaf1"], "system": "percents", "queue_buffer_bytes": size}})
    assert spec.queue_buffer_bytes == size


@pytest.mark.parametrize("size", [99_999, 64_000_000_001])
def test_other_queue_buffers_are_refused(size):
    with refuses("switch leaf1", f"queue_buffer_bytes: {size}", "100000 to 64000000000"):
        read({"leaf1": {**one()["leaf1"], "system": "percents", "queue_buffer_bytes": size}})


def test_any_nic_is_accepted_once_for_a_host_without_given_nics():
    (leaf, *_others) = read(change(("leaf1", "ports", "swp1", "peer", "host"), "gpu03"))
    assert str(leaf.ports["swp1"].peer) == "host gpu03's mlx5_0"
    two_ports = change(("leaf1", "ports", "swp1", "peer"), {"host": "gpu03", "port": "a"})
    two_ports["leaf1"]["ports"]["swp2"]["peer"] = {"host": "gpu03", "port": "a"}
    with refuses("switch leaf1: port swp2", "host gpu03's a", "switch leaf1: port swp1"):
        read(two_ports)


def test_peer_hosts_are_not_checked_if_no_hosts_are_given():
    (leaf, _spine) = read(change(("leaf1", "ports", "swp1", "peer", "host"), "gpu09"), hosts=None)
    assert str(leaf.ports["swp1"].peer) == "host gpu09's mlx5_0"


@pytest.mark.parametrize(
    ("hosts", "subject"),
    [
        ({"gpu01": 5}, "host gpu01: roce_host_nics"),
        ({"gpu01": {"mlx5_0": 5}}, "host gpu01: roce_host_nics: mlx5_0"),
    ],
)
def test_invalid_hosts_are_refused(hosts, subject):
    with refuses(subject):
        read(hosts=hosts)
