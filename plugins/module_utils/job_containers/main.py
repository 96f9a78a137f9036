# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of containers of jobs on a node: Slurm's Prolog and Epilog, and the command ``sailloft-container``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import command, devices, jobs

CHECK = "check"
CGROUPS, PMIX = "/proc/self/cgroup", "PMIX_SERVER_TMPDIR"
# What podman does first for a user: a user namespace with root's IDs, and a mount in it.
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "true")
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# Since 23.10, Ubuntu's AppArmor lets only programs with a profile have rights in a user namespace; podman has one.
RESTRICTED, AS_PODMAN = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", ("aa-exec", "--profile=podman", "--")
PROGRAMS = (command.PODMAN, "crun")


def main(arguments: list[str]) -> int:
    """Run ``prolog DIRECTORY``, ``epilog DIRECTORY`` or ``podman DIRECTORY ARGUMENT...``; return the exit status.

    Slurm drains the node if its Prolog or Epilog fails.
    """
    part, directory, *given = arguments
    system = System()
    if os.geteuid() == 0:
        # Users read what root writes here, whatever mask slurmd or an administrator has.
        os.umask(0o022)
    try:
        if part == "prolog":
            for line in devices.refresh(system):
                _say(line)
            jobs.prepare(system, directory, os.environ)
        elif part == "epilog":
            for path in jobs.clean(directory, os.environ):
                _say(f"{path} is not empty yet; the next Epilog removes it")
        elif given[:1] == [CHECK]:
            faults = check(system, directory)
            sys.stdout.write("\n".join([*(faults or ["containers of jobs can start"]), ""]))
            return 1 if faults else 0
        else:
            _podman(system, directory, given)
    except SailloftError as error:
        _say(str(error))
        return 1
    return 0


def check(system: System, directory: str) -> list[str]:
    """Return why a job's container could not start on this node, as lines; root also renews the CDI files."""
    is_root = os.geteuid() == 0
    faults = devices.refresh(system) if is_root else []
    paths = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")
    faults += [
        f"{name} is not installed; install its package"
        for name in PROGRAMS
        if not any(system.is_executable(f"{path}/{name}") for path in paths)
    ]
    cause = jobs.fault(system, directory)
    faults += [cause] if cause else []
    as_podman = AS_PODMAN if system.read(RESTRICTED) == "1" else ()
    try:
        system.run([*as_podman, *(AS_NOBODY if is_root else ()), *NAMESPACE])
    except HostError as error:
        faults.append(
            f"users cannot make a user namespace: {error.cause:.160}; see /proc/sys/user/max_user_namespaces, "
            "kernel.unprivileged_userns_clone and, with AppArmor, the profile podman"
        )
    return faults


def _podman(system: System, directory: str, given: list[str]) -> None:
    """Become podman. Raises HostError."""
    folder = jobs.job_folder(directory, os.environ)
    if os.geteuid() == 0:
        raise HostError("root's containers would not be confined to the job", "submit the job as a user")
    if not os.access(f"{folder}/{jobs.RUN}", os.W_OK):
        raise HostError(
            f"{folder} is not there for this user",
            "Slurm's Prolog makes it: see the setting Prolog of slurm.conf, and the log of slurmd",
        )
    environment = command.environment(folder, os.environ)
    argv = command.arguments(
        given,
        os.environ,
        system.read(CGROUPS) or "",
        devices.loaded(system, devices.GPU_FILE),
        devices.loaded(system, devices.RDMA_FILE),
        volumes(system, os.environ),
    )
    if not os.path.exists(f"{folder}/{jobs.RUN}/libpod/pause.pid"):
        # The first call of a user without further IDs warns of that, which is as it is meant.
        subprocess.run([command.PODMAN, "--log-level=fatal", "unshare", "true"], env=environment, check=False)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise HostError(f"{argv[0]} does not start: {error.strerror}", "install the package podman") from error


def volumes(system: System, current: Mapping[str, str]) -> list[str]:
    """Return what each container of the step has of the node: NCCL's settings, and the memory of Slurm's PMIx server.

    PMIx's variables have its path. A job's script inherits them from a step that submits it, whose server is gone.
    """
    pmix = current.get(PMIX, "").rstrip("/")
    return [
        *([f"{devices.NCCL_CONF}:{devices.NCCL_CONF}:ro"] if system.exists(devices.NCCL_CONF) else []),
        *([f"{pmix}:{pmix}"] if pmix and system.exists(pmix) else []),
    ]


def _say(line: str) -> None:
    sys.stderr.write(f"sailloft-container: {line}\n")
