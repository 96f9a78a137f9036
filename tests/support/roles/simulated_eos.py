# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""EOS's eAPI: JSON-RPC ``runCmds`` at /command-api, with configuration sessions. See simulated_switch."""

from __future__ import annotations

import difflib
import re
from typing import Any

from eos_switch import Box
from shown_counters import SHOWN
from simulated_switch import Case, HttpSwitch, Refused, Switch, in_modes

MODES = [
    (r"interface \S+|qos profile \S+", r"no qos profile \S+|(no )?(qos (map|rewrite)|ip load-sharing) .*|hostname .*"),
    (
        r"(uc-)?tx-queue \d",
        r"(no |default )?(qos trust|priority-flow-control(?! all)|service-(profile|policy)|mtu|description)\b.*",
    ),
    (r"(?!)", r"(no |default )?(priority( strict)?|(bandwidth|random-detect)\b.*)"),
]


class Eos(Switch):
    """An EOS switch whose sessions hold lines until they are committed together."""

    sessions: dict[str, list[str]]

    def __init__(self, *given: Any, **told: Any) -> None:
        super().__init__(*given, **told)
        self.sessions = {}
        self.http = HttpSwitch(self, self.answer)

    def answer(self, _method: str, path: str, body: Any) -> tuple[int, Any]:
        if path != "/command-api" or body["method"] != "runCmds":
            return 404, {}
        results: list[Any] = []
        mode = ""  # the session of this request
        commands = [each["cmd"] if isinstance(each, dict) else each for each in body["params"]["cmds"]]
        for number, command in enumerate(commands, 1):
            self.hears(command)
            try:
                mode, text = self.run(mode, command)
            except Refused as refused:
                word = refused.line.split(" ")[refused.word]
                message = f"CLI command {number} of {len(commands)} {refused.line!r} failed: invalid command"
                errors = {"errors": [f"Invalid input (at token {refused.word}: {word!r})"]}
                error = {"code": 1002, "message": message, "data": [*results, errors]}
                return 200, {"jsonrpc": "2.0", "id": body["id"], "error": error}
            results.append(text if body["params"]["format"] == "json" else {"output": text})
        return 200, {"jsonrpc": "2.0", "id": body["id"], "result": results}

    def run(self, mode: str, command: str) -> tuple[str, Any]:
        """Return (the session after the command, the output)."""
        if command == "show version":
            return mode, {"version": "4.33.1F", "modelName": "DCS-7060X6"}
        if command == "show hostname":
            return mode, {"hostname": "leaf1"}
        if command == "show running-config":
            return mode, f"! Command: show running-config\n! device: leaf1\n!\n{self.running}!\nend\n"
        if command in SHOWN["eos"]:
            return mode, SHOWN["eos"][command]
        if command == "show configuration sessions":
            return mode, "Maximum number of completed sessions: 1\n"
        if command.startswith("configure session "):
            name = command.split(" ")[2]
            self.sessions.setdefault(name, [])
            return name, ""
        if match := re.fullmatch(r"copy running-config (\S+)", command):
            if match[1] == "startup-config":
                self.save()
            else:
                self.files[match[1]] = self.running
            return mode, "Copy completed successfully.\n"
        if match := re.fullmatch(r"configure replace (\S+)", command):
            if match[1] not in self.files:
                raise Refused(0, command, 2)
            self.running = self.files[match[1]]
            return mode, ""
        if not mode:
            raise Refused(0, command, 0)
        return self.in_session(mode, command)

    def in_session(self, name: str, command: str) -> tuple[str, str]:
        if command == "abort":
            del self.sessions[name]
            return "", ""
        box = Box(self.running)
        box.apply(in_modes(self.sessions[name], MODES, ""))
        if command == "show session-config diffs":
            before, after = self.running.splitlines(), box.text().splitlines()
            return name, "\n".join(difflib.unified_diff(before, after, lineterm=""))
        if command == "commit":
            self.running = box.text()
            del self.sessions[name]
            return "", ""
        in_modes([*self.sessions[name], command], MODES, self.refuses)
        self.sessions[name].append(command)
        return name, ""

    def stop(self) -> None:
        self.http.stop()


CASE = Case(
    Eos,
    network_os="arista.eos.eos",
    ports=["Ethernet1/1", "Ethernet2/1"],
    start="hostname leaf1\ninterface Ethernet2/1\n   mtu 1500\n",
    refuses="no-drop",
    dies_at="copy running-config startup-config",
)
