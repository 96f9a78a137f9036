# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet for the real playbook and role, whose servers are directories: no test may reboot a machine.

The collection is the checkout's, except the modules that read or change a server, and the reboot. Their stand-ins
identify the server by Ansible's remote_tmp, which differs for each host of the inventory, and log their actions.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from playing import ROOT, ansible_playbook

SERVER = {
    "written": False,  # kernel arguments are in the boot loader's files
    "needs_reboot": False,
    "settled": False,
    "runs": True,  # its virtual machine runs
    "guests": [],  # the list of names for each successive read; the last one is repeated
    "firmware_boots": 0,  # boots until firmware has shown and applied all settings
    "firmware_failures": [],
    "answers_after_s": 0,
    "does_not_come_up": False,
}
STAND_IN = """#!/usr/bin/python
# WANT_JSON
import fcntl, json, os, sys, time

arguments = json.load(open(sys.argv[1]))
place = arguments["_ansible_remote_tmp"]
check = arguments["_ansible_check_mode"]
state = json.load(open(place + "/state.json"))


def note(what):
    with open(os.path.dirname(place) + "/log", "a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(os.path.basename(place) + " " + what + "\\n")


def finish(**result):
    if not check:
        json.dump(state, open(place + "/state.json", "w"))
    print(json.dumps({"changed": False, **result}))
    sys.exit(0)


"""
DOES = {
    "gpu_host": """
time.sleep(state["answers_after_s"])
parts = arguments["parts"] if "parts" in arguments else ["kernel_arguments", "nic_firmware", "settings"]
empty = dict(missing=[], notes=[], failures=[], pending=[], reboot_required=False, reboot_due=False)
if check and "gpu_domain" in arguments:
    with open(place + "/compared", "a") as log:
        log.write(("host and " if parts else "") + "virtual machines\\n")
after = {}
if arguments["state"] == "absent":
    if state["settled"]:
        after["settled"] = False
        pending = ["the running kernel keeps its arguments until the next boot: reboot"]
        empty.update(pending=pending, reboot_required=True)
    state["settled"] = False
    if not check:
        note("restored")
    finish(changed=bool(after), diff={"before": {}, "after": after}, **empty)
pending, failures = [], []
if "kernel_arguments" in parts:
    if not state["written"]:
        after["arguments"] = "iommu=pt"
    state["written"] = True
    if state["needs_reboot"]:
        pending.append("the running kernel was not started with iommu=pt: reboot")
if "nic_firmware" in parts:
    left = state["firmware_boots"]
    if left and state.get("set_for") != left:
        after["firmware"] = left
    state["set_for"] = left
    if left:
        pending.append("firmware of 0000:14:00.0: ATS_ENABLED at the next boot")
    failures = state["firmware_failures"]
due = bool(pending) and arguments["reboot_ok"]
if "settings" in parts and not due:
    if not state["settled"]:
        after["settings"] = True
    state["settled"] = True
    if not check and after.get("settings"):
        note("settled")
empty.update(pending=pending, failures=failures, reboot_required=bool(pending), reboot_due=due)
if arguments.get("gpu_domain") and not (after or pending or failures):
    empty["virtual_machines"] = {"domains": [], "differences": [] if state["runs"] else ["train: start"]}
if failures:
    empty.update(failed=True, msg="; ".join(failures))
finish(changed=bool(after), diff={"before": {}, "after": after}, **empty)
""",
    "gpu_domain": """
changed, state["runs"] = not state["runs"], True
finish(changed=changed, restart_required=False, findings=[], domains=[])
""",
    "host_guests_info": """
names = state["guests"][0] if state["guests"] else []
state["guests"] = state["guests"][1:] or state["guests"]
finish(guests=[{"name": name} for name in names], words=[name + " (process 4711)" for name in names])
""",
    "vsphere_host_passthrough": 'finish(failed=True, msg="none of these servers runs ESXi")',
    "stand_in_reboot": """
if check:
    finish(changed=True)
note("down")
time.sleep(1)
if state["does_not_come_up"]:
    finish(failed=True, msg="it does not come up")
state["needs_reboot"] = False
state["firmware_boots"] = max(state["firmware_boots"] - 1, 0)
note("up")
finish(changed=True)
""",
}


