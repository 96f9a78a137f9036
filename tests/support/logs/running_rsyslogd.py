# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The real rsyslogd with a planned configuration, whose journal is replaced by a TCP port for lines of a test."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive
from ansible_collections.sailloft.fleet.plugins.module_utils.logs import bulk, config, counts
from ansible_collections.sailloft.fleet.plugins.module_utils.logs.request import read_request

# What imjournal gives of a line, for the fields of the record.
SOURCE = """\
module(load="imptcp")
input(type="imptcp" address="127.0.0.1" port="{port}")
set $!_BOOT_ID = "boot-1";
set $!_SYSTEMD_UNIT = "slurmd.service";
"""


def wait_for(condition: Callable[[], object], seconds: float = 60, what: Callable[[], object] = str) -> None:
    """Wait until a condition holds; ``what`` says what is there instead."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what()
        time.sleep(0.05)


class Rsyslogd:
    """A process of rsyslogd with its own configuration, work directory and pid file."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder, self.port = folder, free_port()
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        self.counts = folder / "sailloft_logs.prom"
        (folder / "counts.pyz").write_bytes(archive.build(counts.__name__))
        (folder / "bulk.pyz").write_bytes(archive.build(bulk.__name__))
        request = read_request({"counts_file": str(self.counts), "rack": "r1", "host": "n1", **settings})
        if request.elasticsearch:
            refused = str(folder / "refused.prom")
            kept = {"refused_file": refused, "unconfirmed_file": str(self.work / "unconfirmed")}
            (folder / "bulk.json").write_text(json.dumps({**asdict(request.elasticsearch), **kept}))
        commands = config.Commands(
            f"{sys.executable} {folder}/counts.pyz {self.counts}",
            f"{sys.executable} {folder}/bulk.pyz {folder}/bulk.json",
        )
        text = config.configuration(request, commands, str(self.work), SOURCE.format(port=self.port))
        text = text.replace(f'interval="{config.COUNTS_S}"', 'interval="1"').replace('Interval="5"', 'Interval="1"')
        self.config = folder / "logs.conf"
        self.config.write_text(text.replace('IntervalMax="60"', 'IntervalMax="1"'))
        self.process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        command = ["rsyslogd", "-n", "-f", str(self.config), "-i", str(self.folder / "pid")]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._listens, what=(self.folder / "log").read_text)
        # The counting program of a process that was killed ends a moment after it.
        self.counts.unlink(missing_ok=True)

    def _listens(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def say(self, messages: list[str]) -> None:
        """Give lines to rsyslogd, and wait until it took all of them."""
        queued = self.received
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            connection.sendall("".join(f"<30>Nov 28 19:00:00 n1 slurmd[7]:{text}\n" for text in messages).encode())
        wait_for(lambda: self.received >= queued + len(messages), what=lambda: (queued, self.counts.read_text()))

    def counted(self, metric: str, output: str, reason: str = "") -> int:
        """Return the value of a metric, 0 before the first counters."""
        label = f',reason="{reason}"' if reason else ""
        files = [self.counts, self.folder / "refused.prom"]
        text = "".join(file.read_text() for file in files if file.exists())
        values = re.findall(rf'^sailloft_logs_{metric}{{output="{output}"{label}}} (\d+)$', text, re.M)
        return int(values[0]) if values else 0

    @property
    def received(self) -> int:
        """Return how many lines each receiver's queue took or dropped."""
        outputs = [name for name in ("kafka", "elasticsearch") if f'ruleset(name="{name}"' in self.config.read_text()]
        return min(self.counted("received_total", output) for output in outputs)
