# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Junos's configuration, written by others, is read, or refused with the place of the error."""

from __future__ import annotations

from dataclasses import replace

import pytest
from junos_switch import BY_HAND
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import junos

CNP = "set class-of-service congestion-notification-profile cnp"


def test_a_manual_configuration_is_read():
    seen = junos.parse(BY_HAND, "leaf1")
    assert list(seen.ports) == ["et-0/0/0", "et-0/0/2:0"]
    assert seen.queue_buffer_bytes == 20_000_000
    assert seen.ecmp_fields == ("destination_ip", "destination_port", "protocol", "source_ip", "source_port")
    port = seen.ports["et-0/0/0"]
    assert {
        dscp: traffic_class for dscp, traffic_class in enumerate(port.dscp_to_class) if traffic_class is not None
    } == {26: 4, 28: 4, 48: 3}
    assert port.class_to_queue == (None, None, None, 3, 4, None, None, None)
    assert port.class_to_priority == (None, None, None, None, 3, None, None, None)
    assert port.priority_to_queue == (None, None, None, 4, None, None, None, None)
    assert port.queues[3:5] == (Queue(True), Queue(False, 0, Ecn(11_000_000, 18_000_000, 100)))
    assert (port.pfc, port.watchdog) == ((3,), Watchdog(200, 200, "drop"))
    assert port.ip_mtu_bytes == 9000
    assert seen.ports["et-0/0/2:0"].ip_mtu_bytes == 9216 - 22


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("input dscp code-point 011100 pfc", "input dscp code-point 011101 pfc", "pfc", ()),
        ("flow-control-queue 4", "flow-control-queue 3", "pfc", ()),
        (f"{CNP} output ieee-802.1 code-point 011 flow-control-queue 4\n", "", "priority_to_queue",
         (None, None, None, 3, 4, None, None, None)),
        ("no-loss pfc-priority 3", "pfc-priority 3", "pfc", ()),
        ("pfc-priority 3", "pfc-priority 5", "pfc", ()),
        ("set class-of-service interfaces et-* congestion-notification-profile cnp\n", "", "pfc", ()),
        ("pfc-watchdog\n", "pfc-watchdog detection 5\n", "watchdog", Watchdog(500, 200, "drop")),
        ("pfc-watchdog\n", "pfc-watchdog detection 1\n", "watchdog", Watchdog(100, 200, "drop")),
        ("pfc-watchdog\n", "pfc-watchdog recovery 1048576\n", "watchdog", Watchdog(200, 1048576, "drop")),
        ("set interfaces et-0/0/0 mtu 9216\n", "", "ip_mtu_bytes", 1500),
        # The default MRU that headroom is computed for, 2,500 bytes, is less than 9,000; each of two DSCPs needs more.
        ("set system", "set system", "cable_m", 0),
        ("011100 pfc", "011100 pfc mru 9014", "cable_m", 0),
        ("mtu 9000", "mtu 2486", "cable_m", 100),
        ("mtu 9000", "mtu 2487", "cable_m", 0),
        ("set system", "deactivate class-of-service interfaces et-* congestion-notification-profile\nset system", "pfc",
         ()),
        ("set system", "set class-of-service interfaces et-0/0/0 unit 7 classifiers dscp default\nset system",
         "dscp_to_class", (None,) * 64),
    ],
)  # fmt: skip
def test_changed_lines_change_the_settings_that_are_read(old, new, field, value):
    assert old in BY_HAND
    assert getattr(junos.parse(BY_HAND.replace(old, new), "leaf1").ports["et-0/0/0"], field) == value


def test_cable_length_is_read_if_the_mru_of_all_dscps_fits_the_mtu():
    text = BY_HAND.replace("011010 pfc", "011010 pfc mru 9014").replace("011100 pfc", "011100 pfc mru 9014")
    assert junos.parse(text, "leaf1").ports["et-0/0/0"].cable_m == 100
    text += f"{CNP} input cable-length 30\n"
    assert junos.parse(text, "leaf1").ports["et-0/0/0"].cable_m == 30


@pytest.mark.parametrize(
    ("mru", "ports"), [("", ["et-0/0/0", "et-0/0/2:0"]), (" mru 9014", ["et-0/0/2:0"]), (" mru 9216", [])]
)
def test_an_mru_below_the_packets_is_named_because_headroom_is_for_no_cable(mru, ports):
    text = BY_HAND.replace("011010 pfc", f"011010 pfc{mru}").replace("011100 pfc", f"011100 pfc{mru}")
    seen = junos.parse(text, "leaf1")
    assert [port for port, qos in seen.ports.items() if qos.cable_m == 0] == ports
    named = [override for override in seen.overrides if "mru" in override.statement]
    assert [list(override.ports) for override in named] == ([ports] if ports else [])
    assert all(
        override.statement == Mentions("congestion-notification-profile cnp", mru or "2500") for override in named
    )


