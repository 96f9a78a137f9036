# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remediation of EOS leads to the wanted configuration and sends only the differences."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from eos_switch import PORTS, REFERENCE, Box, held, own
from hypothesis import given
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos

OLD = switch("eos", PORTS, {"classes": {"roce": {"dscp": 24, "bandwidth_percent": 40}}})


LOSSY = switch("eos", PORTS, {"classes": {"roce": {"mode": "lossy"}}})


STARTS = {
    "nothing": "hostname leaf1\n",
    "an older policy": eos.render(OLD),
    "a lossy policy": eos.render(LOSSY),
    "other ports": eos.render(switch("eos", ["Ethernet33"], {"cnp": {"dscp": 46}})),
    "lines on the ports": (
        "qos rewrite dscp\npriority-flow-control all off\nqos map traffic-class 3 to tx-queue 1\n"
        "qos map dscp 26 to traffic-class 3 drop-precedence 1\n"
        "qos profile MINE\n   qos trust cos\n"
        "interface Ethernet1/1\n   service-profile MINE\n   no qos trust\n   no priority-flow-control\n"
        "   priority-flow-control priority 5 no-drop\n   service-policy type qos input GONE\n"
        "   tx-queue 3\n      priority strict\n      bandwidth percent 1\n"
        "      random-detect ecn minimum-threshold 2000 segments maximum-threshold 9000 segments\n"
        "   uc-tx-queue 5\n      no priority\n"
    ),
    "a profile of ours that was changed": eos.render(REFERENCE)
    .replace("priority 3 no-drop", "priority 4 no-drop")
    .replace("bandwidth percent 50\n      random", "bandwidth percent 51\n      random"),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("wanted", [REFERENCE, LOSSY], ids=["lossless", "lossy"])
def test_remediation_reaches_the_wanted_settings(start, wanted):
    box = Box(STARTS[start])
    box.apply(eos.remediation(box.text(), wanted).splitlines())
    read = eos.parse(box.text(), "leaf1")
    assert {port: read.ports[port] for port in PORTS} == held(wanted).ports
    assert eos.remediation(box.text(), wanted) == ""


def strict_on_top(policy: dict) -> dict:
    """Renumber the classes of ``policy`` in order, the strict one last: EOS requires it above the weighted ones."""
    classes = [*policy["classes"].values(), policy["default"], policy["cnp"]]
    for traffic, number in zip(classes, sorted(traffic["traffic_class"] for traffic in classes)):
        traffic["traffic_class"] = number
    return policy


@given(policies().map(strict_on_top), policies().map(strict_on_top))
def test_remediation_leads_from_any_policy_to_any_other(first, second):
    box, wanted = Box(eos.render(switch("eos", PORTS[:2], first))), switch("eos", PORTS, second)
    box.apply(eos.remediation(box.text(), wanted).splitlines())
    assert eos.parse(box.text(), "leaf1").ports == held(wanted).ports
    assert eos.remediation(box.text(), wanted) == ""
    assert len(own(box.text())) == 1


def test_remediation_sends_only_what_differs():
    above, port, below = eos.render(REFERENCE).partition("interface Ethernet2/1\n")
    text = above + port + below.replace("mtu 9100", "mtu 1500", 1)
    assert eos.remediation(text, REFERENCE) == "interface Ethernet2/1\n   mtu 9100\n"
    changed = eos.render(REFERENCE).replace("percent 50\n      random", "percent 51\n      random")
    name = own(changed)[0]
    assert eos.remediation(changed, REFERENCE).splitlines() == [
        f"qos profile {name}",
        "   uc-tx-queue 3",
        "      bandwidth percent 50",
    ]


def test_drop_precedence_is_removed_from_a_correctly_mapped_dscp():
    text = eos.render(REFERENCE) + "qos map dscp 26 to traffic-class 3 drop-precedence 1\n"
    assert eos.remediation(text, REFERENCE) == "qos map dscp 26 to traffic-class 3\n"


def test_our_unused_profiles_are_removed_and_other_profiles_are_kept():
    box = Box(eos.render(OLD) + "qos profile MINE\n   qos trust cos\n")
    lines = eos.remediation(box.text(), REFERENCE).splitlines()
    assert lines[0] == f"qos profile {own(eos.render(REFERENCE))[0]}"  # before it is assigned to a port
    assert lines[-1] == f"no qos profile {own(eos.render(OLD))[0]}"  # after no port uses it
    box.apply(lines)
    assert own(box.text()) == ["MINE", *own(eos.render(REFERENCE))]
    used = eos.render(OLD) + f"interface Ethernet40\n   service-profile {own(eos.render(OLD))[0]}\n"
    assert not any(line.startswith("no qos profile") for line in eos.remediation(used, REFERENCE).splitlines())


MINE = eos.render(REFERENCE).replace(own(eos.render(REFERENCE))[0], "MINE")


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("", ""),
        ("qos rewrite dscp\n", "no qos rewrite dscp\n"),
        ("priority-flow-control all off\n", "no priority-flow-control all off\n"),
        (
            "ip load-sharing trident fields ip source-ip destination-ip\n",
            "no ip load-sharing trident fields ip\n",
        ),
        (
            "ip load-sharing trident fields ipv6 source-ip flow-label\n"
            "ip load-sharing trident fields ip source-ip destination-ip source-port destination-port ttl\n",
            "no ip load-sharing trident fields ipv6\n",
        ),
        ("qos map traffic-class 3 to tx-queue 1\n", "qos map traffic-class 3 to tx-queue 3\n"),
        ("qos map dscp 26 48 to traffic-class 0\n",
         "qos map dscp 26 to traffic-class 3\nqos map dscp 48 to traffic-class 6\n"),
    ],
)  # fmt: skip
def test_a_line_of_the_whole_switch_changes_no_port_that_is_right_otherwise(line, sent):
    """Another's profile with the wanted settings stays."""
    assert eos.remediation(MINE + line, REFERENCE) == sent


