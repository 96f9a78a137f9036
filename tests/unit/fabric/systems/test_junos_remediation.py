# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines that change a switch of Junos: a line of others that contradicts the policy, and no other, is deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import switches
from junos_switch import commit
from messages import raises
from refusals import refuses
from switches import LOSSY, NO_QOS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import backups, restore
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import junos

PORT = "et-0/0/1"


def switch(**changes: Any) -> Switch:
    return switches.switch("junos", [PORT], **changes)


WITHOUT_PAUSES = switch(**LOSSY)
UNSCHEDULED = switch(**NO_QOS)


def changes(line: str, wanted: Switch | None = None) -> list[str]:
    """Return the remediation of a switch that has the wanted settings, and this line."""
    wanted = wanted or switch()
    return junos.remediation(f"{junos.render(wanted)}set {line}\n", wanted).splitlines()


COS = "class-of-service interfaces"


@pytest.mark.parametrize(
    ("line", "deleted"),
    [
        (f"{COS} {PORT}", False),
        (f"{COS} {PORT} classifiers", True),
        (f"{COS} {PORT} classifiers dscp other", True),
        (f"{COS} all classifiers dscp other", True),
        (f"{COS} et-* classifiers dscp other", True),
        (f"{COS} et-0/0/9 classifiers dscp other", False),
        (f"{COS} xe-* classifiers dscp other", False),
        (f"{COS} {PORT} unit 0 classifiers dscp other", True),
        (f"{COS} {PORT} unit 0 classifiers ieee-802.1 other", False),
        (f"{COS} et-* unit * classifiers dscp other", False),  # the port's own replaces it
        (f"{COS} et-* scheduler-map other", False),
        (f"{COS} et-* congestion-notification-profile other", False),
        (f"{COS} {PORT} forwarding-class-set other", True),
        (f"{COS} {PORT} output-traffic-control-profile other", True),
        (f"{COS} {PORT} shaping-rate 10g", False),
        ("class-of-service schedulers other drop-profile-map loss-priority any drop-profile sailloft-01234567", False),
        ("class-of-service scheduler-maps other forwarding-class sailloft-tc3-pri3 scheduler other", False),
        ("forwarding-options enhanced-hash-key inet no-l4-source-port", True),
        ("forwarding-options enhanced-hash-key family inet no-l4-source-port", True),
        ("forwarding-options enhanced-hash-key hash-mode layer2-payload", False),
        ("forwarding-options enhanced-hash-key ecmp-dlb flowlet inactivity-interval 256", False),
        ("forwarding-options enhanced-hash-key hash-seed 5", False),
        ("forwarding-options sampling input", False),
        ("class-of-service apply-macro site queue-buffer-bytes 5", False),
    ],
)
def test_a_line_that_contradicts_the_policy_is_deleted(line, deleted):
    assert changes(line) == ([f"delete {line}"] if deleted else [])


@pytest.mark.parametrize(
    ("line", "wanted", "deleted"),
    [
        (f"{COS} et-* congestion-notification-profile other", WITHOUT_PAUSES, True),
        (f"{COS} et-* scheduler-map other", WITHOUT_PAUSES, False),
        (f"{COS} et-* scheduler-map other", UNSCHEDULED, True),
        (f"{COS} et-* unit * classifiers dscp other", UNSCHEDULED, True),
        (f"{COS} {PORT} forwarding-class-set other", UNSCHEDULED, False),
    ],
)
def test_settings_of_all_ports_are_deleted_if_the_port_has_none_of_its_own(line, wanted, deleted):
    assert changes(line, wanted) == ([f"delete {line}"] if deleted else [])


INHERITED = "# inherit\n<rpc-reply><configuration-set>\n{}</configuration-set></rpc-reply>"


@pytest.mark.parametrize(
    "line",
    [
        "forwarding-options enhanced-hash-key inet no-l4-source-port",
        f"interfaces {PORT} unit 0 family inet mtu 1500",
        f"{COS} {PORT} unit 0 classifiers dscp other",
    ],
)
def test_a_line_that_is_inherited_is_refused_because_it_cannot_be_deleted_there(line):
    text = junos.render(switch())
    reading = f"{text}set apply-groups G\n{INHERITED.format(f'{text}set {line}')}"
    with refuses(f"leaf1: {line}", "group", "interface-range"):
        junos.remediation(reading, switch())


def test_a_line_that_is_inherited_is_not_set_again():
    text = junos.render(switch())
    shorter = "\n".join(line for line in text.splitlines() if " mtu " not in line)
    assert junos.remediation(f"{shorter}\n{INHERITED.format(text)}", switch()) == ""
    assert junos.remediation(shorter, switch()) == f"set interfaces {PORT} mtu 9114\n"


