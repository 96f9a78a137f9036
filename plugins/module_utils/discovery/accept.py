# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide which unknown machine becomes which node of the inventory, and write its variables. Pure.

A machine is matched with the planned node at the switch ports that it names by LLDP. It may lie: so a person names each
node, or machine and node, and two machines that claim one node's place are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.errors import DiscoveryError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import far_end
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import Neighbour
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import Planned, PlannedEnd

Machine = Mapping[str, Any]
HEAD = (
    "# Written by playbooks/accept_nodes.yml from what the machine reported; the next run for this node replaces it.\n"
)
# The fields of a report that are kept.
KEPT = ("vendor", "product", "serial", "bmc_address", "bmc_mac")


@dataclass(frozen=True)
class InventoryNode:
    """A node of the inventory: its planned rack, and the MAC address of its machine; "" for what is not known."""

    name: str
    mac: str = ""
    rack: str = ""


@dataclass(frozen=True)
class PlannedPlace:
    """The planned node in whose place a machine is, "" if none, and what says so."""

    node: str
    why: str


@dataclass(frozen=True)
class Acceptance:
    """A machine that becomes a node; ``old_mac`` is that of the machine that it replaces, "" if none."""

    name: str
    machine: Machine
    place: PlannedPlace
    old_mac: str = ""

    def text(self) -> str:
        """Return the file of the node's variables. JSON's texts are YAML's."""
        facts = {name: self.machine[name] for name in KEPT}
        return f"---\n{HEAD}node_boot_mac: {json.dumps(self.machine['mac'])}\nsite_machine: {json.dumps(facts)}\n"


@dataclass(frozen=True)
class Plan:
    """The planned cables by each of their ends; empty without a blueprint or NetBox."""

    cables: Planned = field(default_factory=Planned)

    def place(self, machine: Machine) -> PlannedPlace:
        """Return where the machine is by its neighbours: at the cables of one planned node, or not known."""
        ends = self._far_ends
        nodes: dict[str, PlannedEnd] = {}
        heard = [nic for nic in machine["nics"] if nic["neighbour"]]
        for nic in heard:
            end = far_end(self.cables, Neighbour(nic["neighbour"], tuple(nic["ports"])), None)
            if end in ends:
                nodes.setdefault(ends[end].device, end)
        if len(nodes) == 1:
            node, end = next(iter(nodes.items()))
            return PlannedPlace(node, f"{end} is planned for {node}")
        if nodes:
            return PlannedPlace("", f"its cables are those of {excerpt(sorted(nodes))}")
        ports = [f"{nic['neighbour']} {' '.join(nic['ports'][:1])}".strip() for nic in heard]
        return PlannedPlace("", f"no node is planned at {excerpt(ports)}" if ports else "LLDP names no switch")

    def interfaces(self, node: str, machine: Machine) -> dict[str, str]:
        """Return interface -> MAC address of a node's machine: by its cables, that of its boot by its name too."""
        macs: dict[str, str] = {}
        for nic in machine["nics"]:
            end = far_end(self.cables, Neighbour(nic["neighbour"], tuple(nic["ports"])), None)
            peer = self._far_ends.get(end) if end else None
            name = peer.interface if peer and peer.device == node else nic["name"] * (nic["mac"] == machine["mac"])
            # A machine that lies may give many NICs one address.
            if name and nic["mac"] not in macs.values():
                macs[name] = nic["mac"]
        return macs

    @cached_property
    def _far_ends(self) -> dict[PlannedEnd, PlannedEnd]:
        ends = {}
        for link in self.cables.links:
            ends[link.one], ends[link.other] = link.other, link.one
        return ends


def newest(servers: Sequence[Sequence[Machine]]) -> dict[str, Machine]:
    """Return the machines of all boot servers by MAC address, each as it was reported last."""
    machines: dict[str, Machine] = {}
    for machine in (row for rows in servers for row in rows):
        if machine["mac"] not in machines or machine["age_s"] < machines[machine["mac"]]["age_s"]:
            machines[machine["mac"]] = machine
    return dict(sorted(machines.items()))


