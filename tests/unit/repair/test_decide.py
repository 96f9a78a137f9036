# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decisions, over whole repairs: the way to a person and back, and runs killed anywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from repaired_fleet import HOUR_S, IN_SERVICE, SPARE, START_S, KilledError, Machine, RepairedFleet, complaint

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.decide import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.history import counted, history
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import REFUSED, dump
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import NodeService
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import NodeProof


def steps(fleet, node="sick"):
    return [step for name, step in fleet.steps if name == node]


def test_one_run_drains_repairs_proves_and_returns():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset")})
    fleet.run()
    assert fleet.steps == [("sick", step) for step in ("drain", "reset", "prove", "return")]
    assert fleet.machines["sick"].service == IN_SERVICE
    assert fleet.last("sick")[:2] == ("return", "done")


def test_the_same_world_gives_the_same_bytes():
    fleet = RepairedFleet({"sick": Machine(complaint()), "lost": Machine(complaint("reboot", "xid_79"))})
    assert dump(decide(fleet.world())) == dump(decide(fleet.world()))


def test_two_reboots_and_then_a_person_who_alone_opens_the_way_back():
    fleet = RepairedFleet({"sick": Machine(complaint())})
    for _run in range(8):
        fleet.run()
    assert steps(fleet) == ["drain", "reset", "reboot", "reboot", "person"]
    # The fault is gone, but nobody has said that the node is repaired.
    fleet.machines["sick"].fault = None
    fleet.run()
    assert steps(fleet)[-1] == "person"
    fleet.say("sick")
    fleet.now_s += 90
    fleet.run()
    assert steps(fleet)[-2:] == ["prove", "return"]


def test_attempts_outlast_the_return_of_a_node():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reboot")})
    fleet.run()
    fleet.run()
    assert steps(fleet) == ["drain", "reset", "reboot", "prove", "return"]
    fleet.machines["sick"].fault = complaint()
    fleet.run()
    fleet.run()
    assert steps(fleet)[5:] == ["drain", "reboot", "prove", "return"]
    fleet.machines["sick"].fault = complaint()
    fleet.run()
    assert steps(fleet)[9:] == ["drain", "person"]


@pytest.mark.parametrize(
    ("fault", "facts", "expected"),
    [
        (complaint("restart_vm"), {"is_guest": True}, ["restart_vm", "restart_vm"]),
        (complaint("restart_vm"), {}, []),
        (complaint("reboot"), {"boots_image": True}, ["reimage", "reimage"]),
        (complaint("drain", layer="configuration"), {}, ["reboot", "reboot"]),
        (complaint("drain", kind="nic"), {}, ["reboot", "reboot"]),
        (complaint("drain", kind="nic"), {"resets": ("nic",)}, ["reset", "reboot", "reboot"]),
        (complaint("person"), {}, []),
    ],
)
def test_the_steps_follow_from_the_fault_and_what_the_node_can_do(fault, facts, expected):
    fleet = RepairedFleet({"sick": Machine(fault, facts=facts)})
    for _run in range(6):
        fleet.run()
    assert steps(fleet) == ["drain", *expected, "person"]


@pytest.mark.parametrize("action", ["note", "watch", "configure", "restart_application"])
def test_a_mild_fault_is_only_reported(action):
    fleet = RepairedFleet({"sick": Machine(complaint(action))})
    fleet.run()
    assert fleet.steps == []
    assert [line.result for line in fleet.lines if line.node] == ([] if action == "note" else ["reported"])


def test_a_node_that_does_not_answer_is_booted_by_its_bmc_if_the_scheduler_lost_it_too():
    lost = NodeService(True, "Not responding", False, True)
    fleet = RepairedFleet(
        {
            "sick": Machine(service=lost, error="no answer: no route", facts={"boots_image": True}),
            "silent": Machine(error="no answer: no route"),
        }
    )
    fleet.run()
    assert fleet.steps == [("sick", "drain"), ("sick", "reimage")]


