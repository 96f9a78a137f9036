# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the cause of a failure in the output of apt and dpkg: the package and its script's last lines, or the URL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    LOG_NAMED,
    TAIL_LINES,
    file_inside,
    one_line,
    tail,
)

# dpkg names the package (dpkg/src/main/errors.c), or the archive if the package is not unpacked yet, and the reason in
# the following line. apt gives archives as NAME_VERSION_ARCHITECTURE.deb, many of them with a number before the name.
FAILED = re.compile(r"dpkg: error processing (?:package|archive) (?:\S*/(?:\d+-)?)?([^\s_/]+)\S* \(--[\w-]+\):")
NOT_A_CAUSE = "dependency problems"
# The lines of dpkg and apt after which a package's script prints its own.
STEP = re.compile(
    r"(Setting up|Unpacking|Preparing to unpack|Processing triggers for|Removing|Purging configuration files for|"
    r"Selecting previously unselected package|Chrooting into|\(Reading database|dpkg: ) ?"
)
UNMET = "The following packages have unmet dependencies:"
# apt's last words, which only say that something failed, and mmdebstrap's own.
VAGUE = (
    *("Sub-process ", "Unable to correct problems", "Unable to fetch some archives", "Some index files failed"),
    *("mmdebstrap", "apt-get ", "run_", "received eof", "setup failed", "env "),
)
# A line that continues an error has more spaces than the name of a list of digests ("   Hashes of expected file:").
DIGESTS = re.compile(r" +(Hashes of|- |Last modification)")
COMPILER_ERROR = re.compile(r"\b(error|ERROR|undefined reference)\b(?! \d)")


def script_failure(root: Path, output: str) -> str:
    """Return the package that dpkg could not handle, with the last lines of its script and of the log that these name.

    Returns "" if dpkg reports no such package. ``root`` has the log, such as DKMS's make.log.
    """
    lines = output.splitlines()
    for index, line in enumerate(lines[:-1]):
        failed = FAILED.match(line)
        reason = lines[index + 1].strip()
        if not failed or reason.startswith(NOT_A_CAUSE):
            continue
        begin = max((number for number, step_line in enumerate(lines[:index]) if STEP.match(step_line)), default=-1) + 1
        script = lines[begin:index]
        parts = [f"package {failed[1]}: {reason}", tail("\n".join(script))]
        parts += [f"{name}: {text}" for name, text in _compiler_errors(root, script)]
        return ": ".join(part for part in parts if part)
    return ""


def errors(output: str) -> list[str]:
    """Return apt's own errors, each with its URL and reason, and the dependencies that it could not fulfil."""
    messages: list[str] = []
    kind = ""
    for line in output.splitlines():
        if line == UNMET:
            kind = "unmet"
            messages.append("unmet dependencies:")
        elif line.startswith(("E: ", "W: GPG error: ")):
            kind = "" if line[3:].startswith(VAGUE) else "error"
            messages += [line[3:]] if kind else []
        elif kind and line.startswith(" ") and not DIGESTS.match(line):
            messages[-1] += f" {' '.join(line.split())}"
        elif kind == "unmet" or not line.startswith(" "):
            kind = ""
    return list(dict.fromkeys(messages))


def _compiler_errors(root: Path, script: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield the name of each log that the script's lines name, and the first errors or the last lines in it."""
    for path in dict.fromkeys(LOG_NAMED.findall("\n".join(script))):
        log = file_inside(root, path)
        if log:
            text = log.read_text(errors="replace")
            compiler = [line for line in text.splitlines() if COMPILER_ERROR.search(line)]
            yield os.path.basename(path), one_line(compiler[:TAIL_LINES]) or tail(text)
