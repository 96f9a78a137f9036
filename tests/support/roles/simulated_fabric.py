# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric of two simulated leaves, for playbooks.

leaf1 has SONiC's commands behind ssh's connection plugin, and leaf2 has NVUE's REST API. Both keep a configuration, and
can refuse a change, die, and answer garbage.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import jsonpatch
from nvue_server import PASSWORD, Nvue, merge
from playing import ansible_playbook
from sonic_configs import ASICS, default_config, dynamic_config

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import rollout

HERE = Path(__file__).parent
LINK = {"speed_gbit_s": 400, "cable_m": 5}
SWITCHES = {
    "leaf1": {
        "system": "sonic",
        "asic": "as_imaged",
        "ports": {"Ethernet0": {**LINK, "peer": {"switch": "leaf2", "port": "swp1"}}},
    },
    "leaf2": {
        "system": "cumulus",
        "asic": "spectrum4",
        "ports": {"swp1": {**LINK, "peer": {"switch": "leaf1", "port": "Ethernet0"}}},
    },
}
NVUE = {
    "interface": {"eth0": {"ip": {"vrf": "mgmt"}}, "swp1": {"link": {"mtu": 9216}}},
    "system": {"hostname": "leaf2"},
}
LOSSLESS: dict[str, Any] = {}
LOSSY = {"classes": {"roce": {"mode": "lossy"}}}


class Fabric:
    """The leaves, with the configurations of their images."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.leaf1 = path / "leaf1"
        shutil.copy(HERE / "sonic_switch/ssh", path / "ssh")
        (self.leaf1 / "bin").mkdir(parents=True)
        self._install("config")
        self._install("sonic-cfggen")
        self.set_sonic(default_config())
        self.nvue = Nvue(path, copy.deepcopy(NVUE))
        hosts = {
            name: {f"roce_switch_{setting}": value for setting, value in settings.items()}
            for name, settings in SWITCHES.items()
        }
        hosts["leaf1"]["ansible_ssh_executable"] = str(path / "ssh")
        hosts["leaf1"]["ansible_python_interpreter"] = sys.executable
        hosts["leaf2"]["roce_switch_api"] = {"url": self.nvue.url, "ca_path": str(self.nvue.certificate)}
        hosts["leaf2"]["ansible_password"] = PASSWORD
        (path / "inventory.json").write_text(json.dumps({"roce_switches": {"hosts": hosts}}))

    def _install(self, tool: str) -> None:
        script = (HERE / "sonic_switch" / tool).read_text().split("\n", 1)[1]
        (self.leaf1 / "bin" / tool).write_text(f"#!{sys.executable}\n{script}")
        (self.leaf1 / "bin" / tool).chmod(0o755)

    def compute_buffers(self) -> None:
        """Make leaf1 a switch whose image computes headroom, a moment after each change."""
        self._install("sonic-db-dump")
        self.set_sonic(dynamic_config())

    def set_links(self, *states: str) -> None:
        """Make leaf1's ports have these states, each once and the last from then on."""
        self._install("sonic-db-dump")
        (self.leaf1 / "links").write_text(" ".join(states))

    def links(self) -> list[str]:
        """Return the states of leaf1's ports that nobody has asked for yet, and the last one."""
        return (self.leaf1 / "links").read_text().split()

    def play(
        self, *arguments: str, policy: dict[str, Any], playbook: str = "playbooks/fabric_qos.yml"
    ) -> tuple[int, str]:
        """Return (exit status, output)."""
        given = {
            "roce_policy": policy,
            "roce_asics": ASICS,
            "roce_switch_backup_dir": str(self.path / "backups"),
            "proofs_path": str(self.path / "proofs"),
        }
        options = ["-i", str(self.path / "inventory.json"), "-e", json.dumps(given), *arguments]
        return ansible_playbook(*options, playbook, COLUMNS="2000")

    def sonic(self) -> dict[str, Any]:
        return json.loads((self.leaf1 / "running.json").read_text())

    def set_sonic(self, config: dict[str, Any]) -> None:
        (self.leaf1 / "running.json").write_text(json.dumps(config))

    def sonic_log(self) -> list[str]:
        log = self.leaf1 / "log"
        return log.read_text().split() if log.exists() else []

    def plan(self, policy: dict[str, Any]) -> dict[str, Any]:
        running = {"leaf1": json.dumps(self.sonic()), "leaf2": json.dumps(self.nvue.applied)}
        params = {"policy": policy, "switches": SWITCHES, "running": running, "asics": ASICS}
        return rollout.planned(
            {**dict.fromkeys(["hosts", "nics", "nics_wanted", "backup_path"]), **params}, False, False
        )

    def apply(self, policy: dict[str, Any], *names: str, what: str = "whole") -> None:
        """Apply the changes of a run to these leaves: all, or those of the first remaining stage (``changes``)."""
        changes = self.plan(policy)[what]
        for name in set(names) & set(changes):
            if name == "leaf2":
                merge(self.nvue.applied, json.loads(changes[name])[0]["set"])
                continue
            for patch in changes[name].split("\n\n"):
                self.set_sonic(jsonpatch.apply_patch(self.sonic(), json.loads(patch)))

    def has(self, policy: dict[str, Any]) -> bool:
        return not self.plan(policy)["stages"]
