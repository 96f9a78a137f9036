# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inspection stage: report what this machine is to the boot servers, and wait until it is a node of the site."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import machine, report
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import MachineReport

# Written by the first stage of the image.
BOOT = "run/sailloft/boot.json"
SERVER_S = 20
PAUSE_S = 30
TAKEN, ACCEPTED = 204, 410


def main(_arguments: list[str]) -> int:
    """Report until a boot server says that the machine is a node, and start it again."""
    boot = json.loads(Path("/", BOOT).read_text(encoding="utf-8"))
    wait(boot["mac"], boot["servers"], machine.inspect)
    _say("this machine is a node now: rebooting")
    return subprocess.run(["systemctl", "reboot"], check=False).returncode


def wait(mac: str, servers: list[str], inspect: Callable[[str], MachineReport], pause_s: float = PAUSE_S) -> None:
    """Report to all servers, again and again, until one has the machine as a node.

    Switches may name themselves late, and what was heard once stays in the report.
    """
    heard: dict[str, report.ReportedNic] = {}
    while True:
        report_now = inspect(mac)
        heard.update({nic.name: nic for nic in report_now.nics if nic.neighbour})
        report_now = replace(
            report_now, nics=tuple(nic if nic.neighbour else heard.get(nic.name, nic) for nic in report_now.nics)
        )
        answers = {server: send(server, mac, report.dump(report_now)) for server in servers}
        for server, answer in answers.items():
            _say(f"{server}: {'it has the report' if answer == TAKEN else answer}")
        if ACCEPTED in answers.values():
            return
        time.sleep(pause_s)


def send(server: str, mac: str, content: bytes) -> int | str:
    """Return the status of a server's answer to the report, or why there is none."""
    url = urlsplit(server)
    try:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=SERVER_S)
        try:
            connection.request("PUT", f"{url.path.rstrip('/')}/pending/{mac.replace(':', '-')}", content)
            return connection.getresponse().status
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{error!r:.100}"


def _say(text: str) -> None:
    sys.stderr.write(f"sailloft: {text}\n")
