# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""EOS: what is rendered is read back as the same, whoever words it, and remediation ends where it should."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

import pytest
from eos_switch import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from switches import ECN, policies, port_qos, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    ECMP_FIELDS,
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos

PORTS = ["Ethernet1/1", "Ethernet2/1", "Ethernet17"]
REFERENCE = switch("eos", PORTS, cable_m=30)


def held(wanted: Switch) -> Switch:
    """``wanted`` less what EOS's configuration does not hold."""
    ports = {port: replace(qos, headroom=(None,) * 8, cable_m=None) for port, qos in wanted.ports.items()}
    return replace(wanted, ports=ports)


def test_it_is_registered():
    assert SYSTEMS["eos"] is eos


def test_the_reference_comes_back():
    assert eos.parse(eos.render(REFERENCE), "leaf1") == held(REFERENCE)


def test_ports_that_are_alike_share_a_profile_and_others_have_their_own():
    far = replace(REFERENCE.ports["Ethernet17"], queues=faster(REFERENCE.ports["Ethernet17"]))
    both = replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet17": far})
    text = eos.render(both)
    assert text.count("qos profile ") == 2
    assert eos.parse(text, "leaf1") == held(both)
    # Names follow from what a profile says: the ports that have not changed keep theirs.
    assert set(own(eos.render(REFERENCE))) < set(own(text))


def faster(qos: PortQos) -> tuple[Queue | None, ...]:
    return tuple(
        replace(queue, ecn=Ecn(600_001, 6_000_007, 20)) if queue and queue.ecn else queue for queue in qos.queues
    )


def own(text: str) -> list[str]:
    return re.findall(r"qos profile (\S+)", text)


@settings(max_examples=100, deadline=None)
@given(policies())
def test_any_policy_comes_back_or_is_refused_for_its_strict_queue(policy):
    wanted = switch("eos", PORTS, policy)
    read = read_policy(policy)
    weighted = [each.queue for each in (*read.classes, read.default)]
    if read.cnp.queue < max(weighted):
        with pytest.raises(FabricError, match=rf"queue {read.cnp.queue} is strict and below queue {max(weighted)}"):
            eos.render(wanted)
        return
    text = eos.render(wanted)
    assert text == eos.render(switch("eos", PORTS, policy))
    assert eos.parse(text, "leaf1") == held(wanted)
    assert eos.remediation(text, wanted) == ""


def test_every_line_that_is_lost_is_seen_but_those_that_say_the_default():
    text = eos.render(REFERENCE)
    lines = text.splitlines()
    says_default = {
        "qos map dscp 26 to traffic-class 3",
        "qos map dscp 48 to traffic-class 6",
        *(f"qos map traffic-class {each} to tx-queue {each}" for each in (0, 3, 6)),
        "priority strict",
    }
    for at, line in enumerate(lines):
        if line.strip() == "!":
            continue
        seen = differs("\n".join([*lines[:at], *lines[at + 1 :]]), held(REFERENCE))
        implied = at == lines.index("      no priority")  # queue 0 is weighted because queue 3 is
        assert seen is not (implied or line.strip() in says_default), line


def test_every_number_that_is_changed_is_seen():
    text = eos.render(REFERENCE)
    count = 0
    for number in re.finditer(r"\d+", text):
        line = text[text.rfind("\n", 0, number.start()) + 1 : text.find("\n", number.start())]
        if line.startswith("qos map dscp") and number[0] in map(str, range(8, 16)):
            continue  # the default's class 0 is the wanted one
        if text[: number.start()].endswith("qos map traffic-class "):
            continue  # without its line class n goes to queue n all the same
        if text[: number.start()].endswith("weight "):
            continue  # how the queue's length is averaged has no term
        changed = text[: number.start()] + str(int(number[0]) + 1) + text[number.end() :]
        assert differs(changed, held(REFERENCE)), line
        count += 1
    assert count > 80


