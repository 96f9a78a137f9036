# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program on nodes: its exit status for Slurm, and what its check finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import main
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service import containers


class Node(System):
    """An empty file system with podman, of a kind that suits it; this host runs the other commands, in ``ran``."""

    kind = "xfs"

    def __init__(self, root: Path, *programs: str) -> None:
        super().__init__(str(root))
        for name in programs:
            self.replace(f"/usr/bin/{name}", b"")
            self.make_executable(f"/usr/bin/{name}")
        self.ran: list[list[str]] = []

    def run(self, argv, stdin=None, timeout_s=None) -> str:
        if argv[0] == "stat":
            return f"{self.kind}\n"
        self.ran.append(argv)
        return super().run(argv if argv[0] != main.AS_PODMAN[0] else argv[len(main.AS_PODMAN) :])


def test_a_node_with_both_programs_has_no_fault(tmp_path):
    assert main.check(Node(tmp_path, "podman", "crun"), "/scratch") == []


def test_a_missing_program_is_named(tmp_path):
    faults = main.check(Node(tmp_path, "podman"), "/scratch")
    assert len(faults) == 1
    assert "crun" in faults[0]


def test_a_kernel_without_user_namespaces_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(main, "NAMESPACE", ("false",))
    assert len(main.check(Node(tmp_path, "podman", "crun"), "/scratch")) == 1


def test_where_apparmor_lets_only_podman_the_check_has_podmans_profile(tmp_path):
    node = Node(tmp_path, "podman", "crun")
    for value, has_profile in ((b"0\n", False), (b"1\n", True)):
        node.ran.clear()
        node.replace(main.RESTRICTED, value)
        assert main.check(node, "/scratch") == []
        assert [argv[: len(main.AS_PODMAN)] == [*main.AS_PODMAN] for argv in node.ran] == [has_profile]


def test_a_directory_that_is_not_there_yet_is_judged_by_what_it_will_be_on(tmp_path):
    node = Node(tmp_path, "podman", "crun")
    node.kind = "overlayfs"
    assert len(main.check(node, "/scratch/containers")) == 1


def test_a_container_has_nccls_settings_and_the_directory_of_a_pmix_server_that_runs(tmp_path):
    node = Node(tmp_path)
    current = {main.PMIX: "/var/spool/slurmd/pmix.7.0/"}
    assert main.volumes(node, current) == main.volumes(node, {}) == []
    (tmp_path / "var/spool/slurmd/pmix.7.0").mkdir(parents=True)
    node.replace("/etc/nccl.conf", b"")
    nccl, pmix = main.volumes(node, current)
    assert (nccl, pmix) == ("/etc/nccl.conf:/etc/nccl.conf:ro", "/var/spool/slurmd/pmix.7.0:/var/spool/slurmd/pmix.7.0")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return the directory of the programs that a node gets; their code is there, too."""
    folder = tmp_path_factory.mktemp("programs")
    made = containers.files({"directory": f"{folder}/jobs", "prolog": "", "epilog": "/bin/false"}, sys.executable)
    for path, content in made.items():
        target = folder / Path(path).name
        target.write_bytes(content.replace(containers.CODE.encode(), str(folder / Path(containers.CODE).name).encode()))
        target.chmod(0o755)
    return folder


def ran(programs, name, *arguments, **environment):
    return subprocess.run([programs / name, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_a_command_outside_of_a_job_says_how_to_start_it(programs):
    made = ran(programs, "sailloft-container", "run", "image")
    assert (made.returncode, made.stdout) == (1, "")
    assert "srun" in made.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="Slurm runs Prolog and Epilog as root")
def test_slurm_sees_that_prolog_or_epilog_failed(programs):
    job = {"SLURM_JOB_ID": "5", "SLURM_JOB_UID": "65534"}
    assert ran(programs, "slurm-prolog").returncode == 1
    assert ran(programs, "slurm-prolog", **job).returncode == 0
    assert (programs / "jobs/5/containers.conf").exists()
    # The site's own program runs after ours, and its status counts.
    assert ran(programs, "slurm-epilog", **job).returncode == 1
    assert not (programs / "jobs/5").exists()
