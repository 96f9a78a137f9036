# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage's functions in BusyBox's own shell, and servers that misbehave."""

from __future__ import annotations

import hashlib
import http.server
import subprocess
import time
from pathlib import Path

INIT = Path(__file__).parents[3] / "roles" / "node_image" / "files" / "first-stage" / "init"
CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()
# Bytes at a time, seconds between them, bytes in all. "steady" is 400 KiB/s, above the least rate.
DRIPS = {
    "drips": (1000, 1, len(CONTENT)),
    "drips single bytes": (1, 3, len(CONTENT)),
    "steady": (41000, 0.1, len(CONTENT)),
    "steady and cut": (41000, 0.1, 820_000),
    "steady wrong": (41000, 0.1, len(CONTENT)),
}


class Behaviour:
    """The answers of a server to successive requests, of which the last is repeated, and the requests that it got.

    An answer is a kind of behaviour with CONTENT, or other content.
    """

    def __init__(self, *turns: str | bytes, ranges: bool = True) -> None:
        self.turns = list(turns)
        self.ranges = ranges
        self.asked: list[tuple[str, int]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, behaviour: Behaviour, *rest) -> None:
        self.behaviour = behaviour
        super().__init__(*rest)

    def do_GET(self) -> None:
        behaviour = self.behaviour
        offset = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        behaviour.asked.append((self.path, offset))
        turn = behaviour.turns.pop(0) if len(behaviour.turns) > 1 else behaviour.turns[0]
        if turn == "silent":
            self.server.over.wait()
            return
        if turn == "missing":
            self.send_error(404)
            return
        content = CONTENT[:-1] + b"x" if turn in ("wrong", "steady wrong") else CONTENT
        content = turn if isinstance(turn, bytes) else content
        offset = offset if behaviour.ranges else 0
        if offset >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if offset else 200)
        if offset:
            self.send_header("Content-Range", f"bytes {offset}-{len(content) - 1}/{len(content)}")
        if turn not in ("endless", "lingers"):
            self.send_header("Content-Length", str(len(content) - offset))
        self.end_headers()
        try:
            if turn == "cut":
                self.wfile.write(content[offset : offset + 300_000])
            elif turn == "stalls":
                self.wfile.write(content[offset : offset + 100_000])
                self.wfile.flush()
                self.server.over.wait()
            elif turn in DRIPS:
                self.drip(content[offset:], *DRIPS[turn])
            elif turn in ("endless", "lingers"):
                self.wfile.write(content + (b"more" if turn == "endless" else b""))
                self.wfile.flush()
                self.server.over.wait()
            else:
                self.wfile.write(content[offset:])
        except OSError:
            pass  # the client has closed the connection

    def drip(self, content: bytes, step: int, pause_s: float, most: int) -> None:
        """Send ``step`` bytes at a time with pauses, ``most`` bytes in all; delays of a busy machine are caught up."""
        begun = time.monotonic()
        for number, at in enumerate(range(0, min(len(content), most), step), 1):
            self.wfile.write(content[at : min(at + step, most)])
            self.wfile.flush()
            if self.server.over.wait(max(begun + number * pause_s - time.monotonic(), 0)):
                return

    def log_message(self, *_args) -> None:
        """Print nothing to the tests' output."""


def shell(tmp_path: Path, script: str, arguments: str = "", seconds: float = 120) -> str:
    """Return the output of a script with the first stage's functions and settings; the script must succeed."""
    whole = f"""
        . {INIT}
        folder={tmp_path}/run
        mkdir -p $folder
        arguments='sailloft.node=n1 sailloft.image={DIGEST} sailloft.reboot_after_s=9999999999 {arguments}'
        settings
        # Waiting is tested by itself.
        sleep() {{ [ "$1" = 0.1 ] && busybox sleep 0.1 || echo "slept $1"; }}
        {script}
    """
    found = subprocess.run(
        ["busybox", "sh", "-c", whole, "test"], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stderr == ""
    return found.stdout
