# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One contract of a repair with each scheduler: Slurm, Kubernetes, LSF and a site's own commands.

What of them is real: tests/support/scheduler/hooked_schedulers.py.
"""

from __future__ import annotations

import subprocess

import pytest
from api_server import ApiServer, serving
from hooked_schedulers import (
    KINDS,
    NODES,
    HookedCommand,
    HookedFleet,
    HookedKubernetes,
    HookedLsf,
    HookedScheduler,
    HookedSlurm,
)
from recorded_nodes import RECORDED
from repaired_fleet import HOUR_S, KilledError, Machine, complaint
from slurm_cluster import running

from ansible_collections.sailloft.fleet.plugins.module_utils.repair import schedulers
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan

SICK = NODES[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return the real Slurm with its nodes in service."""
    settings = {
        "controllers": ["ctl"],
        "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
        "options": {"SelectTypeParameters": "CR_Core"},
    }
    planned = plan(settings, {"nodes": NODES}, dict.fromkeys(NODES, RECORDED["aws-g4dn-metal"]), None, [])
    with running(tmp_path_factory.mktemp("slurm") / "cluster", planned.files) as cluster:
        yield cluster


@pytest.fixture
def kubernetes(tmp_path):
    """Return kubectl at a simulated API server."""
    api = ApiServer(KINDS)
    with serving(api, tmp_path) as kubeconfig:
        yield HookedKubernetes(tmp_path, api, kubeconfig)


@pytest.fixture(params=["slurm", "kubernetes", "lsf", "command"])
def scheduler(request, tmp_path):
    """Return each scheduler, with its nodes in service and free."""
    if request.param == "kubernetes":
        yield request.getfixturevalue("kubernetes")
    elif request.param == "slurm":
        slurm = HookedSlurm(request.getfixturevalue("cluster"))
        yield slurm
        slurm.end_jobs()
        for node, service in slurm.read().items():
            if service.is_out:
                slurm.person_resumes(node)
        slurm.cluster.settle()
    else:
        yield HookedLsf(tmp_path) if request.param == "lsf" else HookedCommand(tmp_path)


def steps(fleet: HookedFleet) -> list[str]:
    """Return what was done to the sick node."""
    return [step for node, step in fleet.steps if node == SICK]


def test_a_fault_is_drained_repaired_proved_and_back(scheduler: HookedScheduler):
    fleet = HookedFleet(scheduler, Machine(complaint(), "reset"))
    with pytest.raises(KilledError):
        # The drain is made.
        fleet.run(kill_at=1)
    service = scheduler.read()[SICK]
    assert (service.is_out, service.is_ours, service.word) == (True, True, "")
    fleet.run()
    assert steps(fleet) == ["drain", "reset", "prove", "return"]
    assert not any(each.is_out for each in scheduler.read().values())


def test_a_persons_drain_is_left_alone(scheduler: HookedScheduler, monkeypatch):
    scheduler.person_drains(SICK)
    before = scheduler.read()
    assert before[SICK].word
    fleet = HookedFleet(scheduler, Machine(complaint(), "reset"))
    fleet.run()
    assert (fleet.steps, scheduler.read()) == ([], before)
    # Without this guard it would be taken over.
    monkeypatch.setattr(schedulers.NodeService, "word", "")
    fleet.run()
    assert "drain" in steps(fleet)


def test_a_persons_drain_over_ours_stops_the_repair_and_stays(scheduler: HookedScheduler):
    fleet = HookedFleet(scheduler, Machine(complaint()))
    scheduler.start_job(SICK)
    fleet.run()
    scheduler.person_drains(SICK)
    scheduler.end_jobs()
    fleet.machines[SICK].fault = None
    for _run in range(2):
        fleet.run()
    assert steps(fleet) == ["drain"]
    assert scheduler.read()[SICK].is_out
    assert scheduler.read()[SICK].word


def test_a_node_that_a_person_returns_is_not_drained_again(scheduler: HookedScheduler):
    fleet = HookedFleet(scheduler, Machine(complaint("person")))
    fleet.run()
    scheduler.person_resumes(SICK)
    for _run in range(2):
        fleet.run()
    assert steps(fleet) == ["drain", "person"]
    assert not scheduler.read()[SICK].is_out


