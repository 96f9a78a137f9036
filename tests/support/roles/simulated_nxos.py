# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NX-OS's NX-API: ``ins_api`` at /ins, which takes lines one by one, and checkpoints. See simulated_switch."""

from __future__ import annotations

import re
from typing import Any

from nxos_switch import apply
from shown_counters import SHOWN
from simulated_switch import Case, HttpSwitch, Refused, Switch, in_modes

MODES = [
    (
        r"interface \S+|system qos|(class-map|policy-map) type .*",
        r"no (class-map|policy-map) type .*"
        r"|(no )?(ip load-sharing|priority-flow-control (watch-dog\S*|auto-restore)) .*",
    ),
    (r"class .*", r"(no )?(match|service-policy|mtu|priority-flow-control|description)\b.*|no class .*"),
    (r"(?!)", r"(no )?(set|bandwidth|priority level|random-detect|mtu|pause)\b.*"),
]
VERSION = "Hardware\n  cisco Nexus9000 C9364D-GX2A Chassis\n  NXOS: version 10.5(2)\n  Device name: leaf1\n"
INVENTORY = 'NAME: "Chassis",  DESCR: "Nexus9000 C9364D-GX2A Chassis"\nPID: N9K-C9364D-GX2A\n'


class Nxos(Switch):
    def __init__(self, *given: Any, **told: Any) -> None:
        super().__init__(*given, **told)
        self.asks = True
        self.http = HttpSwitch(self, self.answer)

    def answer(self, _method: str, path: str, body: Any) -> tuple[int, Any]:
        if path != "/ins":
            return 404, {}
        asked = body["ins_api"]
        commands = [each.strip() for each in asked["input"].split(" ;")]
        if asked["type"] == "cli_conf":
            outputs = self.configure(commands)
        else:
            outputs = []
            for command in commands:
                try:
                    outputs.append(success(command, self.run(command)))
                except Refused:
                    outputs.append(failure(command))
                    break
        output = outputs[0] if len(outputs) == 1 else outputs
        return 200, {"ins_api": {"type": asked["type"], "version": "1.0", "sid": "eoc", "outputs": {"output": output}}}

    def configure(self, lines: list[str]) -> list[dict[str, Any]]:
        """Apply the lines up to the first that is refused; those before it remain applied."""
        for line in lines:
            self.hears(line)
        outputs = []
        try:
            taken = in_modes(lines, MODES, self.refuses)
            outputs = [success(line, {}) for line in lines]
        except Refused as refused:
            taken = in_modes(lines[: refused.at], MODES, "")
            outputs = [*(success(line, {}) for line in lines[: refused.at]), failure(refused.line)]
        if taken:
            self.running = apply(self.running, "".join(f"{line}\n" for line in taken))
        return outputs

    def run(self, command: str) -> Any:
        self.hears(command)
        if command in SHOWN["nxos"]:
            return SHOWN["nxos"][command]
        if command == "show version":
            return VERSION
        if command == "show inventory":
            return INVENTORY
        if command == "show running-config":
            # The time makes two reads differ.
            return f"\n!Command: show running-config\n!Time: {len(self.told)}\n\n{self.running}"
        if command == "terminal dont-ask":
            self.asks = False
            return ""
        if command == "copy running-config startup-config":
            self.save()
            return "Copy complete.\n"
        if match := re.fullmatch(r"checkpoint file (\S+)", command):
            if self.asks and match[1] in self.files:
                raise Refused(0, command, 2)
            self.files[match[1]] = self.running
            return ""
        match = re.fullmatch(r"rollback running-config file (\S+)", command)
        if not match or match[1] not in self.files:
            raise Refused(0, command, 0)
        self.running = self.files[match[1]]
        return "Rollback completed successfully.\n"

    def stop(self) -> None:
        self.http.stop()


def success(command: str, body: Any) -> dict[str, Any]:
    return {"input": command, "msg": "Success", "code": "200", "body": body}


def failure(command: str) -> dict[str, Any]:
    return {"input": command, "msg": "CLI execution error", "code": "400", "clierror": "% Invalid command\n"}


CASE = Case(
    Nxos,
    network_os="cisco.nxos.nxos",
    ports=["Ethernet1/1", "Ethernet1/2"],
    start="hostname leaf1\ninterface Ethernet1/2\n  mtu 1500\n",
    refuses="pfc-cos",
    dies_at="copy running-config startup-config",
    whole=False,
)
