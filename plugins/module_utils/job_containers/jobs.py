# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory of each job's containers: made before the job, removed after it, with all that its containers left.

Images, layers and the engine's own state are all in it, so that two jobs of a user do not meet, and one removal is the
whole cleanup. It must be on a local file system that can be the upper one of an overlay.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import locked, write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# As stat(1) names them. Linux' overlayfs refuses an overlay as its upper file system, and those of networks lack what
# it needs there (Documentation/filesystems/overlayfs.rst).
SUITABLE = ("ext2/ext3", "xfs", "btrfs", "tmpfs", "f2fs", "zfs")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# In the directory of all jobs. After a boot, jobs begin at once, and so do their Prologs.
MARK, LOCK = ".boot", ".lock"
# The directories in that of a job: the engine's storage, its state, temporary files of pulled images.
OLD = ".old."
STORAGE, RUN, TEMPORARY = "storage", "run", "tmp"
CONTAINERS_CONF, STORAGE_CONF = "containers.conf", "storage.conf"
# Network, shared memory and names are the node's: RDMA and NCCL need them. A container without a cgroup of its own
# stays in the job's, which Slurm limits and kills; podman then wants its own process IDs. Locks and events in files of
# the job, as shared memory would outlive it; networks, too, which are in the user's home otherwise. Without an output
# log, output is not stored a second time.
CONTAINERS_TEXT = """# Written by sailloft-container.
[containers]
cgroups = "disabled"
ipcns = "host"
label = false
log_driver = "none"
netns = "host"
utsns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
image_copy_tmp_dir = "{folder}/tmp"
lock_type = "file"
runtime = "crun"
tmp_dir = "{folder}/run/libpod"
[network]
network_config_dir = "{folder}/run/networks"
"""
# Users have one ID in their containers, unless /etc/subuid gives them more: no program with more rights (newuidmap) is
# needed then, and files of other owners in an image become the user's.
STORAGE_TEXT = """# Written by sailloft-container.
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
rootless_storage_path = "{folder}/storage"
runroot = "{folder}/run/containers"
[storage.options.overlay]
ignore_chown_errors = "true"
"""
_NUMBER = re.compile(r"\d{1,12}")


def prepare(system: System, directory: str, environment: Mapping[str, str]) -> None:
    """Make the directory of the job that Slurm's Prolog begins, for its user alone. Raises HostError."""
    folder = job_folder(directory, environment)
    user = environment.get("SLURM_JOB_UID", "")
    if not _NUMBER.fullmatch(user):
        raise HostError("Slurm names no user of the job", "let its Prolog run it: SLURM_JOB_UID is the user's number")
    with _named(directory):
        cause = fault(system, directory)
        if cause:
            raise HostError(cause)
        os.makedirs(directory, 0o711, exist_ok=True)
        with locked(f"{directory}/{LOCK}"):
            _make(folder, int(user))


def _make(folder: str, user: int) -> None:
    """Make the directory of a job, unless its user has it. Raises OSError."""
    _remove_those_of_another_boot(os.path.dirname(folder))
    if os.path.isdir(folder):
        if os.stat(folder).st_uid == user:
            return
        # Numbers of jobs begin again with a new state of slurmctld.
        _remove(folder)
    # Not seen under its name before it is complete.
    new = f"{folder}.new"
    shutil.rmtree(new, ignore_errors=True)
    os.mkdir(new, 0o700)
    for name in (STORAGE, RUN, TEMPORARY):
        os.mkdir(f"{new}/{name}", 0o700)
        os.chown(f"{new}/{name}", user, -1)
    for name, text in ((CONTAINERS_CONF, CONTAINERS_TEXT), (STORAGE_CONF, STORAGE_TEXT)):
        with open(f"{new}/{name}", "w", encoding="utf-8") as file:
            file.write(text.format(folder=folder))
    os.chown(new, user, -1)
    os.rename(new, folder)


def clean(directory: str, environment: Mapping[str, str]) -> list[str]:
    """Remove the directory of the job that Slurm's Epilog ends; return the directories that are left. Raises HostError.

    A user's other job can go on to write in it: that is no reason to drain the node, and the next Epilog tries again.
    """
    with _named(directory):
        _remove(job_folder(directory, environment))
        left = [name for name in os.listdir(directory) if OLD in name] if os.path.isdir(directory) else []
        for name in left:
            shutil.rmtree(f"{directory}/{name}", ignore_errors=True)
    return [path for path in (f"{directory}/{name}" for name in left) if os.path.lexists(path)]


def job_folder(directory: str, environment: Mapping[str, str]) -> str:
    """Return the directory of the job of an environment. Raises HostError outside of a job."""
    number = environment.get("SLURM_JOB_ID", "")
    if not _NUMBER.fullmatch(number):
        raise HostError("sailloft-container was not started by a job", "start it with srun or in a job's script")
    return os.path.join(directory, number)


def fault(system: System, directory: str) -> str:
    """Return why jobs' containers cannot be in a directory, which may be missing yet; "" if they can. Raises HostError.

    Whoever may change it or one above could lead root, who makes and removes directories there, to another place.
    """
    remedy = "name another directory by scheduler_container_directory"
    there = [path for path in (directory, *map(str, PurePosixPath(directory).parents)) if system.exists(path)]
    for path in there:
        shown = os.lstat(system.path(path))
        is_kept = path != directory and (shown.st_mode & stat.S_ISVTX or stat.S_ISLNK(shown.st_mode))
        if shown.st_uid != 0 or (shown.st_mode & 0o022 and not is_kept):
            return f"others than root may write in {path}; {remedy}, which Slurm's Prolog makes"
    kind = system.run(["stat", "--file-system", "--format=%T", system.path(there[0])]).strip()
    if kind not in SUITABLE:
        return f"{directory} is on {kind}, on which containers cannot be; {remedy}, on a local drive or a tmpfs"
    # Users may not list it.
    if there[0] == directory and os.geteuid() == 0:
        names = system.names(directory)
        others = [name for name in names if not name.startswith(".") and name != "lost+found"]
        if others and MARK not in names:
            return (
                f"{directory} has files of others ({others[0]:.40}), where old jobs' are removed; {remedy}, of its own"
            )
    return ""


def _remove_those_of_another_boot(directory: str) -> None:
    """Remove all jobs' directories after a boot, which no job survives: no Epilog has removed them."""
    with open(BOOT_ID, encoding="utf-8") as file:
        boot_id = file.read()
    mark = f"{directory}/{MARK}"
    with contextlib.suppress(FileNotFoundError), open(mark, encoding="utf-8") as file:
        if file.read() == boot_id:
            return
    for name in os.listdir(directory):
        if _NUMBER.fullmatch(name.partition(".")[0]):
            shutil.rmtree(f"{directory}/{name}", ignore_errors=True)
    write_atomic(mark, boot_id.encode())


def _remove(folder: str) -> None:
    """Remove a directory; what was mounted in it ended with the processes of its job.

    Its name is free at once: an Epilog that is killed here leaves no half of a directory to the job's next start.
    """
    if os.path.lexists(folder):
        old = f"{folder}{OLD}{time.time_ns()}"
        os.rename(folder, old)
        os.chown(old, 0, 0)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _named(directory: str) -> Iterator[None]:
    """Raise an OSError of the block as HostError."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"the containers of jobs in {directory}: {error.filename}: {error.strerror}",
            "look at its file system; scheduler_container_directory names it",
        ) from error
