# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""EOS's running configuration, in any wording, is read, or refused with the line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from eos_switch import REFERENCE, held
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import ECMP_FIELDS, PortQos, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos

# The same policy, written differently: no profile, queues of another chip, a map of ranges, thresholds in kbytes, the
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


def test_an_equivalent_manual_configuration_needs_no_remediation():
    names = ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/5"]
    wanted = switch("eos", names)
    assert eos.parse(BY_HAND, "leaf1") == held(wanted)
    assert eos.remediation(BY_HAND, wanted) == ""


@pytest.mark.parametrize(("seconds", "ms"), [("0.01", 10), ("0.29", 290), ("1.15", 1150), ("60", 60000)])
def test_watchdog_seconds_are_converted_exactly(seconds, ms):
    text = BY_HAND.replace("recovery-time 0.20", f"recovery-time {seconds}").replace("0.10", "0.01")
    assert eos.parse(text, "leaf1").ports["Ethernet1/1"].watchdog.restoration_ms == ms


def test_a_configuration_without_its_end_line_is_refused():
    with refuses("leaf1: configuration", '"end"'):
        eos.remediation(BY_HAND[: BY_HAND.index("interface Management1")], REFERENCE)


def test_a_policy_map_is_read_like_the_map_of_dscps():
    text = BY_HAND.replace("qos map dscp 0-7 16-25 27-47 49-63 to traffic-class 0\n", "").replace(
        "interface Ethernet1/1-3,5\n",
        "class-map type qos match-any RDMA\n   match ip dscp af31\nclass-map type qos match-any CNP\n   match dscp 48\n"
        "policy-map type quality-of-service IN\n   class RDMA\n      set traffic-class 3\n   class CNP\n"
        "      set traffic-class 6\n   class class-default\n      set traffic-class 0\n"
        "interface Ethernet1/1-3,5\n\tservice-policy type qos input IN\n",
    )
    assert eos.parse(text, "leaf1").ports["Ethernet1/5"] == held(switch("eos", ["a"])).ports["a"]
    wanted = switch("eos", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/5"])
    assert "service-policy" not in eos.remediation(text, wanted)
    more = text.replace("   match ip dscp af31\n", "   match ip dscp af31\n   match cos 3\n")
    assert eos.remediation(more, wanted).count("   no service-policy type qos input IN\n") == 4


def test_a_line_of_a_port_overrides_its_profile():
    text = eos.render(REFERENCE).replace("   mtu 9100", "   mtu 9100\n   priority-flow-control priority 3 drop", 1)
    read = eos.parse(text, "leaf1")
    assert read.ports["Ethernet1/1"].pfc == ()
    assert read.ports["Ethernet2/1"].pfc == (3,)


def test_ports_share_one_object_only_if_all_their_lines_are_equal():
    ports = "".join(
        f"interface Ethernet{number}\n   qos trust dscp\n   uc-tx-queue 3\n      no priority\n"
        f"      bandwidth percent {percent}\n"
        for number, percent in ((1, 50), (2, 50), (3, 60))
    )
    ports_read = eos.parse(ports, "leaf1").ports
    assert ports_read["Ethernet1"] is ports_read["Ethernet2"]
    assert [qos.queues[3].bandwidth_percent for qos in ports_read.values()] == [50, 50, 60]


def test_a_switch_without_qos_is_read_with_its_default_settings():
    read = eos.parse("hostname leaf1\ninterface Ethernet1\n   no switchport\ninterface Ethernet2\n", "leaf1")
    routed, switched = read.ports["Ethernet1"], read.ports["Ethernet2"]
    assert (routed.dscp_to_class[0], routed.dscp_to_class[8], routed.dscp_to_class[26]) == (1, 0, 3)
    assert routed.ip_mtu_bytes == 1500
    assert routed.queues == (Queue(True),) * 8
    assert switched == PortQos()


def test_a_hash_without_ports_is_read_and_removed():
    text = "ip load-sharing trident fields ip source-ip destination-ip\n" + eos.render(REFERENCE)
    assert eos.parse(text, "leaf1").ecmp_fields == ("destination_ip", "source_ip")
    full = text.replace("destination-ip", "destination-ip source-port destination-port ingress-interface")
    assert eos.parse(full, "leaf1").ecmp_fields == ECMP_FIELDS
    assert eos.remediation(text, REFERENCE) == "no ip load-sharing trident fields ip\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "leaf1: configuration: it contains no line of EOS's configuration"),
        ("<html><body>504</body></html>", "it contains no line of EOS's configuration"),
        ("hostname a\n% Invalid input", "line 2 '% Invalid input': not a line of EOS's configuration"),
        ("hostname a\n\x00\x01", "line 2"),
        ("hostname a\nbanner motd\nhello", "ends within a banner"),
        ("feature lldp\ninterface Ethernet1/1\n", "line 1 'feature lldp': not a line of EOS's"),
        (
            "interface Ethernet1\n   service-profile X",
            "line 2 'service-profile X': there is no qos profile X; define it",
        ),
        ("interface Ethernet1\n   qos trust dscp\n   service-policy type qos input P", "line 3 .* no policy-map P"),
        ("interface Ethernet1\nqos trust dscp", "line 2 'qos trust dscp': it is not in an interface or a profile"),
        ("interface Ethernet\n", "line 1 'interface Ethernet': 'Ethernet' is neither a port nor a range"),
        ("interface Ethernet4-1\n", "'Ethernet4-1' is not a range of ports"),
        ("interface Ethernet1-99999999\n", "'Ethernet1-99999999' is not a range of ports"),
        ("qos map dscp 26 to traffic-cla", "line 1 .* not a map of EOS"),
        ("qos map dscp 64 to traffic-class 3", "'64' is not a number from 0 to 63"),
        ("qos map dscp 31-24 to traffic-class 3", "'31-24' is a descending range"),
        ("qos map dscp 26 to traffic-class 8", "'8' is not a number from 0 to 7"),
        ("qos map traffic-class 3-9 to tx-queue 3", "'9' is not a number from 3 to 7"),
        (
            "qos profile X\n   priority-flow-control prio",
            "line 2 'priority-flow-control prio': not a setting of EOS's QoS",
        ),
        (
            "qos profile X\n   uc-tx-queue 3\n      random-detect ecn minimum-thre",
            "line 3 .* not a setting of EOS's queues",
        ),
        ("qos profile X\n   uc-tx-queue 3\n      bandwidth percent 101", "'101' is not a number from 1 to 100"),
    ],
)
def test_invalid_text_is_refused_with_its_line(text, error):
    with pytest.raises(FabricError, match=error):
        eos.parse(text, "leaf1")


@given(st.sampled_from([eos.render(REFERENCE), BY_HAND]), st.data())
def test_a_damaged_text_is_read_or_refused(text, data):
    """Any text results in a Switch or a FabricError."""
    position = data.draw(st.integers(0, len(text)))
    broken = text[:position] + data.draw(st.sampled_from(["", "x", " ", "\n", "-", "9", "!", "\t\t"])) + text[position:]
    for part in (broken, text[:position], text[position:]):
        with suppress(FabricError):
            eos.parse(part, "leaf1")
        with suppress(FabricError):
            eos.remediation(part, REFERENCE)
