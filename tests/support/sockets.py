# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Servers behind a socket file or a port that a test starts."""

from __future__ import annotations

import contextlib
import os
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


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """Return a port of loopback that nobody listens on, one of TCP, or with SOCK_DGRAM of UDP."""
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on, consecutive ones."""
    for first in range(20000 + os.getpid() % 500 * 60, 60000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return list(range(first, first + count))
    raise AssertionError(f"{count} consecutive ports are not free")
