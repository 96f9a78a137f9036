# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remediation of EOS leads to the wanted configuration and sends only the differences."""

from __future__ import annotations

import pytest
from eos_switch import PORTS, REFERENCE, Box, held, own
from hypothesis import given, settings
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
    for each, number in zip(classes, sorted(each["traffic_class"] for each in classes)):
        each["traffic_class"] = number
    return policy


@settings(max_examples=60, deadline=None)
@given(policies().map(strict_on_top), policies().map(strict_on_top))
def test_remediation_leads_from_any_policy_to_any_other(first, second):
    box, wanted = Box(eos.render(switch("eos", PORTS[:2], first))), switch("eos", PORTS, second)
    box.apply(eos.remediation(box.text(), wanted).splitlines())
    assert eos.parse(box.text(), "leaf1").ports == held(wanted).ports
    assert eos.remediation(box.text(), wanted) == ""
    assert len(own(box.text())) == 1


def test_remediation_sends_only_what_differs():
    text = eos.render(REFERENCE).replace("interface Ethernet2/1\n   mtu 9100", "interface Ethernet2/1\n   mtu 1500")
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
