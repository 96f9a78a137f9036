# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Linux's script for a switch: the whole text, RED at its limits, and refusals as whole messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import switches
from messages import raises
from switches import NO_QOS, at

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import linux


def switch(**changes: Any) -> Switch:
    return switches.switch("linux", ["p1"], **changes)


QOS = switch().ports["p1"]


def lines(wanted: Switch) -> list[str]:
    text = linux.render(wanted)
    assert text.startswith("#!/bin/sh\nset -eu\n")
    assert text.endswith("\n")
    return text.splitlines()[2:]


def refused(wanted: Switch) -> str:
    with pytest.raises(FabricError) as error:
        linux.render(wanted)
    return str(error.value).removeprefix("leaf1: p1: ")


SYSCTL = [
    "sysctl -q -w net.ipv4.fib_multipath_hash_fields=55",
    "sysctl -q -w net.ipv4.fib_multipath_hash_policy=3",
    "sysctl -q -w net.ipv6.fib_multipath_hash_fields=55",
    "sysctl -q -w net.ipv6.fib_multipath_hash_policy=3",
]
RED = "red limit 6000000 min 150000 max 1500000 avpkt 1000 burst 150 bandwidth 10gbit probability 0.9999999 ecn"


def test_the_script_of_the_reference():
    assert lines(switch()) == [
        "ip link set dev p1 mtu 9100",
        "tc qdisc del dev p1 root 2>/dev/null || true",
        f"tc qdisc add dev p1 root handle 1: ets bands 3 strict 1 quanta 5000 5000 priomap{' 2' * 16}",
        "tc qdisc add dev p1 parent 1:1 handle 1066: pfifo limit 1000",
        f"tc qdisc add dev p1 parent 1:2 handle 1033: {RED}",
        "tc qdisc add dev p1 parent 1:3 handle 1000: pfifo limit 1000",
        "tc filter add dev p1 parent 1: protocol ip pref 1 flower ip_tos 0x68/0xfc classid 1:2",
        "tc filter add dev p1 parent 1: protocol ip pref 1 flower ip_tos 0xc0/0xfc classid 1:1",
        "tc filter add dev p1 parent 1: protocol ipv6 pref 2 flower ip_tos 0x68/0xfc classid 1:2",
        "tc filter add dev p1 parent 1: protocol ipv6 pref 2 flower ip_tos 0xc0/0xfc classid 1:1",
        *SYSCTL,
    ]


def test_a_port_without_queues_has_only_an_mtu():
    bare = replace(switch(**NO_QOS), ecmp_fields=None)
    assert lines(bare) == ["ip link set dev p1 mtu 9100"]
    assert lines(replace(switch(**NO_QOS, ip_mtu_bytes=None), ecmp_fields=("source_ip",))) == [
        line.replace("=55", "=1") for line in SYSCTL
    ]


@pytest.mark.parametrize(
    ("queues", "root"),
    [
        ((Queue(True), Queue(True), Queue(True)), "bands 3 strict 3"),
        ((Queue(False, 1), Queue(False, 98), Queue(False, 1)), "bands 3 quanta 100 9800 100"),
    ],
)
def test_bands_are_strict_or_have_quanta(queues, root):
    low, middle, high = queues
    wanted = switch(queues=at(QOS.queues, _0=low, _3=middle, _6=high))
    assert lines(wanted)[2] == f"tc qdisc add dev p1 root handle 1: ets {root} priomap{' 2' * 16}"


def red(*ecn: int) -> Switch:
    return switch(queues=at(QOS.queues, _3=Queue(False, 50, Ecn(*ecn))))