def test_a_backup_is_what_is_written_and_so_is_what_is_restored():
    text, empty = junos.render(switch()), "set system host-name <*>&\n"
    reading = f"{empty}{INHERITED.format(text.replace('<', '&lt;'))}"
    assert junos.JUNOS.configuration(reading) == empty
    assert junos.parse(reading, "leaf1") == junos.parse(text, "leaf1")
    assert junos.restoration(empty, reading, "leaf1") == ""
    assert junos.restoration(reading, empty, "leaf1") == ""


def test_the_role_separates_the_parts_of_a_reading_by_the_same_line():
    tasks = (Path(__file__).parents[4] / "roles/roce_switch/tasks/junos/read.yml").read_text("utf-8")
    assert f"'{INHERITED.splitlines()[0]}\\n' ~" in tasks


def test_an_object_of_ours_that_is_not_wanted_is_deleted_once_and_as_a_whole():
    old = [
        "class-of-service schedulers sailloft-01234567 priority low",
        "class-of-service schedulers sailloft-01234567 transmit-rate percent 5",
        "class-of-service classifiers dscp sailloft-01234567 forwarding-class a loss-priority low code-points 000001",
    ]
    running = junos.render(switch()) + "".join(f"set {line}\n" for line in old)
    assert junos.remediation(running, switch()).splitlines() == [
        "delete class-of-service schedulers sailloft-01234567",
        "delete class-of-service classifiers dscp sailloft-01234567",
    ]


def test_a_line_below_a_wanted_object_of_ours_is_deleted_alone():
    line = "class-of-service forwarding-classes class sailloft-tc0-pri0 no-loss"
    assert changes(line) == [f"delete {line}"]


LINES = junos.render(switch()).splitlines(keepends=True)
LEVELS = [line for line in LINES if "drop-profiles" in line]


@pytest.mark.parametrize("line", [line for line in LINES if "no-loss" in line or "queue-num" not in line])
def test_a_line_that_is_missing_is_written_so_that_nothing_is_left_to_change(line):
    running = "".join(other for other in LINES if other != line)
    changed = commit(running, junos.remediation(running, switch()))
    assert junos.parse(changed, "leaf1") == junos.parse("".join(LINES), "leaf1")
    assert junos.remediation(changed, switch()) == ""


@pytest.mark.parametrize(
    "levels",
    [
        [LEVELS[1], LEVELS[0], *LEVELS[2:]],
        [*LEVELS, LEVELS[1].replace("fill-level 10", "fill-level 20")],
        [LEVELS[1].replace("fill-level 10", "fill-level 20"), *LEVELS],
    ],
)
def test_levels_of_a_profile_in_another_order_are_written_again(levels):
    running = "".join([*(line for line in LINES if line not in LEVELS), *levels])
    change = junos.remediation(running, switch())
    profile = " ".join(LEVELS[0].split()[1:4])
    assert change == f"delete {profile}\n{''.join(LEVELS)}"
    assert junos.remediation(commit(running, change), switch()) == ""


def test_the_order_of_probabilities_and_levels_is_only_that_of_each_list():
    others = [line for line in LINES if line not in LEVELS]
    assert junos.remediation("".join([*others, *LEVELS[2:], *LEVELS[:2]]), switch()) == ""


def test_a_statement_is_there_if_others_below_it_are():
    """Junos does not show "pfc-watchdog" beside "pfc-watchdog detection 3"."""
    wanted = switch(watchdog=Watchdog(300, 200, "drop"))
    running = "".join(
        line for line in junos.render(wanted).splitlines(keepends=True) if not line.endswith("watchdog\n")
    )
    assert junos.parse(running, "leaf1").ports[PORT].watchdog == Watchdog(300, 200, "drop")
    assert junos.remediation(running, wanted) == ""


def test_a_profile_is_restored_in_its_order():
    backup = "set class-of-service drop-profiles d interpolate fill-level [ 55 90 ]\n"
    for running in (backup.replace("55 90", "90 55"), backup.replace("55 90", "90"), backup.replace("55", "55 60")):
        change = junos.restoration(backup, running, "leaf1")
        assert change.splitlines() == [
            "delete class-of-service drop-profiles d",
            "set class-of-service drop-profiles d interpolate fill-level 55",
            "set class-of-service drop-profiles d interpolate fill-level 90",
        ]


CLASS = "class-of-service forwarding-classes class"


