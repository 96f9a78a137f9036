# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each guard, broken once: what it stops is done without it."""

from __future__ import annotations

import pytest
from repaired_fleet import HOUR_S, SPARE, START_S, KilledError, Machine, RepairedFleet, complaint

from ansible_collections.sailloft.fleet.plugins.module_utils.repair import guards
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import OURS, NodeService

BUSY = NodeService(False, "", True)


def steps(fleet, node="sick"):
    return [step for name, step in fleet.steps if name == node]


@pytest.fixture
def without(monkeypatch):
    """Return a function that takes a guard away: it has no reason any more."""

    def remove(name):
        monkeypatch.setattr(guards, name, lambda *_arguments: "")
        kept = tuple(guard for guard in guards.OF_A_DRAIN if guard.__name__ != name)
        monkeypatch.setattr(guards, "OF_A_DRAIN", kept)

    return remove


def both_ways(fleet, without, guard):
    """Return the steps of a run with the guard, and of a next one without it."""
    fleet.run()
    first = list(fleet.steps)
    without(guard)
    fleet.run()
    return first, fleet.steps[len(first) :]


@pytest.mark.parametrize(
    "machine",
    [
        Machine(complaint(), maintenance="new riser (ada)"),
        Machine(complaint(), drain="field diagnostic (ada)"),
        Machine(complaint(), service=NodeService(True, "ticket 7", False)),
        Machine(complaint(), service=NodeService(True, "", False)),
        Machine(complaint(), service=NodeService(False, "", False, is_maintained=True)),
        # Slurm's own words of a node that answers again may be a person's.
        Machine(complaint(), service=NodeService(True, "Not responding", False)),
    ],
)
def test_a_persons_drain_and_a_maintenance_are_left_alone(machine):
    fleet = RepairedFleet({"sick": machine})
    fleet.run()
    assert fleet.steps == []
    assert fleet.last("sick")[1] == "left to a person"
    assert not [line for line in fleet.lines if line.step == "fault"]


@pytest.mark.parametrize("word", [{"maintenance": "riser (ada)"}, {"drain": "field diagnostic (ada)"}])
def test_a_server_that_is_switched_off_in_a_maintenance_is_not_started(word):
    lost = {"error": "no answer: no route", "service": NodeService(True, "Not responding", False, True)}
    fleet = RepairedFleet({"sick": Machine(facts={"boots_image": True}, **word)})
    fleet.run()
    machine = fleet.machines["sick"]
    machine.error, machine.service = lost["error"], lost["service"]
    for _run in range(3):
        fleet.run()
    assert fleet.steps == []
    # Its end counts as soon as the node tells it.
    machine.error = machine.maintenance = machine.drain = ""
    machine.service = NodeService(False, "", False)
    fleet.run()
    machine.error, machine.service = lost["error"], lost["service"]
    fleet.run()
    assert steps(fleet) == ["drain", "reimage"]


@pytest.mark.parametrize(
    "reason", ["sailloft: under maintenance: riser (ada)", "sailloft: out of service: ticket 7 (ada)"]
)
def test_a_word_that_only_the_scheduler_knows_is_a_persons(reason):
    lost = NodeService(True, reason, False, True)
    fleet = RepairedFleet({"sick": Machine(None, "", lost, error="no answer: no route", facts={"boots_image": True})})
    fleet.run()
    assert fleet.steps == []
    assert NodeService(True, "sailloft: out of service: sailloft-repair: deep checks (root)").word == ""


def test_a_step_needs_our_drain(without):
    """A run was killed after it had returned a spare to the reserve; then the spare gets another fault."""
    spare = Machine(complaint(), "reset", SPARE, facts={"is_spare": True})
    fleet = RepairedFleet({"sick": spare})
    with pytest.raises(KilledError):
        fleet.run(kill_at=10)
    assert fleet.last("sick")[:2] == ("return", "begun")
    assert spare.service == SPARE
    spare.fault = complaint("reboot", "xid_79")
    fleet.now_s += 90
    fleet.run()
    assert steps(fleet)[-2:] == ["drain", "reboot"]


def test_a_drain_that_was_not_made_is_not_repeated_without_a_fault():
    for changes, expected in (({"fault": None}, ("close", "done")), ({"age_s": 1e6}, ("drain", "waits"))):
        fleet = RepairedFleet({"sick": Machine(complaint())})
        with pytest.raises(KilledError):
            fleet.run(kill_at=0)
        for name, value in changes.items():
            setattr(fleet.machines["sick"], name, value)
        fleet.now_s += 2 * HOUR_S
        fleet.run()
        assert (fleet.steps, fleet.last("sick")[:2]) == ([], expected)


def test_a_maintenance_stops_a_repair_that_was_begun():
    fleet = RepairedFleet({"sick": Machine(complaint())})
    fleet.run()
    fleet.machines["sick"].maintenance = "riser (ada)"
    before = len(fleet.steps)
    for _run in range(3):
        fleet.run()
    assert len(fleet.steps) == before


