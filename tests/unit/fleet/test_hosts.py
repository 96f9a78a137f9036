# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts of an inventory, with and without a blueprint, and what a refresh changes of their readings."""

from __future__ import annotations

from pathlib import Path

import sites
import yaml
from fleet_answers import answer

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DRIFT,
    FABRIC,
    HEALTH,
    IMAGE,
    OK,
    PROOF,
    UNKNOWN,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import (
    COMPARED,
    NODE,
    READS,
    STORE,
    fleet_hosts,
    refreshed,
)

NOW_S = 1.8e9
DIGEST = "a" * 64
GROUPS = {"gpu_hosts": ["hv", "esx"], "gpu_guests": ["train-1", "train-2"], "nodes": ["bm"], "roce_hosts": ["bm"]}
VARIABLES = {
    "hv": {},
    "esx": {"gpu_vm_backend": "vsphere"},
    "train-1": {"gpu_guest_host": "hv"},
    "train-2": {"gpu_guest_host": "esx"},
    "bm": {"site_spare": True},
    "ntp": {"group_names": ["servers"]},
}


def test_each_host_has_the_data_that_playbooks_read_of_it():
    hosts = {host.name: host for host in fleet_hosts(GROUPS, VARIABLES)}
    assert {name: set(host.reads) for name, host in hosts.items()} == {
        "hv": {HEALTH, DRIFT},
        "esx": set(),
        "train-1": {HEALTH, PROOF, DRIFT},
        "train-2": {HEALTH, PROOF},
        "bm": {IMAGE, PROOF, FABRIC},
        "ntp": set(),
    }
    assert {name: host.group for name, host in hosts.items() if name in ("bm", "ntp")} == {
        "bm": "nodes",
        "ntp": "servers",
    }
    assert (hosts["train-1"].on, hosts["bm"].spare) == ("hv", True)


def test_a_blueprint_names_kinds_and_switches():
    site = sites.example("small")
    hosts = {
        host.name: host for host in fleet_hosts({"all": list(site.devices)}, {name: {} for name in site.devices}, site)
    }
    assert (hosts["leaf1"].group, hosts["leaf1"].switch) == ("leaf", True)
    assert hosts["mgmt1"].switch
    assert not hosts["gpu01"].switch


def test_a_refresh_replaces_what_was_read_and_keeps_the_rest():
    hosts = fleet_hosts(GROUPS, VARIABLES)
    results = {
        "hv": {NODE: answer(), COMPARED: {"unread": "", "differences": {"gpu_host": [], "gpu_vm": []}}},
        "bm": {
            NODE: {**answer(), "image": DIGEST},
            "node_boot_image": {"channel": "stable"},
            COMPARED: {"skipped": True},
        },
        "boot": {STORE: {"channels": [{"name": "stable", "digest": DIGEST}]}},
    }
    variables = {name: {**VARIABLES.get(name, {}), **results.get(name, {})} for name in (*VARIABLES, "boot")}
    first = refreshed({}, hosts, variables, ["boot"], NOW_S)
    assert {name: {each.kind: each.state for each in reading.data} for name, reading in first.items()} == {
        "hv": {HEALTH: OK, DRIFT: OK},
        "train-1": {DRIFT: OK},
        "bm": {IMAGE: OK},
    }
    assert refreshed(first, hosts, VARIABLES, ["boot"], NOW_S + 60) == first
    gone = {**VARIABLES, "hv": {NODE: {"unreachable": True}}}
    later = refreshed(first, hosts, gone, ["boot"], NOW_S + 60)
    assert {each.kind: each.state for each in later["hv"].data} == {DRIFT: OK, HEALTH: UNKNOWN}
    assert later["hv"].seen_s == NOW_S
    assert later["bm"] == first["bm"]


def test_the_playbook_reads_the_groups_of_the_table():
    plays = yaml.safe_load((Path(__file__).parents[3] / "playbooks/fleet.yml").read_text(encoding="utf-8"))
    (pattern,) = [play["hosts"] for play in plays if play.get("name") == "Read the nodes anew"]
    by_node = {group for group, kinds in READS.items() if set(kinds) & {HEALTH, IMAGE, DRIFT}}
    assert set(pattern.split("'")[1].split(":")) == by_node
