# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/heal.yml through new image, restart of a virtual machine, swap, acceptance and return.

Real: inventory, engine, log, modules, the role node_boot with the store of its boot server, and the BMC, which is the
emulator of sushy-tools. Made up: the boot (fleet_machines.py), rounds of the health check, virsh, the measuring tools,
and the site's own commands, which are scripts that record how they were called.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import rounds
import tool_outputs as printed
import yaml
from fleet_site import OLD, ROOT, needs_root
from playing import ansible_playbook

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

pytestmark = [needs_root, pytest.mark.long]
# The health check of the node $NODE: a round measures nothing, ends now, and finds no fault after a restart.
HEALTH = """#!{python}
import os, sys
sys.path[:0] = {path!r}
from dataclasses import replace
from ansible_collections.sailloft.fleet.plugins.module_utils.health import main, state
folder = {folder!r} + "/" + os.environ["NODE"]
arguments = sys.argv[1:]
with open(folder + "/calls", "a") as calls:
    calls.write(" ".join(arguments) + chr(10))
if arguments[:1] != ["round"]:
    sys.exit(main.main(["--state", folder, "--run", folder + "/run", *arguments]))
old, now = state.read(folder), state.moment()
is_restarted = old.round.ended.boot_id != now.boot_id or os.path.exists(folder + "/restarted")
condition = replace(old.condition, faults=() if is_restarted else old.condition.faults)
state.save(replace(old, round=replace(old.round, ended=now), condition=condition), folder)
"""
# Who takes jobs, as the site's own commands tell it.
SERVICE = """#!{python}
import json, os, sys
import fcntl
# Hosts are told at once.
lock = open({folder!r} + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
path = {folder!r} + "/service.json"
service = json.load(open(path))
what, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
if what == "list":
    print(json.dumps(service))
    sys.exit()
with open({folder!r} + "/calls", "a") as calls:
    calls.write(" ".join([what, *arguments]) + chr(10))
if what == "out":
    service[arguments[0]] = {{"out": True, "busy": False, "reason": arguments[1]}}
if what == "in":
    service[arguments[0]] = {{"out": False, "busy": False}}
if what == "virsh" and arguments[0] == "start":
    open({folder!r} + "/guest1/restarted", "w").close()
json.dump(service, open(path, "w"))
"""


def fault(check, action, layer="hardware"):
    """Return a fault of an hour ago."""
    now = state.moment()
    then = replace(now, unix_s=now.unix_s - 3600)
    return Fault(check, rounds.GPU, check, layer, action, "gpu-row-remap", then, now)


class Site:
    """The nodes of a fleet with their health and their service, a guest, and a spare."""

    def __init__(self, fleet):
        self.fleet, self.folder = fleet, fleet.folder / "heal"
        self.folder.mkdir()
        path = [each for each in sys.path if each]
        terms = {"python": sys.executable, "path": path, "folder": str(self.folder)}
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        for name in ("list", "out", "in", "swap", "virsh"):
            self.tool(name, SERVICE.format(**terms))
        self.tool("sailloft-health", HEALTH.format(**terms))
        self.tool(
            "nvbandwidth", f"#!/bin/sh\ncat <<'END'\n{printed.nvbandwidth(['0000:1a:00.0'], [55.0], None)}\nEND\n"
        )
        self.names = [*fleet.nodes, "guest1"]
        self.tool("all_reduce_perf", f"#!/bin/sh\ncat <<'END'\n{printed.nccl(478.1)}\nEND\n")
        for name in self.names:
            self.store(name)
        (self.folder / "service.json").write_text(
            json.dumps({name: {"out": False, "busy": False} for name in self.names})
        )
        self.inventory()
        plays = yaml.safe_load((ROOT / "playbooks/heal.yml").read_text())[1:]
        for play in plays:
            play["environment"] = {"NODE": "{{ inventory_hostname }}"}
            play["module_defaults"] = {
                "sailloft.fleet.node_health_info": {"state_dir": f"{self.folder}/{{{{ inventory_hostname }}}}"}
            }
        (self.folder / "heal.yml").write_text(yaml.safe_dump(plays, sort_keys=False))

    def tool(self, name, text):
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    def store(self, name, faults=()):
        """Store a node's state, as of a round now."""
        (self.folder / name).mkdir(exist_ok=True)
        boot_id = self.fleet.folder / name / "boot_id"
        now = state.moment()
        now = replace(now, boot_id=boot_id.read_text().strip()) if boot_id.exists() else now
        faults = tuple(replace(each, last=now, since=replace(each.since, boot_id=now.boot_id)) for each in faults)
        state.save(State(name, Round(7, now, 0.4, 60.0), Condition(faults)), str(self.folder / name))

    def serve(self, name, **terms):
        """Set what the site's commands say of a node."""
        path = self.folder / "service.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: terms}))

    def inventory(self):
        """Write the fleet's inventory with the groups of the repair."""
        whole = json.loads((self.fleet.folder / "hosts.yml").read_text())["all"]
        whole["children"]["gpu_nodes"] = {"hosts": {name: {} for name in self.fleet.nodes}}
        local = {"ansible_connection": "local"}
        whole["children"]["gpu_hosts"] = {"hosts": {"hv1": local}}
        whole["children"]["gpu_guests"] = {"hosts": {"guest1": {**local, "gpu_guest_host": "hv1"}}}
        if "bm03" in self.fleet.nodes:
            whole["children"]["nodes"]["hosts"]["bm03"]["site_spare"] = True
        whole["vars"].update(
            node_repair_scheduler="command",
            node_repair_commands={
                name: [str(self.tools / tool)] for name, tool in (("list", "list"), ("drain", "out"), ("return", "in"))
            },
            node_repair_swap_command=[str(self.tools / "swap")],
            node_repair_most_out=100,
            node_repair_together=10,
            gpu_node_accept_paths=[str(self.tools)],
            gpu_vm_places=str(self.folder / "vms"),
        )
        (self.fleet.folder / "hosts.yml").write_text(json.dumps({"all": whole}))

    def heal(self, *arguments, status=0):
        """Run the playbook; return the output."""
        environment = {**self.fleet.environment(), "PATH": f"{self.tools}:{os.environ['PATH']}"}
        rc, output = ansible_playbook(
            *("-i", str(self.fleet.folder / "hosts.yml"), *arguments, str(self.folder / "heal.yml")),
            folder=self.folder,
            **environment,
        )
        assert rc == status, output
        return output

    def heal_until_back(self, *nodes):
        """Run the playbook until nodes are back: on a busy machine a round may not be known to be new in time.

        The nodes make further rounds themselves.
        """
        for _run in range(3):
            self.heal()
            if all(self.log(node)[-1:] == [("return", "done")] for node in nodes):
                return
            for node in nodes:
                boot_id = self.fleet.folder / node / "boot_id"
                saved = state.read(str(self.folder / node))
                now = state.moment()
                now = replace(now, boot_id=boot_id.read_text().strip()) if boot_id.exists() else now
                state.save(replace(saved, round=replace(saved.round, ended=now)), str(self.folder / node))
        raise AssertionError({node: self.log(node) for node in nodes})

    def log(self, node):
        """Return steps and results of a node in the log, without what only waits."""
        text = (self.folder / "repair/repair-log.jsonl").read_text()
        rows = [json.loads(row) for row in text.splitlines()]
        return [(row["step"], row["result"]) for row in rows if row.get("node") == node and row["result"] != "waits"]

    def calls(self, node=""):
        """Return what was called on a node, or for the site."""
        path = self.folder / node / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def site(fleet):
    return Site(fleet)


