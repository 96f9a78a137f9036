# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The schedulers of a repair behind one interface, and a fleet whose machines they serve.

Slurm is real. Kubernetes is the real kubectl at a simulated API server. LSF is a stand-in for bhosts and badmin, which
print what IBM's documentation shows (lsf_command_ref/badmin.8, bhosts.1; host_status_lsf): LSF cannot be had without a
licence. A site's own commands are a script.
"""

from __future__ import annotations

import abc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from api_server import ApiServer
from repaired_fleet import Machine, RepairedFleet
from slurm_cluster import SlurmCluster

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import cases_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.decide import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import BEGUN, DONE, FAILED, RepairLine, dump
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import (
    COMMAND,
    KUBERNETES,
    LSF,
    SLURM,
    NodeService,
    OwnCommands,
    Scheduler,
    scheduler_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import DRAIN, EVICT, RETURN
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.words import ended

NODES = ["gpu01", "gpu02", "gpu03"]
# What kubectl asks an API server for.
KINDS = {("v1", "Node"), ("v1", "Pod"), ("apps/v1", "DaemonSet"), ("policy/v1", "PodDisruptionBudget")}
# bhosts and badmin: a host is closed while it has a lock; one without a name is of "badmin hclose" without -i.
LSF_PROGRAM = """#!{python}
import json, os, sys
path, arguments = {path!r}, sys.argv[1:]
hosts = json.load(open(path))
if os.path.basename(sys.argv[0]) == "bhosts":
    for name, host in hosts.items():
        print(f"HOST  {{name}}")
        print("STATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW")
        state = "closed_Adm" if host["locks"] else "ok"
        jobs = f"{{host['jobs']:>5}}  {{host['jobs']:>5}}"
        print(f"{{state:<12}}  60.00     -     32  {{jobs}}      0      0      0      -")
        print()
        print(" CURRENT LOAD USED FOR SCHEDULING:")
        print("                r15s   r1m  r15m    ut    pg    io   ls    it   tmp   swp   mem  slots")
        print(" Total           1.0  -0.0  -0.0    4%   9.4   148    2     3 4231M  698M  233M      8")
        print()
        if host["locks"]:
            print(" ADMIN ACTION COMMENT: " + chr(10).join(f'"{{text}}"' for text in host["locks"].values()))
            print()
    sys.exit()
what, options = arguments[0], arguments[1:-1]
given = dict(zip(options[::2], options[1::2]))
locks = hosts[arguments[-1]]["locks"]
if what == "hclose":
    locks[given.get("-i", "")] = given.get("-C", "")
elif locks.pop(given.get("-i", ""), None) is None:
    sys.exit(f"{{arguments[-1]}}: no such lock")
json.dump(hosts, open(path, "w"))
"""
OWN_PROGRAM = """#!{python}
import json, os, sys
nodes = json.load(open({path!r}))
if len(sys.argv) > 1:
    node, reason = sys.argv[1:]
    nodes[node].update(out=os.path.basename(sys.argv[0]) == "out", reason=reason)
    json.dump(nodes, open({path!r}, "w"))
else:
    print(json.dumps(nodes))
"""


class HookedScheduler(abc.ABC):
    """A scheduler with three nodes: what the repair asks and tells it, and what persons and jobs do."""

    name: str
    hook: Scheduler

    @abc.abstractmethod
    def run(self, *command: str) -> str:
        """Return what a command prints. Raises subprocess.CalledProcessError."""

    @abc.abstractmethod
    def person_drains(self, node: str) -> None:
        """Take a node out of service as a person does, over whatever drain it has."""

    @abc.abstractmethod
    def person_resumes(self, node: str) -> None:
        """Take a node into service as a person does."""

    @abc.abstractmethod
    def start_job(self, node: str) -> None:
        """Let a job run on a node."""

    @abc.abstractmethod
    def end_jobs(self) -> None:
        """Let all jobs end."""

    def read(self) -> dict[str, NodeService]:
        """Return the nodes as the repair sees them."""
        return self.hook.read(self.run(*self.hook.listing))


class HookedSlurm(HookedScheduler):
    """The real Slurm."""

    name = SLURM
    hook = scheduler_of(SLURM)

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands."""
        return self.cluster.run(*command)

    def person_drains(self, node: str) -> None:
        """Drain by scontrol."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=ticket 7")

    def person_resumes(self, node: str) -> None:
        """Resume by scontrol."""
        self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def start_job(self, node: str) -> None:
        """Submit a job that sleeps."""
        self.cluster.job(self.cluster.submit(f"--nodelist={node}"))

    def end_jobs(self) -> None:
        """Cancel all jobs."""
        self.cluster.cancel_all()


class _Programs(HookedScheduler):
    """A scheduler whose commands are programs in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    def write(self, text: str, *names: str) -> None:
        """Write one program under several names."""
        for name in names:
            program = self.folder / name
            program.write_text(text.format(python=sys.executable, path=str(self.folder / "state.json")))
            program.chmod(0o755)

    def run(self, *command: str) -> str:
        """Run a program of the directory, or of this machine."""
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True, timeout=120
        ).stdout

    @property
    def state(self) -> dict[str, Any]:
        """The state of a stand-in."""
        state: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return state

    def change(self, node: str, **terms: Any) -> None:
        """Change the state of a node."""
        state = self.state
        state[node].update(terms)
        (self.folder / "state.json").write_text(json.dumps(state))


