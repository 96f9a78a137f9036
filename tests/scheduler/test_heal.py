# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/heal.yml on the real Slurm: fault, drain, reset, proof, back; a person's drain; jobs; an early end.

Once with the real kubectl, at a simulated API server: pods leave.

The nodes are directories with the real state of sailloft-health; rounds and resets are made up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import rounds
import yaml
from api_server import ApiServer, serving
from hooked_schedulers import KINDS, HookedKubernetes
from playing import ROOT, ansible_playbook
from recorded_nodes import RECORDED
from slurm_cluster import running

from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import OURS
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan

pytestmark = pytest.mark.long
NODES = ["gpu01", "gpu02", "gpu03"]
SETTINGS = {
    "controllers": ["ctl"],
    "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
    "options": {"SelectTypeParameters": "CR_Core"},
}
# The health check of the node $NODE: rounds measure nothing, and end now; a reset ends all faults.
TOOL = """#!{python}
import os, sys
sys.path[:0] = {path!r}
from dataclasses import replace
from ansible_collections.sailloft.fleet.plugins.module_utils.health import main, state
folder = {folder!r} + "/" + os.environ["NODE"]
name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(folder + "/calls", "a") as calls:
    calls.write(" ".join([name, *arguments]) + chr(10))
if name == "sailloft-health" and arguments[:1] != ["round"]:
    sys.exit(main.main(["--state", folder, "--run", folder + "/run", *arguments]))
old = state.read(folder)
faults = () if name == "nvidia-smi" else old.condition.faults
condition = replace(old.condition, faults=faults)
state.save(replace(old, round=replace(old.round, ended=state.moment()), condition=condition), folder)
"""


def store(folder, faults=()):
    """Store the state of a node, as of a round now."""
    state.save(State(folder.name, Round(7, state.moment(), 0.4, 60.0), Condition(faults)), str(folder))


def fault():
    """Return a fault of an hour ago."""
    now = state.moment()
    then = replace(now, unix_s=now.unix_s - 3600)
    title = "GPU row remap pending"
    return Fault("gpu_row_remap_pending", rounds.GPU, title, "hardware", "reset_gpu", "gpu-row-remap", then, now)


