# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names and addresses of a site: DNS records, and the nodes in the form that roles/boot_server accepts."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site, SiteDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import NODES


def hosts_file(site: Site) -> str:
    """Return all addresses in the form of /etc/hosts, which DNS servers read as well (dnsmasq, CoreDNS).

    The name of the first address is the device's name; the names of the others are NAME-NETWORK.
    """
    domain = f".{site.blueprint.domain}" if site.blueprint.domain else ""
    lines = []
    for device in site.devices.values():
        for index, (network, address) in enumerate(device.addresses.items()):
            name = device.name if not index else f"{device.name}-{network.replace('_', '-')}"
            lines.append(f"{address} {name}{domain}{f' {name}' if domain else ''}\n")
    return "".join(lines)


def boot_nodes(site: Site) -> list[dict[str, Any]]:
    """Return the name and address of each node that boots from the network. The inventory has the MAC addresses."""
    return [
        {"name": device.name, "address": next(iter(device.addresses.values()))}
        for kind in site.blueprint.kinds.values()
        if NODES in (kind.name, *kind.groups)
        for device in site.by_kind[kind.name]
        if device.addresses
    ]


def boot_nodes_file(site: Site) -> str:
    """Return ``boot_nodes`` as JSON, one node per line."""
    return "[\n" + ",\n".join(json.dumps(node) for node in boot_nodes(site)) + "\n]\n"


def interface(device: SiteDevice, port: str) -> str:
    """Return the name of a port on the device's own system."""
    for group in device.model.ports.values():
        if port in group.names:
            return group.interfaces[group.names.index(port)]
    return port


def model_interfaces(site: Site) -> dict[tuple[str, str], str]:
    """Return by (model, port) the name of each port on the device's own system."""
    return {
        (model.name, port): name
        for kind in site.blueprint.kinds.values()
        if (model := kind.model)
        for group in model.ports.values()
        for port, name in zip(group.names, group.interfaces)
    }


def neighbours_file(site: Site) -> str:
    """Return the expected neighbours of all devices as JSON, by device and interface: [far device, far interface]."""
    names = model_interfaces(site)
    lines = []
    for device in site.devices.values():
        if not device.cables:
            continue
        ports = {}
        for port, cable in device.cables.items():
            far, far_port = cable.far(device)
            ports[names[device.model.name, port]] = [far.name, names[far.model.name, far_port]]
        lines.append(f"{json.dumps(device.name)}: {json.dumps(ports)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
