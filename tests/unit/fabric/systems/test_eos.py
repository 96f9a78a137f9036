# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""EOS: rendered settings are read back unchanged, and settings that EOS cannot represent are refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from eos_switch import PORTS, REFERENCE, held, own
from hypothesis import given
from messages import raises
from refusals import refuses
from switches import ECN, policies, port_qos, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos


def test_the_rendered_reference_is_read_back():
    assert eos.parse(eos.render(REFERENCE), "leaf1") == held(REFERENCE)


QUEUES = REFERENCE.ports["Ethernet17"].queues


def marking(minimum: int, maximum: int, percent: int = 100) -> tuple[Queue | None, ...]:
    """Return the reference's queues, with these thresholds in queue 3."""
    return (*QUEUES[:3], Queue(False, 50, Ecn(minimum, maximum, percent)), *QUEUES[4:])


DSCPS_0 = " ".join(str(dscp) for dscp in range(64) if dscp not in (26, 48))


def test_the_lines_of_the_reference_are_those_of_a_running_configuration():
    assert eos.render(REFERENCE) == (
        "!\n"
        f"qos map dscp {DSCPS_0} to traffic-class 0\n"
        "qos map dscp 26 to traffic-class 3\n"
        "qos map dscp 48 to traffic-class 6\n"
        "qos map traffic-class 0 to tx-queue 0\n"
        "qos map traffic-class 3 to tx-queue 3\n"
        "qos map traffic-class 6 to tx-queue 6\n"
        "!\n"
        "qos profile sailloft-roce-2b07cd00\n"
        "   qos trust dscp\n"
        "   priority-flow-control on\n"
        "   priority-flow-control priority 3 no-drop\n"
        "   priority-flow-control pause watchdog\n"
        "   priority-flow-control pause watchdog port timer timeout 0.2 polling-interval auto recovery-time 0.2\n"
        "   priority-flow-control pause watchdog port action drop\n"
        "   !\n"
        "   uc-tx-queue 0\n"
        "      no priority\n"
        "      bandwidth percent 50\n"
        "   !\n"
        "   uc-tx-queue 3\n"
        "      no priority\n"
        "      bandwidth percent 50\n"
        "      random-detect ecn minimum-threshold 150000 bytes maximum-threshold 1500000 bytes "
        "max-mark-probability 100 weight 0\n"
        "   !\n"
        "   uc-tx-queue 6\n"
        "      priority strict\n"
        "!\ninterface Ethernet1/1\n   mtu 9100\n   service-profile sailloft-roce-2b07cd00\n"
        "!\ninterface Ethernet2/1\n   mtu 9100\n   service-profile sailloft-roce-2b07cd00\n"
        "!\ninterface Ethernet17\n   mtu 9100\n   service-profile sailloft-roce-2b07cd00\n"
        "!\n"
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"ip_mtu_bytes": 68}, "   mtu 68"),
        ({"ip_mtu_bytes": 9214}, "   mtu 9214"),
        (
            {"watchdog": Watchdog(10, 60_000, "drop")},
            "   priority-flow-control pause watchdog port timer timeout 0.01 polling-interval auto recovery-time 60",
        ),
        (
            {"watchdog": Watchdog(1_250, 1_000, "drop")},
            "   priority-flow-control pause watchdog port timer timeout 1.25 polling-interval auto recovery-time 1",
        ),
        (
            {"queues": marking(1, 256_000_000, 20)},
            "      random-detect ecn minimum-threshold 1 bytes maximum-threshold 256000000 bytes"
            " max-mark-probability 20 weight 0",
        ),
    ],
)
def test_the_limits_of_eos_are_rendered_and_read_back(changes, line):
    wanted = switch("eos", PORTS, **changes)
    text = eos.render(wanted)
    assert line in text.splitlines()
    assert eos.parse(text, "leaf1") == held(wanted)


def test_a_class_of_7_has_queue_7_without_a_line():
    policy = {"cnp": {"traffic_class": 7}}
    text = eos.render(switch("eos", PORTS, policy))
    assert "qos map dscp 48 to traffic-class 7\n" in text
    assert "to tx-queue 7" not in text
    assert eos.parse(text, "leaf1") == held(switch("eos", PORTS, policy))


def test_a_switch_without_wanted_ports_gets_no_lines():
    nothing = replace(REFERENCE, ports={})
    assert eos.render(nothing) == "!\n!\n"
    text = "hostname leaf1\nqos rewrite dscp\nip load-sharing trident fields ip source-ip\n"
    assert eos.remediation(text, nothing) == ""


def test_a_lossless_class_needs_no_cable_length():
    ports = {"Ethernet1/1": {"speed_gbit_s": 400}}
    specs = read_switches({"leaf1": {"system": "eos", "asic": "tomahawk3", "ports": ports}})
    qos = plan(read_policy(None), specs)["leaf1"].ports["Ethernet1/1"]
    assert (qos.pfc, qos.headroom, qos.cable_m) == ((3,), (None,) * 8, None)


