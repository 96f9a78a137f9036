# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NX-OS's running configuration, in any wording, is read, or refused with the line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nxos_switch import BY_HAND, REFERENCE, held
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import ECMP_FIELDS, PortQos, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import nxos


def test_an_equivalent_manual_configuration_needs_no_remediation():
    wanted = switch("nxos", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/5"])
    assert nxos.parse(BY_HAND, "leaf1") == held(wanted)
    assert nxos.remediation(BY_HAND, wanted) == ""


def test_a_policy_with_another_condition_is_replaced():
    wanted = switch("nxos", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/5"])
    text = BY_HAND.replace(" match dscp cs6", " match cos 6\n match dscp cs6")
    assert nxos.remediation(text, wanted).count("service-policy type qos input sailloft-in-") == 4
    own = nxos.render(REFERENCE).replace("  match dscp 26\n", "  match dscp 26\n  match cos 3\n")
    assert [line for line in nxos.remediation(own, REFERENCE).splitlines() if " match " in line] == ["  no match cos 3"]


def test_lists_and_ranges_of_dscps_are_read():
    text = BY_HAND.replace("match dscp af31", "match dscp 24-26,30")
    classes = nxos.parse(text, "leaf1").ports["Ethernet1/1"].dscp_to_class
    assert [dscp for dscp, group in enumerate(classes) if group == 3] == [24, 25, 26, 30]


def test_the_first_matching_class_applies():
    text = BY_HAND.replace("match dscp cs6", "match dscp 26,48")
    assert nxos.parse(text, "leaf1").ports["Ethernet1/1"].dscp_to_class[26] == 3


def test_the_mtu_of_a_port_is_limited_by_its_no_drop_class():
    text = BY_HAND.replace("  mtu 9216\n  pause", "  pause")
    assert nxos.parse(text, "leaf1").ports["Ethernet1/1"].ip_mtu_bytes == 1500


def test_a_switch_without_qos_is_read_with_its_default_settings():
    read = nxos.parse("hostname leaf1\ninterface Ethernet1/1\n", "leaf1")
    queues = (Queue(False, 100), *(None,) * 7)
    assert read.ports["Ethernet1/1"] == PortQos(queues=queues, ip_mtu_bytes=1500)
    assert read.ecmp_fields == ECMP_FIELDS


def test_protocol_and_ports_of_the_hash_are_read_and_remedied():
    text = "ip load-sharing address destination port destination\n" + nxos.render(replace(REFERENCE, ecmp_fields=None))
    assert nxos.parse(text, "leaf1").ecmp_fields == ("destination_ip", "destination_port", "protocol")
    assert nxos.remediation(text, REFERENCE) == ("ip load-sharing address source-destination port source-destination\n")


IN = (
    "class-map type qos match-all A\n  match dscp 26\n  match cos 3\n"
    "policy-map type qos P\n  class A\n    set qos-group 3\n"
)


ON = "interface Ethernet1/1\n  service-policy type qos input P\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "leaf1: configuration: it contains no line of NX-OS's configuration"),
        ('{"ins_api": {"code": "501"}}', "it contains no line of NX-OS's configuration"),
        ("hostname a\n% Invalid command at '^' marker.", "line 2 .* not a line of NX-OS's configuration"),
        (
            "hostname a\nqos map dscp 26 to traffic-class 3",
            "line 2 .* not a line of NX-OS's configuration; correct the",
        ),
        ("hostname a\nbanner motd #\nhello", "ends within a banner"),
        (ON, "line 2 .* there is no policy-map type qos P; define it, or detach it"),
        ("system qos\n  service-policy type network-qos N\ninterface Ethernet1/1", "no policy-map type network-qos N"),
        (IN.replace("match dscp 26\n  ", "match dscp 26-\n  ") + ON, "'' is not a number from 0 to 63"),
        (IN.replace("class A", "class B") + ON, "line 5 'class B': there is no class-map type qos B"),
        (IN.replace("group 3", "group 8").replace("  match cos 3\n", "") + ON, "'8' is not a number from 0 to 7"),
        ("hostname a\nservice-policy type qos input P", "line 2 .* it is not in a section"),
        ("interface Ethernet\n", "'Ethernet' is neither a port nor a range"),
        (
            "interface Ethernet1/1\n  priority-flow-control mo",
            "line 2 'priority-flow-control mo': not a setting of NX-OS",
        ),
        ("interface Ethernet1/1\n  service-policy type qos", "line 2 'service-policy type qos': not a setting"),
        ("hostname a\npriority-flow-control watch-dog interval", "line 2 .* not a setting of the watchdog"),
        ("hostname a\nip load-sharing address both", "line 2 .* not a load-sharing method of NX-OS"),
        (
            nxos.render(REFERENCE).replace("percent 50\n    random", "perc\n    random"),
            "not a setting of NX-OS's queues",
        ),
        (nxos.render(REFERENCE).replace("pause pfc-cos 3", "pause pfc"), "'pause pfc': not a pause command of NX-OS"),
        (nxos.render(REFERENCE).replace("pfc-cos 3", "pfc-cos 9"), "'9' is not a number from 0 to 7"),
    ],
)
def test_invalid_text_is_refused_with_its_line(text, error):
    with pytest.raises(FabricError, match=error):
        nxos.parse(text, "leaf1")


@given(st.sampled_from([nxos.render(REFERENCE), BY_HAND]), st.data())
def test_a_damaged_text_is_read_or_refused(text, data):
    """Any text results in a Switch or a FabricError."""
    position = data.draw(st.integers(0, len(text)))
    broken = text[:position] + data.draw(st.sampled_from(["", "x", " ", "\n", "-", "9", "!", "\t\t"])) + text[position:]
    for part in (broken, text[:position], text[position:]):
        with suppress(FabricError):
            nxos.parse(part, "leaf1")
        with suppress(FabricError):
            nxos.remediation(part, REFERENCE)
