# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make the plan of a site: everything that follows from its blueprint, as files and as lines for people to read."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.site import check
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.difference import difference, watts
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import (
    boot_nodes_file,
    hosts_file,
    neighbours_file,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import compute_fabric, topology_conf
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.tables import bill_of_materials, cable_list


def plan(site: Site, old: Site | None = None) -> dict[str, Any]:
    """Return ``files`` (name -> text), ``summary``, ``difference`` and ``broken_rules`` (lines), and ``findings``."""
    findings = check(site)
    fabric = compute_fabric(site)
    files = {
        "cables.csv": cable_list(site),
        "materials.csv": bill_of_materials(site),
        "hosts": hosts_file(site),
        "boot_nodes.json": boot_nodes_file(site),
        "neighbours.json": neighbours_file(site),
        "site.svg": picture(site),
    }
    if fabric:
        files["topology.conf"] = topology_conf(site, fabric)
    return {
        "files": files,
        "summary": summary(site),
        "difference": difference(old, site) if old else [],
        "findings": [finding._asdict() for finding in findings],
        "broken_rules": [str(finding) for finding in findings],
    }


def summary(site: Site) -> list[str]:
    """Return a summary of the site's contents, as lines."""
    lines = [f"{site.blueprint.site}: {len(site.racks)} racks, {watts(site) / 1000:g} kW, {len(site.cables)} cables"]
    for kind in site.blueprint.kinds.values():
        devices = site.by_kind[kind.name]
        lines.append(f"{len(devices)} {kind.name}: {fold(device.name for device in devices)}")
        spares = [device.name for device in devices if device.spare]
        if spares:
            lines.append(f"{len(spares)} of them {'is a spare' if len(spares) == 1 else 'are spares'}: {fold(spares)}")
    lengths_m: dict[tuple[str, str], list[float]] = {}
    for cable in site.cables:
        lengths_m.setdefault((cable.rule.name, cable.rule.medium.name), []).append(cable.length_m)
    for (rule, medium), metres in lengths_m.items():
        shortest, longest = f"{min(metres):g}", f"{max(metres):g}"
        length = shortest if shortest == longest else f"{shortest} to {longest}"
        lines.append(f"{len(metres)} cables of {rule}: {medium}, {length} m")
    return lines
