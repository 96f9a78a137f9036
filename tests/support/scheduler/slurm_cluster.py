# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A planned Slurm cluster on this machine: the real slurmctld, munged and one slurmd a node, on loopback.

The planned files are used, except for what one machine without cgroups and GPUs cannot have: ports, users, paths,
tracking and binding of processes, and the files of GPUs, which are made up. Slurm trusts the planned processors.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from playing import ROOT
from rounds import Node, at, happened
from sockets import free_ports

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import unfold
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state as health_state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.files import REIMAGE
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.restart import node_names
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import NodeState, changes, read_nodes

# The planned directory of the state.
STATE = "/var/lib/slurm/slurmctld"
_HEALTH = "import sys; from ansible_collections.sailloft.fleet.plugins.module_utils.health.main import main; "
# A loaded machine has taken a minute for what takes a second.
WAIT_S = 60
# A test that is killed leaves no process behind.
_WITH_THE_TEST = ("setpriv", "--pdeathsig", "KILL")


def shown_database(password: str) -> str:
    """Return the SQL with which the documentation makes the database of slurmdbd."""
    page = (ROOT / "docs/how-to/scheduler.md").read_text(encoding="utf-8")
    return page.partition("```sql\n")[2].partition("```")[0].replace("PASSWORD", password)


