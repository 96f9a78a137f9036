# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The planned accounting with the real slurmdbd and MariaDB, as processes of the test in its own directory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

import pytest
from recorded_nodes import RECORDED
from slurm_cluster import SlurmCluster, running, shown_database

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan

NODES = ["gpu01", "gpu02"]
SETTINGS = {
    "cluster": "moon",
    "controllers": ["ctl"],
    "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
    "accounting": {"host": "localhost"},
    "options": {"SelectTypeParameters": "CR_Core"},
}
PASSWORD = "of-the-vault"


class AccountedCluster:
    """The cluster with its database."""

    def __init__(self, cluster: SlurmCluster, files: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.conf = cluster.folder / "slurmdbd.conf"
        port = cluster.accounting_port
        munge = cluster.folder / "munge.socket"
        changes = {
            "AuthType": f"auth/munge\nAuthInfo=socket={munge}\nDbdPort={port}",
            "SlurmUser": "root",
            "LogFile": f"{cluster.folder}/slurmdbd.log",
            "PidFile": f"{cluster.folder}/slurmdbd.pid",
            "StorageHost": f"127.0.0.1\nStoragePort={cluster.database_port}",
        }
        text = files[self.conf.name]
        self.text = re.sub(r"(?m)^(\w+)=(.*)$", lambda line: f"{line[1]}={changes.get(line[1], line[2])}", text)
        cluster.changes |= {
            "AccountingStorageHost": f"127.0.0.1\nAccountingStoragePort={port}\nAccountingStoragePass={munge}",
            "JobAcctGatherType": "jobacct_gather/linux",
        }
        cluster.write(files)

    def start_database(self) -> None:
        """Start MariaDB, and make what the documentation says must be there."""
        data = self.cluster.folder / "database"
        socket = self.cluster.folder / "database.socket"
        install = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=socket",
        ]
        subprocess.run([*install, "--user=root", "--skip-test-db"], check=True, capture_output=True)
        options = [
            f"--datadir={data}",
            f"--socket={socket}",
            f"--port={self.cluster.database_port}",
            "--bind-address=127.0.0.1",
        ]
        self.cluster.start("mariadbd", "mariadbd", "--no-defaults", "--user=root", *options)
        self.cluster.wait("mariadbd", socket.exists)
        subprocess.run(
            ["mariadb", "--no-defaults", f"--socket={socket}"], input=shown_database(PASSWORD), text=True, check=True
        )

    def write(self, password: str = PASSWORD, mode: int = 0o600) -> None:
        """Write the file as tasks/accounting.yml does."""
        self.conf.write_text(f"{self.text}StoragePass={password}\n")
        self.conf.chmod(mode)

    def start(self) -> None:
        """Start slurmdbd, and wait until it answers."""
        self.cluster.start("slurmdbd", "/usr/sbin/slurmdbd", "-D")
        self.cluster.wait("slurmdbd", lambda: "root" in self.shown("sacctmgr", "list", "user"))

    def refuses(self) -> str:
        """Return what slurmdbd says that does not start."""
        command = ["/usr/sbin/slurmdbd", "-D"]
        ran = subprocess.run(
            command, env=self.cluster.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode != 0
        return ran.stderr

    def shown(self, program: str, *arguments: str) -> str:
        """Return what sacct or sacctmgr prints."""
        return self.cluster.run(program, "--noheader", "--parsable2", *arguments, check=False)

    def job(self, number: str) -> list[str]:
        """Return state and allocated resources of a job."""
        return self.shown("sacct", "--allocations", f"--jobs={number}", "--format=State,AllocTRES").strip().split("|")


@pytest.fixture(scope="module")
def accounted(tmp_path_factory):
    """The cluster, its database and slurmdbd."""
    planned = plan(SETTINGS, {"nodes": NODES}, dict.fromkeys(NODES, RECORDED["aws-g4dn-metal"]), None, [])
    made = []

    def prepare(cluster):
        """Start what slurmctld needs at its first start, when it has nothing stored."""
        accounted = AccountedCluster(cluster, planned.files)
        made.append(accounted)
        accounted.start_database()
        accounted.write()
        accounted.start()

    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    with running(folder, planned.files, prepare=prepare):
        yield made[0]


def test_the_cluster_is_known_with_its_gpus(accounted):
    assert accounted.shown("sacctmgr", "list", "cluster", "format=cluster").split() == ["moon"]
    assert "gres|gpu" in accounted.shown("sacctmgr", "list", "tres", "format=type,name").split()


def test_a_job_is_accounted_with_its_gpus(accounted):
    job = accounted.cluster.submit("--nodelist=gpu01", "--gpus-per-node=2")
    accounted.cluster.job(job)
    accounted.cluster.wait("it is accounted", lambda: accounted.job(job)[0] == "RUNNING")
    assert "gres/gpu=2" in accounted.job(job)[1].split(",")
    accounted.cluster.cancel_all()
    accounted.cluster.wait("its end is accounted", lambda: accounted.job(job)[0].startswith("CANCELLED"))


def test_slurm_goes_on_without_slurmdbd_and_its_lines_arrive_later(accounted):
    accounted.cluster.stop("slurmdbd")
    job = accounted.cluster.submit("--nodelist=gpu02", "--gpus-per-node=1")
    accounted.cluster.job(job)
    accounted.cluster.cancel_all()
    accounted.start()
    accounted.cluster.wait("it is accounted", lambda: accounted.job(job)[0].startswith("CANCELLED"))
    assert "gres/gpu=1" in accounted.job(job)[1].split(",")


def test_the_password_is_in_its_file_alone(accounted):
    holding = [
        path.relative_to(accounted.cluster.folder).as_posix()
        for path in accounted.cluster.folder.rglob("*")
        if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert holding == ["slurmdbd.conf"]
    assert PASSWORD not in accounted.cluster.run("scontrol", "show", "config")


def test_slurmdbd_refuses_a_file_that_others_can_read(accounted):
    accounted.write(mode=0o640)
    assert "600" in accounted.refuses()
    accounted.write()


def test_slurmdbd_reads_no_password_that_the_role_refuses(accounted):
    """A "#" begins a comment: what is left is another password."""
    accounted.write(password=f"{PASSWORD}#more")
    accounted.cluster.stop("slurmdbd")
    accounted.start()
    accounted.write()