@pytest.mark.parametrize(
    ("queues", "wanted", "moved"),  # of the classes of others, a lossless one is negative
    [
        ({"CNP": 3, "RDMA": -4}, switch(), {"CNP": "1"}),
        ({"A": 3, "B": 3, "C": 1, "D": 2}, switch(), {"A": "5", "B": "0"}),
        ({"FCOE": -3, "NC": 7, "BE": 0}, switch(), {}),
        ({"RDMA": -6, "C": 1, "D": -2, "E": 5}, switch(), {"RDMA": "3"}),
        ({"RDMA": -3}, WITHOUT_PAUSES, {"RDMA": "1"}),
        ({"RDMA": -6, "A": 1, "B": 2, "C": 5}, WITHOUT_PAUSES, {"RDMA": "4"}),
        ({"CNP": 3}, UNSCHEDULED, {}),
    ],
)
def test_a_queue_is_lossless_or_lossy_and_a_class_of_the_other_kind_leaves_it(queues, wanted, moved):
    lines = [f"set {CLASS} {name} queue-num {abs(queue)}\n" for name, queue in queues.items()]
    lines += [f"set {CLASS} {name} no-loss\n" for name, queue in queues.items() if queue < 0]
    running = junos.render(wanted) + "".join(lines)
    change = junos.remediation(running, wanted)
    assert change.splitlines() == [f"set {CLASS} {name} queue-num {queue}" for name, queue in moved.items()]
    assert junos.remediation(commit(running, change), wanted) == ""


def test_a_class_that_has_no_queue_to_go_to_is_refused():
    queues = {"A": 1, "B": 2, "C": 4, "D": 5, "RDMA": 6}
    lines = "".join(f"set {CLASS} {name} queue-num {queue}\n" for name, queue in queues.items())
    with refuses(f"leaf1: {CLASS} RDMA", "queue 6", "no-loss"):
        junos.remediation(f"{junos.render(WITHOUT_PAUSES)}{lines}set {CLASS} RDMA no-loss\n", WITHOUT_PAUSES)


def test_only_paths_of_wanted_lines_are_activated():
    off = [f"class-of-service interfaces {PORT}", "class-of-service interfaces et-0/0/9", "system services"]
    running = junos.render(switch()) + "".join(f"deactivate {path}\n" for path in off)
    assert junos.remediation(running, switch()) == f"activate {off[0]}\n"


@pytest.mark.parametrize("path", ["interfaces", f"interfaces {PORT}"])
def test_a_port_that_is_deactivated_as_a_whole_is_not_activated(path):
    with refuses(f"leaf1: deactivate {path}", f"activate {path}"):
        junos.remediation(f"{junos.render(switch())}deactivate {path}\n", switch())


@pytest.mark.parametrize(("tag", "maximum"), [("vlan-tagging", 9198), ("flexible-vlan-tagging", 9194)])
def test_the_mtu_of_a_port_with_tags_has_room_for_them(tag, maximum):
    def lines(ip_mtu_bytes: int) -> str:
        wanted = switch(ip_mtu_bytes=ip_mtu_bytes)
        return junos.remediation(f"{junos.render(wanted)}set interfaces {PORT} {tag}\n", wanted)

    assert lines(maximum) == f"set interfaces {PORT} mtu 9216\n"
    with raises(FabricError, "leaf1", PORT, "9217", "9216", maximum, "switch_mtu_bytes"):
        lines(maximum + 1)


def partitions(lossless: int, headroom: int) -> str:
    prefix = "set class-of-service shared-buffer ingress buffer-partition"
    return f"{prefix} lossless percent {lossless}\n{prefix} lossless-headroom percent {headroom}\n"


@pytest.mark.parametrize(
    ("running", "shares", "enough"),
    [
        ("", BufferShares(9, 45), False),
        ("", BufferShares(20, 10, default_of="QFX5240"), True),
        (partitions(20, 9), BufferShares(20, 10, default_of="QFX5240"), False),
        (partitions(9, 0), BufferShares(9, None), True),
        (partitions(8, 0), BufferShares(9, None), False),
    ],
)
def test_partitions_are_at_least_as_large_as_planned(running, shares, enough):
    wanted = replace(switch(), shares=shares)
    running = junos.render(switch()) + running
    if enough:
        assert junos.remediation(running, wanted) == ""
        return
    with pytest.raises(FabricError, match="but the plan assumes"):
        junos.remediation(running, wanted)


def test_a_switch_is_as_in_its_backup_whatever_its_groups_are(tmp_path):
    """A backup has a group as it is written, a reading also what ports inherit from it."""
    backup = f"set apply-groups G\nset groups G interfaces <*> mtu 9000\nset interfaces {PORT} unit 0\n"
    reading = f"{backup}{INHERITED.format(f'set interfaces {PORT} mtu 9000')}"
    backups.write(str(tmp_path), {"leaf1.junos": backup})
    given = {"switches": {"leaf1": {"system": "junos"}}, "running": {"leaf1": reading}, "backup_path": None}
    for source in ({"restore_path": str(tmp_path)}, {"restore_path": None, "backup": {"leaf1": reading}}):
        result = restore.restored({"backup": None, **given, **source}, check_mode=True)
        assert (result["as_before"], result["changes"]) == ({"leaf1": True}, {})
