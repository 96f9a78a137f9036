# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The class of a DSCP is known where the DSCP alone decides it; otherwise the condition is named, where it matters."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import CLASS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos, nxos

ACCESS_LISTS = (
    "ip access-list TCP",
    "  10 permit tcp any any",
    "  20 deny udp any any",
    "ip access-list UDP",
    "  10 permit tcp any any",
    "  20 permit udp any any eq 4791",
    "ip access-list EMPTY",
)


def classified(*conditions, group=0, how="match-any", own=(), last=()):
    """Return the classes and the named conditions of a class X before RoCE's, whose DSCP is 26 and class is 3."""
    lines = (
        "hostname leaf1",
        *ACCESS_LISTS,
        f"class-map type qos {how} X",
        *(f"  {condition}" for condition in conditions),
        "class-map type qos match-any ROCE",
        "  match dscp 26",
        *(f"  {condition}" for condition in own),
        "policy-map type qos P",
        "  class X",
        *([] if group is None else [f"    set qos-group {group}"]),
        "  class ROCE",
        "    set qos-group 3",
        *last,
        "interface Ethernet1/1",
        "  service-policy type qos input P",
    )
    return seen(nxos.parse("\n".join((*lines, "")), "leaf1"))


def seen(switch):
    (qos,) = switch.ports.values()
    place = "policy-map type qos P " if switch.system == "nxos" else "policy-map P "
    named = [override.statement.removeprefix(place) for override in switch.overrides]
    assert all((override.effect, override.ports) == (CLASS, tuple(switch.ports)) for override in switch.overrides)
    return qos.dscp_to_class, named


def at_26(value, others=0):
    return (*(others,) * 26, value, *(others,) * 37)


ROCE = at_26(3)


@pytest.mark.parametrize(
    "condition",
    [
        "match cos 3",
        "match ip rtp 2000-65535",
        "match packet length 1-100",
        "match protocol bridging",
        "match access-group name UDP",
        "match access-group name EMPTY",
        "match access-group name NONE",
        "match not cos 3",
        "match not protocol arp",
        "match not access-group name TCP",
        "match not",
    ],
)
def test_a_condition_that_may_take_roce_is_named(condition):
    assert classified(condition) == (at_26(None), [f"class X {condition}"])
    assert classified(condition, group=None) == (at_26(None), [f"class X {condition}"])
    assert classified(condition, group=3) == (at_26(3, None), [f"class X {condition}"])


@pytest.mark.parametrize(
    ("condition", "classes"),
    [
        ("match dscp 10", ROCE),
        ("match precedence 2", ROCE),
        ("match precedence routine,critical", ROCE),
        ("match not dscp 26", ROCE),
        ("match precedence 3", (0,) * 64),
        ("match precedence flash", (0,) * 64),
        ("match not dscp 10", (0,) * 64),
        ("match protocol arp", ROCE),
        ("match access-group name TCP", ROCE),
    ],
)
def test_a_condition_whose_dscps_are_known_is_read(condition, classes):
    assert classified(condition) == (classes, [])


@pytest.mark.parametrize("condition", ["match protocol arp", "match access-group name TCP"])
def test_other_packets_are_named_in_a_class_of_roce_only(condition):
    assert classified(condition, group=3) == (ROCE, [f"class X {condition}"])
    assert classified(condition, group=2) == (ROCE, [])


def test_a_condition_without_effect_costs_nothing():
    """RoCE's packets that it may take get their class anyway, and those of others."""
    all_in_it = ("  class class-default", "    set qos-group 3")
    assert classified("match dscp 26", "match cos 3", group=3, last=all_in_it) == ((3,) * 64, [])
    before = classified("match dscp 10", own=("match dscp 27",), last=("  class X", "    set qos-group 0"))
    assert before == ((*(0,) * 26, 3, 3, *(0,) * 36), [])


def test_a_class_after_roces_takes_none_of_it():
    lines = ("class-map type qos match-any LATE", "  match cos 3")
    text = "\n".join(
        (
            "hostname leaf1",
            *lines,
            "class-map type qos match-any ROCE",
            "  match dscp 26",
            "policy-map type qos P",
            "  class ROCE",
            "    set qos-group 3",
            "  class LATE",
            "    set qos-group 0",
            "interface Ethernet1/1",
            "  service-policy type qos input P",
            "",
        )
    )
    assert seen(nxos.parse(text, "leaf1")) == (ROCE, [])
    into_roces = text.replace("set qos-group 0", "set qos-group 3")
    assert seen(nxos.parse(into_roces, "leaf1")) == (at_26(3, None), ["class LATE match cos 3"])


@pytest.mark.parametrize("condition", ["match cos 3", "match access-group name UDP"])
def test_a_further_condition_of_roces_class_is_named(condition):
    assert classified("match dscp 10", own=(condition,)) == (
        tuple(0 if dscp == 10 else 3 if dscp == 26 else None for dscp in range(64)),
        [f"class ROCE {condition}"],
    )


def test_a_class_that_needs_all_conditions_has_both_meanings():
    conditions = ("match dscp 26", "match cos 3")
    assert classified(*conditions, how="match-all") == (at_26(None), [f"class X {each}" for each in conditions])
    two = ("match dscp 10", "match dscp 26")
    assert classified(*two, how="match-all") == (at_26(None), [f"class X {each}" for each in two])
    assert classified("match dscp 10", how="match-all") == (ROCE, [])


def test_unknown_classes_have_their_queues():
    text = "\n".join(
        (
            "hostname leaf1",
            "class-map type qos match-any X",
            "  match cos 3",
            "policy-map type qos P",
            "  class X",
            "    set qos-group 5",
            "interface Ethernet1/1",
            "  service-policy type qos input P",
            "",
        )
    )
    qos = nxos.parse(text, "leaf1").ports["Ethernet1/1"]
    assert qos.dscp_to_class == (None,) * 64
    assert qos.class_to_queue == (0, *(None,) * 4, 5, None, None)


def of_eos(*conditions, number=0):
    lines = (
        "hostname leaf1",
        *ACCESS_LISTS,
        "class-map type qos match-any X",
        *(f"   {condition}" for condition in conditions),
        "policy-map type quality-of-service P",
        "   class X",
        f"      set traffic-class {number}",
        "qos map dscp 0-63 to traffic-class 0",
        "qos map dscp 26 to traffic-class 3",
        "interface Ethernet1",
        "   no switchport",
        "   service-policy type qos input P",
    )
    return seen(eos.parse("\n".join((*lines, "")), "leaf1"))


@pytest.mark.parametrize(
    "condition",
    ["match cos 3", "match vlan 10", "match ecn ect", "match dscp 26 ecn ect", "match ipv6 access-group UDP"],
)
def test_eos_names_a_condition_that_may_take_roce(condition):
    assert of_eos(condition) == (at_26(None), [f"class X {condition}"])


def test_eos_reads_conditions_whose_dscps_are_known():
    assert of_eos("match ip access-group TCP") == (ROCE, [])
    assert of_eos("match dscp 10 af11 12") == (ROCE, [])
    assert of_eos("match ip dscp 26") == ((0,) * 64, [])
    assert of_eos("match cos 3", number=3) == (at_26(3, None), ["class X match cos 3"])