class Site:
    """The cluster, and directories as nodes."""

    def __init__(self, folder, cluster, **environment):
        self.folder, self.cluster, self.environment = folder, cluster, environment
        tools = folder / "tools"
        tools.mkdir()
        for name in ("sailloft-health", "nvidia-smi"):
            text = TOOL.format(python=sys.executable, path=[path for path in sys.path if path], folder=str(folder))
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        for name in NODES:
            (folder / name).mkdir()
            store(folder / name)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        (folder / "hosts.json").write_text(json.dumps({"gpu_nodes": {"hosts": dict.fromkeys(NODES, local)}}))
        plays = yaml.safe_load((ROOT / "playbooks/heal.yml").read_text())[1:]
        for play in plays:
            play["environment"] = {"NODE": "{{ inventory_hostname }}"}
            play["module_defaults"] = {
                "sailloft.fleet.node_health_info": {"state_dir": f"{folder}/{{{{ inventory_hostname }}}}"}
            }
        (folder / "heal.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
        self.path = f"{tools}:{os.environ['PATH']}"

    def heal(self, *arguments, **variables):
        """Run the playbook; return the output."""
        given = {"node_repair_scheduler": "slurm", "node_repair_most_out": 34, **variables}
        rc, output = ansible_playbook(
            *(
                "-i",
                str(self.folder / "hosts.json"),
                "-e",
                json.dumps(given),
                *arguments,
                str(self.folder / "heal.yml"),
            ),
            folder=self.folder,
            PATH=self.path,
            **self.environment,
        )
        assert rc == 0, output
        return output

    def heal_until_back(self, node, *arguments, **variables):
        """Run the playbook until a node is back: on a busy machine a round may not be known to be new in time.

        The node makes further rounds itself.
        """
        for _run in range(3):
            self.heal(*arguments, **variables)
            if self.log(node)[-1] == ("return", "done"):
                return
            subprocess.run(
                [self.folder / "tools/sailloft-health", "round"], check=True, env={**os.environ, "NODE": node}
            )
        raise AssertionError(self.log(node))

    def rows(self):
        """Return node, step and result of each line of the log."""
        rows = map(json.loads, (self.folder / "repair/repair-log.jsonl").read_text().splitlines())
        return [(row["node"], row["step"], row["result"]) for row in rows if "node" in row]

    def log(self, node):
        """Return steps and results of a node in the log."""
        return [(step, result) for name, step, result in self.rows() if name == node]

    def calls(self, node):
        """Return what was called on a node."""
        path = self.folder / node / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster with its nodes in service."""
    planned = plan(SETTINGS, {"nodes": NODES}, dict.fromkeys(NODES, RECORDED["aws-g4dn-metal"]), None, [])
    with running(tmp_path_factory.mktemp("slurm") / "cluster", planned.files) as cluster:
        yield cluster


@pytest.fixture
def site(tmp_path, cluster):
    """The nodes of a test; afterwards all are in service again."""
    yield Site(tmp_path, cluster, SLURM_CONF=str(cluster.conf))
    cluster.cancel_all()
    for name in NODES:
        if cluster.state(name).is_out:
            cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    cluster.settle()


def test_a_fault_is_drained_repaired_proved_and_back(site):
    store(site.folder / "gpu02", (fault(),))
    output = site.heal("--check")
    assert "gpu02: drain: begun" in output
    assert not (site.folder / "repair").exists()
    assert site.calls("gpu02") == []
    site.heal_until_back("gpu02")
    assert [line for line in site.log("gpu02") if line[1] != "waits"] == [
        ("fault", "found"),
        ("drain", "begun"),
        ("drain", "done"),
        ("reset", "begun"),
        ("reset", "done"),
        ("fault", "gone"),
        ("prove", "begun"),
        ("prove", "held"),
        ("return", "begun"),
        ("return", "done"),
    ]
    calls = site.calls("gpu02")
    assert calls[0] == f"nvidia-smi --gpu-reset --id={rounds.GPU.name}"
    assert "sailloft-health round --deep" in calls
    assert not site.cluster.state("gpu02").is_out
    assert site.calls("gpu01") == site.calls("gpu03") == []


def test_jobs_go_on_and_a_persons_drain_stays(site):
    for name in ("gpu01", "gpu02"):
        store(site.folder / name, (fault(),))
    site.cluster.run("scontrol", "update", "NodeName=gpu01", "State=DRAIN", "Reason=ticket 7")
    job = site.cluster.submit("--nodelist=gpu02")
    site.cluster.job(job)
    site.heal(node_repair_most_out=70)
    assert site.log("gpu01") == [("drain", "left to a person")]
    assert site.log("gpu02")[-1] == ("reset", "waits")
    assert site.cluster.state("gpu01").reason == "ticket 7"
    assert site.cluster.state("gpu02").reason.startswith(OURS.strip())
    assert "JobState=RUNNING" in site.cluster.job(job)
    site.cluster.cancel_all()
    store(site.folder / "gpu03", (fault(),))
    site.heal_until_back("gpu02", node_repair_most_out=100)
    # A drain holds for what was listed just before, so it does not wait for the steps of other nodes.
    ends = [(node, step) for node, step, result in site.rows() if result == "done"]
    assert ends.index(("gpu03", "drain")) < ends.index(("gpu02", "reset"))
    assert not site.cluster.state("gpu02").is_out
    assert site.cluster.state("gpu01").reason == "ticket 7"


def test_a_fault_that_stays_gets_a_person_with_all_that_is_known(site):
    store(site.folder / "gpu03", (replace(fault(), action="person"),))
    site.heal("--limit", "gpu03")
    assert ("person", "done") in site.log("gpu03")
    bundle = json.loads((site.folder / "repair/gpu03.json").read_text())
    assert bundle["reason"]
    assert "gpu_row_remap_pending" in bundle["readings"]["verdict"]
    assert site.cluster.state("gpu03").is_out
    site.heal("--limit", "gpu03", node_repair_repaired="gpu03")
    assert site.cluster.state("gpu03").is_out
    store(site.folder / "gpu03")
    site.heal_until_back("gpu03", "--limit", "gpu03")
    assert not site.cluster.state("gpu03").is_out


def test_pods_leave_before_a_step_if_the_inventory_says_so(tmp_path):
    api = ApiServer(KINDS)
    with serving(api, tmp_path) as kubeconfig:
        kubernetes = HookedKubernetes(tmp_path, api, kubeconfig)
        kubernetes.start_job("gpu02")
        kubernetes.allow_disruptions(1)
        site = Site(tmp_path, None, KUBECONFIG=str(kubeconfig))
        store(tmp_path / "gpu02", (fault(),))
        settings = {"node_repair_scheduler": "kubernetes", "node_repair_scheduler_host": "localhost"}
        site.heal_until_back("gpu02", node_repair_kill_jobs=True, node_repair_wait_s=0, **settings)
        ended = [step for step, result in site.log("gpu02") if result in ("done", "held")]
        assert ended == ["drain", "evict", "reset", "prove", "return"]
        assert [write for write in api.writes if write.startswith("EVICT")] == [
            "EVICT /api/v1/namespaces/a/pods/job-gpu02"
        ]
        assert not any(service.is_out or service.is_busy for service in kubernetes.read().values())
