# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines of Junos for a switch: the whole text, the limits of each setting, and refusals as whole messages."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import switches
from switches import LOSSY, NO_QOS, at

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.thresholds import marked_percent
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import junos

PORT = "et-0/0/1"
QOS = switches.switch("junos", [PORT], cable_m=7).ports[PORT]


def switch(**changes: Any) -> Switch:
    return switches.switch("junos", [PORT], **{"cable_m": 7, **changes})


def lines(wanted: Switch) -> list[str]:
    """Return the rendered lines without "set class-of-service", with the names of objects numbered as they appear."""
    text = junos.render(wanted).replace("set class-of-service ", "")
    names = list(dict.fromkeys(re.findall(r"sailloft-[0-9a-f]{8}\b", text)))
    for number, name in enumerate(names):
        text = text.replace(name, f"#{number}")
    assert not re.search(r"sailloft-(?!tc[0-7]-pri[0-7]\b)", text)
    return text.splitlines()


def refused(wanted: Switch) -> str:
    with pytest.raises(FabricError) as error:
        junos.render(wanted)
    assert error.value.remedy
    return str(error.value).removeprefix(f"leaf1: {PORT}: ")


def test_the_lines_of_the_reference():
    dscps = [
        f"classifiers dscp #0 forwarding-class sailloft-tc{number}-pri{number} loss-priority low code-points {dscp:06b}"
        for dscp, number in enumerate(QOS.dscp_to_class)
    ]
    assert dscps[26].endswith("tc3-pri3 loss-priority low code-points 011010")
    assert lines(switch()) == [
        "apply-macro sailloft queue-buffer-bytes 15000000",
        "forwarding-classes class sailloft-tc0-pri0 queue-num 0",
        "forwarding-classes class sailloft-tc3-pri3 queue-num 3",
        "forwarding-classes class sailloft-tc3-pri3 no-loss",
        "forwarding-classes class sailloft-tc3-pri3 pfc-priority 3",
        "forwarding-classes class sailloft-tc6-pri6 queue-num 6",
        *dscps,
        "schedulers #1 priority low",
        "schedulers #1 transmit-rate percent 50",
        "drop-profiles #2 interpolate fill-level 1",
        "drop-profiles #2 interpolate fill-level 10",
        "drop-profiles #2 interpolate drop-probability 0",
        "drop-profiles #2 interpolate drop-probability 100",
        "schedulers #3 priority low",
        "schedulers #3 transmit-rate percent 50",
        "schedulers #3 drop-profile-map loss-priority any protocol any drop-profile #2",
        "schedulers #3 explicit-congestion-notification",
        "schedulers #4 priority strict-high",
        "scheduler-maps #5 forwarding-class sailloft-tc0-pri0 scheduler #1",
        "scheduler-maps #5 forwarding-class sailloft-tc3-pri3 scheduler #3",
        "scheduler-maps #5 forwarding-class sailloft-tc6-pri6 scheduler #4",
        "congestion-notification-profile #6 input dscp code-point 011010 pfc mru 9114",
        "congestion-notification-profile #6 input cable-length 7",
        "congestion-notification-profile #6 output ieee-802.1 code-point 011 flow-control-queue 3",
        "congestion-notification-profile #6 pfc-watchdog",
        "interfaces et-0/0/1 unit * classifiers dscp #0",
        "interfaces et-0/0/1 scheduler-map #5",
        "interfaces et-0/0/1 congestion-notification-profile #6",
        "set interfaces et-0/0/1 mtu 9114",
        "set forwarding-options enhanced-hash-key hash-mode layer2-payload",
    ]


def of_profile(wanted: Switch) -> list[str]:
    """Return what follows the names of congestion notification profiles."""
    return [line.split(" ", 2)[2] for line in lines(wanted) if line.startswith("congestion-notification-profile ")]


@pytest.mark.parametrize(
    ("watchdog", "of_watchdog"),
    [
        (None, []),
        (Watchdog(200, 200, "drop"), ["pfc-watchdog"]),
        (Watchdog(300, 200, "drop"), ["pfc-watchdog", "pfc-watchdog detection 3"]),
        (Watchdog(200, 201, "drop"), ["pfc-watchdog", "pfc-watchdog recovery 201"]),
        (Watchdog(200, 200, "forward"), ["pfc-watchdog", "pfc-watchdog watchdog-action forward"]),
    ],
)
def test_a_watchdog_has_only_what_is_not_the_default(watchdog, of_watchdog):
    assert of_profile(switch(watchdog=watchdog))[3:] == of_watchdog


