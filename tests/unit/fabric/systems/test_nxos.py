# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NX-OS: rendered settings are read back unchanged, and settings that NX-OS cannot represent are refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from messages import raises
from nxos_switch import PORTS, REFERENCE, held, own
from refusals import refuses
from switches import OWN_ASICS, policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import nxos


def test_the_rendered_reference_is_read_back():
    assert nxos.parse(nxos.render(REFERENCE), "leaf1") == held(REFERENCE)


def test_equal_ports_share_policies_and_differing_ports_get_separate_ones():
    qos = REFERENCE.ports["Ethernet1/2"]
    queues = tuple(
        replace(queue, ecn=Ecn(600_001, 6_000_007, 20)) if queue and queue.ecn else queue for queue in qos.queues
    )
    mixed = replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/2": replace(qos, queues=queues, ip_mtu_bytes=9000)})
    text = nxos.render(mixed)
    assert nxos.parse(text, "leaf1") == held(mixed)
    assert "minimum-threshold 150 kbytes maximum-threshold 1500 kbytes " in text
    assert "minimum-threshold 600001 bytes maximum-threshold 6000007 bytes " in text
    assert own(text, "queuing") > own(nxos.render(REFERENCE), "queuing")  # names are derived from a policy's content
    assert own(text, "qos") == own(nxos.render(REFERENCE), "qos")
    assert text.count("service-policy type queuing output") == 2  # that of the system, and that of the one port
    lossy = replace(qos, pfc=(), watchdog=None)
    partly_lossy = replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/2": lossy})
    assert nxos.parse(nxos.render(partly_lossy), "leaf1") == held(partly_lossy)


@given(policies())
def test_any_rendered_policy_is_read_back(policy):
    wanted = switch("nxos", PORTS, policy)
    text = nxos.render(wanted)
    assert text == nxos.render(switch("nxos", PORTS, policy))
    assert nxos.parse(text, "leaf1") == held(wanted)
    assert nxos.remediation(text, wanted) == ""


def test_a_class_may_pause_another_priority_than_its_number():
    wanted = switch("nxos", PORTS, {"classes": {"roce": {"priority": 4}}})
    text = nxos.render(wanted)
    assert "  class type network-qos c-8q-nq3\n    mtu 9100\n    pause pfc-cos 4\n" in text
    assert nxos.parse(text, "leaf1") == held(wanted)


def test_every_missing_line_is_detected_unless_it_sets_a_default():
    lines = nxos.render(REFERENCE).splitlines()
    says_default = {
        "priority-flow-control watch-dog shutdown-multiplier 1",
        "ip load-sharing address source-destination port source-destination",
        "set qos-group 0",
        "bandwidth remaining percent 0",
    }
    for position, line in enumerate(lines):
        if line.strip() == "!":
            continue
        seen = differs("\n".join([*lines[:position], *lines[position + 1 :]]), held(REFERENCE))
        if line.strip() in [f"class type queuing c-out-8q-q{position}" for position in (7, 5, 4, 2, 1)]:
            continue  # its settings now belong to the previous class, where they may change something
        assert seen is (line.strip() not in says_default), line


def test_every_changed_number_is_detected():
    text = nxos.render(REFERENCE)
    count = 0
    for number in re.finditer(r"\d+", text):
        prefix = text[: number.start()]
        line = text[text.rfind("\n", 0, number.start()) + 1 : text.find("\n", number.start())]
        if prefix.endswith("priority level "):
            continue  # Switch has no field for the order of strict queues
        if line.strip() in [f"class type queuing c-out-8q-q{at}" for at in (7, 5, 4, 2, 1)]:
            continue  # this only configures a queue without a share twice
        by = -1 if prefix.endswith(" mtu ") else 1  # the smaller MTU of the port and the no-drop class counts
        changed = prefix + str(int(number[0]) + by) + text[number.end() :]
        assert differs(changed, held(REFERENCE)), line
        count += 1
    assert count > 60


@pytest.mark.parametrize(
    ("word", "replacement"),
    [
        (" weight 0 ecn", " weight 0"),
        ("    set qos-group 3", "    set qos-group 3\n    set dscp 24"),
        ("mode on", "mode auto"),
        ("mode on", "mode off"),
        ("watch-dog-interval on", "watch-dog-interval off"),
        (
            "  priority-flow-control watch-dog-interval on",
            "  priority-flow-control watch-dog-interval on disable-action",
        ),
        (
            "  priority-flow-control watch-dog-interval on",
            "  priority-flow-control watch-dog-interval on interface-multiplier 2",
        ),
        ("    priority level 1", "    bandwidth remaining percent 1"),
        (" kbytes maximum", " bytes maximum"),
        ("address source-destination port source-destination", "address source-destination"),
        ("c-8q-nq3", "c-8q-nq4"),
        ("c-8q-nq3", "c-9q-nq3"),
        ("c-out-8q-q3", "c-out-9q-q3"),
    ],
)
def test_every_changed_keyword_is_detected(word, replacement):
    text = nxos.render(REFERENCE)
    assert word in text
    assert differs(text.replace(word, replacement), held(REFERENCE))


def differs(text: str, wanted: Switch) -> bool:
    try:
        return nxos.parse(text, "leaf1") != wanted
    except FabricError:
        return True


