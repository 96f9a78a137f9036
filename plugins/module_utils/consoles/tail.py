# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the last lines of a node's console from its log."""

from __future__ import annotations

import os
import re
import time

from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.conman import ConsoleError

LOG_DIR = "/var/log/sailloft-consoles"
# Read from the end of the log; a longer one is a file of weeks.
TAIL_BYTES = 64 << 10
LINE_MAX = 200
# The escape sequences of terminals (ECMA-48, CSI). A sanitized log of ConMan has ^[ in place of the escape.
SEQUENCES = re.compile(r"(?:\x1b|\^\[)\[[0-9;?]*[A-Za-z]")
# What ConMan puts before each line, also before an empty one.
ONLY_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?\s*")
CONTROL = re.compile(r"[^\x20-\x7e]")


def tail(path: str, count: int, since_s: float | None = None) -> list[str]:
    """Return the last lines that have text. Raises ConsoleError if there are none, or none for ``since_s``."""
    try:
        with open(path, "rb") as log:
            status = os.fstat(log.fileno())
            log.seek(max(0, status.st_size - TAIL_BYTES))
            text = log.read().decode("ascii", "replace")
    except OSError as error:
        cause = f"its console's log {path} cannot be read: {error.strerror}"
        raise ConsoleError(cause, "run playbooks/consoles.yml, or look whether conmand runs") from error
    cleaned = (CONTROL.sub("", SEQUENCES.sub("", line)).rstrip()[:LINE_MAX] for line in text.splitlines())
    lines = [line for line in cleaned if not ONLY_TIME.fullmatch(line)][-count:]
    if not lines or (since_s is not None and time.time() - status.st_mtime > since_s):
        silence = "" if since_s is None else f" in the last {since_s:.0f} s"
        raise ConsoleError(f"its console wrote nothing{silence}")
    return lines