def test_a_later_drain_of_a_person_is_hers_after_ours_was_ended_by_her(scheduler: HookedScheduler):
    fleet = HookedFleet(scheduler, Machine(complaint("person")))
    fleet.run()
    scheduler.person_resumes(SICK)
    if isinstance(scheduler, HookedKubernetes):
        # Our annotation stays.
        scheduler.run("kubectl", "cordon", SICK)
    else:
        scheduler.person_drains(SICK)
    fleet.say(SICK)
    fleet.machines[SICK].fault = None
    fleet.now_s += 90
    fleet.run()
    assert scheduler.read()[SICK].is_out
    assert "return" not in steps(fleet)


def test_jobs_run_on_until_a_person_is_asked(scheduler: HookedScheduler):
    scheduler.start_job(SICK)
    fleet = HookedFleet(scheduler, Machine(complaint(), "reset"))
    fleet.run()
    fleet.now_s += 3 * HOUR_S
    fleet.run()
    assert steps(fleet) == ["drain"]
    assert scheduler.read()[SICK].is_busy
    fleet.now_s += 2 * HOUR_S
    fleet.run()
    assert steps(fleet) == ["drain", "person"]
    assert scheduler.read()[SICK].is_busy


def test_jobs_are_ended_late_and_only_if_the_inventory_says_so(scheduler: HookedScheduler):
    scheduler.start_job(SICK)
    fleet = HookedFleet(scheduler, Machine(complaint("reboot"), "reboot"), kill_jobs=True)
    fleet.run()
    assert steps(fleet) == ["drain"]
    assert scheduler.read()[SICK].is_busy
    fleet.now_s += 5 * HOUR_S
    fleet.run()
    asked = ["evict"] if scheduler.hook.evict else []
    assert steps(fleet)[: 2 + len(asked)] == ["drain", *asked, "reboot"][: 2 + len(asked)]


def test_a_run_killed_anywhere_repeats_no_step_of_unknown_outcome(scheduler: HookedScheduler):
    for kill_at in range(1, 7):
        fleet = HookedFleet(scheduler, Machine(complaint(), "reset"))
        with pytest.raises(KilledError):
            fleet.run(kill_at)
        fleet.now_s += 2 * HOUR_S
        for _run in range(2):
            fleet.run()
        assert steps(fleet).count("reset") <= 1, kill_at
        is_back = not scheduler.read()[SICK].is_out
        assert is_back or steps(fleet)[-1] == "person", kill_at
        if not is_back:
            scheduler.person_resumes(SICK)


def test_pods_leave_only_as_far_as_their_disruption_budget_allows(kubernetes: HookedKubernetes, monkeypatch):
    monkeypatch.setattr(schedulers, "EVICT_S", 2)
    kubernetes.start_job(SICK)
    kubernetes.allow_disruptions(0)
    fleet = HookedFleet(kubernetes, Machine(complaint("reboot"), "reboot"), kill_jobs=True, wait_s=0)
    for _run in range(2):
        fleet.run()
    assert steps(fleet) == ["drain", "evict", "person"]
    assert kubernetes.read()[SICK].is_busy
    kubernetes.allow_disruptions(1)
    kubernetes.start_job(NODES[1])
    fleet.say(SICK)
    for _run in range(2):
        fleet.run()
    assert steps(fleet)[3:5] == ["evict", "reboot"]
    assert kubernetes.api.by_kind("PodDisruptionBudget")["job"]["status"]["disruptionsAllowed"] == 0
    assert kubernetes.read()[NODES[1]].is_busy


def test_pods_that_a_lost_node_will_never_end_are_not_waited_for(kubernetes: HookedKubernetes):
    kubernetes.start_job(SICK)
    node = kubernetes.api.objects[f"/api/v1/nodes/{SICK}"]
    node["status"] = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    assert kubernetes.read()[SICK].is_busy
    pod = kubernetes.api.objects[f"/api/v1/namespaces/a/pods/job-{SICK}"]
    pod["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    assert (kubernetes.read()[SICK].is_busy, kubernetes.read()[SICK].is_absent) == (False, True)


def test_a_lock_of_lsf_ends_only_ours(tmp_path):
    lsf = HookedLsf(tmp_path)
    lsf.run(*lsf.hook.drain(SICK, "sailloft-repair: xid"))
    lsf.person_drains(SICK)
    assert lsf.read()[SICK].word == "ticket 7"
    lsf.run(*lsf.hook.restore(SICK, ""))
    assert lsf.state[SICK]["locks"] == {"": "ticket 7"}
    with pytest.raises(subprocess.CalledProcessError):
        lsf.run(*lsf.hook.restore(SICK, ""))
