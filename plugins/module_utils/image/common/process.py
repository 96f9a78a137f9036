# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run commands of the builder and pass on their output while they run."""

from __future__ import annotations

import os
import subprocess
from typing import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# It takes argv and the environment, and returns the exit status and the output, which includes the errors.
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def run(
    argv: list[str],
    env: dict[str, str] | None = None,
    show: Callable[[str], object] = lambda line: None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, give each line that it prints to ``show``, and return its status and output.

    The caller decides about a status other than 0. Raises ImageError if the program does not exist.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        program = os.path.basename(argv[0])
        raise ImageError(program, "it is not installed on the build host", "install its package") from error
    lines = []
    with process:
        for line in process.stdout or ():
            lines.append(line)
            show(line.rstrip("\n"))
    return subprocess.CompletedProcess(argv, process.returncode, "".join(lines))
