# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Servers behind a socket file or a port that a test starts."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

LISTENS = 0x10000  # __SO_ACCEPTCON of the kernel (include/linux/net.h), the fourth column of /proc/net/unix


def wait_for_listener(place: Path, server: subprocess.Popen, seconds: float = 60) -> None:
    """Wait until a server listens on its socket. Its file exists before, and a trial connection may end it."""
    until = time.monotonic() + seconds
    while not listens(server, place):
        assert server.poll() is None, f"{server.args} ended with {server.returncode}"
        assert time.monotonic() < until, f"{server.args} does not listen on {place} after {seconds} s"
        time.sleep(0.02)


def listens(server: subprocess.Popen, place: Path) -> bool:
    rows = [line.split(maxsplit=7) for line in Path(f"/proc/{server.pid}/net/unix").read_text().splitlines()[1:]]
    return any(len(row) == 8 and row[7] == str(place) and int(row[3], 16) & LISTENS for row in rows)


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