def ended(*steps):
    """Return the lines of steps that went well, between a fault that was found and one that is gone."""
    results = {"prove": "held"}
    lines = [line for step in steps for line in ((step, "begun"), (step, results.get(step, "done")))]
    at = lines.index(("prove", "begun")) if "prove" in steps else len(lines)
    return [("fault", "found"), *lines[:at], *([("fault", "gone")] if "prove" in steps else []), *lines[at:]]


@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_new_image_restart_of_a_virtual_machine_swap_acceptance_and_return(site):
    site.store("bm01", [fault("gpu_driver_fails", "drain", "configuration")])
    site.store("bm02", [fault("gpu_row_remap_failure", "person")])
    site.store("guest1", [fault("xid_151", "restart_vm")])
    site.serve("bm03", out=True, busy=False, reason="sailloft-spare: in reserve")
    proofs = site.fleet.folder / "proofs"
    proofs.mkdir(exist_ok=True)
    accepted = proofs / "acceptance-bm01.json"
    accepted.write_text(
        Proof(
            "bm01", "t", "bm01", [Claim(judge.LAYER, judge.WITHIN_NODE, "", {judge.UNIT: 478.0}, True, "z")]
        ).to_json()
    )
    os.utime(accepted, (1, 1))
    site.heal_until_back("bm01", "guest1")
    # The emulated BMC restarted bm01 into its image, and nothing else.
    assert site.fleet.boots() == ["bm01 old channel"]
    assert site.log("bm01") == ended("drain", "reimage", "prove", "return")
    assert accepted.stat().st_mtime == 1
    assert Proof.from_dict(json.loads((proofs / "repaired/acceptance-bm01.json").read_text())).holds
    assert "round --deep" in site.calls("bm01")
    assert site.log("guest1") == ended("drain", "restart_vm", "prove", "return")
    assert [call for call in site.calls() if call.startswith("virsh")] == [
        "virsh destroy --graceful guest1",
        "virsh start guest1",
    ]
    assert site.log("bm02")[:5] == ended("drain", "swap")
    assert "swap bm02" in site.calls()
    # Its own next round still finds the fault.
    site.store("bm02", [fault("gpu_row_remap_failure", "person")])
    site.heal()
    assert site.log("bm02")[-1] == ("person", "done")
    assert json.loads((site.folder / "repair/bm02.json").read_text())["fault"].startswith("gpu_row_remap_failure")
    service = json.loads((site.folder / "service.json").read_text())
    assert {name for name, each in service.items() if each["out"]} == {"bm02", "bm03"}
    assert site.calls("bm03") == []


@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_what_fails_goes_to_a_person_and_a_guest_that_runs_elsewhere_is_left(site):
    site.store("bm01", [fault("gpu_driver_fails", "drain", "configuration")])
    site.store("guest1", [fault("xid_151", "restart_vm")])
    # The node never comes back from its boot; the guest was started on another server.
    site.fleet.fate({("bm01", OLD): "lost"})
    (site.folder / "vms").mkdir()
    place = {"format": "sailloft-vm-place/1", "vm": "guest1", "server": "hv2"}
    Path(site.folder, "vms/guest1.json").write_text(json.dumps(place))
    site.heal()
    assert site.log("bm01")[-1] == ("reimage", "failed")
    assert site.log("guest1")[-1] == ("restart_vm", "failed")
    assert not any(call.startswith("virsh") for call in site.calls())
    service = json.loads((site.folder / "service.json").read_text())
    assert {name for name, each in service.items() if each["out"]} == {"bm01", "guest1"}