def test_a_spare_goes_back_to_the_reserve():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset", SPARE, facts={"is_spare": True})})
    fleet.run()
    assert fleet.machines["sick"].service == SPARE


def test_a_spare_takes_the_place_before_a_person_comes():
    fleet = RepairedFleet(
        {"sick": Machine(complaint("person")), "spare": Machine(None, "", SPARE, facts={"is_spare": True})}
    )
    fleet.run(can_swap=True)
    fleet.run(can_swap=True)
    assert steps(fleet) == ["drain", "swap", "person"]


def test_a_proof_of_before_the_repair_does_not_return_a_node_and_a_failed_one_asks_a_person():
    for holds, made_s, expected in ((True, -1, ["prove"]), (True, 1e6, ["prove", "return"]), (False, 1e6, ["person"])):
        proofs = (NodeProof("acceptance-sick.json", START_S + made_s, holds),)
        fleet = RepairedFleet({"sick": Machine(complaint(), "reset", facts={"proofs": proofs})})
        fleet.run()
        fleet.run()
        assert steps(fleet)[2:] == expected


def test_a_node_that_is_not_measured_stays():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset", after=complaint("watch", "not_measured"))})
    fleet.run()
    assert steps(fleet) == ["drain", "reset"]
    assert fleet.last("sick")[:2] == ("prove", "waits")


def test_a_node_that_does_not_come_back_is_for_a_person():
    fleet = RepairedFleet({"sick": Machine(complaint("reboot"))})
    fleet.run()
    fleet.machines["sick"].error = "no answer: no route"
    fleet.run()
    assert fleet.last("sick")[1] == "waits"
    fleet.now_s += 2 * HOUR_S
    fleet.run()
    assert steps(fleet) == ["drain", "reboot", "person"]


def test_a_run_killed_anywhere_is_completed_without_a_second_try():
    whole = RepairedFleet({"sick": Machine(complaint(), "reset")})
    whole.run()
    assert whole.events > 10
    for kill_at in range(whole.events):
        fleet = RepairedFleet({"sick": Machine(complaint(), "reset")})
        with pytest.raises(KilledError):
            fleet.run(kill_at)
        # A part of a line that could not be written.
        fleet.text += b'{"format": "sailloft-re'
        fleet.text = fleet.text[: fleet.text.rfind(b"\n") + 1]
        fleet.now_s += 2 * HOUR_S
        for _run in range(3):
            fleet.run()
        assert steps(fleet).count("reset") <= 1, kill_at
        returned = fleet.machines["sick"].service == IN_SERVICE
        assert returned or steps(fleet)[-1] == "person", (kill_at, fleet.lines)
        # Only if the step was begun and not made, nobody can know.
        assert returned or "reset" not in steps(fleet), kill_at


def test_a_step_that_another_run_has_begun_is_left_alone():
    fleet = RepairedFleet({"sick": Machine(complaint("reboot"))})
    kill_at = 3
    with pytest.raises(KilledError):
        fleet.run(kill_at)
    assert [line.step for line in fleet.lines][-1] == "reboot"
    fleet.now_s += 600
    before = fleet.text
    fleet.run()
    assert fleet.text == before


def test_what_does_not_change_is_written_once():
    fleet = RepairedFleet({"sick": Machine(complaint(), maintenance="riser (ada)")})
    for _run in range(3):
        fleet.run()
    lines = [(line.step, line.result) for line in fleet.lines if line.node]
    assert lines == [("word", "found"), ("drain", "left to a person")]


def test_only_named_nodes_are_touched():
    fleet = RepairedFleet({"a": Machine(complaint()), "b": Machine(complaint())}, most_out=50)
    fleet.run(only=frozenset(["b"]))
    assert {name for name, _step in fleet.steps} == {"b"}


