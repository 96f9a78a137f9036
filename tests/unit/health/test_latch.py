# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fault stays until its cause is shown to be gone, or a person ends it."""

from __future__ import annotations

import dataclasses

import pytest
from messages import raises
from rounds import EXPECTED, GPU, OTHER, Node, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RESET_COUNT
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import (
    UNMEASURED_ROUNDS,
    Condition,
    cleared,
    drained,
    maintained,
    part_of,
    undrained,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    CheckSetting,
    Expected,
    ExpectedPort,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import EXPECTED_UNREADABLE
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

WIDTH = f"width@gpu:{GPU.name}"
BAD = measured("width", 8)
GOOD = measured("width", 16)


def sick(*found):
    """Return a node after a round that found this."""
    node = Node()
    node.round(at(0), *found)
    return node


def test_a_fault_stays_while_its_check_is_not_measured():
    node = sick(BAD)
    node.round(at(60))
    node.round(at(120), measured("width", None, reason="GPU is lost"))
    node.read(at(180), Reading("reader", error="no answer"))
    assert node.faults() == [WIDTH]
    fault = node.condition.faults[0]
    assert (fault.since, fault.last, fault.count) == (at(0), at(0), 1)


def test_a_fault_ends_with_a_pass_of_its_check():
    node = sick(BAD)
    node.round(at(60), BAD)
    assert node.condition.faults[0].count == 2
    node.round(at(120), GOOD)
    assert node.faults() == []
    ended = node.condition.ended[-1]
    assert (ended.name, ended.since, ended.at, ended.how) == (WIDTH, at(0), at(120), "passed")


def test_a_pass_ends_no_fault_of_another_check_place_or_reader():
    node = sick(BAD)
    node.round(at(60), measured("temperature", 50), measured("width", 16, OTHER))
    node.read(at(120), Reading("another", (GOOD,)))
    assert node.faults() == [WIDTH]


def test_a_pass_of_one_check_does_not_end_the_fault_of_another():
    node = Node()
    node.read(at(0), Reading("deep", (measured("deep_width", True),)))
    node.round(at(60), GOOD)
    assert node.faults() == [f"deep_width@gpu:{GPU.name}"]


@pytest.mark.parametrize(
    ("check", "reset", "reboot"),
    [
        ("xid_reset", True, True),
        ("xid_reboot", False, True),
        ("xid_person", False, False),
        ("xid_application", True, True),
    ],
)
def test_an_event_ends_when_its_action_has_happened(check, reset, reboot):
    def after(*rounds):
        node = Node()
        node.round(at(0), happened(check), measured(RESET_COUNT, 1))
        for now, *found in rounds:
            node.round(now, *found)
        return not node.faults()

    assert not after((at(60), measured(RESET_COUNT, 1), GOOD))
    assert after((at(60), measured(RESET_COUNT, 2))) == reset
    assert not after((at(60), measured(RESET_COUNT, 1, OTHER)), (at(120), measured(RESET_COUNT, 2, OTHER)))
    assert after((at(5, "boot-2"), GOOD)) == reboot
    # What happens again after the action is another event.
    assert not after((at(5, "boot-2"), happened(check, "2")))


def test_an_unknown_boot_is_no_reboot():
    node = sick(happened("xid_reboot"))
    node.round(at(60, ""))
    assert node.faults() == [f"xid_reboot@gpu:{GPU.name}"]


def test_several_lines_of_one_event_are_one():
    node = Node()
    node.round(at(0), happened("xid_reset", "a"), happened("xid_reset", "a"), happened("xid_reset", "b"))
    node.round(at(60), happened("xid_reset", "b"))
    assert [fault.count for fault in node.condition.faults] == [2]


def test_an_applications_event_is_forgotten_after_a_day_and_takes_no_node_out():
    node = sick(happened("xid_application"), happened("xid_person"))
    assert [(fault.check, fault.takes_out) for fault in node.condition.faults] == [
        ("xid_person", True),
        ("xid_application", False),
    ]
    node.round(at(86000))
    assert len(node.faults()) == 2
    node.round(at(86500))
    assert node.faults() == [f"xid_person@gpu:{GPU.name}"]


def test_an_event_of_a_check_without_a_rule_is_shown():
    node = sick(happened("news"))
    assert node.faults() == [f"news@gpu:{GPU.name}"]


def test_a_check_that_is_switched_off_ends_its_fault_with_the_reason():
    node = sick(BAD)
    node.expected = dataclasses.replace(EXPECTED, settings={"width": CheckSetting(disabled="riser with x8")})
    node.round(at(60), BAD)
    assert node.faults() == []
    assert "riser with x8" in node.condition.ended[-1].how


def test_what_is_no_longer_planned_ends_its_faults():
    node = sick(BAD, measured("mode", "Disabled"), measured("pending", True), happened("xid_person"))
    node.expected = dataclasses.replace(EXPECTED, devices=EXPECTED.devices[1:])
    # As long as it cannot be read what the node must have, nothing of it is known.
    node.round(at(60), measured(EXPECTED_UNREADABLE, True, Place("node")))
    assert len(node.faults()) == 5
    node.round(at(120), measured("pending", True), measured(EXPECTED_UNREADABLE, False, Place("node")))
    assert [fault.check for fault in node.condition.faults] == ["xid_person", "pending"]
    node.round(at(180))
    assert [fault.check for fault in node.condition.faults] == ["xid_person"]
    assert {each.how for each in node.condition.ended} == {"passed", "no longer planned"}


def test_a_value_that_is_no_longer_planned_ends_its_fault():
    node = sick(BAD)
    first = dataclasses.replace(EXPECTED.devices[0], link_width=None)
    node.expected = dataclasses.replace(EXPECTED, devices=(first, *EXPECTED.devices[1:]))
    node.round(at(60), BAD)
    assert node.faults() == []


@pytest.mark.parametrize(
    ("check", "place", "terms"),
    [
        ("mount_missing", Place("mount", "/data"), {"mounts": ("/data",)}),
        ("unit_inactive", Place("unit", "slurmd.service"), {"units": ("slurmd",)}),
        ("port_missing", Place("port", "eth0"), {"ports": (ExpectedPort("eth0"),)}),
        ("port_down", Place("port", "eth0"), {"ports": (ExpectedPort("eth0"),)}),
    ],
)
def test_the_rules_of_plans_know_what_is_planned(check, place, terms):
    """Otherwise a fault of what was taken out of the plan would stay for ever."""
    assert RULES[check].expected(Expected("gpu01", **terms), place) is not None
    assert RULES[check].expected(Expected("gpu01"), place) is None


def test_the_fault_that_asks_for_most_is_first():
    node = Node()
    node.round(at(0), BAD, measured("mode", "Disabled"))
    node.round(at(60), measured("temperature", 99), measured("pending", True), happened("xid_person"))
    assert [fault.check for fault in node.condition.faults] == ["xid_person", "pending", "width", "temperature", "mode"]


def test_a_technician_gets_slot_serial_number_and_cable():
    assert part_of(EXPECTED, GPU) == "GPU 4, slot 7, serial number: label on the tray"
    ports = Expected("gpu01", ports=(ExpectedPort("mlx5_4/1", cable="c17", peer="leaf-3 Ethernet17"),))
    assert part_of(ports, Place("port", "mlx5_4/1")) == "cable c17, to leaf-3 Ethernet17"
    assert part_of(EXPECTED, Place("node")) == ""
    assert sick(BAD).condition.faults[0].part == "GPU 4, slot 7, serial number: label on the tray"


# Not measured


def test_three_rounds_without_measurement_are_a_fault_of_the_checker():
    node = Node()
    lost = [measured(check, None, reason="GPU is lost") for check in ("width", "temperature")]
    for seconds in range(UNMEASURED_ROUNDS):
        assert node.faults() == []
        node.round(at(seconds), *lost)
    assert node.faults() == [f"not_measured@gpu:{GPU.name}"]
    fault = node.condition.faults[0]
    assert all(text in fault.seen for text in ("temperature", "width", "GPU is lost"))
    assert fault.layer == "configuration"
    node.round(at(10), GOOD, lost[1])
    assert "width" not in node.condition.faults[0].seen
    node.round(at(20), GOOD, measured("temperature", 50))
    assert node.faults() == []


def test_only_rounds_one_after_the_other_count():
    node = Node()
    for seconds in range(10):
        node.round(at(seconds), measured("width", 16 if seconds % 3 == 2 else None))
    assert node.faults() == []


def test_an_idle_link_is_no_fault_of_the_checker():
    node = Node()
    for seconds in range(5):
        node.round(at(seconds), measured("speed", 2.5, context={"pstate": "P8"}))
    assert (node.faults(), node.condition.unmeasured) == ([], ())


def test_a_reader_that_fails_for_three_rounds_is_one_fault():
    node = Node()
    node.round(at(0), GOOD)
    for seconds in range(UNMEASURED_ROUNDS):
        assert node.faults() == []
        node.read(at(seconds), Reading("smi", error="no such program"), Reading("reader", (GOOD,)))
    assert node.faults() == ["reader_failed@reader:smi"]
    # A round that does not run it, such as a deep one, says nothing of it.
    node.round(at(60), GOOD)
    assert node.faults() == ["reader_failed@reader:smi"]
    node.read(at(60), Reading("smi", (measured("temperature", 50),)))
    assert node.faults() == []


# Persons


def test_a_person_ends_a_fault_by_its_name_and_with_a_reason():
    node = sick(happened("xid_person"), BAD)
    condition = cleared(node.condition, f"xid_person@gpu:{GPU.name}", "replaced", "ada", at(60))
    assert [fault.name for fault in condition.faults] == [WIDTH]
    ended = condition.ended[-1]
    assert (ended.how, ended.by, ended.since, ended.at) == ("replaced", "ada", at(0), at(60))


@pytest.mark.parametrize(("name", "reason"), [("width", "replaced"), (WIDTH, " \n"), ("", "replaced")])
def test_neither_an_unknown_name_nor_an_empty_reason_ends_a_fault(name, reason):
    with raises(SailloftError, *([] if name == WIDTH else [WIDTH])):
        cleared(sick(BAD).condition, name, reason, "ada", at(60))


def test_what_a_person_ended_is_counted_anew():
    node = Node()
    for seconds in range(UNMEASURED_ROUNDS + 1):
        node.round(at(seconds), measured("width", None))
    node.condition = cleared(node.condition, f"not_measured@gpu:{GPU.name}", "known", "ada", at(60))
    node.round(at(120), measured("width", None))
    assert node.faults() == []


def test_no_round_ends_a_persons_drain_or_maintenance():
    node = Node()
    node.condition = maintained(drained(node.condition, "new cable", "ada", at(0)), "firmware", "bo", at(1))
    node.round(at(60), GOOD)
    node.round(at(5, "boot-2"), GOOD)
    assert (node.condition.drain.reason, node.condition.drain.by) == ("new cable", "ada")
    assert (node.condition.maintenance.reason, node.condition.maintenance.by) == ("firmware", "bo")
    with raises(SailloftError, "reason"):
        drained(node.condition, "", "ada", at(0))


REPAIR = "sailloft-repair: gpu_lost"


def test_a_repair_neither_replaces_nor_ends_a_persons_drain():
    own = drained(Condition(), REPAIR, "root", at(0))
    assert drained(own, "sailloft-repair: again", "root", at(1)).drain.reason == "sailloft-repair: again"
    assert undrained(own, "root", at(1), "sailloft-repair:").drain is None
    persons = drained(own, "ticket 7", "ada", at(1))
    with raises(SailloftError, "ticket 7"):
        drained(persons, REPAIR, "root", at(2))
    with raises(SailloftError, "ticket 7"):
        undrained(persons, "root", at(2), "sailloft-repair:")
