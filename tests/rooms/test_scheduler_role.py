# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The playbook scheduler.yml on two controllers, a login host and two nodes, each a room of this machine.

Real: slurmctld, slurmd, munged and their units' files, which a stand-in for systemctl starts; the recordings of the
nodes. Nodes have no file of Slurm but fetch them. The first job trains on both. Needs root: make rooms.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret
from playing import ROOT
from rooms import Rooms
from slurm_cluster import shown_database

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import GATE, NodeState, read_nodes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a room needs root")

SHARED = "/var/lib/slurm/shared"
# On the tmpfs of each room.
CONTAINERS = "/run/jobs"
GROUPS = {"scheduler_controllers": ["ctl1", "ctl2"], "scheduler_logins": ["login1"], "gpu_nodes": ["n1", "n2"]}
# What the rooms do not have: cgroups, and the patience of a site.
OPTIONS = {
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/affinity",
    "MpiDefault": "none",
    "SelectTypeParameters": "CR_Core",
    "SlurmctldTimeout": 5,
}
PASSWORD = "of-the-database"
# The site's own database, on the host of slurmdbd.
DATABASE = """set -e
mkdir -p /run/mysqld
mariadb-install-db --no-defaults --user=root --skip-test-db --datadir=/var/lib/site >/dev/null
setsid mariadbd --no-defaults --user=root --datadir=/var/lib/site --socket=/run/mysqld/mysqld.sock --skip-networking \
  </dev/null >/var/log/site-database 2>&1 &
until mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.2; done
mariadb --no-defaults --socket=/run/mysqld/mysqld.sock
"""
PROVED = ("-e", '{"scheduler_proved": true}')


class Cluster(Rooms):
    """The rooms, with a key of munge that a vault keeps."""

    def __init__(self, folder: Path) -> None:
        self.key = os.urandom(96).hex()
        (folder / "password").write_text("of the vault")
        vault = VaultLib([(DEFAULT_VAULT_ID_MATCH, VaultSecret(b"of the vault"))])
        (folder / "munge.key").write_bytes(vault.encrypt(self.key))
        super().__init__(
            folder,
            GROUPS,
            SHARED,
            scheduler_munge_key_file=f"{folder}/munge.key",
            scheduler_state_directory=SHARED,
            scheduler_reimage_command=["sh", "-c", f'echo "$1" >>{SHARED}/reimaged', "reimage"],
            scheduler_options=OPTIONS,
            scheduler_accounting={"host": "ctl1"},
            scheduler_accounting_password=PASSWORD,
            recordings_path=f"{folder}/recordings",
        )

    def applied(self, *options: str) -> dict[str, int]:
        """Run the playbook; return the number of changed tasks of each room."""
        status, output = self.play(
            "scheduler.yml", "--diff", "--vault-password-file", f"{self.folder}/password", *options
        )
        assert status == 0, output
        assert self.key not in output
        assert PASSWORD not in output
        return self.changed(output)

    def states(self) -> dict[str, NodeState]:
        """Return the nodes as a login host sees them."""
        return read_nodes(self.run("login1", "scontrol", "show", "node", "--oneliner"))

    def log(self, name: str) -> str:
        """Return the log of slurmctld of a controller."""
        return self.run(name, "tail", "-n", "20", "/var/log/slurm/slurmctld.log")


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="sailloft-rooms-", dir="/tmp"))
    folder.chmod(0o755)
    made = Cluster(folder)
    try:
        made.start()
        made.run("ctl1", "sh", "-c", f"{DATABASE.rstrip()} <<'END'\n{shown_database(PASSWORD)}END\n")
        status, output = made.play("record.yml", "--limit", "gpu_nodes,localhost")
        assert status == 0, output
        yield made
    finally:
        made.close()


def test_the_playbook_runs_the_planned_cluster_and_a_second_run_changes_nothing(cluster):
    predicted = cluster.applied("--check")
    assert all(predicted[name] for name in cluster.names)
    assert "No such file" in cluster.run("ctl1", "ls", "/etc/slurm/slurm.conf", check=False)
    cluster.applied()
    states = cluster.states()
    assert {name: node.reason for name, node in states.items()} == {"n1": GATE, "n2": GATE}
    assert "No such file" in cluster.run("n1", "ls", "/etc/slurm/slurm.conf", check=False)
    assert set(cluster.applied("--check").values()) == {0}
    assert set(cluster.applied().values()) == {0}