def test_equal_ports_share_a_profile_and_differing_ports_get_separate_ones():
    far = replace(REFERENCE.ports["Ethernet17"], queues=faster(REFERENCE.ports["Ethernet17"]))
    mixed = replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet17": far})
    text = eos.render(mixed)
    assert text.count("qos profile ") == 2
    assert eos.parse(text, "leaf1") == held(mixed)
    # Names are derived from a profile's content, so unchanged ports keep their profile.
    assert set(own(eos.render(REFERENCE))) < set(own(text))


def faster(qos: PortQos) -> tuple[Queue | None, ...]:
    return tuple(
        replace(queue, ecn=Ecn(600_001, 6_000_007, 20)) if queue and queue.ecn else queue for queue in qos.queues
    )


@given(policies())
def test_any_policy_is_read_back_or_refused_for_its_strict_queue(policy):
    wanted = switch("eos", PORTS, policy)
    read = read_policy(policy)
    weighted = [traffic.queue for traffic in (*read.classes, read.default)]
    if read.cnp.queue < max(weighted):
        with raises(
            FabricError, "Ethernet1/1", f"queue {read.cnp.queue}", "strict", f"queue {max(weighted)}", "weighted"
        ):
            eos.render(wanted)
        return
    text = eos.render(wanted)
    assert text == eos.render(switch("eos", PORTS, policy))
    assert eos.parse(text, "leaf1") == held(wanted)
    assert eos.remediation(text, wanted) == ""


def test_every_missing_line_is_detected_unless_it_sets_a_default():
    text = eos.render(REFERENCE)
    lines = text.splitlines()
    says_default = {
        "qos map dscp 26 to traffic-class 3",
        "qos map dscp 48 to traffic-class 6",
        *(f"qos map traffic-class {number} to tx-queue {number}" for number in (0, 3, 6)),
        "priority strict",
    }
    for position, line in enumerate(lines):
        if line.strip() == "!":
            continue
        seen = differs("\n".join([*lines[:position], *lines[position + 1 :]]), held(REFERENCE))
        implied = position == lines.index("      no priority")  # queue 0 is weighted because queue 3 is
        assert seen is not (implied or line.strip() in says_default), line


def test_every_changed_number_is_detected():
    text = eos.render(REFERENCE)
    count = 0
    for number in re.finditer(r"\d+", text):
        line = text[text.rfind("\n", 0, number.start()) + 1 : text.find("\n", number.start())]
        if line.startswith("qos map dscp") and number[0] in map(str, range(8, 16)):
            continue  # the default, class 0, is also the wanted class
        if text[: number.start()].endswith("qos map traffic-class "):
            continue  # without its line, class n still goes to queue n
        changed = text[: number.start()] + str(int(number[0]) + 1) + text[number.end() :]
        assert differs(changed, held(REFERENCE)), line
        count += 1
    assert count > 80


@pytest.mark.parametrize(
    ("word", "replacement"),
    [
        ("no-drop", "drop"),
        ("trust dscp", "trust cos"),
        ("      no priority", "      priority strict"),
        ("priority strict", "no priority"),
        (" bytes maximum", " kbytes maximum"),
        ("pause watchdog port action drop", "pause watchdog port action notify-only"),
        ("   priority-flow-control on", "   no priority-flow-control"),
        ("   priority-flow-control pause watchdog\n", "   no priority-flow-control pause watchdog\n"),
        ("!\nqos profile", "qos rewrite dscp\n!\nqos profile"),
        ("!\nqos profile", "priority-flow-control all off\n!\nqos profile"),
    ],
)
def test_every_changed_keyword_is_detected(word, replacement):
    text = eos.render(REFERENCE)
    assert word in text
    assert differs(text.replace(word, replacement), held(REFERENCE))


def differs(text: str, wanted: Switch) -> bool:
    try:
        return eos.parse(text, "leaf1") != wanted
    except FabricError:
        return True