@pytest.mark.parametrize(
    ("word", "other"),
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
def test_every_word_that_is_changed_is_seen(word, other):
    text = eos.render(REFERENCE)
    assert word in text
    assert differs(text.replace(word, other), held(REFERENCE))


def differs(text: str, wanted: Switch) -> bool:
    try:
        return eos.parse(text, "leaf1") != wanted
    except FabricError:
        return True


# The same policy in another hand: no profile, queues of another chip, a map of ranges, thresholds in kbytes, the
# watchdog's times for the whole switch, a range of ports, tabs and comments.
BY_HAND = """\
! Command: show running-config
! device: leaf1 (DCS-7060X6, EOS-4.33.1F)
!
hostname leaf1
!
banner motd
interface Ethernet99
   qos trust cos
EOF
!
qos map dscp 0-7 16-25 27-47 49-63 to traffic-class 0
qos map traffic-class 3 to dscp 26
priority-flow-control pause watchdog default timeout 0.20
priority-flow-control pause watchdog default recovery-time 0.20
priority-flow-control pause watchdog default polling-interval 0.10
priority-flow-control pause watchdog action drop
!
interface Ethernet1/1-3,5
\tdescription to gpu01
\tno switchport
\tmtu 9100
\tpriority-flow-control mode on
\tpriority-flow-control priority 3 no-drop
\tpriority-flow-control priority 4 drop
\t!
\ttx-queue 0
\t\tno priority
\t\tbandwidth percent 50
\ttx-queue 3
\t\t!! RoCE
\t\tno priority
\t\tbandwidth percent 50
\t\trandom-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes weight 0
\t\trandom-detect ecn count
!
interface Management1
   ip address 192.0.2.1/24
!
end
"""


def test_another_hand_says_the_same():
    names = ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/5"]
    wanted = switch("eos", names)
    assert eos.parse(BY_HAND, "leaf1") == held(wanted)
    assert eos.remediation(BY_HAND, wanted) == ""


def test_a_whole_configuration_has_an_end():
    with pytest.raises(FabricError, match='leaf1: configuration: it stops before its "end"; fetch it again'):
        eos.remediation(BY_HAND[: BY_HAND.index("interface Management1")], REFERENCE)


def test_a_policy_map_says_it_too():
    text = BY_HAND.replace("qos map dscp 0-7 16-25 27-47 49-63 to traffic-class 0\n", "").replace(
        "interface Ethernet1/1-3,5\n",
        "class-map type qos match-any RDMA\n   match ip dscp af31\nclass-map type qos match-any CNP\n   match dscp 48\n"
        "policy-map type quality-of-service IN\n   class RDMA\n      set traffic-class 3\n   class CNP\n"
        "      set traffic-class 6\n   class class-default\n      set traffic-class 0\n"
        "interface Ethernet1/1-3,5\n\tservice-policy type qos input IN\n",
    )
    assert eos.parse(text, "leaf1").ports["Ethernet1/5"] == held(switch("eos", ["a"])).ports["a"]


def test_a_ports_own_line_wins_over_its_profile():
    text = eos.render(REFERENCE).replace("   mtu 9100", "   mtu 9100\n   priority-flow-control priority 3 drop", 1)
    read = eos.parse(text, "leaf1")
    assert read.ports["Ethernet1/1"].pfc == ()
    assert read.ports["Ethernet2/1"].pfc == (3,)


def test_ports_are_alike_only_where_all_their_lines_are():
    ports = "".join(
        f"interface Ethernet{at}\n   qos trust dscp\n   uc-tx-queue 3\n      no priority\n"
        f"      bandwidth percent {percent}\n"
        for at, percent in ((1, 50), (2, 50), (3, 60))
    )
    found = eos.parse(ports, "leaf1").ports
    assert found["Ethernet1"] is found["Ethernet2"]
    assert [qos.queues[3].bandwidth_percent for qos in found.values()] == [50, 50, 60]


def test_a_switch_without_qos_says_what_it_does():
    read = eos.parse("hostname leaf1\ninterface Ethernet1\n   no switchport\ninterface Ethernet2\n", "leaf1")
    routed, switched = read.ports["Ethernet1"], read.ports["Ethernet2"]
    assert (routed.dscp_to_class[0], routed.dscp_to_class[8], routed.dscp_to_class[26]) == (1, 0, 3)
    assert routed.ip_mtu_bytes == 1500
    assert routed.queues == (Queue(True),) * 8
    assert switched == PortQos()


def test_a_hash_without_ports_is_read_and_taken_away():
    text = "ip load-sharing trident fields ip source-ip destination-ip\n" + eos.render(REFERENCE)
    assert eos.parse(text, "leaf1").ecmp_fields == ("destination_ip", "source_ip")
    full = text.replace("destination-ip", "destination-ip source-port destination-port ingress-interface")
    assert eos.parse(full, "leaf1").ecmp_fields == ECMP_FIELDS
    assert eos.remediation(text, REFERENCE) == "no ip load-sharing trident fields ip\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "leaf1: configuration: no line of it is EOS's"),
        ("<html><body>504</body></html>", "no line of it is EOS's"),
        ("hostname a\n% Invalid input", "line 2 '% Invalid input': not a line of EOS's configuration"),
        ("hostname a\n\x00\x01", "line 2"),
        ("hostname a\nbanner motd\nhello", "ends within a banner"),
        ("feature lldp\ninterface Ethernet1/1\n", "line 1 'feature lldp': not a line of EOS's"),
        (
            "interface Ethernet1\n   service-profile X",
            "line 2 'service-profile X': there is no qos profile X; define it",
        ),
        ("interface Ethernet1\n   qos trust dscp\n   service-policy type qos input P", "line 3 .* no policy-map P"),
        ("interface Ethernet1\nqos trust dscp", "line 2 'qos trust dscp': it stands under no interface"),
        ("interface Ethernet\n", "line 1 'interface Ethernet': 'Ethernet' is neither a port nor a range"),
        ("interface Ethernet4-1\n", "'Ethernet4-1' is no range of ports"),
        ("interface Ethernet1-99999999\n", "'Ethernet1-99999999' is no range of ports"),
        ("qos map dscp 26 to traffic-cla", "line 1 .* not a map of EOS"),
        ("qos map dscp 64 to traffic-class 3", "'64' is not a number of 0 to 63"),
        ("qos map dscp 31-24 to traffic-class 3", "'31-24' runs backwards"),
        ("qos map dscp 26 to traffic-class 8", "'8' is not a number of 0 to 7"),
        ("qos map traffic-class 3-9 to tx-queue 3", "'9' is not a number of 3 to 7"),
        (
            "qos profile X\n   priority-flow-control prio",
            "line 2 'priority-flow-control prio': not a setting of EOS's QoS",
        ),
        (
            "qos profile X\n   uc-tx-queue 3\n      random-detect ecn minimum-thre",
            "line 3 .* not a setting of EOS's queues",
        ),
        ("qos profile X\n   uc-tx-queue 3\n      bandwidth percent 101", "'101' is not a number of 1 to 100"),
        (
            "interface Ethernet1\n   uc-tx-queue 3\n      random-detect ecn minimum-threshold 2000 segments "
            "maximum-threshold 10000 segments max-mark-probability 20 weight 0",
            "line 3 .* how many bytes segments are is the chip's own; write the thresholds in bytes",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, error):
    with pytest.raises(FabricError, match=error):
        eos.parse(text, "leaf1")


@pytest.mark.parametrize(
    ("policy", "changes", "error"),
    [
        ({}, {"ip_mtu_bytes": 9215}, "an MTU of 9215 bytes is beyond EOS's 68 to 9214; set switch_mtu_bytes to 9214"),
        ({}, {"ip_mtu_bytes": None}, "no MTU is wanted"),
        ({}, {"watchdog": Watchdog(205, 200, "drop")}, "takes no time of 205 ms; give a multiple of 10 up to 60000"),
        ({}, {"watchdog": Watchdog(200, 200, "forward")}, "cannot forward a stuck queue's packets"),
        ({}, {"dscp_to_class": (None,) * 64}, "DSCP 0 has no traffic class"),
        ({}, {"class_to_queue": (None,) * 8}, "traffic class 0 has no queue"),
        ({}, {"priority_to_queue": (0, 1, 2, 4, 4, 5, 6, 7)}, "priority 3 does not stop traffic class 3's queue 3"),
        ({"classes": {"roce": {"priority": 4}}}, {}, "EOS pauses traffic class 3 as priority 3, not 4"),
        ({"classes": {"roce": {"queue": 7}}, "cnp": {"queue": 5}}, {}, "wants queue 7, and EOS ties 7 to 7"),
        ({"cnp": {"traffic_class": 1}}, {}, "queue 1 is strict and below queue 3"),
        ({}, {"pfc": (3, 5)}, "priority 5 pauses, and no traffic class has it"),
        ({"ecmp_fields": ["source_port"]}, {}, "give all five in ecmp_fields"),
        (
            {"classes": {"roce": {"ecn": {"minimum_bytes": 1_000, "maximum_bytes": 256_000_001}}}},
            {},
            "thresholds 1000 and 256000001 are not of 1 to 256000000 bytes",
        ),
    ],
)
def test_what_eos_cannot_is_refused(policy, changes, error):
    with pytest.raises(FabricError, match=error):
        eos.render(switch("eos", PORTS, policy, **changes))


def test_ports_of_two_policies_are_refused():
    other = port_qos(read_policy({"classes": {"roce": {"dscp": 24}}}))
    with pytest.raises(FabricError, match="port Ethernet9: its map of DSCPs is not Ethernet1/1's, and EOS has one"):
        eos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet9": other}))
    other = port_qos(read_policy({"classes": {"roce": {"queue": 4}}}))
    with pytest.raises(FabricError, match="port Ethernet9: its map of classes to queues is not Ethernet1/1's"):
        eos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet9": other}))
    with pytest.raises(FabricError, match="port Et9: EOS has no such name"):
        eos.render(replace(REFERENCE, ports={"Et9": other}))


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
def test_remediation_ends_at_what_is_wanted(start, wanted):
    box = Box(STARTS[start])
    box.apply(eos.remediation(box.text(), wanted).splitlines())
    read = eos.parse(box.text(), "leaf1")
    assert {port: read.ports[port] for port in PORTS} == held(wanted).ports
    assert eos.remediation(box.text(), wanted) == ""


def strict_on_top(policy: dict) -> dict:
    """``policy`` with its classes in the same order, but for the strict one, which EOS wants above the weighted."""
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


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([eos.render(REFERENCE), BY_HAND]), st.data())
def test_a_damaged_text_is_read_or_refused(text, data):
    """No text ends in anything but a Switch or a FabricError."""
    at = data.draw(st.integers(0, len(text)))
    broken = text[:at] + data.draw(st.sampled_from(["", "x", " ", "\n", "-", "9", "!", "\t\t"])) + text[at:]
    for each in (broken, text[:at], text[at:]):
        with suppress(FabricError):
            eos.parse(each, "leaf1")
        with suppress(FabricError):
            eos.remediation(each, REFERENCE)


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


