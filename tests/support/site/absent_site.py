# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An example inventory reduced to a few hosts, none of which exists, on which playbooks run in check mode."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from playing import ROOT, ansible_playbook

# A few hosts of each kind are enough: they differ only in numbers.
FEWER = {
    "vela": {"rack: {count: 37": "rack: {count: 1", "total: 219": "total: 2"},
    "blue_vela": {
        "pod: {count: 4": "pod: {count: 1",
        "su: {inside: pod, count: 4": "su: {inside: pod, count: 1",
        "rack: {inside: su, count: 8": "rack: {inside: su, count: 1",
        "per: rack\n    count: 4": "per: rack\n    count: 2",
    },
    "small": {},
}
# The settings that a site adds according to the README of an example, or to docs/how-to/stateless-nodes.md for small.
ADDED = {
    "vela": {},
    "small": {
        "vault_bmc_password": "none",
        "node_boot_mac": "52:54:00:00:00:{{ inventory_hostname[-2:] }}",
        "site_ssh_key": "ssh-ed25519 AAAA",
    },
    "blue_vela": {
        "vault_bmc_password": "none",
        "site_ssh_key": "ssh-ed25519 AAAA",
        "ib_fabric_managers": ["node-0001 mlx5_0", "node-0002 mlx5_0"],
        "node_boot_bmc_from": "boot-1-1",  # the default, localhost, would connect to its address
        "node_boot_mac": "52:54:00:00:00:{{ inventory_hostname[-2:] }}",
    },
}
# The hosts that a site adds, by group.
ADDED_HOSTS = {
    "blue_vela": {
        "ib_managers": {"hosts": {"node-0001": {}, "node-0002": {}}},
        "scheduler_controllers": {"hosts": {"boot-1-1": {}}},
    },
}
ABSENT = {
    "ansible_connection": "absent_host",
    "ansible_pipelining": True,
    "ansible_python_interpreter": sys.executable,
}
SUPPORT = ROOT / "tests/support"


class AbsentSite:
    """A copy of inventories/NAME."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.inventory = folder / name
        shutil.copytree(ROOT / "inventories" / name, self.inventory)
        for old, new in FEWER[name].items():
            self.change("blueprint.yml", old, new)
        added = {"vars": {**ABSENT, **ADDED[name]}, "children": ADDED_HOSTS.get(name, {})}
        self._write("absent.json", {"all": added})

    def _write(self, name: str, data: object) -> None:
        (self.folder / name).write_text(json.dumps(data), encoding="utf-8")

    def change(self, file: str, old: str, new: str) -> None:
        """Change a text that the inventory contains once."""
        path = self.inventory / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    def check(self, *playbooks: str, arguments: Iterable[str] = ()) -> tuple[int, str]:
        """Run playbooks in check mode and return (exit status, output)."""
        ways = [*(str(SUPPORT / way) for way in ("fabric", "roles", "site", "vm")), str(ROOT / ".collections")]
        return ansible_playbook(
            "-i",
            str(self.inventory),
            "-i",
            str(self.folder / "absent.json"),
            *(str(ROOT / "playbooks" / playbook) for playbook in playbooks),
            "--check",
            *arguments,
            folder=self.folder,  # where playbooks write
            ANSIBLE_CONNECTION_PLUGINS=str(SUPPORT / "site/absent"),
            ANSIBLE_CACHE_PLUGIN="memory",
            COLUMNS="1000",
            PYTHONPATH=os.pathsep.join([*ways, os.environ.get("PYTHONPATH", "")]),
        )
