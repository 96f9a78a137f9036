# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remediation of NX-OS leads to the wanted configuration and sends only the differences."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from nxos_switch import BY_HAND, PORTS, REFERENCE, apply, held, own, told
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import nxos

OLD = switch("nxos", PORTS, {"classes": {"roce": {"dscp": 24, "bandwidth_percent": 40, "traffic_class": 4}}})


LOSSY = switch("nxos", PORTS, {"classes": {"roce": {"mode": "lossy"}}})


STARTS = {
    "nothing": "hostname leaf1\n",
    "an older policy": nxos.render(OLD),
    "a lossy policy": nxos.render(LOSSY),
    "another hand": BY_HAND.replace("match dscp af31", "match dscp 10"),
    "lines on the ports": BY_HAND.replace(
        "interface Vlan10",
        "interface Ethernet1/1\n service-policy type qos input GONE\n service-policy type queuing output OUT\n"
        " priority-flow-control mode off\n priority-flow-control watch-dog-interval on disable-action\n"
        "interface Vlan10",
    ),
    "a policy of ours that was changed": nxos.render(REFERENCE)
    .replace("set qos-group 3", "set qos-group 4")
    .replace("match dscp 26", "match dscp 26\n  match dscp 27")
    .replace("    pause pfc-cos 3\n", "    pause pfc-cos 4\n")
    .replace("  class type queuing c-out-8q-q7\n    bandwidth remaining percent 0\n", ""),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("wanted", [REFERENCE, LOSSY], ids=["lossless", "lossy"])
def test_remediation_reaches_the_wanted_settings(start, wanted):
    running = (
        STARTS[start]
        .replace("interface Ethernet1/9\nsystem qos\n^\n", "^\n")
        .replace("interface Ethernet1/1-3, Ethernet1/5", "interface Ethernet1/2")
    )
    changed = apply(running, nxos.remediation(running, wanted))
    read = nxos.parse(changed, "leaf1")
    assert {port: read.ports[port] for port in PORTS} == held(wanted).ports
    assert nxos.remediation(changed, wanted) == ""


@given(policies(), policies())
def test_remediation_leads_from_any_policy_to_any_other(first, second):
    running, wanted = nxos.render(switch("nxos", PORTS[:2], first)), switch("nxos", PORTS, second)
    changed = apply(running, nxos.remediation(running, wanted))
    assert nxos.parse(changed, "leaf1") == held(wanted)
    assert nxos.remediation(changed, wanted) == ""
    for kind in ("qos", "queuing", "network-qos"):
        assert own(changed, kind) == own(nxos.render(wanted), kind)


@pytest.mark.parametrize("wanted", [REFERENCE, LOSSY], ids=["lossless", "lossy"])
@pytest.mark.parametrize("start", ["nothing", "an older policy"])
def test_remediation_interrupted_after_any_line_is_completed(start, wanted):
    running = STARTS[start]
    sent = nxos.remediation(running, wanted).splitlines()
    for end in range(len(sent)):
        half = apply(running, "\n".join(sent[:end]))
        nxos.parse(half, "leaf1")
        read = nxos.parse(apply(half, nxos.remediation(half, wanted)), "leaf1")
        assert {port: read.ports[port] for port in PORTS} == held(wanted).ports, sent[end]


def test_hier_config_sends_the_same_lines_in_another_order():
    """hier_config sends our lines, but does not know what NX-OS refuses: it removes objects that are still in use."""
    hier_config = pytest.importorskip("hier_config")
    driver = told(hier_config)
    running = nxos.render(OLD)
    theirs = hier_config.WorkflowRemediation(
        hier_config.get_hconfig(driver, running), hier_config.get_hconfig(driver, nxos.render(REFERENCE))
    ).remediation_config
    their_lines = [line.cisco_style_text() for line in theirs.all_children_sorted()]
    sent = nxos.remediation(running, REFERENCE)
    lines = sent.splitlines()
    assert sorted(their_lines) == sorted(lines)
    assert their_lines[0].startswith("no class-map type qos")
    removals = [position for position, line in enumerate(lines) if line.startswith("no ")]
    freed = [position for position, line in enumerate(lines) if line.startswith("  no service-policy")]
    assert len(freed) == len(PORTS)
    assert min(removals) > max(freed)
    assert [lines[position].split(" ")[1] for position in removals] == ["policy-map"] * 3 + ["class-map"]
    # After our lines, hier_config has nothing to send.
    changed = hier_config.get_hconfig(driver, apply(running, sent))
    assert not changed.config_to_get_to(hier_config.get_hconfig(driver, nxos.render(REFERENCE))).children


def test_remediation_sends_only_what_differs():
    text = nxos.render(REFERENCE).replace("  mtu 9100\n  prio", "  mtu 1500\n  prio", 1)
    assert nxos.remediation(text, REFERENCE) == "interface Ethernet1/1\n  mtu 9100\n"
    text = nxos.render(REFERENCE).replace("percent 50\n    random", "percent 51\n    random")
    (name,) = own(text, "queuing")
    assert nxos.remediation(text, REFERENCE).splitlines() == [
        f"policy-map type queuing {name}",
        "  class type queuing c-out-8q-q3",
        "    bandwidth remaining percent 50",
    ]


def test_our_unused_objects_are_removed_and_other_objects_are_kept():
    leftover = re.findall(r"policy-map type qos sailloft\S+", nxos.render(OLD))[0]
    text = nxos.render(REFERENCE) + nxos.render(OLD).split("system qos", maxsplit=1)[0] + "policy-map type qos MINE\n"
    lines = nxos.remediation(text, REFERENCE).splitlines()
    assert f"no {leftover}" in lines
    assert all(
        line.startswith(("no policy-map type ", "no class-map type qos match-any sailloft-tc4")) for line in lines
    )
    assert not any("MINE" in line for line in lines)
    used = text + f"interface Ethernet1/40\n  service-policy type qos input {leftover.split(' ')[-1]}\n"
    assert f"no {leftover}" not in nxos.remediation(used, REFERENCE)
    assert "class-map" not in nxos.remediation(used, REFERENCE)