def test_proved_nodes_run_a_job_of_a_login_host_and_a_standby_takes_over(cluster):
    cluster.applied(*PROVED)
    names = cluster.run("login1", "srun", "--quiet", "--nodes=2", "hostname").split()
    assert sorted(names) == ["n1", "n2"]
    assert cluster.run("ctl1", "stat", "--format=%a %U", "/etc/slurm/slurmdbd.conf").split() == ["600", "slurm"]
    done = ("sacct", "--noheader", "--allocations", "--format=JobName,State")
    cluster.wait("the job is accounted", lambda: cluster.run("login1", *done).split()[-1:] == ["COMPLETED"])
    job = cluster.run("login1", "sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600").strip()
    cluster.wait("the job runs", lambda: " R " in cluster.run("login1", "squeue", "--job", job))
    # slurmctld saves its state some seconds after a change: a job that a crash finds unsaved is lost.
    saved = ("grep", "--text", "--only-matching", "wrap", f"{SHARED}/job_state")
    cluster.wait("the job is saved", lambda: "wrap" in cluster.run("ctl1", *saved, check=False))
    pid = cluster.run("ctl1", "cat", "/run/units/slurmctld.service").strip()
    cluster.run("ctl1", "kill", f"-{signal.SIGKILL}", pid)

    def pinged(text: str) -> bool:
        return text in cluster.run("login1", "scontrol", "ping", check=False)

    cluster.wait("the primary is seen as down", lambda: pinged("(primary) at ctl1 is DOWN"))
    cluster.wait("the standby answers", lambda: " R " in cluster.run("login1", "squeue", "--job", job, check=False))
    cluster.wait("a new job starts", lambda: "n2" in cluster.run("login1", "srun", "-w", "n2", "hostname", check=False))
    # The playbook starts the primary again, and only that.
    changed = cluster.applied(*PROVED)
    assert {name for name, count in changed.items() if count} == {"ctl1"}
    assert pinged("(primary) at ctl1 is UP")
    cluster.wait("the job lives on", lambda: " R " in cluster.run("login1", "squeue", "--job", job))
    cluster.run("login1", "scancel", job)


def test_the_first_job_runs_between_the_nodes(cluster):
    """With Debian's PyTorch, and a name of each node that is its loopback address, as Debian's installer makes it."""
    folder = cluster.folder / "shared/first_job"
    shutil.copytree(ROOT / "examples/first_job", folder)
    for name in ("n1", "n2"):
        cluster.run(name, "sed", "-i", f"1i 127.0.1.1 {name}", "/etc/hosts")
    submit = ["sbatch", "--parsable", f"--chdir={SHARED}/first_job", "--export=PATH=/usr/bin:/bin"]
    job = cluster.run("login1", *submit, f"{SHARED}/first_job/first_job.sbatch", "--steps=5", "--batch=1").strip()
    cluster.wait("the job ends", lambda: not cluster.run("login1", "squeue", "--noheader"))
    log = folder / f"first-job-{job}/log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["nodes"] == "n[1-2]"
    assert lines[-1]["checkpoint"] == 5
    for name in ("n1", "n2"):
        cluster.run(name, "sed", "-i", "1d", "/etc/hosts")


def test_containers_are_switched_on_without_a_node_that_is_drained(cluster):
    cluster.applied(*PROVED)
    on = (*PROVED, "-e", f"scheduler_container_directory={CONTAINERS}")
    # slurm.conf names Prolog and Epilog before the nodes have containers.
    cluster.applied(*on, "--limit", "ctl1,ctl2,localhost")
    assert (
        cluster.run("login1", "srun", "--quiet", "-w", "n1", "sh", "-c", f"test -e {CONTAINERS} || echo none")
        == "none\n"
    )
    cluster.applied(*on)
    job, *directories = cluster.run(
        "login1", "srun", "--quiet", "-w", "n1", "sh", "-c", f"echo $SLURM_JOB_ID; ls {CONTAINERS}"
    ).split()
    assert directories == [job]
    cluster.wait("its Epilog has run", lambda: not cluster.run("n1", "ls", CONTAINERS))
    assert set(cluster.applied(*on).values()) == {0}
    assert not any(node.is_out for node in cluster.states().values())


def test_a_reboot_runs_our_program_on_the_controller(cluster):
    cluster.run("ctl1", "scontrol", "reboot", "ASAP", "nextstate=DOWN", "reason=sailloft-gate: re-image", "n1")

    def reimaged() -> str:
        return cluster.run("ctl1", "cat", f"{SHARED}/reimaged", check=False)

    cluster.wait("the command gets the node", lambda: reimaged() == "n1\n")
    log = cluster.run("ctl1", "cat", f"{SHARED}/reimage.log")
    assert re.fullmatch(r"\S+ n1\n", log)
