# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs on a node for containers of jobs: the command of users, and Slurm's Prolog and Epilog. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import main
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.files import EPILOG_PROGRAM, PROLOG_PROGRAM
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.request import DIRECTORY

CODE = "/usr/lib/sailloft/job-containers.pyz"
# In /usr/bin: sudo's secure_path has no /usr/local/bin on RHEL.
COMMAND = "/usr/bin/sailloft-container"
PROGRAMS = (COMMAND, PROLOG_PROGRAM, EPILOG_PROGRAM)
_HEAD = "#!/bin/sh\n# Written by sailloft.fleet.slurm_service; changes here are lost.\n"


def files(containers: Mapping[str, str], python: str) -> dict[str, bytes]:
    """Return the content by path, of the option ``containers`` of slurm_service. Raises RequestError.

    Prolog and Epilog are on every node, so that the controllers may name them before all nodes have containers, and
    after: a node on which they are missing is drained by its next job.
    """
    if containers["directory"] and not DIRECTORY.fullmatch(containers["directory"]):
        raise RequestError(
            f"slurm_service: containers.directory: {containers['directory']!r} is no directory for containers",
            'write it like "/scratch/containers"',
        )
    run, directory = f"{python} -I {CODE}", shlex.quote(containers["directory"])
    wanted = {}
    if containers["directory"]:
        wanted[CODE] = archive.build(main.__name__, with_bytecode=True)
        wanted[COMMAND] = f'{_HEAD}exec {run} podman {directory} "$@"\n'.encode()
    for part, path in (("prolog", PROLOG_PROGRAM), ("epilog", EPILOG_PROGRAM)):
        ours = f"{run} {part} {directory} || exit 1\n" if containers["directory"] else ""
        wanted[path] = f"{_HEAD}{ours}{_then(containers[part])}".encode()
    return wanted


def _then(program: str) -> str:
    return f"exec {shlex.quote(program)}\n" if program else ""