def test_the_largest_mru_is_read():
    text = BY_HAND.replace("011010 pfc", "011010 pfc mru 65535")
    assert junos.parse(text, "leaf1") == junos.parse(BY_HAND, "leaf1")


def test_thresholds_are_not_read_if_the_profile_is_not_used():
    profile = "drop-profile-map loss-priority any protocol any drop-profile dp1"
    for statement in ("explicit-congestion-notification", profile):
        line = f"set class-of-service schedulers s1 {statement}\n"
        assert line in BY_HAND
        assert junos.parse(BY_HAND.replace(line, ""), "leaf1").ports["et-0/0/0"].queues[4] == Queue(False, 0)


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("scheduler-map sm1", "scheduler-map sm2", "et-0/0/0: scheduler-maps sm2 is not defined"),
        ("classifiers dscp mydscp\n", "classifiers dscp other\n", "classifiers dscp other is not defined"),
        ("congestion-notification-profile cnp\n", "congestion-notification-profile x\n", "profile x is not defined"),
        ("scheduler s1\n", "scheduler s9\n", "schedulers s9 is not defined"),
        ("drop-profile dp1", "drop-profile dp9", "schedulers s1: drop-profiles dp9 is not defined"),
        ("sm1 forwarding-class CNP", "sm1 forwarding-class CNQ", "forwarding class CNQ is not defined"),
        ("class CNP queue-num 3", "class CNP priority low", "class CNP: it has no queue-num"),
        ("queue-num 4", "queue-num four", "queue-num 'four'"),
        ("fill-level [ 55 90 ]", "fill-level [ 55 90", "line 7: a list"),
        ("fill-level [ 55 90 ]", "fill-level [ 55 900 ]", "'900'"),
        ("code-points nc1", "code-points nc9", "'nc9'"),
        ("code-points nc1", "code-points", "classifiers dscp mydscp: code-points is empty"),
        ("set system host-name leaf1", "system { host-name leaf1; }", "line 3: 'system"),
        ("forwarding-class CNP loss-priority low code-points nc1", "import mydscp", "imports itself"),
        ("011010 pfc", "011010 pfc mru 65536", "congestion-notification-profile cnp: mru '65536'"),
        ("pfc-watchdog\n", "pfc-watchdog detection 0\n", "congestion-notification-profile cnp: detection '0'"),
        ("pfc-watchdog\n", "pfc-watchdog recovery 1048577\n", "cnp: recovery '1048577'"),
        ("mtu 9216", "mtu jumbo", "et-0/0/0: mtu 'jumbo'"),
        ("mtu 9216", "mtu 65536", "et-0/0/0: mtu '65536'"),
        ("mtu 9216", "mtu 255", "et-0/0/0: mtu '255'"),
    ],
)
def test_invalid_settings_are_refused_with_their_place(old, new, fact):
    assert old in BY_HAND
    with pytest.raises(FabricError) as caught:
        junos.parse(BY_HAND.replace(old, new), "leaf1")
    assert str(caught.value).startswith("leaf1: Junos configuration: ")
    assert fact in str(caught.value)


@pytest.mark.parametrize("buffer", [0, 1, 1 << 40, (1 << 40) + 1])
def test_the_buffer_of_a_queue_has_limits(buffer):
    text = BY_HAND.replace("queue-buffer-bytes 20000000", f"queue-buffer-bytes {buffer}")
    if 1 <= buffer <= 1 << 40:
        assert junos.parse(text, "leaf1").queue_buffer_bytes == buffer
        return
    with pytest.raises(FabricError, match=rf"class-of-service apply-macro sailloft: queue-buffer-bytes '{buffer}'"):
        junos.parse(text, "leaf1")


@pytest.mark.parametrize("mtu", [256, 65535])
def test_the_smallest_and_the_largest_mtu_are_read(mtu):
    lines = (line for line in BY_HAND.replace("mtu 9216", f"mtu {mtu}").splitlines() if "family inet" not in line)
    seen = junos.parse("\n".join(lines), "leaf1")
    assert seen.ports["et-0/0/0"].ip_mtu_bytes == mtu - 14  # an untagged frame's header


@pytest.mark.parametrize("mtu", [256, 65535])
def test_the_least_and_the_largest_mtu_of_a_family_are_read(mtu):
    text = BY_HAND.replace("mtu 9216", "mtu 65535").replace("mtu 9000", f"mtu {mtu}")
    assert junos.parse(text, "leaf1").ports["et-0/0/0"].ip_mtu_bytes == min(mtu, 65535 - 14)


@pytest.mark.parametrize("mtu", [255, 65536])
def test_an_mtu_of_a_family_beyond_its_limits_is_refused(mtu):
    with pytest.raises(FabricError, match=f"mtu '{mtu}'"):
        junos.parse(BY_HAND.replace("mtu 9000", f"mtu {mtu}"), "leaf1")


