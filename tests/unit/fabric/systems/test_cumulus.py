# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cumulus: rendered settings are read back, any change is seen, and configurations by others can be read."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import switches
from cumulus_tree import BY_HAND, PORTS, as_text, reference, tree_of
from hypothesis import given
from messages import raises
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import cumulus


def leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        yield (*path, key)


def test_the_rendered_reference_is_read_back():
    wanted = reference()
    assert cumulus.parse(cumulus.render(wanted), wanted.name) == wanted


@given(switches.policies())
def test_any_rendered_policy_is_read_back(policy):
    wanted = switches.switch("cumulus", PORTS, policy)
    text = cumulus.render(wanted)
    assert text == cumulus.render(copy.deepcopy(wanted))
    assert cumulus.parse(text, wanted.name) == wanted
    assert cumulus.remediation(text, wanted) == ""


def test_a_differing_port_gets_a_separate_profile_and_other_ports_keep_theirs():
    equal_ports = reference()
    fast = replace(equal_ports.ports["swp1"], queues=tuple(
        queue and replace(queue, ecn=queue.ecn and Ecn(300_000, 3_000_000, 20))
        for queue in equal_ports.ports["swp1"].queues
    ))  # fmt: skip
    mixed = replace(equal_ports, ports={**equal_ports.ports, "swp2": fast})
    assert cumulus.parse(cumulus.render(mixed), "leaf1") == mixed
    original, changed = tree_of(equal_ports), tree_of(mixed)
    assert changed["interface"]["swp1"] == original["interface"]["swp1"]
    assert len(changed["qos"]["congestion-control"]) == 2
    assert len(changed["qos"]["mapping"]) == 1


# No setting in it is a default, except for the hash, the words of WORDS_BY_DEFAULT and DSCPs 8 to 15 (class 1).
UNUSUAL = {
    "classes": {
        "roce": {
            "dscp": 40,
            "traffic_class": 4,
            "queue": 2,
            "ecn": {"minimum_bytes": 100_000, "maximum_bytes": 900_000, "probability_percent": 50},
        }
    },
    "cnp": {"dscp": 20, "traffic_class": 7, "queue": 4},
    "default": {"traffic_class": 1, "queue": 3},
}


WORDS_BY_DEFAULT = ("on", "enable", "dwrr", {"ecn": "disable"})


OTHER_WORD = {"enable": "disable", "disable": "enable", "on": "off", "l3": "l2", "strict": "dwrr", "dwrr": "strict",
              "alpha_1": "alpha_2"}  # fmt: skip


def test_every_removed_or_changed_setting_is_detected():
    wanted = switches.switch("cumulus", PORTS, UNUSUAL)
    tree = tree_of(wanted)
    seen = 0
    for path in leaves(tree):
        if "traffic-pool" in path:  # no policy requests the share of a pool; the next test checks the pool
            continue
        removed, changed = copy.deepcopy(tree), copy.deepcopy(tree)
        node, expected = removed, changed
        for key in path[:-1]:
            node, expected = node[key], expected[key]
        value = node.pop(path[-1])
        is_default = value in WORDS_BY_DEFAULT or "system" in path or path[-1] in map(str, range(8, 16))
        mutants = [] if is_default else [removed]
        if not isinstance(value, dict):
            expected[path[-1]] = OTHER_WORD.get(value) or (value + 1 if isinstance(value, int) else "other")
            mutants.append(changed)
        for mutant in mutants:
            seen += 1
            with contextlib.suppress(FabricError):  # a refusal also counts as seen
                assert cumulus.parse(as_text(mutant), "leaf1") != wanted, (path, value)
    assert seen > 180


def test_headroom_is_not_read_without_a_lossless_pool():
    tree = tree_of(reference())
    del tree["qos"]["traffic-pool"]["default-lossless"]
    assert cumulus.parse(as_text(tree), "leaf1").ports["swp1"].headroom == (None,) * 8


