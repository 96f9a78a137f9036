# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run and time the commands that a benchmark compares."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class BenchmarkError(RuntimeError):
    """The reason why the comparison cannot be made."""


def timed(command: list[str], folder: Path = ROOT, **environment: str) -> tuple[float, str]:
    """Return a command's elapsed time and output. Raises BenchmarkError with the end of the output if it fails."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"{Path(command[-1]).name} failed:\n{done.stdout[-3000:]}")
    return time.perf_counter() - start, done.stdout


def controller_s() -> float:
    """Return the processor time, in seconds, of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def status(compare: Callable[[], None]) -> int:
    """Return the exit status: 0 if both sides ran, whatever the ratios are."""
    try:
        compare()
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