@pytest.mark.parametrize(
    ("ecn", "arguments"),
    [
        ((1, 1, 100), "limit 4 min 1 max 1 avpkt 1 burst 1 bandwidth 10gbit probability 0.9999999"),
        ((499, 500, 1), "limit 2000 min 499 max 500 avpkt 499 burst 1 bandwidth 10gbit probability 0.01"),
        ((2502, 5000, 20), "limit 20000 min 2502 max 5000 avpkt 834 burst 3 bandwidth 10gbit probability 0.2"),
        ((10_000, 20_000, 99), "limit 80000 min 10000 max 20000 avpkt 1000 burst 10 bandwidth 10gbit probability 0.99"),
        ((10_001, 20_000, 50), "limit 80000 min 10001 max 20000 avpkt 1000 burst 11 bandwidth 10gbit probability 0.5"),
        ((10_010, 20_000, 50), "limit 80000 min 10010 max 20000 avpkt 1000 burst 11 bandwidth 10gbit probability 0.5"),
        ((1, 21_474_837, 1), "limit 85899348 min 1 max 21474837 avpkt 1 burst 1 bandwidth 10gbit probability 0.01"),
        (
            (1, 536_870_912, 25),
            "limit 2147483648 min 1 max 536870912 avpkt 1 burst 1 bandwidth 10gbit probability 0.25",
        ),
        (
            (1_073_741_823, 1_073_741_823, 100),
            "limit 4294967292 min 1073741823 max 1073741823 avpkt 1000 burst 1073742 bandwidth 10gbit "
            "probability 0.9999999",
        ),
    ],
)
def test_red_has_the_thresholds_and_the_fastest_average(ecn, arguments):
    assert lines(red(*ecn))[4] == f"tc qdisc add dev p1 parent 1:2 handle 1033: red {arguments} ecn"


BOUNDS = "give 1 <= minimum_bytes <= maximum_bytes < 1073741824 and 1% to 100%"
FLAT = "is too flat for tc's RED; raise probability_percent, or bring minimum_bytes and maximum_bytes closer together"
NO_CLASS = "a DSCP has no class with a queue; give every DSCP one"
OWN_CLASS = "not every queue has a class of its own, as tc's bands require; give each class its queue"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (red(0, 1, 50), f"RED cannot mark between 0 and 1 bytes with 50%; {BOUNDS}"),
        (red(2, 1, 50), f"RED cannot mark between 2 and 1 bytes with 50%; {BOUNDS}"),
        (red(1, 1 << 30, 50), f"RED cannot mark between 1 and 1073741824 bytes with 50%; {BOUNDS}"),
        (red(1, 1, 0), f"RED cannot mark between 1 and 1 bytes with 0%; {BOUNDS}"),
        (red(1, 1, 101), f"RED cannot mark between 1 and 1 bytes with 101%; {BOUNDS}"),
        (red(1, 21_474_838, 1), f"1% over 21474837 bytes {FLAT}"),
        (red(1, 536_870_913, 25), f"25% over 536870912 bytes {FLAT}"),
        (
            switch(queues=at(QOS.queues, _0=Queue(False, None), _3=Queue(False, 100))),
            "the queues that are not strict share 100% (100, 0); set shares of at least 1% that add up to 100%",
        ),
        (
            switch(queues=at(QOS.queues, _0=Queue(False, 49))),
            "the queues that are not strict share 99% (50, 49); set shares of at least 1% that add up to 100%",
        ),
        (switch(**{**NO_QOS, "dscp_to_class": QOS.dscp_to_class}), NO_CLASS),
        (switch(dscp_to_class=(None,) * 64), NO_CLASS),
        (switch(dscp_to_class=at(QOS.dscp_to_class, _7=None)), NO_CLASS),
        (switch(dscp_to_class=at(QOS.dscp_to_class, _7=1)), NO_CLASS),
        (switch(class_to_queue=at(QOS.class_to_queue, _1=0)), OWN_CLASS),
        (switch(class_to_queue=at(QOS.class_to_queue, _1=1)), OWN_CLASS),
        (switch(queues=at(QOS.queues, _1=Queue(True))), OWN_CLASS),
    ],
)
def test_settings_that_tc_cannot_hold_are_refused(wanted, message):
    assert refused(wanted) == message


@pytest.mark.parametrize("name", ["p1", "enp1s0f0np0", "a" * 15, "a_b.c-d"])
def test_names_of_devices_are_accepted(name):
    assert linux.render(switches.switch("linux", [name])).count(f" dev {name} ") == 10


@pytest.mark.parametrize("name", ["", "a" * 16, "p1;x", "p 1", "p1\n"])
def test_other_names_are_refused(name):
    with raises(FabricError, "leaf1", repr(name)):
        linux.render(switches.switch("linux", [name]))