def test_failures_and_node_days_are_counted():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset")}, healthy=9)
    fleet.run()
    fleet.now_s = START_S + 5 * 86400
    made = counted(fleet.lines, fleet.now_s)
    assert (made.failures, made.node_days) == (1, 50.0)
    assert "one in 1200 h" in made.text
    assert "sick: reset: done" in "\n".join(history(fleet.lines, fleet.now_s))
    assert history([], 0) == []


def test_a_person_who_returns_a_sick_node_is_not_overruled():
    fleet = RepairedFleet({"sick": Machine(complaint("person"))})
    fleet.run()
    machine = fleet.machines["sick"]
    machine.service = IN_SERVICE
    for _run in range(2):
        fleet.run()
    assert fleet.last("sick")[:2] == ("drain", "left to a person")
    machine.fault = None
    fleet.run()
    machine.fault = complaint("person", "xid_48")
    fleet.run()
    assert steps(fleet) == ["drain", "person"] * 2


def test_faults_of_a_site_are_refused_until_they_are_no_more():
    machines = {f"n{number}": Machine(complaint()) for number in range(3)}
    fleet = RepairedFleet(machines)
    fleet.run()
    assert {fleet.last(name)[1] for name in machines} == {REFUSED}
    fleet.settings = replace(fleet.settings, together=4, most_out=50)
    fleet.run()
    assert {step for _name, step in fleet.steps} == {"drain", "reset"}


def test_a_drain_that_failed_is_tried_again_under_the_same_guards():
    fleet = RepairedFleet({"sick": Machine(complaint())})
    with pytest.raises(KilledError):
        fleet.run(0)
    assert fleet.last("sick")[:2] == ("drain", "begun")
    fleet.settings = replace(fleet.settings, most_out=0)
    fleet.run()
    assert fleet.last("sick")[:2] == ("drain", "refused")
    fleet.settings = replace(fleet.settings, most_out=10)
    fleet.run()
    assert steps(fleet)[:2] == ["drain", "reset"]


def test_a_case_does_not_get_back_what_was_before_an_earlier_one():
    spare = Machine(complaint(), "reset", SPARE, facts={"is_spare": True})
    fleet = RepairedFleet({"sick": spare})
    fleet.run()
    spare.service, spare.fault = NodeService(True, "sailloft-repair: ?", False), complaint()
    fleet.run()
    assert fleet.world().case("sick").before == ""


def test_a_proof_that_another_run_makes_is_left_alone():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset")})
    with pytest.raises(KilledError):
        fleet.run(6)
    assert fleet.last("sick")[:2] == ("prove", "begun")
    fleet.now_s += 600
    fleet.run()
    assert fleet.last("sick")[:2] == ("prove", "waits")
    assert steps(fleet).count("prove") <= 1
    fleet.now_s += 2 * HOUR_S
    fleet.run()
    assert steps(fleet)[-2:] == ["prove", "return"]


def test_what_was_read_before_another_run_returned_the_node_counts_no_more():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset")})
    before = fleet.world().nodes
    fleet.run()
    assert fleet.last("sick")[:2] == ("return", "done")
    assert decide(replace(fleet.world(), nodes=before)) == []


def test_a_node_in_repair_that_left_the_inventory_is_named_once():
    fleet = RepairedFleet({"sick": Machine(complaint("person"))})
    fleet.run()
    del fleet.machines["sick"]
    for _run in range(2):
        fleet.run()
    left = [line for line in fleet.lines if line.node == "sick" and line.result == "left to a person"]
    assert len(left) == 1


def test_a_node_in_repair_that_the_scheduler_lists_no_more_is_not_back():
    fleet = RepairedFleet({"sick": Machine(complaint("person"))})
    fleet.run()
    service, fleet.machines["sick"].service = fleet.machines["sick"].service, None
    fleet.run()
    assert fleet.last("sick")[1] == "waits"
    fleet.machines["sick"].service = service
    fleet.say("sick")
    fleet.machines["sick"].fault = None
    fleet.now_s += 90
    fleet.run()
    assert steps(fleet)[-2:] == ["prove", "return"]