def test_cable_and_mtu_are_left_out_if_they_are_not_known():
    assert of_profile(switch(cable_m=None, ip_mtu_bytes=None, watchdog=None)) == [
        "input dscp code-point 011010 pfc",
        "output ieee-802.1 code-point 011 flow-control-queue 3",
    ]
    assert not [line for line in lines(switch(ip_mtu_bytes=None)) if "mtu" in line]


def test_a_port_without_settings_needs_no_lines():
    empty = switch(**NO_QOS, ip_mtu_bytes=None)
    assert lines(replace(empty, queue_buffer_bytes=None, ecmp_fields=None)) == []


def test_fields_that_are_not_hashed_are_named_for_both_ip_versions():
    wanted = replace(switch(), ecmp_fields=("destination_ip", "protocol", "source_ip"))
    assert [line.removeprefix("set forwarding-options enhanced-hash-key ") for line in lines(wanted)][-5:] == [
        "hash-mode layer2-payload",
        "inet no-l4-destination-port",
        "inet no-l4-source-port",
        "inet6 no-l4-destination-port",
        "inet6 no-l4-source-port",
    ]


@pytest.mark.parametrize("ip_mtu_bytes", [1500, 9202])
def test_the_mtu_has_the_ethernet_header(ip_mtu_bytes):
    assert f"set interfaces et-0/0/1 mtu {ip_mtu_bytes + 14}" in lines(switch(ip_mtu_bytes=ip_mtu_bytes))


@pytest.mark.parametrize("percent", [1, 100])
def test_a_share_of_1_to_100_percent_is_rendered(percent):
    queues = at(QOS.queues, _0=Queue(False, percent))
    assert f"schedulers #1 transmit-rate percent {percent}" in lines(switch(queues=queues))


def thresholds(buffer: int | None, minimum: int, maximum: int) -> Switch:
    queues = at(QOS.queues, _3=Queue(False, 50, Ecn(minimum, maximum, 20)))
    return replace(switch(queues=queues), queue_buffer_bytes=buffer)


@pytest.mark.parametrize(
    ("minimum", "maximum", "levels"), [(10, 20, (1, 2)), (500, 990, (50, 99)), (980, 990, (98, 99))]
)
def test_thresholds_are_percentages_of_the_queues_buffer(minimum, maximum, levels):
    profile_lines = [line for line in lines(thresholds(1000, minimum, maximum)) if line.startswith("drop-profiles ")]
    assert profile_lines == [
        *(f"drop-profiles #2 interpolate fill-level {level}" for level in levels),
        *(f"drop-profiles #2 interpolate drop-probability {percent}" for percent in (0, 20)),
    ]