@pytest.mark.parametrize("reason", ["sailloft: sick: GPU 4", "sailloft-gate: not proved yet"])
def test_the_drains_of_this_collection_are_taken_over(reason):
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset", NodeService(True, reason, False))})
    fleet.run()
    assert steps(fleet)[:2] == ["drain", "reset"]
    assert [line.before for line in fleet.lines if line.step == "drain"] == [reason, ""]


def test_jobs_are_waited_for_and_then_a_person_is_asked():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset", BUSY)})
    fleet.run()
    assert steps(fleet) == ["drain"]
    assert fleet.last("sick")[:2] == ("reset", "waits")
    fleet.now_s += 5 * HOUR_S
    fleet.run()
    assert steps(fleet) == ["drain", "person"]


def test_jobs_are_killed_only_late_and_if_the_inventory_says_so():
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset", BUSY)}, kill_jobs=True)
    fleet.run()
    assert steps(fleet) == ["drain"]
    fleet.now_s += 5 * HOUR_S
    fleet.run()
    assert steps(fleet)[1] == "reset"


def test_the_guard_of_jobs_is_what_waits(without):
    fleet = RepairedFleet({"sick": Machine(complaint(), service=BUSY)})
    assert both_ways(fleet, without, "jobs") == ([("sick", "drain")], [("sick", "reset"), ("sick", "reboot")])


def test_without_a_scheduler_nobody_says_that_a_node_is_free():
    fleet = RepairedFleet({"sick": Machine(complaint(), service=None)}, healthy=0, has_scheduler=False, most_out=100)
    for _run in range(2):
        fleet.run()
    assert steps(fleet) == ["drain"]
    assert fleet.last("sick") == ("reset", "waits", "nobody says whether jobs run there")


def test_without_a_scheduler_no_more_nodes_are_drained_than_may_be_out():
    names = [f"n{number}" for number in range(4)]
    machines = {
        name: Machine(complaint("reboot", f"xid_{number}", since_unix_s=START_S - number * 86400), service=None)
        for number, name in enumerate(names)
    }
    fleet = RepairedFleet(machines, healthy=0, has_scheduler=False, most_out=25)
    for _run in range(2):
        fleet.run()
    assert len({name for name, _step in fleet.steps}) == 1


def test_a_node_that_the_scheduler_does_not_list_is_not_drained(without):
    fleet = RepairedFleet({"sick": Machine(complaint(), service=None)})
    assert both_ways(fleet, without, "not_listed") == ([], [("sick", "drain")])


def test_no_more_nodes_are_drained_than_may_be_out(without):
    names = [f"n{number}" for number in range(4)]
    machines = {name: Machine(complaint("reboot", f"xid_{name}")) for name in names}
    fleet = RepairedFleet(machines, healthy=6)
    first, second = both_ways(fleet, without, "left")
    assert {name for name, _step in first} == {"n0"}
    assert {name for name, step in second if step == "drain"} == {"n1", "n2", "n3"}


def test_healthy_spares_in_reserve_count_as_left_and_sick_ones_do_not():
    for spare_fault, drained in ((None, 3), (complaint("reboot", "other"), 2)):
        spare = {"is_spare": True}
        machines = {f"n{number}": Machine(complaint("reboot", f"xid_{number}")) for number in range(4)}
        machines |= {"s1": Machine(None, "", SPARE, facts=spare), "s2": Machine(spare_fault, "", SPARE, facts=spare)}
        fleet = RepairedFleet(machines, healthy=6)
        fleet.run()
        assert len([name for name, step in fleet.steps if step == "drain" and name[0] == "n"]) == drained


def test_a_node_that_is_not_known_is_not_left(without):
    silent = {f"gone{number}": Machine(service=None, is_asked=False) for number in range(5)}
    fleet = RepairedFleet({"sick": Machine(complaint()), **silent}, healthy=15)
    first, second = both_ways(fleet, without, "left")
    assert (first, second[0]) == ([], ("sick", "drain"))


@pytest.mark.parametrize("kind", ["rack", "feed", "switch"])
def test_a_rack_feed_or_switch_keeps_its_declared_nodes(without, kind):
    facts = {"domains": {kind: ("one",)}}
    machines = {f"n{number}": Machine(facts=facts) for number in range(3)}
    fleet = RepairedFleet({"sick": Machine(complaint(), facts=facts), **machines}, domain_most_out={kind: 20})
    first, second = both_ways(fleet, without, "domain")
    assert first == []
    refused = [line.reason for line in fleet.lines if line.result == "refused"]
    assert [f"{kind} one would have 3 of 4 nodes" in reason for reason in refused] == [True]
    assert second[0] == ("sick", "drain")