@pytest.mark.parametrize("text", ["", "\n\n", "## Last\n", "hello", "error: syntax error", "{}", "set", '"', '""'])
def test_text_that_is_not_a_configuration_is_refused(text):
    with pytest.raises(FabricError, match="leaf1"):
        junos.parse(text, "leaf1")


def read(old, new):
    assert old in BY_HAND
    return junos.parse(BY_HAND.replace(old, new), "leaf1").ports["et-0/0/0"]


SHORT = f"{CNP} input dscp code-point 011010 pfc\n"
MAPPED = "s1 drop-profile-map loss-priority any protocol any drop-profile dp1"
MARKED = Queue(False, 0, Ecn(11_000_000, 18_000_000, 100))


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        (SHORT, f"{CNP} input dscp code-point 011010\n", "pfc", ()),
        ("mtu 9000", "mtu 2000", "cable_m", 100),
        (f"{CNP} pfc-watchdog\n", f"{CNP} pfc-watchdog watchdog-action\n", "watchdog", Watchdog(200, 200, "drop")),
        (
            f"{CNP} pfc-watchdog\n",
            f"{CNP} pfc-watchdog watchdog-action forward\n",
            "watchdog",
            Watchdog(200, 200, "forward"),
        ),
    ],
)
def test_lines_of_a_notification_profile_are_read(old, new, field, value):
    assert getattr(read(old, new), field) == value


@pytest.mark.parametrize(
    ("mapped", "queue"),
    [
        (MAPPED, MARKED),
        (MAPPED.replace("loss-priority any", "loss-priority low"), MARKED),
        (MAPPED.replace("loss-priority any", "loss-priority high"), Queue(False, 0)),
        (MAPPED.replace("loss-priority any ", ""), MARKED),
        ("s1 drop-profile-map loss-priority any", Queue(False, 0)),
        (
            f"{MAPPED}\nset class-of-service schedulers s1 transmit-rate percent 100",
            replace(MARKED, bandwidth_percent=100),
        ),
        (f"{MAPPED}\nset class-of-service schedulers s1 priority low", MARKED),
    ],
)
def test_a_scheduler_marks_packets_of_low_loss_priority(mapped, queue):
    assert read(MAPPED, mapped).queues[4] == queue


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            MAPPED,
            f"{MAPPED}\nset class-of-service schedulers s1 transmit-rate percent 101",
            "schedulers s1: percent '101'",
        ),
        ("fill-level [ 55 90 ]", "fill-level [ 55 101 ]", "drop-profiles dp1: fill-level '101'"),
        (SHORT, f"{SHORT}{CNP} input cable-length 1048577\n", "profile cnp: cable-length '1048577'"),
        ("flow-control-queue 4", "flow-control-queue 12", "profile cnp: flow-control-queue '12'"),
        (SHORT, SHORT.replace("pfc", "pfc mru 65536"), "profile cnp: mru '65536'"),
    ],
)
def test_numbers_of_objects_have_limits(old, new, message):
    with pytest.raises(FabricError) as refused:
        read(old, new)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fill-level [ 55 90 ]", "fill-level [ 90 55 ]"),
        ("fill-level [ 55 90 ]", "fill-level [ 55 55 ]"),
        ("fill-level [ 55 90 ]", "fill-level 55"),
        ("drop-probability [ 0 100 ]", "drop-probability [ 5 100 ]"),
        ("drop-profiles dp1 interpolate fill-level [ 55 90 ]", "drop-profiles dp1 fill-level 55"),
        ("set class-of-service apply-macro sailloft queue-buffer-bytes 20000000\n", ""),
    ],
)
def test_fill_levels_that_are_no_line_or_of_unknown_bytes_concern_only_their_queue(old, new):
    port, known = read(old, new), junos.parse(BY_HAND, "leaf1").ports["et-0/0/0"]
    queue = port.queues[4]
    assert queue.ecn is None
    assert queue.unknown_ecn == Mentions(55)
    assert replace(port, queues=known.queues) == known


@pytest.mark.parametrize("number", [0, 11])
def test_a_pause_may_stop_each_of_12_queues(number):
    assert read("flow-control-queue 4", f"flow-control-queue {number}").priority_to_queue[3] == number


@pytest.mark.parametrize(("length", "metres"), [(0, 100), (1, 1), (1_048_576, 1_048_576)])
def test_the_length_of_a_cable_is_read(length, metres):
    text = BY_HAND.replace("mtu 9000", "mtu 2000").replace(SHORT, f"{SHORT}{CNP} input cable-length {length}\n")
    assert junos.parse(text, "leaf1").ports["et-0/0/0"].cable_m == metres
