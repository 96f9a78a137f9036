# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A planned cluster with the real slurmctld, munged and a slurmd for each node: planned = seen = scheduled.

Binding of processes to cores and devices was not tried: the machine has no cgroups and no GPUs for it.
"""

from __future__ import annotations

import re
import time

import pytest
import sites
from recorded_nodes import RECORDED
from slurm_cluster import running

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import unfold
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.restart import gated
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import GATE, SPARE

NODES = ["gpu01", "gpu02", "gpu03", "gpu04"]
SITE = sites.site()
SETTINGS = {
    "controllers": ["ctl"],
    "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
    "reimage_command": ["echo", "reimage"],
    # Memory is no part of these tests.
    "options": {"SelectTypeParameters": "CR_Core"},
}


def planned(**settings):
    host = RECORDED["aws-g4dn-metal"]
    return plan({**SETTINGS, **settings}, {"nodes": NODES}, dict.fromkeys(NODES, host), SITE, ["gpu01"])


PLAN = planned()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The cluster at its first start: its nodes were drained by the gate, and have left it."""
    gate = gated("", "gpu[01-04]", GATE)
    with running(tmp_path_factory.mktemp("slurm") / "cluster", PLAN.files, gate) as cluster:
        assert {name: node.reason for name, node in cluster.states().items()} == dict.fromkeys(NODES, GATE)
        # The line of the gate must not stay: it would drain the nodes again now.
        cluster.write(PLAN.files)
        cluster.settle()
        yield cluster


def release(cluster, *proved):
    """Do what the module slurm_release does."""
    return cluster.release(PLAN.spares, *proved)


@pytest.fixture
def serving(cluster):
    """The cluster with its nodes in service, and its spare in reserve."""
    release(cluster, *NODES)
    cluster.settle()
    assert {name: node.is_out for name, node in cluster.states().items()} == {
        **dict.fromkeys(NODES, False),
        "gpu01": True,
    }
    yield cluster
    cluster.cancel_all()


def test_nodes_are_in_service_only_after_their_proof(cluster):
    assert release(cluster, "gpu02") == ["gpu02"]
    assert cluster.state("gpu04").reason == GATE
    cluster.run("scontrol", "update", "NodeName=gpu03", "State=DRAIN", "Reason=ticket 7")
    assert release(cluster, *NODES) == ["gpu04", "gpu01"]
    assert cluster.state("gpu03").reason == "ticket 7"
    cluster.run("scontrol", "update", "NodeName=gpu03", "State=RESUME")
    assert release(cluster, *NODES) == ["gpu01"]
    assert cluster.state("gpu01").reason == SPARE
    assert release(cluster, *NODES) == []


def test_the_topology_is_that_of_the_blueprint(cluster):
    shown = cluster.run("scontrol", "show", "topology")
    seen = re.findall(r"(?m)^SwitchName=(\S+) Level=(\d).*? Nodes=(\S+)", shown)
    leaves = {}
    for cable in SITE.cables:
        if cable.a.kind.name == "node":
            leaves.setdefault(cable.a.name, set()).add(cable.b.name)
    groups = {}
    for name, below in leaves.items():
        groups.setdefault(frozenset(below), []).append(name)
    assert sorted(unfold(nodes) for _name, level, nodes in seen if level == "0") == sorted(groups.values())
    assert [unfold(nodes) for _name, level, nodes in seen if level == "1"] == [NODES]


def test_a_job_of_two_nodes_lands_on_one_leaf(serving):
    """Without a topology, Slurm takes the first two nodes in service, which are on two leaves here."""
    details = serving.job(serving.submit("--nodes=2", "--exclusive"))
    assert re.search(r"(?m)^ *NodeList=(\S+)", details)[1] == "gpu[03-04]"


def test_a_job_gets_the_cores_of_the_socket_of_its_gpus(serving):
    """The host has 2 sockets of 24 cores with 2 threads; CPU_IDs are Slurm's own, 48 of each socket."""
    sockets = []
    for _job in range(2):
        details = serving.job(
            serving.submit("--nodelist=gpu02", "--gpus-per-node=4", "--cpus-per-task=4", "--gres-flags=enforce-binding")
        )
        found = re.search(r"Nodes=gpu02 CPU_IDs=(\d+)-(\d+) .*GRES=gpu:4\(IDX:(\d)-(\d)\)", details)
        assert found, details
        first, last, gpu, _last_gpu = map(int, found.groups())
        sockets.append(gpu // 4)
        assert {first // 48, last // 48} == {gpu // 4}, details
    assert sorted(sockets) == [0, 1]


def test_a_node_is_reimaged_between_jobs_and_stays_out_until_it_is_proved(serving):
    """slurmctld runs the planned RebootProgram, whose command only writes down the nodes; then slurmd "has booted"."""
    job = serving.submit("--nodelist=gpu03", "--exclusive")
    serving.job(job)
    reason = "sailloft-gate: re-image"
    serving.run("scontrol", "reboot", "ASAP", "nextstate=DOWN", f"reason={reason}", "gpu[03-04]")
    log = serving.folder / "state" / "reimage.log"
    serving.wait("gpu04 is reimaged", lambda: log.exists() and "reimage gpu04\n" in log.read_text())
    assert "gpu03" not in log.read_text()
    serving.run("scancel", job)
    serving.wait("gpu03 is reimaged when its job has ended", lambda: "reimage gpu03\n" in log.read_text())
    # Slurm derives the time of a boot from two clocks of whole seconds: a boot at once may seem to be one of before.
    time.sleep(2)
    for name in ("gpu03", "gpu04"):
        serving.stop(name)
        serving.start_node(name, "-b")

    def are_back():
        """Return True if both have registered: before, they are down because they are being rebooted."""
        states = [serving.state(name).states for name in ("gpu03", "gpu04")]
        return all("DOWN" in each and not any("REBOOT" in word for word in each) for each in states)

    serving.wait("the nodes are back", are_back)
    assert serving.state("gpu03").reason.startswith(reason)
    assert release(serving, "gpu04") == ["gpu04"]
    assert serving.state("gpu03").is_out
    release(serving, *NODES)


def test_a_sick_node_drains_itself_and_a_spare_takes_over(serving, tmp_path):
    """slurmd runs the real sailloft-health as HealthCheckProgram; one node has a latched fault."""
    serving.be_sick("gpu02", tmp_path)
    assert serving.state("gpu02").reason.startswith("sailloft: sick")
    assert release(serving, *NODES) == ["gpu01"]
    assert not serving.state("gpu01").is_out
    # When the node is back, the spare returns to the reserve.
    serving.end_health()
    serving.run("scontrol", "update", "NodeName=gpu02", "State=RESUME")
    assert release(serving, *NODES) == ["gpu01"]
    assert serving.state("gpu01").reason == SPARE
