# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a measuring tool with a time limit, and leave no processes behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import Any

MEASURED, NOT_MEASURED = "measured", "not measured"
# timeout(1): the command timed out; it had to be killed.
TIMED_OUT = (124, 137)
KILL_AFTER_S = 5
PAUSE_S = 1.0
# Errors of perftest's client if the server does not listen yet (perftest_communication.c).
NO_SERVER = re.compile(r"couldn't connect to|failed to connect|unable to connect", re.IGNORECASE)


@dataclass(frozen=True)
class Done:
    """A run. ``status`` is MEASURED or NOT_MEASURED, ``reason`` says why there is no output to judge."""

    tool: str
    status: str
    reason: str
    argv: list[str]
    output: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return asdict(self)


def find(tool: str, paths: list[str]) -> str | None:
    """Return the path of a tool, in the directories of ``paths`` or the usual ones; None if it is in none."""
    return shutil.which(tool, path=os.pathsep.join([*paths, "/usr/local/bin", "/usr/bin", "/bin"]))


def answer(program: str, argument: str) -> str:
    """Return what a program prints with one argument, such as ``--help``, whatever its exit status."""
    try:
        process = subprocess.run([program, argument], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout + process.stderr


def run(tool: str, argv: list[str], limit_s: float, retry_s: float = 0) -> Done:
    """Run ``argv`` for at most ``limit_s`` seconds.

    timeout(1) ends the tool and all processes that it started, even if this process no longer exists. A client whose
    server does not listen yet is started again for ``retry_s`` seconds.
    """
    began = time.monotonic()
    while True:
        command = ["timeout", f"--kill-after={KILL_AFTER_S}", f"{limit_s:g}", *argv]
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        output = process.stdout + process.stderr
        spent = time.monotonic() - began
        if process.returncode == 0 or spent > retry_s or not NO_SERVER.search(output):
            break
        time.sleep(PAUSE_S)
    if process.returncode == 0:
        return Done(tool, MEASURED, "", argv, process.stdout, round(spent, 1))
    if process.returncode in TIMED_OUT:
        reason = f"it did not finish in {limit_s:g} s"
    else:
        last = [line.strip() for line in output.splitlines() if line.strip()][-3:]
        reason = f"it failed ({process.returncode}): {'; '.join(last) or 'no output'}"
    return Done(tool, NOT_MEASURED, reason, argv, output, round(spent, 1))