def accept(
    wanted: Mapping[str, str],
    machines: Mapping[str, Machine],
    nodes: Mapping[str, InventoryNode],
    plan: Plan,
    replace: bool = False,
) -> list[Acceptance]:
    """Return the machine of each node in ``wanted``, in its order.

    ``wanted`` is node -> MAC address, "" for the machine in the planned place. ``nodes`` are all of the inventory. A
    node with a machine gets another one only to ``replace`` it. Raises DiscoveryError with all that cannot be done.
    """
    places = {mac: plan.place(machine) for mac, machine in machines.items()}
    owners = {node.mac: node.name for node in nodes.values() if node.mac}
    accepted, problems, new_owners = [], [], dict[str, str]()
    for name, choice in wanted.items():
        try:
            mac = _machine_of(name, choice, machines, places, nodes)
            _permit(nodes[name], mac, owners, new_owners, replace)
        except DiscoveryError as error:
            problems.append(error)
            continue
        new_owners[mac] = name
        old_mac = nodes[name].mac if nodes[name].mac != mac else ""
        accepted.append(Acceptance(name, machines[mac], places[mac], old_mac))
    if problems:
        raise DiscoveryError("; ".join(map(str, problems[:-1])) + "; " * (len(problems) > 1) + str(problems[-1]))
    return accepted


def _machine_of(
    name: str,
    choice: str,
    machines: Mapping[str, Machine],
    places: Mapping[str, PlannedPlace],
    nodes: Mapping[str, InventoryNode],
) -> str:
    """Return the MAC address of a node's machine. Raises DiscoveryError."""
    if name not in nodes:
        raise DiscoveryError(
            "no host of the group nodes has this name", "add it to the inventory with its address", subject=name
        )
    claims = [mac for mac, place in places.items() if place.node == name]
    if choice:
        if choice not in machines:
            raise DiscoveryError(f"no machine with the MAC address {choice} is pending", "boot it first", subject=name)
        if places[choice].node not in ("", name):
            raise DiscoveryError(
                f"{choice} is in another place: {places[choice].why}",
                "move the machine, or correct the plan",
                subject=name,
            )
        return choice
    # A run that is repeated finds the machine that has become the node.
    claims = [nodes[name].mac] if nodes[name].mac in claims else claims
    if len(claims) != 1:
        cause = (
            f"the machines {excerpt(claims, 8)} are all in its place"
            if claims
            else "no pending machine is in its place"
        )
        remedy = "name the right one by its MAC address"
        raise DiscoveryError(f"{cause} by LLDP and plan", remedy, subject=name)
    return claims[0]


def _permit(
    node: InventoryNode, mac: str, owners: Mapping[str, str], new_owners: Mapping[str, str], replace: bool
) -> None:
    """Raise DiscoveryError if the machine may not become the node."""
    owner = owners.get(mac, node.name)
    if owner != node.name or mac in new_owners:
        raise DiscoveryError(
            f"{mac} is the machine of {new_owners.get(mac, owner)}", "name another machine", subject=node.name
        )
    if node.mac and node.mac != mac and not replace:
        raise DiscoveryError(
            f"it has the machine {node.mac} (node_boot_mac)",
            f"if {mac} replaces it, run with accept_nodes_replace: true",
            subject=node.name,
        )


def lines(machines: Mapping[str, Machine], nodes: Mapping[str, InventoryNode], plan: Plan) -> list[str]:
    """Return a line for each pending machine: what it is, and which node it may be."""
    owners = {node.mac: node.name for node in nodes.values() if node.mac}
    texts = []
    for mac, machine in machines.items():
        place = plan.place(machine)
        rack = nodes[place.node].rack if place.node in nodes else ""
        state = f"accepted as {owners[mac]}" if mac in owners else place.why + (f" in {rack}" if rack else "")
        model = " ".join(filter(None, (machine["vendor"], machine["product"]))) or "unknown model"
        devices = [f"{count} {kind}" for kind, count in machine["device_counts"].items() if kind in ("gpu", "nvme")]
        numbers = [f"serial {machine['serial'] or 'not known'}", f"BMC {machine['bmc_address'] or 'not known'}"]
        texts.append(f"{mac}: {', '.join([model, *devices, *numbers])}; {state}")
    return texts
