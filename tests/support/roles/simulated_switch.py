# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch that is a small server, for tests: it holds a configuration, and misbehaves on request.

It is not a vendor's software: it shows that the vendor's collection and the role work together over the vendor's
protocol, not that a switch accepts the configuration.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEAD_S = 1.0  # how long a switch that died is unreachable
ADDRESSES = itertools.count(2)  # addresses in 127.0.0.0/8, which belongs to this machine


class Refused(Exception):  # noqa: N818 (what a switch says is no fault of the test)
    """A line that the switch refuses: ``line``, its number ``at``, and the index of its first wrong ``word``."""

    def __init__(self, at: int, line: str, word: int) -> None:
        super().__init__(line)
        self.at, self.line, self.word = at, line, word


class Died(Exception):  # noqa: N818
    """The switch becomes unreachable instead of executing a command."""


class Switch:
    """The base class: ``running`` and ``startup`` configuration as text, ``files``, and the commands ``told``.

    ``refuses``: a pattern of lines that it refuses. ``dies_at``: a pattern of commands; at the first match the switch
    is unreachable for DEAD_S, and keeps what it had committed. ``garbage``: its answers follow no protocol.
    """

    def __init__(self, running: Any, refuses: str = "", dies_at: str = "", garbage: bool = False) -> None:
        self.held: list[Any] = []  # all configurations that ran, the latest last
        self.running = self.startup = running
        self.saved: list[Any] = []
        self.files: dict[str, Any] = {}
        self.told: list[str] = []
        self.refuses, self.dies_at, self.garbage = refuses, dies_at, garbage
        self.lock = threading.Lock()

    @property
    def running(self) -> Any:
        return self.held[-1]

    @running.setter
    def running(self, config: Any) -> None:
        self.held.append(config)

    def hears(self, command: str) -> None:
        """Record a command; every command passes through here."""
        self.told.append(command)
        if self.dies_at and re.search(self.dies_at, command):
            self.dies_at = ""
            raise Died

    def save(self) -> None:
        self.startup = self.running
        self.saved.append(self.running)


@dataclass(frozen=True)
class Case:
    """The case of a system in tests/unit/roles/test_roce_switch_systems.py: ``CASE`` of each ``simulated_SYSTEM.py``.

    ``make``: the class of the switch. ``start``: its configuration before the change. ``refuses``: a text of a line
    that one of the switches refuses. ``dies_at``: the command at which another becomes unreachable. ``shown``: the
    output of a read at ``start``, if it differs from ``start``. ``whole``: a refused change is never in the running
    configuration.
    """

    make: Callable[..., Any]
    network_os: str
    ports: list[str]
    start: str
    refuses: str
    dies_at: str
    connection: str = "httpapi"
    shown: str = ""
    whole: bool = True


def in_modes(lines: list[str], modes: list[tuple[str, str]], refuses: str) -> list[str]:
    """Return the lines, indented by their modes; as in a CLI, the mode of a line is the deepest one that knows it.

    ``modes``: from the outermost, the patterns of the lines that open the next mode, and of all lines of the mode.
    """
    depth, found = 0, []
    for number, line in enumerate(lines):
        wrong = refuses and re.search(refuses, line)
        if wrong:
            raise Refused(number, line, line[: wrong.start()].count(" "))
        while depth >= 0 and not re.fullmatch("|".join(modes[depth]), line):
            depth -= 1
        if depth < 0:
            raise Refused(number, line, 0)
        found.append("   " * depth + line)
        depth += bool(re.fullmatch(modes[depth][0], line))
    return found


class HttpSwitch:
    """Serve a switch's ``answer(method, path, body) -> (status, JSON)`` on a port of this machine."""

    def __init__(self, switch: Switch, answer: Callable[[str, str, Any], tuple[int, Any]]) -> None:
        self.switch, self.answer = switch, answer
        # Each switch has its own address: Ansible distinguishes connections by address, not by port.
        self.host, self.port = f"127.0.0.{next(ADDRESSES)}", 0
        self.start()

    def start(self) -> None:
        device = self

        class Handler(BaseHTTPRequestHandler):
            def serve(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    with device.switch.lock:
                        body = json.loads(text) if text else None
                        status, answer = device.answer(self.command.upper(), self.path, body)
                except Died:
                    device.die()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                payload = b"<html>Welcome</html>" if device.switch.garbage else json.dumps(answer).encode()
                if answer is None and not device.switch.garbage:
                    payload = b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def __getattr__(self, name: str) -> Any:
                if name.lower() in ("do_get", "do_post", "do_patch", "do_delete"):
                    return self.serve
                raise AttributeError(name)

            def log_message(self, *_words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer((self.host, self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def die(self) -> None:
        self.server.shutdown()
        self.server.server_close()

        def come_back() -> None:
            time.sleep(DEAD_S)
            self.start()

        threading.Thread(target=come_back, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def served(*switches: Any) -> Iterator[None]:
    """Stop all switches in the end."""
    try:
        yield
    finally:
        for each in switches:
            each.stop()
