# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the hosts of an inventory, the data that playbooks can read of each, and those of a refresh. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DRIFT,
    FABRIC,
    HEALTH,
    IMAGE,
    PROOF,
    Datum,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import (
    HostReading,
    channels_of,
    drift_data,
    image_datum,
    of_health,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site

# The kinds of data that playbooks read of the hosts of a group.
READS = {
    "gpu_hosts": (HEALTH, DRIFT),
    "gpu_nodes": (HEALTH,),
    "gpu_guests": (HEALTH, PROOF, DRIFT),
    "nodes": (IMAGE, PROOF),
    "roce_switches": (FABRIC,),
    "roce_hosts": (FABRIC,),
}
SWITCHES = "roce_switches"
# The variables in which the plays of playbooks/fleet.yml keep the results of a refresh.
NODE, COMPARED, STORE = "__fleet_node", "__fleet_compared", "__fleet_store"


@dataclass(frozen=True)
class FleetHost:
    """A host of the inventory. ``reads`` are the kinds of data that playbooks can read of it."""

    name: str
    group: str  # "gpu_nodes"; with a blueprint its kind, "leaf"
    reads: tuple[str, ...] = ()
    on: str = ""  # the host of a guest
    spare: bool = False
    switch: bool = False


def fleet_hosts(
    groups: Mapping[str, Sequence[str]], variables: Mapping[str, Mapping[str, Any]], site: Site | None = None
) -> list[FleetHost]:
    """Return the hosts in the order of the inventory. ``variables``: those of each host."""
    members = {group: set(groups.get(group, ())) for group in READS}
    switches = {device.name for device in site.switches()} if site else members[SWITCHES]
    hosts = []
    for name, host_vars in variables.items():
        listed = [group for group in READS if name in members[group]]
        on = str(host_vars.get("gpu_guest_host") or host_vars.get("site_host") or "") if "gpu_guests" in listed else ""
        reads = dict.fromkeys(kind for group in listed for kind in READS[group])
        if "vsphere" in (host_vars.get("gpu_vm_backend"), variables.get(on, {}).get("gpu_vm_backend")):
            # ESXi runs no Python, and is compared through vCenter only.
            reads.pop(DRIFT, None)
            if "gpu_hosts" in listed:
                reads.pop(HEALTH, None)
        if site and name in site.devices:
            group = site.devices[name].kind.name
        else:
            group = next(iter([*listed, *(host_vars.get("group_names") or ())]), "ungrouped")
        hosts.append(FleetHost(name, group, tuple(reads), on, bool(host_vars.get("site_spare")), name in switches))
    return hosts


def refreshed(
    earlier: Mapping[str, HostReading],
    hosts: Sequence[FleetHost],
    variables: Mapping[str, Mapping[str, Any]],
    servers: Sequence[str],
    now_s: float,
) -> dict[str, HostReading]:
    """Return the readings with those of this run. ``servers``: the boot servers, which know the images of channels."""
    readings = dict(earlier)
    guests: dict[str, list[str]] = {}
    for host in hosts:
        if host.on:
            guests.setdefault(host.on, []).append(host.name)
    channels = channels_of([variables.get(server, {}).get(STORE) for server in servers]) if servers else {}
    for host in hosts:
        host_vars = variables[host.name]
        previous = readings.get(host.name, HostReading())
        answer, compared = _result(host_vars, NODE), _result(host_vars, COMPARED)
        if answer is not None:
            read = of_health(host.name, answer, previous, now_s)
            fresh = [entry for entry in read.data if HEALTH in host.reads]
            if IMAGE in host.reads:
                image = host_vars.get("node_boot_image") or {"channel": "stable"}
                fresh.append(image_datum(answer, image, channels, now_s))
            readings[host.name] = replace(read, data=_merged(previous.data, fresh))
        if compared is not None:
            for name, entry in drift_data(host.name, compared, guests.get(host.name, ()), now_s).items():
                reading = readings.get(name, HostReading())
                readings[name] = replace(reading, data=_merged(reading.data, [entry]))
    return readings


def _result(variables: Mapping[str, Any], name: str) -> Any:
    """Return the result of a task that was not skipped, or None."""
    result = variables.get(name)
    return None if isinstance(result, Mapping) and result.get("skipped") else result


def _merged(earlier: Sequence[Datum], fresh: Sequence[Datum]) -> list[Datum]:
    kinds = {entry.kind for entry in fresh}
    return [*(entry for entry in earlier if entry.kind not in kinds), *fresh]