def test_a_dscp_of_the_right_class_loses_its_drop_precedence():
    text = eos.render(REFERENCE) + "qos map dscp 26 to traffic-class 3 drop-precedence 1\n"
    assert eos.remediation(text, REFERENCE) == "qos map dscp 26 to traffic-class 3\n"


def test_a_profile_of_ours_goes_when_nothing_uses_it_and_others_stay():
    box = Box(eos.render(OLD) + "qos profile MINE\n   qos trust cos\n")
    lines = eos.remediation(box.text(), REFERENCE).splitlines()
    assert lines[0] == f"qos profile {own(eos.render(REFERENCE))[0]}"  # before a port is given it
    assert lines[-1] == f"no qos profile {own(eos.render(OLD))[0]}"  # after no port has it
    box.apply(lines)
    assert own(box.text()) == ["MINE", *own(eos.render(REFERENCE))]
    used = eos.render(OLD) + f"interface Ethernet40\n   service-profile {own(eos.render(OLD))[0]}\n"
    assert not any(line.startswith("no qos profile") for line in eos.remediation(used, REFERENCE).splitlines())


def test_pyavd_writes_the_same():
    """Arista's own renderer, from structured data of the same values, which its schema takes."""
    pyavd = pytest.importorskip("pyavd")
    ecn = {"units": "bytes", "min": ECN.minimum_bytes, "max": ECN.maximum_bytes, "max_probability": 100, "weight": 0}
    data = {
        "hostname": "leaf1",
        "qos": {
            "map": {
                "dscp": [
                    f"{' '.join(str(at) for at in range(64) if at not in (26, 48))} to traffic-class 0",
                    "26 to traffic-class 3",
                    "48 to traffic-class 6",
                ],
                "traffic_class": [f"{each} to tx-queue {each}" for each in (0, 3, 6)],
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

    assert words(text) == words(eos.render(REFERENCE))  # line for line, but for the order of the blocks