@pytest.mark.parametrize(
    ("policy", "changes", "error"),
    [
        (
            {},
            {"ip_mtu_bytes": 9215},
            "leaf1: port Ethernet1/1: .* 9215 .* 68 to 9214",
        ),
        ({}, {"ip_mtu_bytes": None}, "no MTU is wanted"),
        (
            {},
            {"watchdog": Watchdog(205, 200, "drop")},
            "205 ms.* 10 up to 60000",
        ),
        ({}, {"watchdog": Watchdog(200, 200, "forward")}, "cannot forward a stuck queue's packets"),
        ({}, {"dscp_to_class": (None,) * 64}, "DSCP 0 has no traffic class"),
        ({}, {"class_to_queue": (None,) * 8}, "traffic class 0 has no queue"),
        ({}, {"priority_to_queue": (0, 1, 2, 4, 4, 5, 6, 7)}, "priority 3 does not stop traffic class 3's queue 3"),
        ({"classes": {"roce": {"priority": 4}}}, {}, "class 3 .*priority 3, not 4"),
        (
            {"classes": {"roce": {"queue": 7}}, "cnp": {"queue": 5}},
            {},
            "queue 7.* class 7",
        ),
        ({"cnp": {"traffic_class": 1}}, {}, "queue 1 is strict and below queue 3"),
        ({}, {"pfc": (3, 5)}, "priority 5 pauses, and no traffic class has it"),
        ({"ecmp_fields": ["source_port"]}, {}, "set all five in ecmp_fields"),
        (
            {"classes": {"roce": {"ecn": {"minimum_bytes": 1_000, "maximum_bytes": 256_000_001}}}},
            {},
            "queue 3.* 1000 and 256000001 .* 1 to 256000000",
        ),
        ({}, {"queues": marking(0, 9)}, "queue 3.* 0 and 9 "),
        ({}, {"queues": marking(9, 8)}, "queue 3.* 9 and 8 "),
        (
            {},
            {"queues": (Queue(False), *QUEUES[1:])},
            "port Ethernet1/1: queue 0 .* bandwidth_percent",
        ),
        ({}, {"ip_mtu_bytes": 67}, " 67 .* 68 to 9214"),
        ({}, {"watchdog": Watchdog(200, 0, "drop")}, " 0 ms.* 10 "),
        ({}, {"watchdog": Watchdog(60_010, 200, "drop")}, " 60010 ms"),
        ({}, {"class_to_priority": (None, *range(1, 8))}, "traffic class 0 has no queue, priority or scheduler"),
    ],
)
def test_settings_that_eos_cannot_represent_are_refused(policy, changes, error):
    with pytest.raises(FabricError, match=error):
        eos.render(switch("eos", PORTS, policy, **changes))


def test_ports_of_two_policies_are_refused():
    other_policy = port_qos(read_policy({"classes": {"roce": {"dscp": 24}}}))
    with refuses("leaf1: port Ethernet9", "DSCPs", "Ethernet1/1"):
        eos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet9": other_policy}))
    other_policy = port_qos(read_policy({"classes": {"roce": {"queue": 4}}}))
    with refuses("leaf1: port Ethernet9", "queues", "Ethernet1/1"):
        eos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet9": other_policy}))
    with refuses("leaf1: port Et9", "EOS"):
        eos.render(replace(REFERENCE, ports={"Et9": other_policy}))


def test_pyavd_renders_the_same_lines():
    """Arista's renderer writes the same lines from structured data that its schema accepts."""
    pyavd = pytest.importorskip("pyavd")
    ecn = {"units": "bytes", "min": ECN.minimum_bytes, "max": ECN.maximum_bytes, "max_probability": 100, "weight": 0}
    data = {
        "hostname": "leaf1",
        "qos": {
            "map": {
                "dscp": [
                    f"{' '.join(str(dscp) for dscp in range(64) if dscp not in (26, 48))} to traffic-class 0",
                    "26 to traffic-class 3",
                    "48 to traffic-class 6",
                ],
                "traffic_class": [f"{number} to tx-queue {number}" for number in (0, 3, 6)],
            }
        },
        "qos_profiles": [
            {
                "name": own(eos.render(REFERENCE))[0],
                "trust": "dscp",
                "priority_flow_control": {
                    "enabled": True,
                    "priorities": [{"priority": 3, "no_drop": True}],
                    "watchdog": {
                        "enabled": True,
                        "action": "drop",
                        "timer": {"timeout": "0.2", "polling_interval": "auto", "recovery_time": "0.2"},
                    },
                },
                "uc_tx_queues": [
                    {"id": 0, "priority": "no priority", "bandwidth_percent": 50},
                    {
                        "id": 3,
                        "priority": "no priority",
                        "bandwidth_percent": 50,
                        "random_detect": {"ecn": {"threshold": ecn}},
                    },
                    {"id": 6, "priority": "priority strict"},
                ],
            }
        ],
        "ethernet_interfaces": [
            {"name": port, "mtu": 9100, "service_profile": own(eos.render(REFERENCE))[0]} for port in PORTS
        ],
    }
    checked = pyavd.validate_structured_config(data)
    assert not checked.validation_result.violations
    text = pyavd.get_device_config(data)
    assert eos.parse(text, "leaf1") == held(REFERENCE)
    assert eos.remediation(text, REFERENCE) == ""

    def words(lines: str) -> list[str]:
        return sorted(line for line in lines.splitlines() if line.strip("! ") and not line.startswith("hostname"))

    assert words(text) == words(eos.render(REFERENCE))  # the same lines, except for the order of the blocks