@pytest.mark.parametrize(
    ("mode", "pfc"), [("lossless", (3,)), ("lossless-single-ipool", (3,)), ("lossy", ()), (None, (3,))]
)
def test_a_switch_with_only_qos_roce_is_read(mode, pfc):
    text = BY_HAND if mode else BY_HAND.replace("        mode: lossless\n", "")
    text = text.replace("mode: lossless\n", f"mode: {mode}\n")
    seen = cumulus.parse(text, "leaf1")
    assert list(seen.ports) == ["swp1", "swp2", "swp3", "swp5"]
    port = seen.ports["swp2"]
    marked = Ecn(150_000, 1_500_000, 100)
    assert port.dscp_to_class == tuple(dscp // 8 for dscp in range(64))
    assert port.class_to_queue == (0, 0, 0, 3, 0, 0, 6, 0)
    assert port.queues == (
        Queue(False, 50, marked), None, None, Queue(False, 50, marked), None, None, Queue(True), None,
    )  # fmt: skip
    assert (port.pfc, port.headroom, port.watchdog) == (pfc, (None,) * 8, None)
    assert port.ip_mtu_bytes == 9216


def test_a_filled_configuration_without_qos_trusts_no_dscp():
    tree = {
        "interface": {"swp1": {"link": {"mtu": 9216, "state": {"up": {}}}, "type": "swp"}},
        "qos": {
            "mapping": {"default-global": {"pcp": {"0": {"switch-priority": 0}}, "port-default-sp": 0, "trust": "l2"}},
            "roce": {"enable": "off"},
            "pfc": {},
            "traffic-pool": {"default-lossy": {"memory-percent": 100}},
        },
    }
    assert cumulus.parse(json.dumps(tree), "leaf1").ports == {"swp1": PortQos(ip_mtu_bytes=9216)}


def test_manual_settings_for_all_ports_ranges_and_lists_are_read():
    text = """- set:
    interface:
      swp1-2,swp7s0-1:
        qos:
          pfc:
            profile: mine
          pfc-watchdog: {}
      swp9:
        qos:
          mapping:
            profile: untrusted
    qos:
      mapping:
        default-global:
          trust: l3
          dscp:
            24-31:
              switch-priority: 3
            26,27:
              switch-priority: 4
        untrusted:
          trust: port
          port-default-sp: 2
      egress-scheduler:
        default-global:
          traffic-class:
            0,3-4:
              mode: dwrr
              bw-percent: 20
            5-7:
              mode: strict
      congestion-control:
        default-global:
          traffic-class:
            3,4:
              min-threshold: 40000
              max-threshold: 200000
              red: enable
      pfc:
        mine:
          switch-priority:
            3-4: {}
      pfc-watchdog:
        polling-interval: 200
        robustness: 5
"""
    seen = cumulus.parse(text, "leaf1")
    assert list(seen.ports) == ["swp1", "swp2", "swp7s0", "swp7s1", "swp9"]
    port = seen.ports["swp7s1"]
    assert port.dscp_to_class[24:28] == (3, 3, 4, 4)
    assert port.queues[3] == port.queues[4] == Queue(False, 20, Ecn(40_000, 200_000, 100))
    assert port.queues[1] == Queue(False, 0)  # DSCPs 8 to 15 use it, and it has no share
    assert port.queues[6] == Queue(True)
    assert (port.pfc, port.watchdog) == ((3, 4), Watchdog(1000, 200, "drop"))
    unplanned = seen.ports["swp9"]
    assert (set(unplanned.dscp_to_class), unplanned.pfc, unplanned.watchdog) == ({2}, (), None)
    cut = text.index("      pfc-watchdog:\n        polling-interval")
    assert cumulus.parse(text[:cut], "leaf1").ports["swp1"].watchdog == Watchdog(300, 100, "drop")


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ('"mode": "strict"', '"mode": "sp"', "mode 'sp'"),
        ('"trust": "l3"', '"trust": "dscp"', "trust 'dscp'"),
        ('"min-threshold": 150000', '"min-threshold": "150 KB"', "min-threshold '150 KB'"),
        ('"bw-percent": 50', '"bw-percent": 500', "bw-percent 500"),
        ('"26": {', '"64": {', "'64'"),
        ('"26": {', '"24-99": {', "'64'"),
        ('"26": {', '"31-24": {', "31-24"),
        ('"swp1": {', '"swp1-999999999": {', "swp1-999999999"),
        ('"mtu": 9100', '"mtu": "jumbo"', "mtu 'jumbo'"),
        ('"rx": "enable"', '"rx": "maybe"', "'maybe'"),
        ('"pfc": {"profile": "', '"pfc": {"profile": "gone-', "profile 'gone-sailloft"),
        ('"traffic-pool": {', '"roce": {"mode": "lossy-multi-tc"}, "traffic-pool": {', "lossy-multi-tc"),
        ('"cable-length": 5', '"cable-length": -1', "cable-length -1"),
        ('"polling-interval": 200', '"polling-interval": 1', "polling-interval 1"),
    ],
)
def test_invalid_settings_are_refused_with_their_place(old, new, fact):
    text = cumulus.render(reference()).replace(old, new, 1)
    with pytest.raises(FabricError) as caught:
        cumulus.parse(text, "leaf1")
    assert str(caught.value).startswith("leaf1: NVUE configuration: ")
    assert fact in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "   \n", "hello", "% Unknown command", "null", "[]", "[1]", "5", '{"a": 1}', "{}",
     '[{"unset": {}}]', "a: b: c: [", "\x00", "- - x",
     '{"interface": 7.5}', '{"qos": true}', '[{"set": {"qos": {"pfc": [[1]]}, "interface": {"swp1": {}}}}]'],
)  # fmt: skip
def test_text_that_is_not_a_configuration_is_refused(text):
    with raises(FabricError, "leaf1", "NVUE configuration", "nv config show"):
        cumulus.parse(text, "leaf1")


