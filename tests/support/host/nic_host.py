# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host in a directory: its /sys is from a recording, and a small simulated kernel answers dcb as Linux does.

tests/dcb runs the same code with the real dcb and a real driver, in an emulated machine.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

RECORDED = Path(__file__).parents[2] / "recordings" / "nics"
NOT_SUPPORTED = "Attribute read: Operation not supported"


class Dcb:
    """The DCB settings of one interface."""

    def __init__(self) -> None:
        self.app: list[list[int]] = []
        self.ets = {
            "willing": False,
            "ets_cap": 8,
            "cbs": False,
            "tc_bw": [0] * 8,
            "pg_bw": [0] * 8,
            "tc_tsa": ["vendor"] * 8,
            "prio_tc": [1, 0, 2, 3, 4, 5, 6, 7],
        }
        self.pfc = {"pfc_cap": 8, "macsec_bypass": False, "delay": 7, "prio_pfc": [False] * 8}
        self.buffer = {"prio_buffer": [0] * 8, "buffer_size": [262016, *[0] * 7], "total_size": 1038192}
        self.dcbx = {"host": True, "ieee": True}

    def show(self, thing: str) -> object:
        if thing == "app":
            return {"dscp_prio": sorted(self.app)} if self.app else {}
        return getattr(self, thing)

    def change(self, thing: str, verb: str, words: list[str]) -> None:
        if (thing, verb) == ("dcbx", "set"):
            self.dcbx = {word.replace("-", "_"): True for word in words}
            return
        if (thing, verb) == ("app", "flush"):
            self.app = []
            return
        at = ""
        for word in words:
            if ":" in word:
                key, value = word.split(":")
                self._one(at, verb, int(key), value)
            elif at == "willing":
                self.ets["willing"], at = word == "on", ""
            elif at == "delay":
                self.pfc["delay"], at = int(word), ""
            else:
                at = word

    def _one(self, at: str, verb: str, key: int, value: str) -> None:
        if at == "dscp-prio":
            if verb == "replace":
                self.app = [row for row in self.app if row[0] != key]
            self.app.append([key, int(value)])
        elif at == "tc-tsa":
            self.ets["tc_tsa"][key] = value
        elif at == "prio-pfc":
            self.pfc["prio_pfc"][key] = value == "on"
        else:
            table = {"tc-bw": self.ets, "prio-tc": self.ets, "prio-buffer": self.buffer, "buffer-size": self.buffer}[at]
            table[at.replace("-", "_")][key] = int(value)


class NicHost(System):
    """The host.

    ``dcb``: settings by interface. ``refused``: {object that the driver refuses: the tool's message}. ``effects``: the
    changes so far. ``tools``: the installed tools.
    """

    def __init__(self, root: Path, recording: str) -> None:
        super().__init__(str(root))
        self.dcb: dict[str, Dcb] = {}
        self.refused: dict[str, str] = {}
        self.forgets: set[str] = set()
        self.effects: list[str] = []
        self.commands: list[list[str]] = []
        self.tools = {"dcb"}
        self.mlnx_qos = ""
        self.put("/sys/kernel/config/rdma_cm/.there", "")
        self.put("/run/systemd/system/there", "")
        links = []
        for line in (RECORDED / f"{recording}.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                continue
            path, arrow, target = line.partition(" -> ")
            if arrow:
                links.append((path, target))
            else:
                path, _equals, content = line.partition(" = ")
                self.put(path, content + "\n")
        for path, target in links:
            place = Path(self.path(path))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(self.path(target))

    def put(self, path: str, text: str) -> None:
        """Write a file directly, without the simulated kernel."""
        place = Path(self.path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def poke(self, path: str, text: str) -> None:
        self.effects.append(f"{path}={text}")
        if "tc/1/traffic_class" in path:
            text = f"Global tclass={text}" if int(text) >= 0 else ""
        if not any(path.endswith(name) for name in self.forgets):
            super().poke(path, text + "\n")
            # As in a kernel's file, no rest of a longer old text remains.
            with open(self.path(path), "w", encoding="utf-8") as file:
                file.write(text + "\n")

    def run(self, argv: list[str], stdin: str | None = None) -> str:
        self.commands.append(argv)
        if argv[0] in ("dcb", "mlnx_qos") and argv[0] not in self.tools:
            raise HostError(f"{argv[0]} is not installed on this host", "install its package first")
        if argv[0] == "mlnx_qos" and argv[-1] == "-a":
            return self.mlnx_qos
        if argv[0] == "dcb" and argv[1] == "-N":
            _tool, _numeric, _json, thing, _show, _dev, interface = argv
            dcb = self.dcb.get(interface)
            if dcb is None or f"no {thing}" in self.refused:
                raise HostError(f"'{' '.join(argv)}' failed (1): {NOT_SUPPORTED}")
            printed = dcb.show(thing)
            return printed if isinstance(printed, str) else json.dumps(printed) + "\n"
        self.effects.append(" ".join(argv))
        if argv[0] == "dcb":
            if argv[1] in self.refused:
                raise HostError(f"'{' '.join(argv)}' failed (1): Attribute write: {self.refused[argv[1]]}")
            if argv[1] not in self.forgets:
                self.dcb[argv[4]].change(argv[1], argv[2], argv[5:])
        if argv[:2] == ["systemctl", "enable"]:
            place = Path(self.path(f"/etc/systemd/system/multi-user.target.wants/{argv[-1]}"))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(f"/etc/systemd/system/{argv[-1]}")
        return ""
