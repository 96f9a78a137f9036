# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directories of jobs' containers: made, complete, removed, also after a crash of the node."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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
        assert os.path.exists(argv[-1])
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
    assert {name for name in os.listdir(directory) if name[0] != "."} == {"10", "of-the-site"}


def test_jobs_that_begin_together_after_a_boot_do_not_remove_each_others_directories(directory, monkeypatch, tmp_path):
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr(jobs, "BOOT_ID", str(boot_id))
    boot_id.write_text("one\n")
    jobs.prepare(Local(), directory, JOB)
    boot_id.write_text("two\n")
    turns, calls, listdir = iter(range(9)), threading.local(), os.listdir

    def later(path):
        # Each looks for old directories when the one before has made its own; the first look is the check's.
        if getattr(calls, "again", False):
            time.sleep(0.1 * next(turns))
        calls.again = True
        return listdir(path)

    monkeypatch.setattr(os, "listdir", later)
    numbers = [str(number) for number in range(10, 14)]
    with ThreadPoolExecutor(len(numbers)) as pool:
        list(pool.map(lambda number: jobs.prepare(Local(), directory, {**JOB, "SLURM_JOB_ID": number}), numbers))
    assert {*numbers} == {name for name in listdir(directory) if name[0] != "."}


def test_a_users_other_job_that_goes_on_to_write_drains_no_node(directory, monkeypatch):
    jobs.prepare(Local(), directory, JOB)
    folder = os.path.join(directory, "7")

    def busy(path, *, dir_fd=None):
        raise OSError(errno.ENOTEMPTY, "Directory not empty", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", busy)
        assert len(jobs.clean(directory, JOB)) == 1
    assert not os.path.exists(folder)
    jobs.prepare(Local(), directory, JOB)
    # The next Epilog removes it, with its own.
    assert jobs.clean(directory, {**JOB, "SLURM_JOB_ID": "8"}) == []
    assert {name for name in os.listdir(directory) if name[0] != "."} == {"7"}


def test_a_number_of_a_job_that_comes_again_is_another_users(directory):
    jobs.prepare(Local(), directory, JOB)
    jobs.prepare(Local(), directory, {**JOB, "SLURM_JOB_UID": "65533"})
    folder = os.path.join(directory, "7")
    assert {os.stat(path).st_uid for path in (folder, f"{folder}/storage")} == {65533}


def test_what_a_killed_prolog_left_is_made_anew(directory):
    jobs.prepare(Local(), directory, {**JOB, "SLURM_JOB_ID": "6"})
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


@pytest.mark.parametrize(("path", "mode"), [("", 0o1777), ("", 0o775), ("..", 0o777)])
def test_a_directory_that_others_may_change_is_refused(directory, path, mode):
    os.makedirs(directory)
    os.chmod(os.path.normpath(f"{directory}/{path}"), mode)
    with pytest.raises(HostError):
        jobs.prepare(Local(), directory, JOB)
    assert not os.path.exists(f"{directory}/7")


def test_a_link_of_a_user_leads_root_nowhere(directory, tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch").chmod(0o1777)
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", directory)
    os.chown(directory, 65534, 65534, follow_symlinks=False)
    with pytest.raises(HostError):
        jobs.prepare(Local(), directory, JOB)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_directory_with_files_of_the_site_is_refused_and_keeps_them(directory):
    os.makedirs(f"{directory}/1234")
    with pytest.raises(HostError):
        jobs.prepare(Local(), directory, JOB)
    assert os.listdir(directory) == ["1234"]


@pytest.mark.parametrize("job", [{}, {"SLURM_JOB_ID": "../7"}, {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "root"}])
def test_outside_of_a_job_nothing_is_made(directory, job):
    with pytest.raises(HostError):
        jobs.prepare(Local(), directory, job)
    assert not os.path.exists(directory)