def test_a_node_that_another_run_is_draining_does_not_count_as_left():
    fleet = RepairedFleet({"sick": Machine(complaint()), "worse": Machine()}, healthy=8)
    with pytest.raises(KilledError):
        fleet.run(kill_at=0)
    fleet.machines["worse"].fault = complaint("reboot", "xid_79")
    fleet.run(only=frozenset(["worse"]))
    assert fleet.last("worse")[:2] == ("drain", "refused")


def test_equal_faults_at_once_are_one_of_the_site(without):
    machines = {f"n{number}": Machine(complaint("reboot", "xid_79")) for number in range(3)}
    other = {"other-fault": Machine(complaint())}
    fleet = RepairedFleet({**machines, **other}, most_out=50)
    fleet.run()
    assert fleet.steps == []
    assert "xid_79" in fleet.last("other-fault")[2]
    first, second = both_ways(fleet, without, "site_fault")
    assert first == []
    assert {name for name, step in second if step == "drain"} == {*machines, *other}


def test_faults_that_come_one_after_the_other_are_one_of_the_site_although_each_is_repaired_at_once():
    fleet = RepairedFleet({f"n{number}": Machine(None, "reboot") for number in range(3)}, most_out=50)
    for number in range(3):
        fleet.machines[f"n{number}"].fault = complaint("reboot", "xid_79", since_unix_s=fleet.now_s)
        fleet.run()
    assert [fleet.last(f"n{number}")[:2] for number in range(3)] == [("return", "done")] * 2 + [("drain", "refused")]
    fleet.now_s += 900
    fleet.run()
    assert fleet.last("n2")[:2] == ("return", "done")


def test_equal_faults_of_different_days_are_repaired():
    machines = {f"n{day}": Machine(complaint("reboot", since_unix_s=START_S - day * 86400)) for day in range(4)}
    fleet = RepairedFleet(machines, most_out=50)
    fleet.run()
    assert {name for name, _step in fleet.steps} == set(machines)


def test_different_faults_at_once_in_one_rack_are_one_of_the_site():
    facts = {"domains": {"rack": ("r1",)}}
    machines = {f"n{number}": Machine(complaint("reboot", f"xid_{number}"), facts=facts) for number in range(3)}
    fleet = RepairedFleet(machines, most_out=50)
    fleet.run()
    assert fleet.steps == []
    assert "rack r1" in fleet.last("n0")[2]


def test_a_limited_run_sees_the_faults_of_the_others_in_the_log():
    machines = {f"n{number}": Machine(complaint("reboot", "xid_79", since_unix_s=START_S)) for number in range(3)}
    fleet = RepairedFleet(machines, most_out=50)
    fleet.run()
    for name in ("n1", "n2"):
        fleet.machines[name].is_asked = False
    fleet.run(only=frozenset(["n0"]))
    assert fleet.steps == []


def test_a_site_fault_does_not_stop_the_way_back():
    fleet = RepairedFleet({"sick": Machine(complaint("reboot", "xid_1"), "reboot")}, most_out=50)
    fleet.run(kill_at=-1)
    machines = {f"n{number}": Machine(complaint("reboot", "xid_79")) for number in range(3)}
    fleet.machines.update(machines)
    fleet.run()
    assert steps(fleet)[-1] == "return"
    assert {name for name, _step in fleet.steps} == {"sick"}


def test_the_steps_of_a_node_have_a_budget_for_all_faults(without):
    fleet = RepairedFleet({"sick": Machine(complaint("reboot", "xid_1"))}, most_steps=1)
    other = RepairedFleet({"sick": Machine(complaint("reboot", "xid_1"))}, most_steps=1)
    for _run in range(2):
        fleet.run()
    without("budget")
    for _run in range(2):
        other.run()
    assert steps(fleet) == ["drain", "reboot", "person"]
    assert steps(other) == ["drain", "reboot", "reboot", "person"]


def test_a_drain_of_ours_that_the_log_does_not_have_is_for_a_person(without):
    fleet = RepairedFleet({"sick": Machine(complaint(), service=NodeService(True, f"{OURS}xid", False))})
    fleet.run()
    assert fleet.steps[-1] == ("sick", "person")
    assert "reset" not in steps(fleet)
    without("lost_log")
    other = RepairedFleet({"sick": Machine(complaint(), service=NodeService(True, f"{OURS}xid", False))})
    other.run()
    assert "reset" in steps(other)


def test_a_round_of_before_the_step_says_nothing(without):
    for expected in (["drain", "reset", "prove"], ["drain", "reset", "prove", "return"]):
        fleet = RepairedFleet({"sick": Machine(complaint(), "reset", age_s=170.0)})
        fleet.run()
        assert steps(fleet) == expected
        without("old_round")


def test_a_node_does_not_return_with_an_unknown_health(without):
    fleet = RepairedFleet({"sick": Machine(complaint(), "reset", after=complaint("watch", "reader_failed"))})
    first, second = both_ways(fleet, without, "other_fault")
    assert first == [("sick", "drain"), ("sick", "reset")]
    assert second == [("sick", "prove"), ("sick", "return")]