def test_lossy_ports_keep_a_switch_with_pfc_off():
    text = eos.render(LOSSY) + "priority-flow-control all off\n"
    assert eos.remediation(text, LOSSY) == ""


def test_a_hash_that_no_policy_wants_is_kept():
    text = eos.render(REFERENCE) + "ip load-sharing trident fields ip source-ip\n"
    assert eos.remediation(text, replace(REFERENCE, ecmp_fields=None)) == ""


def test_lines_of_a_port_are_removed_unless_they_repeat_the_profile():
    (name,) = own(eos.render(REFERENCE))
    start, own_port, _end = re.split(r"(?<=interface Ethernet17\n)((?:   .*\n)+)", eos.render(REFERENCE))
    assert name in own_port
    text = (
        f"{start}"
        "   no switchport\n"
        "   qos trust dscp\n"
        "   priority-flow-control priority 3 drop\n"
        "   service-policy type qos input GONE\n"
        "   qos map dscp to traffic-class OLD\n"
        "   uc-tx-queue 3\n"
        "      no priority\n"
        "      bandwidth percent 10\n"
        "   uc-tx-queue 5\n"
        "      priority strict\n"
    )
    lines = eos.remediation(text, REFERENCE).splitlines()
    assert [*lines[:4], *sorted(lines[4:6]), *lines[6:]] == [
        "interface Ethernet17",
        "   default priority-flow-control priority 3",
        "   no service-policy type qos input GONE",
        "   no qos map dscp to traffic-class OLD",
        "   mtu 9100",
        f"   service-profile {name}",
        "   uc-tx-queue 3",
        "      default bandwidth percent",
        "   uc-tx-queue 5",
        "      default priority",
    ]


def test_a_changed_profile_of_ours_gets_its_own_lines_before_those_of_its_queues():
    text = (
        eos.render(REFERENCE)
        .replace("   qos trust dscp\n", "   service-policy type qos input GONE\n")
        .replace("priority 3 no-drop", "priority 4 no-drop")
        .replace("      priority strict\n", "      no priority\n      bandwidth percent 7\n")
        .replace("   uc-tx-queue 0\n", "   uc-tx-queue 1\n")
    )
    assert eos.remediation(text, REFERENCE).splitlines() == [
        f"qos profile {own(text)[0]}",
        "   no service-policy type qos input GONE",
        "   default priority-flow-control priority 4",
        "   qos trust dscp",
        "   priority-flow-control priority 3 no-drop",
        "   uc-tx-queue 1",
        "      default priority",
        "      default bandwidth percent",
        "   uc-tx-queue 6",
        "      default bandwidth percent",
        "   uc-tx-queue 0",
        "      no priority",
        "      bandwidth percent 50",
        "   uc-tx-queue 6",
        "      priority strict",
    ]


def test_a_new_port_gets_a_profile_without_comments():
    wanted = replace(REFERENCE, ports={"Ethernet1/1": replace(REFERENCE.ports["Ethernet1/1"], pfc=(), watchdog=None)})
    lines = eos.remediation("hostname leaf1\n", wanted).splitlines()
    (name,) = own(eos.render(wanted))
    assert lines[:7] == [
        f"qos profile {name}",
        "   qos trust dscp",
        "   uc-tx-queue 0",
        "      no priority",
        "      bandwidth percent 50",
        "   uc-tx-queue 3",
        "      no priority",
    ]
    assert [*lines[10:13], *sorted(lines[13:])] == [
        "      priority strict",
        # By default, DSCPs 8 to 15 have class 0, 26 has class 3 and 48 class 6.
        f"qos map dscp {' '.join(map(str, [*range(8), *range(16, 26), *range(27, 48), *range(49, 64)]))}"
        " to traffic-class 0",
        "interface Ethernet1/1",
        "   mtu 9100",
        f"   service-profile {name}",
    ]