def _commands() -> Iterator[bytes]:
    """Yield the command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


class SlurmCluster:
    """The daemons of a cluster, in a directory of their own."""

    def __init__(
        self, folder: Path, files: Mapping[str, str], changes: Mapping[str, str] | None = None, expire_s: int = 120
    ) -> None:
        self.folder, self.expire_s = folder, expire_s
        folder.mkdir(parents=True)
        self.conf = folder / "slurm.conf"
        self.nodes = node_names(files["slurm.conf"])
        ports = free_ports(3 + len(self.nodes))
        self.controller_port, self.accounting_port, self.database_port, *node_ports = ports
        self.ports = dict(zip(self.nodes, node_ports))
        self.changes = dict(changes or {})
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.processes: dict[str, subprocess.Popen] = {}
        self.checked: list[bytes] = []  # the directory of the states that health checks read
        self.write(files)

    def write(self, files: Mapping[str, str], gate: str = "") -> None:
        """Write the planned files as this machine needs them; ``gate``: a further line of slurm.conf."""
        for number in range(16):
            (self.folder / f"nvidia{number}").touch()
        for name, text in files.items():
            local = text.replace("/dev/nvidia", f"{self.folder}/nvidia")
            file = self.folder / name
            file.write_text(self._local(local) + gate if name == "slurm.conf" else local)
            if name == REIMAGE:
                file.write_text(
                    f"#!/bin/sh\nexport SLURM_CONF={self.conf}\n{local.replace(STATE, f'{self.folder}/state')}"
                )
                file.chmod(0o755)

    def _local(self, text: str) -> str:
        user = getpass.getuser()
        munge = f"socket={self.folder}/munge.socket,cred_expire={self.expire_s}"
        changes = {
            "SlurmctldHost": f"localhost(127.0.0.1)\nSlurmctldPort={self.controller_port}",
            "SlurmUser": f"{user}\nSlurmdUser={user}\nAuthInfo={munge}",
            "StateSaveLocation": str(self.folder / "state"),
            "SlurmdSpoolDir": f"{self.folder}/spool-%n",
            "SlurmctldLogFile": f"{self.folder}/slurmctld.log\nSlurmctldPidFile={self.folder}/slurmctld.pid",
            "SlurmdLogFile": f"{self.folder}/slurmd-%n.log\nSlurmdPidFile={self.folder}/slurmd-%n.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none\nMpiDefault=none\nSlurmdParameters=config_overrides\n"
            "SchedulerParameters=batch_sched_delay=0,sched_min_interval=1",
            "HealthCheckProgram": f"{self.folder}/health",
            "HealthCheckInterval": "1",
            "RebootProgram": f"{self.folder}/{REIMAGE}",
            **self.changes,
        }
        text = re.sub(r"(?m)^(\w+)=(.*)$", lambda line: f"{line[1]}={changes.get(line[1], line[2])}", text)
        return re.sub(r"(?m)^NodeName=(\S+)(.*)$", self._node, text)

    def _node(self, line: re.Match[str]) -> str:
        ports = ",".join(str(self.ports[name]) for name in unfold(line[1]))
        return f"NodeName={line[1]} NodeAddr=127.0.0.1 Port=[{ports}]{line[2]}"

    def health(self, script: str) -> None:
        """Write the program that slurmd runs as HealthCheckProgram."""
        program = self.folder / "health.new"
        program.write_text(f"#!/bin/sh\nexport SLURM_CONF={self.conf}\n{script}\n")
        program.chmod(0o755)
        program.rename(self.folder / "health")

    def end_health(self) -> None:
        """Let nodes be healthy, and wait for checks that have begun: one of before would drain its node once more."""
        self.health("exit 0")
        # One that slurmd has just begun shows the name of its script, or its new program that does nothing.
        marks = [f"{self.folder}/health".encode(), *self.checked]
        self.wait("the end of health checks", lambda: not any(mark in line for line in _commands() for mark in marks))

    def start(self, name: str, *command: str) -> None:
        """Start a program whose output goes to a file."""
        with (self.folder / f"{name}.out").open("wb") as output:
            self.processes[name] = subprocess.Popen(
                [*_WITH_THE_TEST, *command], env=self.environment, stdout=output, stderr=output, cwd=self.folder
            )

    def stop(self, name: str) -> None:
        """Stop a program."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(WAIT_S)

    def start_munge(self) -> None:
        """Start a munged with a key and a socket of its own."""
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{end}" for option, end in files.items()]
        self.start("munged", "munged", "--foreground", "--force", f"--key-file={key}", *options)
        self.wait("munged", (self.folder / "munge.socket").exists)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers. Slurm drops all devices where the program has another name."""
        self.start("slurmctld", "/usr/sbin/slurmctld", "-D")
        self.wait("slurmctld", lambda: "is UP" in self.run("scontrol", "ping", check=False))

    def start_node(self, name: str, *options: str) -> None:
        """Start the slurmd of a node."""
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self.start(name, "/usr/sbin/slurmd", "-D", "-N", name, *options)

    def wait_for(self, *names: str) -> None:
        """Wait until nodes have registered."""
        self.wait(" ".join(names), lambda: not any(self.state(name).is_absent for name in names))

    def settle(self) -> None:
        """Let slurmctld ask all nodes at once, which it does every 100 s, and wait for their answers."""
        self.run("scontrol", "reconfigure")
        self.wait_for(*self.nodes)

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a program of Slurm prints."""
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert not check or ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def states(self) -> dict[str, NodeState]:
        """Return the state of each node."""
        return read_nodes(self.run("scontrol", "show", "node", "--oneliner"))

    def state(self, name: str) -> NodeState:
        """Return the state of a node."""
        return self.states()[name]

    def submit(self, *options: str) -> str:
        """Submit a job that sleeps until it is cancelled; return its number."""
        output = f"--output={self.folder}/job-%j"
        return self.run("sbatch", "--parsable", output, *options, "--wrap", "sleep 300").strip()

    def job(self, number: str) -> str:
        """Wait until a job runs; return its details."""
        details = ""

        def runs() -> bool:
            nonlocal details
            details = self.run("scontrol", "show", "job", "-d", number)
            return "JobState=RUNNING" in details

        self.wait(f"job {number}", runs)
        return details

    def release(self, spares: Collection[str], *proved: str) -> list[str]:
        """Do what the module slurm_release does; return the nodes that it changed."""
        made = changes(self.states(), proved, spares)
        for change in made:
            self.run("scontrol", "update", *change.arguments)
        return [change.node for change in made]

    def be_sick(self, name: str, folder: Path) -> None:
        """Latch a fault of a node, and let slurmd run the real sailloft-health as HealthCheckProgram on all nodes."""
        self.checked = [f"{folder}/".encode()]
        (folder / name).mkdir()
        (folder / f"run-{name}").mkdir()
        node = Node()
        node.round(at(60), happened("xid_person"))
        health_state.save(State(name, Round(1, at(60), 1.0, 60.0), node.condition), str(folder / name))
        paths = f'--state {folder}/"$SLURMD_NODENAME" --run {folder}/run-"$SLURMD_NODENAME"'
        code = shlex.quote(f"{_HEALTH}sys.exit(main(sys.argv[1:]))")
        command = f"exec {sys.executable} -c {code} {paths} --format slurm --drain"
        self.health(f"PYTHONPATH={':'.join(sys.path)} {command}")
        self.wait(f"{name} drains itself", lambda: self.state(name).is_out)

    def cancel_all(self) -> None:
        """End all jobs and wait until their nodes are free."""
        jobs = self.run("squeue", "--noheader", "--format=%A").split()
        if jobs:
            self.run("scancel", *jobs)
        self.wait("the end of jobs", lambda: not self.run("squeue", "--noheader"))

    def wait(self, subject: str, condition, wait_s: float = WAIT_S) -> None:
        """Wait until a condition holds."""
        until = time.monotonic() + wait_s
        while not condition():
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            assert not ended, f"{subject}: {ended} ended\n{self.logs()}"
            assert time.monotonic() < until, f"{subject}: waited for {wait_s} s\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        """Return the ends of all logs."""
        files = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-800:]}" for file in files)


@contextlib.contextmanager
def running(
    folder: Path,
    files: Mapping[str, str],
    gate: str = "",
    expire_s: int = 120,
    prepare: Callable[[SlurmCluster], None] = lambda _cluster: None,
    **changes: str,
) -> Iterator[SlurmCluster]:
    """Run a cluster with all its nodes. ``prepare`` is called before slurmctld starts.

    ``expire_s``: when a requeued job may start, since credentials have expired.
    """
    cluster = SlurmCluster(folder, files, changes, expire_s)
    cluster.write(files, gate)
    cluster.health("exit 0")
    (folder / "state").mkdir()
    try:
        cluster.start_munge()
        prepare(cluster)
        cluster.start_controller()
        for name in cluster.nodes:
            cluster.start_node(name)
        cluster.wait_for(*cluster.nodes)
        yield cluster
    finally:
        # A job's step outlives its slurmd.
        with contextlib.suppress(AssertionError, KeyError, subprocess.SubprocessError):
            cluster.cancel_all()
        for name in reversed(list(cluster.processes)):
            cluster.processes[name].kill()
            cluster.processes[name].wait()
        shutil.rmtree(folder / "state", ignore_errors=True)
