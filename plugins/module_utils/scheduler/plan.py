# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan a Slurm cluster, or one of LSF: its files, from settings, groups, recorded hosts and the blueprint. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler import files
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.checkpoint import report_line
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.hardware import NodeHardware, hardware
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.lsf import lsf_files
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.request import SchedulerRequest, read
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.restart import slurmd_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import TreeSwitch, compute_fabric, tree
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


class SlurmPlan(NamedTuple):
    """A planned cluster: its files by name, the hardware of its nodes, spares, and lines for people to read.

    ``notes``: what is not known, as lines. ``slurmd``: changes if each running slurmd must be restarted.
    """

    request: SchedulerRequest
    files: dict[str, str]
    nodes: dict[str, NodeHardware | None]
    spares: list[str]
    notes: list[str]
    summary: list[str]
    slurmd: str


def plan(
    data: Mapping[str, Any],
    groups: Mapping[str, Iterable[str]],
    hosts: Mapping[str, Host | None],
    site: Site | None = None,
    spares: Iterable[str] = (),
) -> SlurmPlan:
    """Return the plan. Raises SchedulerError.

    ``hosts``: the recorded topology of each node; ``spares``: the nodes of the inventory that are spares, besides those
    of the blueprint.
    """
    request = read(data, groups, files.PLANNED)
    notes: dict[str, list[str]] = {}
    nodes: dict[str, NodeHardware | None] = {}
    for name in request.nodes:
        host = hosts.get(name)
        nodes[name], reasons = hardware(host) if host else (None, ["there is no recording of it"])
        if nodes[name] is None:
            reasons = [f"{reason}: Slurm takes it for one CPU without GPUs" for reason in reasons]
        for reason in reasons:
            notes.setdefault(reason, []).append(name)
    trees = _trees(site, nodes) if site else {}
    outside_fabric = [name for name in nodes if trees and name not in _nodes_of(next(iter(trees.values())))]
    if outside_fabric:
        notes[f"not in the fabric {next(iter(trees))}: no job has it and nodes of the fabric"] = outside_fabric
    of_site = (name for name, device in site.devices.items() if device.spare) if site else ()
    spare = {*spares, *of_site}
    spare_nodes = [name for name in nodes if name in spare]
    if request.scheduler == "lsf":
        texts = lsf_files(request, next(iter(trees.values()), []), spare_nodes)
    else:
        texts = _slurm_files(request, nodes, trees)
    return SlurmPlan(
        request,
        texts,
        nodes,
        spare_nodes,
        [f"{fold(names)}: {reason}" for reason, names in notes.items()],
        _summary(request, nodes, trees, spare_nodes),
        hashlib.sha256(slurmd_settings(texts.get(files.SLURM, "")).encode()).hexdigest()[:16],
    )


def _slurm_files(
    request: SchedulerRequest, nodes: Mapping[str, NodeHardware | None], trees: files.Trees
) -> dict[str, str]:
    texts = {
        files.SLURM: files.slurm_conf(request, nodes, bool(trees)),
        files.GRES: files.gres_conf(nodes),
        files.CGROUP: files.CGROUP_TEXT,
        **files.topologies(trees, request.version),
    }
    if request.reimage_command:
        texts[files.REIMAGE] = files.reimage_program(request.reimage_command, request.state_directory)
    if request.accounting:
        texts[files.DBD] = files.slurmdbd_conf(request.accounting)
    return texts


def _trees(site: Site, nodes: Mapping[str, Any]) -> dict[str, list[TreeSwitch]]:
    """Return the trees of the fabrics between nodes, that of compute first. Fabrics have no switch in common."""
    first = compute_fabric(site)
    names = [first, *(rule.fabric for rule in site.blueprint.links if rule.infiniband or rule.roce)]
    trees = {name: tree(site, name, nodes) for name in names if name}
    return {name: switches for name, switches in trees.items() if switches}


def _nodes_of(switches: Iterable[TreeSwitch]) -> set[str]:
    return {name for switch in switches if switch.layer == 1 for name in switch.members}


def _summary(
    request: SchedulerRequest,
    nodes: Mapping[str, NodeHardware | None],
    trees: files.Trees,
    spares: list[str],
) -> list[str]:
    gpus = sum(len(node.gpus) for node in nodes.values() if node)
    lines = [
        f"{request.cluster}: {len(nodes)} nodes with {gpus} GPUs; controllers, the primary first: "
        f"{', '.join(request.controllers)}"
    ]
    for partition in request.partitions:
        lines.append(f"partition {partition.name}: {fold(partition.nodes)}")
        if request.checkpoint:
            lines.append(f"partition {partition.name}: {report_line(len(partition.nodes), request.checkpoint)}")
    if spares:
        lines.append(f"spares: {fold(spares)}")
    for fabric, switches in trees.items():
        leaves = sum(partition.layer == 1 for partition in switches)
        lines.append(
            f"fabric {fabric}: {leaves} leaf switches of {max(partition.layer for partition in switches)} layers"
        )
    return lines
