# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A script of tc, ip and sysctl is read as the state of a machine that ran it."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import Script, weight_log

SCRIPT = """#!/bin/sh
set -e
ip link set dev p1 mtu 9100
ip link set p2 mtu 1500  # management
ip link set p3 up
sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=3
tc qdisc del dev p1 root 2> /dev/null || true
tc qdisc add dev p1 root handle 1: ets bands 3 strict 1 quanta 1500 3000 priomap 2 1 0
tc qdisc add dev p1 parent 1:2 handle 1034: red limit 400000 avpkt 1000 ecn
tc filter add dev p1 parent 1: protocol ip pref 1 flower ip_tos 68/fc classid 1:2
"""
RED = {"limit": 400_000, "min": 33_333, "max": 100_000, "ewma": 5, "probability": 0.02}


def model(text):
    return Script(text, "leaf1").model


def refused(text):
    with pytest.raises(FabricError) as error:
        model(text)
    return str(error.value)


def qdiscs(text):
    return model(text)["qdiscs"]["p1"]


def test_a_script_is_read_as_a_whole():
    read = model(SCRIPT)
    child = read["qdiscs"]["p1"][1]
    # Flags that were not given are false.
    assert {flag for flag, value in child["options"].items() if value is True} == {"ecn"}
    assert {key: child["options"][key] for key in RED} == RED
    options = {"bands": 3, "strict": 1, "quanta": [1500, 3000], "priomap": [2, 1, 0, *[2] * 13]}
    assert read == {
        "links": {"p1": 9100, "p2": 1500},
        "sysctl": {"net.ipv4.fib_multipath_hash_policy": "1", "net.ipv6.fib_multipath_hash_policy": "3"},
        "qdiscs": {
            "p1": [
                {"dev": "p1", "root": True, "handle": "1:", "kind": "ets", "options": options},
                {"dev": "p1", "parent": "1:2", "handle": "1034:", "kind": "red", "options": child["options"]},
            ]
        },
        "filters": {
            "p1": [
                {
                    "kind": "flower",
                    "parent": "1:",
                    "protocol": "ip",
                    "pref": 1,
                    "options": {"keys": {"ip_tos": 0x68, "ip_tos_mask": "fc"}, "classid": "1:2"},
                }
            ]
        },
    }


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("sysctl a=1", "sysctl", {"a": "1"}),
        ("ip link set p1 mtu 1500", "links", {"p1": 1500}),
        ("tc qdisc add dev p1 root fq", "links", {"p1": None}),
    ],
)
def test_one_command_is_enough(line, key, value):
    assert model(f"{line}\n")[key] == value


@pytest.mark.parametrize("text", ["", "echo tc\n", "ip link set p1 up\n", "# tc qdisc del dev p1 root\n"])
def test_a_script_without_a_command_is_refused(text):
    assert refused(text) == Mentions("leaf1", "tc script", "READING")


def test_a_cut_script_is_refused():
    assert refused(SCRIPT[:-1]) == Mentions("leaf1", "tc script", "last line")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("tc class add dev p1 parent 1:", "class add"),
        ("tc qdisc change dev p1 root ets", "qdisc change"),
        ("tc qdisc add dev p1 handle 1: ets", "neither root nor parent"),
        ("tc filter del dev p1", "filter del"),
        ("tc filter add dev p1 parent 1: protocol ip u32 match", "filter u32"),
        (
            "tc qdisc add dev p1 root red limit 9 min 1 max 2 burst 0 avpkt 9",
            "tc finds no weight for this burst and avpkt",
        ),
    ],
)
def test_a_line_that_is_not_understood_is_refused_with_its_number(line, cause):
    assert refused(f"sysctl a=1\n{line}\n") == Mentions("leaf1", "line 2", repr(line), cause)


def test_a_refusal_has_the_first_80_characters_of_the_line():
    line = "tc class add dev " + "x" * 80
    assert f"line 1: {line[:80]!r} is not" in refused(f"{line}\n")


def test_a_new_root_removes_what_was_below_the_old_one():
    root = "tc qdisc replace dev p1 root handle 2: fq\n"
    read = model(SCRIPT + root)
    assert [qdisc["kind"] for qdisc in read["qdiscs"]["p1"]] == ["fq"]
    assert read["filters"]["p1"] == []
    assert qdiscs(SCRIPT + "tc qdisc del dev p1 root\n") == []


def test_a_qdisc_replaces_the_one_with_the_same_parent():
    fq = "tc qdisc replace dev p1 parent 1:2 fq\n"
    assert [qdisc["kind"] for qdisc in qdiscs(SCRIPT + fq)] == ["ets", "fq"]
    assert [qdisc["kind"] for qdisc in qdiscs(SCRIPT + fq.replace("1:2", "1:1"))] == ["ets", "red", "fq"]
    assert [qdisc["kind"] for qdisc in qdiscs(SCRIPT + "tc qdisc del dev p1 parent 1:2\n")] == ["ets"]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("quanta 1 2", {"bands": 2, "strict": 0, "quanta": [1, 2], "priomap": [1] * 16}),
        ("strict 2", {"bands": 2, "strict": 2, "quanta": [], "priomap": [1] * 16}),
        ("strict 2 quanta 5", {"bands": 3, "strict": 2, "quanta": [5], "priomap": [2] * 16}),
        ("bands 4 strict 2 priomap 1 3", {"bands": 4, "strict": 2, "quanta": [], "priomap": [1, 3, *[3] * 14]}),
    ],
)
def test_settings_of_ets_that_are_left_out_have_tcs_defaults(arguments, options):
    assert qdiscs(f"tc qdisc add dev p1 root ets {arguments}\n")[0]["options"] == options


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("matchall flowid 1:3", {"pref": 0, "kind": "matchall", "options": {"keys": {}, "classid": "1:3"}}),
        (
            "prio 7 flower ip_tos 68 ip_proto udp classid 1:1",
            {
                "pref": 7,
                "kind": "flower",
                "options": {"keys": {"ip_tos": 0x68, "ip_tos_mask": "ff", "ip_proto": "udp"}, "classid": "1:1"},
            },
        ),
    ],
)
def test_filters_are_read(arguments, expected):
    (read,) = model(f"tc filter add dev p1 protocol all {arguments}\n")["filters"]["p1"]
    assert read == {"protocol": "all", **expected}


@pytest.mark.parametrize(
    ("minimum", "burst", "average", "weight"),
    [
        (1000, 1, 1000, 1),  # there is room for exactly one packet
        (1001, 1, 1000, 0),
        (33_333, 55, 1000, 5),
        (301, 1 << 20, 1, 31),
        (201, 1 << 20, 1, 0),  # tc would need 32
    ],
)
def test_the_weight_is_the_least_one_that_leaves_room_for_the_burst(minimum, burst, average, weight):
    assert weight_log(minimum, burst, average) == weight