class Fleet:
    """Servers by name, with the values that differ from SERVER."""

    def __init__(self, folder: Path, **servers: dict[str, Any]) -> None:
        self.folder = folder
        self.servers = list(servers)
        for name, state in servers.items():
            (folder / name).mkdir(parents=True)
            self._file(name).write_text(json.dumps({**SERVER, **state}))
        hosts = {name: {"ansible_remote_tmp": str(folder / name)} for name in servers}
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "packages_install": False,
            "gpu_host_reboot_ok": True,
            "gpu_host_nic_firmware": [],
        }
        (folder / "hosts.json").write_text(json.dumps({"gpu_hosts": {"hosts": hosts, "vars": common}}))
        self._collection(folder / "collections/ansible_collections/sailloft/fleet")

    def _file(self, name: str) -> Path:
        return self.folder / name / "state.json"

    def _collection(self, place: Path) -> None:
        (place / "plugins/modules").mkdir(parents=True)
        for name in ("galaxy.yml", "meta", "docs", "playbooks"):
            (place / name).symlink_to(ROOT / name)
        for path in (ROOT / "plugins").iterdir():
            if path.name != "modules":
                (place / "plugins" / path.name).symlink_to(path)
        for name, does in DOES.items():
            (place / "plugins/modules" / f"{name}.py").write_text(STAND_IN + does)
        # A play of gpu_vms.yml uses these modules, although there is no guest.
        for name in ("host_topology_info", "gpu_host_boot"):
            path = f"plugins/modules/{name}.py"
            (place / path).symlink_to(ROOT / path)
        shutil.copytree(ROOT / "roles/gpu_host", place / "roles/gpu_host")
        for path in (ROOT / "roles").iterdir():
            if path.name != "gpu_host":
                (place / "roles" / path.name).symlink_to(path)
        path = place / "roles/gpu_host/tasks/reboot_once.yml"
        text = re.sub(r"ansible\.builtin\.reboot:\n(    .*\n)+", "sailloft.fleet.stand_in_reboot:\n", path.read_text())
        assert "builtin.reboot" not in text
        assert "stand_in_reboot" in text
        path.write_text(text)
        for path in (place / "roles").rglob("*.yml"):
            assert "builtin.reboot:" not in path.read_text(), path

    def play(self, *options: str, playbook: str = "playbooks/gpu_hosts.yml") -> tuple[int, str]:
        """Run the playbook and return (exit status, output)."""
        return ansible_playbook(
            "-i",
            str(self.folder / "hosts.json"),
            *options,
            playbook,
            ANSIBLE_COLLECTIONS_PATH=str(self.folder / "collections"),
            ANSIBLE_CACHE_PLUGIN="memory",
        )

    def log(self) -> list[str]:
        """Return the actions since the last call, in order."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def compared(self, name: str) -> list[str]:
        """Return what each comparison since the last call has compared."""
        path = self.folder / name / "compared"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def change(self, name: str, **state: Any) -> None:
        """Change values of a server's state."""
        self._file(name).write_text(json.dumps({**self.state(name), **state}))

    def state(self, name: str) -> dict[str, Any]:
        """Return a server's state."""
        return json.loads(self._file(name).read_text())


def recap(output: str) -> dict[str, dict[str, int]]:
    """Return the counts of PLAY RECAP by host, without localhost, on which a run is checked."""
    rows = re.findall(r"^(?!localhost )(\w+) +: (ok=.*)$", output.split("PLAY RECAP")[1], re.MULTILINE)
    return {
        name: {key: int(number) for key, number in (pair.split("=") for pair in counts.split())}
        for name, counts in rows
    }