@pytest.mark.parametrize(
    ("policy", "changes", "error"),
    [
        ({}, {"ip_mtu_bytes": 575}, " 575 .* 576 to 9216"),
        ({}, {"ip_mtu_bytes": None}, "no MTU is wanted"),
        ({}, {"watchdog": Watchdog(200, 200, "forward")}, "cannot forward a stuck queue's packets"),
        (
            {},
            {"watchdog": Watchdog(200, 250, "drop")},
            "200 ms .* 250 ms.* pfc_watchdog",
        ),
        ({}, {"watchdog": Watchdog(198, 297, "drop")}, "198 ms .* 297 ms"),
        ({}, {"watchdog": Watchdog(1100, 1100, "drop")}, "detection_ms up to 1000"),
        ({}, {"watchdog": Watchdog(100, 10_100, "drop")}, "restoration_ms up to 100 intervals"),
        (
            {},
            {"watchdog": Watchdog(90, 90, "drop")},
            "pfc_watchdog .* 100 ms",
        ),
        ({}, {"watchdog": Watchdog(300, 0, "drop")}, "300 ms .* 0 ms"),
        ({}, {"ip_mtu_bytes": 9217}, " 9217 .* 576 to 9216"),
        ({}, {"dscp_to_class": (None,) * 64}, "DSCP 0 has no traffic class"),
        ({"classes": {"roce": {"queue": 4}}}, {}, "class 3 .*queue 3, not 4"),
        ({"cnp": {"priority": 5}}, {}, "class 6 .*priority 5 "),
        ({}, {"pfc": (3, 5)}, "priority 5 pauses, and no traffic class has it"),
        ({"ecmp_fields": ["source_port"]}, {}, "NX-OS's hash cannot use only source_port"),
    ],
)
def test_settings_that_nxos_cannot_represent_are_refused(policy, changes, error):
    with pytest.raises(FabricError, match=error):
        nxos.render(switch("nxos", PORTS, policy, **changes))


def test_differing_values_of_a_global_setting_are_refused():
    qos = REFERENCE.ports["Ethernet1/1"]
    other_port = switch("nxos", ["a"], {"classes": {"roce": {"priority": 4}}}).ports["a"]
    with refuses("leaf1: port Ethernet1/9", "paused", "Ethernet1/1"):
        nxos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/9": other_port}))
    other_port = replace(qos, watchdog=Watchdog(400, 400, "drop"))
    with refuses("leaf1: port Ethernet1/9", "watchdog", "Ethernet1/1"):
        nxos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/9": other_port}))
    with refuses("leaf1: port Eth1/9", "NX-OS"):
        nxos.render(replace(REFERENCE, ports={"Eth1/9": qos}))


@pytest.mark.parametrize(
    ("detection", "restoration"),
    [(100, 100), (200, 200), (300, 400), (1000, 60_000), (250, 1000), (1000, 900), (100, 10_000)],
)
def test_watchdog_times_are_read_back(detection, restoration):
    wanted = switch("nxos", PORTS, watchdog=Watchdog(detection, restoration, "drop"))
    assert nxos.parse(nxos.render(wanted), "leaf1") == held(wanted)


def test_the_watchdog_has_the_longest_interval_of_which_both_times_are_multiples():
    assert (
        "priority-flow-control watch-dog-interval on\n"
        "priority-flow-control watch-dog interval 125\n"
        "priority-flow-control watch-dog shutdown-multiplier 2\n"
        "priority-flow-control auto-restore multiplier 3\n"
    ) in nxos.render(switch("nxos", PORTS, watchdog=Watchdog(250, 375, "drop")))


def test_only_the_hash_of_flows_is_mended_where_nothing_else_differs():
    line = "ip load-sharing address source-destination port source-destination\n"
    running = nxos.render(REFERENCE)
    assert line in running
    running = running.replace(line, "ip load-sharing address source-destination\n")
    assert nxos.remediation(running, REFERENCE) == line


def test_a_weighted_queue_without_a_share_is_refused():
    queues = tuple(queue and replace(queue, bandwidth_percent=None) for queue in REFERENCE.ports["Ethernet1/1"].queues)
    with raises(FabricError, "leaf1", "Ethernet1/1", "queue 3", "bandwidth_percent"):
        nxos.render(switch("nxos", PORTS, queues=queues))


@pytest.mark.parametrize("mtu", [576, 9216])
def test_the_least_and_the_largest_mtu_are_read_back(mtu):
    wanted = switch("nxos", PORTS, ip_mtu_bytes=mtu)
    assert nxos.parse(nxos.render(wanted), "leaf1") == held(wanted)


def test_a_cable_beyond_100_m_or_of_unknown_length_is_refused():
    nxos.check_cable("leaf1: port Ethernet1/1", 100)
    with raises(FabricError, "leaf1", "Ethernet1/1", "101", "100"):
        nxos.check_cable("leaf1: port Ethernet1/1", 101)
    with raises(FabricError, "leaf1", "Ethernet1/1", "cable_m", "100"):
        nxos.check_cable("leaf1: port Ethernet1/1", None)


@pytest.mark.parametrize(
    ("mode", "cable", "planned"), [("lossless", 100, True), ("lossy", 300, True), ("lossless", 300, False)]
)
def test_only_lossless_classes_need_a_short_cable(mode, cable, planned):
    policy = read_policy({"classes": {"roce": {"mode": mode}}})
    ports = {"Ethernet1/1": {"speed_gbit_s": 400, "cable_m": cable}}
    specs = read_switches({"leaf1": {"system": "nxos", "asic": "nexus", "ports": ports}}, asics=OWN_ASICS)
    if planned:
        assert plan(policy, specs)["leaf1"].ports["Ethernet1/1"].headroom == (None,) * 8
        return
    with refuses("switch leaf1: port Ethernet1/1", "300 m", "pause buffer-size"):
        plan(policy, specs)