def test_a_truncated_document_is_refused():
    text = cumulus.render(reference()).rstrip()
    for end in range(1, len(text), 97):
        with pytest.raises(FabricError, match="neither JSON nor YAML"):
            cumulus.parse(text[:end], "leaf1")


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"class_to_priority": (0, None, None, 4, None, None, 6, None)}, "traffic class differs from its priority"),
        ({"watchdog": Watchdog(250, 200, "drop")}, "watchdog"),
        ({"watchdog": Watchdog(200, 200, "forward")}, "watchdog"),
        ({"dscp_to_class": (0,) * 63 + (None,)}, "some DSCPs"),
        ({"headroom": (None,) * 3 + (Headroom(1, 2, 1, 9),) + (None,) * 4}, "alpha_exponent 9"),
    ],
)
def test_settings_that_nvue_cannot_represent_are_refused(changes, fact):
    with pytest.raises(FabricError, match=fact):
        cumulus.render(reference(**changes))


@pytest.mark.parametrize(
    ("detection", "restoration"), [(100, 100), (5000, 5000), (5000, 100), (100_000, 100), (5_000_000, 5000)]
)
def test_watchdog_times_of_nvue_are_read_back(detection, restoration):
    wanted = reference(watchdog=Watchdog(detection, restoration, "drop"))
    assert cumulus.parse(cumulus.render(wanted), wanted.name) == wanted


@pytest.mark.parametrize(
    ("detection", "restoration", "action"),
    [(99, 99, "drop"), (5001, 5001, "drop"), (100, 200, "drop"), (100_100, 100, "drop"), (200, 200, "forward")],
)
def test_watchdog_times_that_nvue_cannot_represent_are_refused(detection, restoration, action):
    with refuses("leaf1", action, f"{detection} ms", f"{restoration} ms", "restoration_ms from 100 to 5000"):
        cumulus.render(reference(watchdog=Watchdog(detection, restoration, action)))


def test_global_settings_of_nvue_must_be_equal_on_all_ports():
    wanted = reference()
    slow = replace(wanted.ports["swp1"], watchdog=Watchdog(400, 200, "drop"))
    with refuses("leaf1", "PFC watchdog"):
        cumulus.render(replace(wanted, ports={**wanted.ports, "swp2": slow}))
