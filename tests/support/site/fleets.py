# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up fleets of any size, with each state: for the page, its tests in a browser, and its benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet_answers import answer, fault
from sites import from_text

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.floor import FleetFloor, floor_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import NODE, fleet_hosts, refreshed
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import Look, look_at
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import read_proofs
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory

# Pods of 128 nodes in racks of 4, with a leaf for each rail in every fourth rack, and spines.
BLUEPRINT = """\
site: fleet
blocks:
  pod: {{count: {pods}}}
  network: {{inside: pod, count: 1, units: 42}}
  su: {{inside: pod, count: 4}}
  rack: {{inside: su, count: 8, units: 42}}
models:
  node: {{units: 8, watts: 10000, ports: {{nic: {{names: "mlx5_[0:7]", speed_gbit_s: 400}}}}}}
  leaf: {{units: 1, watts: 1500, ports: {{
    down: {{names: "Ethernet[1:32]", speed_gbit_s: 400}}, up: {{names: "Ethernet[33:64]", speed_gbit_s: 400}}}}}}
networks:
  management: {{network: 10.0.0.0/16, gateway: 1}}
devices:
  gpu_nodes: {{model: node, per: rack, count: 4, total: {nodes}, name: "gpu-{{n:04}}", spare_percent: 2,
    groups: [roce_hosts], addresses: {{management: 1001}}}}
  leaf: {{model: leaf, per: su, count: 8, rack: rack, unit: 35, name: "leaf-{{su:03}}-{{i}}", groups: [roce_switches],
    addresses: {{management: 20001}}}}
  spine: {{model: leaf, per: pod, count: 8, rack: network, name: "spine-{{pod:02}}-{{i}}", groups: [roce_switches],
    addresses: {{management: 30001}}}}
links:
  rails: {{from: gpu_nodes, ports: nic, to: leaf, to_ports: down, medium: smf, fabric: compute, roce: true}}
  up: {{from: leaf, ports: up, to: spine, to_ports: down, each: 8, planes: 8, medium: smf, fabric: compute, roce: true}}
"""
DIFFERS_EVERY, SICK_EVERY, DRAINED_EVERY, SILENT_EVERY = 61, 23, 37, 90


def result_of(number: int, name: str) -> dict[str, Any]:
    """Return the result of fleet_node_info of a node."""
    given: dict[str, Any] = answer(host=name, values={}, names={})
    if number % SICK_EVERY == 3:
        given["health"]["faults"] = [fault(number // SICK_EVERY % 8, seen=f"{number} errors")]
    if number % DRAINED_EVERY == 5:
        given["health"]["drain"] = "waits for a new riser (ada)"
    if number % SILENT_EVERY == 7:
        given = {"unreachable": True, "msg": f"Failed to connect to the host {name}: timed out"}
    return given


def groups_of(made: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the hosts by group, of a site's inventory."""
    groups: dict[str, list[str]] = {}
    for name, host in made["hosts"].items():
        parents = [group for group, each in made["groups"].items() if host["group"] in each["children"]]
        for group in (host["group"], *parents, "all"):
            groups.setdefault(group, []).append(name)
    return groups


def texts_of(names: list[str], now_s: float) -> dict[str, tuple[str, float]]:
    """Return the proofs of a fleet: the drift of its fabric, and the acceptance of a node."""
    claims = [compare("switch", f"{name}: its settings", "", "", "running") for name in names]
    claims += [compare("switch", f"{name} Ethernet1: PFC", [3], [], "running") for name in names[5::DIFFERS_EVERY]]
    drift = Proof("fabric_drift", "Drift from the RoCE policy", "fabric_drift", claims)
    slow = [compare("gpudirect", "GPU 0 to NIC 0", 48.0, 46.9, "ib_write_bw")]
    accepted = Proof(f"acceptance-{names[0]}", "Acceptance", names[0], slow)
    return {each.name: (each.to_json(), now_s - 3600) for each in (drift, accepted)}


def fleet(nodes: int, now_s: float, racks: bool = True) -> tuple[Look, FleetFloor]:
    """Return a look at a fleet of so many nodes, and its floor."""
    site = from_text(BLUEPRINT.format(pods=-(-nodes // 128), nodes=nodes))
    made = inventory(site)
    groups = groups_of(made)
    variables = {name: {**host["vars"], "group_names": [host["group"]]} for name, host in made["hosts"].items()}
    for number, name in enumerate(groups["gpu_nodes"]):
        variables[name][NODE] = result_of(number, name)
    hosts = fleet_hosts(groups, variables, site if racks else None)
    readings = refreshed({}, hosts, variables, [], now_s)
    proved = read_proofs(texts_of(groups["all"], now_s), variables)
    return look_at(hosts, readings, proved, now_s), floor_of(site if racks else None, ())
