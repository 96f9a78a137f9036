# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""examples/first_job on the real Slurm, with Debian's PyTorch: a job of two nodes loses one, and goes on with a spare.

Each loss that a resumed run computes is that of an undisturbed run, bit for bit. The nodes share this machine and its
network, so a node "loses its power" when its processes stop.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest
from first_job import FOLDER, FirstJob, assert_unbroken, begins, checkpoints, losses
from recorded_nodes import RECORDED
from slurm_cluster import running

from ansible_collections.sailloft.fleet.plugins.filter.checkpoint_interval import checkpoint_interval
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import SPARE

pytestmark = pytest.mark.long
NODES = ["gpu01", "gpu02", "gpu03"]
SPARES = ["gpu01"]
STEPS = 40
# The nodes are assumed to fail as often as this run is long, and not once in months.
FAILS_EACH_S = 30
# Of a run on a machine with other work; alone it takes 20 s, and a requeued one waits for 20 s more.
JOB_S = 600
SETTINGS = {
    "controllers": ["ctl"],
    "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
    "options": {"SlurmdTimeout": "30"},
}


class Job(FirstJob):
    """A submitted first job, whose processes are on this machine."""

    def __init__(self, cluster, folder, checkpoint_s):
        shutil.copytree(FOLDER, folder)
        # Slurm's own variables go along; the tests' Python has no PyTorch.
        submit = ["sbatch", "--parsable", f"--chdir={folder}", "--export=PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        options = [f"--steps={STEPS}", "--batch=8", f"--checkpoint-s={checkpoint_s}"]
        number = cluster.run(*submit, f"{folder}/first_job.sbatch", *options).strip()
        super().__init__(cluster, folder, number, JOB_S)

    def processes(self, node):
        """Return the numbers of the job's processes on a node that train."""
        wanted = {f"SLURM_JOB_ID={self.number}".encode(), f"SLURMD_NODENAME={node}".encode()}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_training = b"train.py" in (folder / "cmdline").read_bytes().split(b"\0")
                if is_training and wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found


@contextlib.contextmanager
def stopped(processes):
    """Stop processes for a while."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of three nodes, of which one is a spare, in reserve."""
    planned = plan(SETTINGS, {"nodes": NODES}, dict.fromkeys(NODES, RECORDED["aws-g4dn-metal"]), None, SPARES)
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    # slurmctld asks whether a node is there only when no health check waits for one.
    with running(folder, planned.files, expire_s=20, HealthCheckInterval="15") as cluster:
        yield cluster


@pytest.fixture
def serving(cluster):
    """The cluster with its nodes in service, and its spare in reserve."""
    cluster.release(SPARES, *NODES)
    cluster.settle()
    assert {name: node.reason for name, node in cluster.states().items() if node.is_out} == {"gpu01": SPARE}
    yield cluster
    cluster.cancel_all()
    cluster.end_health()
    for name in NODES:
        if cluster.state(name).is_out and name not in SPARES:
            cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory):
    """The log of a job that nothing interrupts."""
    cluster.release(SPARES, *NODES)
    return Job(cluster, tmp_path_factory.mktemp("undisturbed") / "job", 600).wait_for_end()


@pytest.fixture
def job(serving, undisturbed, tmp_path):
    """The same job with checkpoints at the interval that follows from a measured one; it has made one."""
    measured = next(line for line in undisturbed if "checkpoint" in line)
    node_days = 2 * FAILS_EACH_S / 86400
    advice = checkpoint_interval(2, measured["gb"], measured["gb"] / measured["write_s"], 1, node_days)
    assert 0 < advice["interval_s"] < FAILS_EACH_S
    job = Job(serving, tmp_path / "job", advice["interval_s"])
    job.wait_for_checkpoint()
    return job


def test_it_learns_on_two_nodes_with_gloo(undisturbed):
    begin = next(line for line in undisturbed if "begin" in line)
    assert begin == {"begin": 0, "nodes": "gpu[02-03]", "backend": "gloo"}
    assert undisturbed[-1]["checkpoint"] == STEPS
    first, last = losses(undisturbed)[0][1], losses(undisturbed)[-1][1]
    assert last < first - 1


def test_the_spare_takes_the_place_of_a_node_without_power(job, serving, undisturbed):
    powerless = [serving.processes["gpu03"].pid, *job.processes("gpu03")]
    with stopped(powerless):
        serving.wait("gpu03 is down", lambda: "DOWN" in serving.state("gpu03").states, JOB_S)
        assert serving.release(SPARES, *NODES) == SPARES
        lines = job.wait_for_end()
        os.kill(powerless[1], signal.SIGKILL)
    (_start, before), (resumed, after) = begins(lines)
    assert (before, after) == ("gpu[02-03]", "gpu[01-02]")
    assert resumed in checkpoints(lines)
    assert len(losses(lines)) > STEPS
    assert_unbroken(lines, undisturbed, STEPS)
    serving.wait("gpu03 is back", lambda: not serving.state("gpu03").is_out)


def test_a_job_that_leaves_a_sick_node_loses_no_step(job, serving, undisturbed, tmp_path):
    """sailloft-health drains the node for a latched fault; the job goes on there until somebody requeues it."""
    with stopped(job.processes("gpu03")):
        serving.be_sick("gpu03", tmp_path)
    assert serving.release(SPARES, *NODES) == SPARES
    serving.run("scontrol", "requeue", job.number)
    lines = job.wait_for_end()
    assert [nodes for _step, nodes in begins(lines)] == ["gpu[02-03]", "gpu[01-02]"]
    assert len(losses(lines)) == STEPS
    assert_unbroken(lines, undisturbed, STEPS)


def test_a_job_whose_process_is_killed_requeues_itself(job, undisturbed):
    (process,) = job.processes("gpu03")
    os.kill(process, signal.SIGKILL)
    lines = job.wait_for_end()
    (_start, _before), (resumed, _after) = begins(lines)
    assert resumed in checkpoints(lines)
    assert_unbroken(lines, undisturbed, STEPS)