class HookedKubernetes(_Programs):
    """The real kubectl at a simulated API server."""

    name = KUBERNETES
    hook = scheduler_of(KUBERNETES)

    def __init__(self, folder: Path, api: ApiServer, kubeconfig: Path) -> None:
        super().__init__(folder)
        self.api = api
        self.environment["KUBECONFIG"] = str(kubeconfig)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        for node in NODES:
            item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {}, "status": ready}
            api.add(f"/api/v1/nodes/{node}", item)

    def person_drains(self, node: str) -> None:
        """Cordon a node; one that is cordoned is claimed by the removal of our annotation."""
        self.run("kubectl", "annotate", "node", node, "sailloft.io/repair-")
        self.run("kubectl", "cordon", node)

    def person_resumes(self, node: str) -> None:
        """Uncordon a node."""
        self.run("kubectl", "uncordon", node)

    def start_job(self, node: str) -> None:
        """Add a running pod of a Job, which counts in a budget of the name "job"."""
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}]
        metadata = {"name": f"job-{node}", "namespace": "a", "labels": {"app": "job"}, "ownerReferences": owners}
        spec = {"nodeName": node, "containers": []}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
        self.api.add(f"/api/v1/namespaces/a/pods/job-{node}", pod)

    def end_jobs(self) -> None:
        """Remove all pods."""
        for path in [path for path, item in self.api.objects.items() if item["kind"] == "Pod"]:
            del self.api.objects[path]

    def allow_disruptions(self, count: int) -> None:
        """Set the budget of the pods."""
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "job", "namespace": "a"},
            "spec": {"selector": {"matchLabels": {"app": "job"}}},
            "status": {"disruptionsAllowed": count},
        }
        self.api.add("/apis/policy/v1/namespaces/a/poddisruptionbudgets/job", budget)


class HookedLsf(_Programs):
    """A stand-in for LSF's commands."""

    name = LSF
    hook = scheduler_of(LSF)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "state.json").write_text(json.dumps({node: {"jobs": 0, "locks": {}} for node in NODES}))
        self.write(LSF_PROGRAM, "bhosts", "badmin")

    def person_drains(self, node: str) -> None:
        """Close a host without a lock's name."""
        self.run("badmin", "hclose", "-C", "ticket 7", node)

    def person_resumes(self, node: str) -> None:
        """Open a host, whatever has closed it (hopen -i all)."""
        self.change(node, locks={})

    def start_job(self, node: str) -> None:
        """Count a job."""
        self.change(node, jobs=1)

    def end_jobs(self) -> None:
        """Count none."""
        for node in NODES:
            self.change(node, jobs=0)


class HookedCommand(_Programs):
    """A site's own commands."""

    name = COMMAND

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "state.json").write_text(json.dumps({node: {"out": False, "busy": False} for node in NODES}))
        self.write(OWN_PROGRAM, "list", "out", "in")
        self.hook = scheduler_of(COMMAND, OwnCommands(["list"], ["out"], ["in"]))

    def person_drains(self, node: str) -> None:
        """Take a node out with a reason."""
        self.change(node, out=True, reason="ticket 7")

    def person_resumes(self, node: str) -> None:
        """Take a node in."""
        self.change(node, out=False, reason="")

    def start_job(self, node: str) -> None:
        """Note a job."""
        self.change(node, busy=True)

    def end_jobs(self) -> None:
        """Note none."""
        for node in NODES:
            self.change(node, busy=False)


class HookedFleet(RepairedFleet):
    """A fleet whose nodes a scheduler serves: drains, returns and evictions are its commands."""

    def __init__(self, scheduler: HookedScheduler, sick: Machine, **settings: Any) -> None:
        machines = {NODES[0]: sick, **{node: Machine() for node in NODES[1:]}}
        evicts = scheduler.hook.evict is not None
        super().__init__(machines, healthy=0, **{"most_out": 34, "evicts": evicts, **settings})
        self.scheduler = scheduler

    def run(self, kill_at: int = -1, **changes: Any) -> None:
        """Make a run, each pass of which lists the nodes anew. Raises KilledError."""
        self.events = 0
        for number in range(4):
            for node, service in self.scheduler.read().items():
                self.machines[node].service = service
            lines = decide(self.world(ends_only=number > 1, **changes))
            self.text += dump(lines).encode()
            self._event(kill_at)
            for line in lines:
                if line.result == BEGUN:
                    self._carry_out(line, kill_at)
            self.now_s += 90.0

    def _carry_out(self, line: RepairLine, kill_at: int) -> None:
        command = self._command(line)
        if not command:
            super()._carry_out(line, kill_at)
            return
        self.now_s += 1
        self.steps.append((line.node, line.step))
        try:
            self.scheduler.run(*command)
            result, reason = DONE, ""
        except subprocess.CalledProcessError as error:
            result, reason = FAILED, error.stderr.strip().splitlines()[-1]
        self._event(kill_at)
        done = ended(cases_of(self.lines, 0), line.node, line.step, result, reason, self.now_s)
        self.text += dump([done]).encode()
        self._event(kill_at)

    def _command(self, line: RepairLine) -> list[str]:
        hook = self.scheduler.hook
        if line.step == DRAIN:
            return hook.drain(line.node, f"sailloft-repair: {line.reading}")
        if line.step == EVICT and hook.evict:
            return hook.evict(line.node)
        return hook.restore(line.node, cases_of(self.lines, 0)[line.node].before) if line.step == RETURN else []