NOT_KNOWN = (
    "Junos marks at percentages of a queue's buffer, whose size in bytes is not known; set the switch's "
    "queue_buffer_bytes"
)
ONE_CLASS = "not every queue and priority has one class of its own; give each class of roce_policy its own"
SAME_QUEUE = "whose pause stops another queue; give each class a queue and a priority, and the priority the same queue"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        *((thresholds(buffer, 10, 20), NOT_KNOWN) for buffer in (None, 0, -1)),
        (
            thresholds(1000, 9, 9),
            "thresholds of 9 and 9 bytes: Junos has whole percents of a queue's 1000 bytes, and from 0% on, an empty "
            "queue is marked; give 10 and 20 or more",
        ),
        (
            thresholds(1000, 15, 29),
            "thresholds of 15 and 29 bytes are not whole percentages, 1 to 99, of a queue's 1000 bytes; "
            "give 10 and 20, or another buffer",
        ),
        (
            switch(ip_mtu_bytes=9203),
            "an IP MTU of 9203 needs 9217 bytes with its Ethernet header, but a QFX has at most 9216; "
            "give 9202 or less as roce_policy's switch_mtu_bytes",
        ),
        *(
            (
                switch(queues=at(QOS.queues, _0=Queue(False, percent))),
                f"a queue that is not strict has {percent} as its share; give it bandwidth_percent of 1 to 100",
            )
            for percent in (None, 0, 101)
        ),
        (
            switch(watchdog=Watchdog(250, 200, "drop")),
            "its PFC watchdog cannot wait 250 ms: Junos counts polling intervals of 100 ms; "
            "give a multiple of 100 as detection_ms",
        ),
        (
            switch(**{**LOSSY, "watchdog": Watchdog(200, 200, "drop")}),
            "it has a PFC watchdog, but no lossless priority; remove it",
        ),
        (
            switch(dscp_to_class=at(QOS.dscp_to_class, _5=1)),
            "DSCP 5 leads to class 1, which has no queue; give it one",
        ),
        (
            switch(
                class_to_queue=at(QOS.class_to_queue, _3=None), priority_to_queue=at(QOS.priority_to_queue, _3=None)
            ),
            f"class 3 has queue None and priority 3, {SAME_QUEUE}",
        ),
        (
            switch(class_to_priority=at(QOS.class_to_priority, _3=None)),
            f"class 3 has queue 3 and priority None, {SAME_QUEUE}",
        ),
        (
            switch(priority_to_queue=at(QOS.priority_to_queue, _3=0)),
            f"class 3 has queue 3 and priority 3, {SAME_QUEUE}",
        ),
        (switch(queues=at(QOS.queues, _5=Queue(True))), ONE_CLASS),  # a queue without a class
        (switch(priority_to_queue=at(QOS.priority_to_queue, _5=0)), ONE_CLASS),  # a priority without a class
        (switch(pfc=(3, 5)), ONE_CLASS),
        (
            switch(
                class_to_queue=at(QOS.class_to_queue, _6=0),
                priority_to_queue=at(QOS.priority_to_queue, _6=0),
                queues=at(QOS.queues, _6=None),
            ),
            ONE_CLASS,
        ),
    ],
)
def test_settings_that_junos_cannot_hold_are_refused(wanted, message):
    assert refused(wanted) == message


def ecn_at(minimum: int, maximum: int, buffer: int = 1000) -> Ecn | None:
    attained = junos.attainable(replace(QOS, queues=(Queue(False, 5, Ecn(minimum, maximum, 20)), *(None,) * 7)), buffer)
    assert attained.queues[1:] == (None,) * 7
    assert attained.queues[0] is not None
    return attained.queues[0].ecn


@pytest.mark.parametrize(
    ("wanted_ecn", "got"),
    [
        ((10, 20), (10, 20)),
        ((1, 29), (10, 20)),
        ((199, 299), (190, 290)),
        ((20, 20), (10, 20)),
        ((15, 999), (10, 990)),
        ((15, 1500), (10, 990)),
        ((990, 990), (980, 990)),
    ],
)
def test_thresholds_are_lowered_to_whole_percentages_below_100(wanted_ecn, got):
    assert ecn_at(*wanted_ecn) == Ecn(*got, 20)


def test_marking_that_cannot_begin_below_one_percent_ends_earlier():
    """At the queue at which 20% were to be marked, at least 20% are."""
    for minimum, maximum in ((5, 100), (5, 200), (9, 990), (0, 60)):
        ecn = Ecn(minimum, maximum, 100)
        attained = junos.attainable(replace(QOS, queues=(Queue(False, 5, ecn), *(None,) * 7)), 1000).queues[0]
        assert attained is not None
        assert attained.ecn is not None
        assert attained.ecn.minimum_bytes == 10
        queue_bytes = Fraction(minimum * 4 + maximum, 5)
        assert marked_percent(ecn, queue_bytes) == 20
        assert marked_percent(attained.ecn, queue_bytes) >= 20


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 10), (10, 10), (9, 9), (0, 50)])
def test_marking_of_an_empty_queue_is_refused(minimum, maximum):
    with pytest.raises(FabricError):
        junos.attainable(replace(QOS, queues=(Queue(False, 5, Ecn(minimum, maximum, 100)), *(None,) * 7)), 1000)


def test_a_queue_without_marking_is_kept():
    plain = replace(QOS, queues=(Queue(False, 5), *(None,) * 7))
    assert junos.attainable(plain, 1000) == plain
