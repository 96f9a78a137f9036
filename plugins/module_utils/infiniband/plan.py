# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan an InfiniBand fabric: the files of its subnet managers, from the blueprint, settings and GUIDs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.guids import Guids, know
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import files
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.request import Request, read
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site


class FabricPlan(NamedTuple):
    """A planned fabric: what it is made of, its files by name, and lines for people to read."""

    site: Site
    fabric: Fabric
    request: Request
    guids: Guids
    files: dict[str, str]
    summary: list[str]


def plan(
    site: Site,
    name: str,
    settings: Mapping[str, Any],
    guids: Mapping[str, Any],
    discovered: Iterable[str] = (),
    groups: Mapping[str, list[str]] | None = None,
) -> FabricPlan:
    """Return the plan of a fabric. Raises InfinibandError.

    ``guids``: those of the inventory; ``discovered``: texts of ``ibnetdiscover -p``; ``groups``: the hosts of groups
    besides those of the blueprint.
    """
    fabric = fabric_of(site, name)
    request = read(settings, fabric, {**_groups(site), **(groups or {})})
    fabric_guids = know(fabric, guids, discovered)
    fabric_guids.conflicts += [
        f"{device}: the inventory has its GUID, but the site has no such device; correct the name"
        for device in guids
        if device not in site.devices
    ]
    texts = files(fabric, request, fabric_guids)
    return FabricPlan(site, fabric, request, fabric_guids, texts, _summary(fabric, request))


def of_hosts(planned: FabricPlan) -> dict[str, dict[str, Any]]:
    """Return by host what its own settings follow from: HCAs in the order of rails, interfaces, service level.

    ``hcas``: RDMA device -> P_Keys of the partitions with ipoib. ``service_level`` is that of the partition with
    index0, in which programs are that do not choose one, else 0.
    """
    hosts: dict[str, dict[str, Any]] = {}
    for hca in planned.fabric.hcas:
        host = hosts.setdefault(hca.host, {"hcas": {}, "service_level": 0})
        partitions = [partition for partition in planned.request.partitions if hca in partition.members]
        host["hcas"][hca.name] = [f"0x{partition.pkey:04x}" for partition in partitions if partition.ipoib]
        levels = [partition.service_level for partition in partitions if partition.index0]
        host["service_level"] = max([host["service_level"], *levels])
    return hosts


def _groups(site: Site) -> dict[str, list[str]]:
    """Return the devices of the blueprint's groups: its kinds, and the groups that kinds are in."""
    groups: dict[str, list[str]] = {}
    for kind in site.blueprint.kinds.values():
        for group in (kind.name, *kind.groups):
            groups.setdefault(group, []).extend(device.name for device in site.by_kind[kind.name])
    return groups


def _summary(fabric: Fabric, request: Request) -> list[str]:
    layers: dict[int, int] = {}
    for rank in fabric.ranks().values():
        layers[rank] = layers.get(rank, 0) + 1
    switches = ", ".join(f"{layers[rank]} of rank {rank}" for rank in sorted(layers))
    lines = [
        f"{fabric.name}: {len(fabric.hcas)} HCAs on {len(fabric.leaves)} leaves; switches: {switches}; "
        f"{len(fabric.uplinks)} links between switches",
        f"routing: {', '.join(request.routing)}",
    ]
    if request.managers:
        lines.append(f"subnet managers, the master first: {', '.join(map(str, request.managers))}")
    lines.append(f"default partition: all HCAs are {request.default} members")
    for group in request.partitions:
        kinds = [
            f"{sum(kind == of for kind in group.members.values())} {of}" for of in sorted({*group.members.values()})
        ]
        lines.append(f"partition {group.name}, 0x{group.pkey:04x}: {', '.join(kinds)} members")
    return lines
