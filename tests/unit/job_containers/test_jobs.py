# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directories of jobs' containers: made, complete, removed, also after a crash of the node."""

from __future__ import annotations

import os

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import jobs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Slurm runs Prolog and Epilog as root")
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "65534"}


class Local(System):
    """This machine, with a file system of a chosen kind."""

    kind = "xfs"

    def run(self, argv, stdin=None, timeout_s=None) -> str:
        return f"{self.kind}\n"


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "scratch/containers")


def test_a_job_has_a_directory_of_its_own_until_it_ends(directory):
    jobs.prepare(Local(), directory, JOB)
    jobs.prepare(Local(), directory, JOB)
    folder = os.path.join(directory, "7")
    shown = os.stat(folder)
    assert (shown.st_uid, shown.st_mode & 0o777) == (65534, 0o700)
    assert os.stat(directory).st_mode & 0o777 == 0o711
    with open(f"{folder}/{jobs.CONTAINERS_CONF}") as file:
        assert f'"{folder}/tmp"' in file.read()
    os.makedirs(f"{folder}/storage/overlay/1/closed", 0o000)
    os.symlink("/etc", f"{folder}/storage/etc")
    jobs.clean(directory, JOB)
    jobs.clean(directory, JOB)
    assert not os.path.lexists(folder)
    assert os.path.exists("/etc/passwd")


def test_a_boot_ends_what_no_epilog_has_removed(directory, monkeypatch, tmp_path):
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr(jobs, "BOOT_ID", str(boot_id))
    boot_id.write_text("one\n")
    jobs.prepare(Local(), directory, JOB)
    os.mkdir(f"{directory}/8.new")
    os.mkdir(f"{directory}/of-the-site")
    jobs.prepare(Local(), directory, {**JOB, "SLURM_JOB_ID": "9"})
    assert {"7", "9"} <= {*os.listdir(directory)}
    boot_id.write_text("two\n")
    jobs.prepare(Local(), directory, {**JOB, "SLURM_JOB_ID": "10"})
    assert {*os.listdir(directory)} == {".boot", "10", "of-the-site"}


def test_what_a_killed_prolog_left_is_made_anew(directory):
    os.makedirs(f"{directory}/7.new/storage", 0o755)
    jobs.prepare(Local(), directory, JOB)
    assert os.path.exists(f"{directory}/7/{jobs.STORAGE_CONF}")
    assert not os.path.exists(f"{directory}/7.new")


@pytest.mark.parametrize("kind", ["overlayfs", "nfs", "UNKNOWN (0x123)"])
def test_a_file_system_without_overlays_is_refused(directory, kind):
    local = Local()
    local.kind = kind
    with pytest.raises(HostError):
        jobs.prepare(local, directory, JOB)


def test_a_directory_of_others_is_refused(directory):
    os.makedirs(directory)
    os.chmod(directory, 0o1777)
    with pytest.raises(HostError):
        jobs.prepare(Local(), directory, JOB)
    assert not os.path.exists(f"{directory}/7")


@pytest.mark.parametrize("job", [{}, {"SLURM_JOB_ID": "../7"}, {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "root"}])
def test_outside_of_a_job_nothing_is_made(directory, job):
    with pytest.raises(HostError):
        jobs.prepare(Local(), directory, job)
    assert not os.path.exists(directory)
