# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write Slurm's topology.conf (topology/tree) for a fabric.

A node may have several leaves, but a tree has one switch for each node. Nodes with the same leaves are therefore put
below one switch, and switches with the same upper switches below one switch of the next layer.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import hostlist
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site


class TreeSwitch(NamedTuple):
    """A switch of a tree, a group of leaves, of spines and so on: its layer from 1, and what is below it.

    The members of layer 1 are nodes, of the others switches.
    """

    name: str
    layer: int
    members: list[str]


def compute_fabric(site: Site) -> str:
    """Return the name of the fabric between nodes: the first one with InfiniBand or RoCE links; empty for none."""
    return next((rule.fabric for rule in site.blueprint.links if rule.infiniband or rule.roce), "")


def topology_conf(site: Site, fabric: str) -> str:
    """Return the file."""
    return f"# Fabric {fabric} of {site.blueprint.site}\n" + tree_lines(tree(site, fabric))


def tree_lines(switches: list[TreeSwitch]) -> str:
    """Return the lines of topology.conf."""
    return "".join(
        f"SwitchName={switch.name} {'Nodes' if switch.layer == 1 else 'Switches'}={hostlist(switch.members)}\n"
        for switch in switches
    )


def tree(site: Site, fabric: str, only: Container[str] | None = None) -> list[TreeSwitch]:
    """Return the switches of a fabric, with names such as layer1-1; ``only``: those above these nodes."""
    kinds = {rule.to for rule in site.blueprint.links if rule.fabric == fabric}
    lower_switches: dict[str, set[str]] = {}
    for cable in site.cables:
        # Links between switches of one kind do not form a layer.
        if cable.rule.fabric == fabric and cable.a.kind is not cable.b.kind:
            lower_switches.setdefault(cable.a.name, set()).add(cable.b.name)
    leaves = {name for name in lower_switches if site.devices[name].kind.name not in kinds}
    groups: dict[frozenset[str], list[str]] = {}
    for name in site.devices:
        if name in leaves and (only is None or name in only):
            groups.setdefault(frozenset(lower_switches[name]), []).append(name)
    made = []
    layer, members = 1, groups
    while members:
        names = {}
        for number, (switches, inner) in enumerate(members.items(), 1):
            name = f"layer{layer}-{number}"
            names[name] = switches
            made.append(TreeSwitch(name, layer, inner))
        merged: dict[frozenset[str], list[str]] = {}
        for name, switches in names.items():
            uppers = frozenset(upper for switch in switches for upper in lower_switches.get(switch, ()))
            if uppers:
                merged.setdefault(uppers, []).append(name)
        layer, members = layer + 1, merged
    return made
