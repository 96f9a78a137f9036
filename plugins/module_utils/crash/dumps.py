# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read which crash dumps a boot server keeps. What is in them only the site's key opens."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.crash.errors import CrashError

FOLDER = "/var/lib/sailloft-crash"
# The files of a dump (roles/boot_server/files/sailloft-health-keeper); the last lines are not encrypted.
FILES = ("panic", "dmesg", "vmcore")
LINES_LIMIT_BYTES = 4096
REPORTED = 20
CRASHED = re.compile(r"[0-9]{8}T[0-9]{6}Z")


def read(folder: str) -> list[dict[str, Any]]:
    """Return the dumps, the newest first, each with node, crashed, lines, size_bytes and the missing files.

    ``crashed`` is the time by the node's clock, ``received_s`` by the server's. Raises CrashError.
    """
    try:
        nodes = sorted(os.listdir(folder))
        dumps = [_dump(folder, node, name) for node in nodes for name in os.listdir(os.path.join(folder, node))]
    except OSError as error:
        raise CrashError(
            f"{error.filename}: {error.strerror}",
            "set boot_server_crash_dumps_gib, and run playbooks/boot_servers.yml",
        ) from error
    return sorted((dump for dump in dumps if dump), key=lambda dump: -dump["received_s"])


def report(dumps: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each of the newest dumps: node, time, the kernel's last line, and what there is."""
    lines = []
    for dump in dumps[:REPORTED]:
        crashed = datetime.strptime(dump["crashed"], "%Y%m%dT%H%M%SZ").isoformat(" ")
        lacks = f", without {' and '.join(dump['missing'])}" if dump["missing"] else ""
        last = dump["lines"][-1] if dump["lines"] else "it sent no line of its kernel"
        size = f"{dump['size_bytes'] >> 10} KiB{lacks}"
        lines.append(f"{dump['node']} crashed {crashed} UTC: {last}; {dump['path']}: {size}")
    older = len(dumps) - len(lines)
    return [*lines, f"and {older} older crash dumps"] if older else lines


def _dump(folder: str, node: str, name: str) -> dict[str, Any] | None:
    place = os.path.join(folder, node, name)
    if not CRASHED.fullmatch(name):
        return None
    try:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(place)}
        received_s = int(os.stat(place).st_mtime)
    except FileNotFoundError:
        return None  # it was removed in this moment
    lines = b""
    if "panic" in sizes:
        with open(os.path.join(place, "panic"), "rb") as stream:
            lines = stream.read(LINES_LIMIT_BYTES)
    return {
        "node": node,
        "crashed": name,
        "received_s": received_s,
        "path": place,
        "lines": [_clean(line) for line in lines.decode(errors="replace").splitlines()],
        "size_bytes": sum(sizes.values()),
        "missing": [file for file in FILES if file not in sizes],
    }


def _clean(line: str) -> str:
    """Return the line without its time and without what a terminal or a template would interpret."""
    text = "".join(character if " " <= character <= "~" and character not in "{}" else "?" for character in line)
    return re.sub(r"^(<\d+>)?\[ *\d+\.\d+\] ", "", text)
