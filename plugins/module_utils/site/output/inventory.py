# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory of a site: groups and variables in the form that roles and playbooks read. Pure."""

from __future__ import annotations

from collections.abc import Container
from math import ceil
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, Cable, Site, SiteDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import SITE, DeviceKind, Network

# The group whose hosts boot from the network (roles/node_boot).
NODES = "nodes"
# The group of servers that are only caches of the others (roles/boot_server, tasks_from: cache).
CACHES = "boot_caches"


def cable_label(cable: Cable) -> str:
    """Return the label of a cable: the name of its rule and its number in the site."""
    return f"{cable.rule.name}-{cable.number:06d}"


def inventory(site: Site) -> dict[str, Any]:
    """Return ``groups`` (name -> children, vars) and ``hosts`` (name -> group, vars).

    Hosts with equal variables share the same objects; do not change them.
    """
    groups: dict[str, Any] = {site.blueprint.site: {"children": [], "vars": {}}}
    for kind in site.blueprint.kinds.values():
        groups[kind.name] = {"children": [], "vars": dict(kind.variables)}
        for parent in (site.blueprint.site, *kind.groups):
            groups.setdefault(parent, {"children": [], "vars": {}})["children"].append(kind.name)
    boot = _Boot(site)
    roce = _Roce(site)
    hosts = {}
    for kind in site.blueprint.kinds.values():
        for device in site.by_kind[kind.name]:
            variables = _own(kind, device)
            roce.add(device, variables)
            boot.add(device, variables)
            ports = _ports(device, roce.switches_of_all)
            if ports:
                variables["site_ports"] = ports
            if device.spare:
                variables["site_spare"] = True
            hosts[device.name] = {"group": kind.name, "vars": variables}
    return {"groups": groups, "hosts": hosts}


def _own(kind: DeviceKind, device: SiteDevice) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if kind.addresses and not kind.addresses[0].ports:
        variables["ansible_host"] = device.addresses[kind.addresses[0].network]
    if device.addresses:
        variables["site_addresses"] = device.addresses
    if device.host:
        variables["site_host"] = device.host.name
    else:
        variables["site_unit"] = device.unit
    variables["site_rack"] = device.rack.name
    variables["site_blocks"] = {name: number for name, number in device.rack.numbers.items() if name != SITE}
    if device.block is not device.rack:
        variables["site_blocks"].update(
            {name: position for name, position in device.block.numbers.items() if name != SITE}
        )
    return variables


def _ports(device: SiteDevice, switches: set[str]) -> dict[str, Any]:
    """Return the ports that the system of a host has, each with its cable: what its health check expects."""
    if device.kind.name in switches or not device.cables:
        return {}
    ports = {}
    for group in device.model.ports.values():
        for rail, (port, name) in enumerate(zip(group.names, group.interfaces)):
            cable = device.cables.get(port)
            if cable is None or not group.lldp:
                continue
            far, far_port = cable.far(device)
            is_rdma = cable.rule.roce or cable.rule.infiniband
            ports[port if is_rdma else name] = {
                "speed_gbit_s": cable.speed_gbit_s,
                "infiniband": cable.rule.infiniband,
                "peer": f"{far.name} {far_port}",
                "cable": cable_label(cable),
                "rail": rail,
            }
    return ports


class _Roce:
    """The variables roce_switch_ports and roce_host_nics of RoCE links, with lengths in whole metres."""

    def __init__(self, site: Site) -> None:
        self.switches = {rule.to for rule in site.blueprint.links if rule.roce}
        self.switches_of_all = {rule.to for rule in site.blueprint.links}
        self.shared: dict[Any, dict[str, Any]] = {}

    def add(self, device: SiteDevice, variables: dict[str, Any]) -> None:
        cables = {port: cable for port, cable in device.cables.items() if cable.rule.roce}
        if not cables:
            return
        if device.kind.name in self.switches:
            ports = {}
            for port, cable in cables.items():
                far, far_port = cable.far(device)
                peer = {"switch" if far.kind.name in self.switches else "host": far.name, "port": far_port}
                ports[port] = {"speed_gbit_s": cable.speed_gbit_s, "cable_m": ceil(cable.length_m), "peer": peer}
            variables["roce_switch_ports"] = ports
        else:
            # Most hosts have equal NICs and share one object.
            key = tuple((port, cable.speed_gbit_s, ceil(cable.length_m)) for port, cable in cables.items())
            if key not in self.shared:
                self.shared[key] = {port: {"speed_gbit_s": speed, "cable_m": length} for port, speed, length in key}
            variables["roce_host_nics"] = self.shared[key]


class _Boot:
    """The variables of boot servers and of their nodes; a node boots from those in the smallest block that has any."""

    def __init__(self, site: Site) -> None:
        self.site = site
        # The URLs of the servers, by kind of server and number of its block.
        self.urls: dict[str, dict[int, list[str]]] = {}
        servers = [kind for kind in site.blueprint.kinds.values() if kind.serves]
        depth = {name: depth_of for depth_of, name in enumerate((SITE, *site.blueprint.blocks))}
        self.servers = sorted(servers, key=lambda kind: -depth[kind.per])
        for kind in servers:
            by_block = self.urls.setdefault(kind.name, {})
            for device in site.by_kind[kind.name]:
                by_block.setdefault(device.block.numbers[kind.per], []).append(f"http://{_address(device)}")

    def add(self, device: SiteDevice, variables: dict[str, Any]) -> None:
        kind = device.kind
        if kind.serves:
            self._serve(device, variables)
        elif NODES in (kind.name, *kind.groups):
            urls, caches = (self._nearest(device, device.addresses, caches) for caches in (False, True))
            if urls:
                variables["node_boot_server_urls"] = urls
                variables["node_boot_report_url"] = f"{urls[0]}/report"
                variables.update({"node_boot_cache_urls": caches} if caches else {})
                variables.update(self._nics(device))

    def _nearest(self, device: SiteDevice, networks: Container[str], caches: bool) -> list[str]:
        """Return the URLs of the servers (or caches) of these networks in the smallest block around the device."""
        for server in self.servers:
            number = device.rack.numbers.get(server.per)
            is_cache = CACHES in (server.name, *server.groups)
            if is_cache == caches and server.serves in networks and number in self.urls[server.name]:
                return self.urls[server.name][number]
        return []

    def _nics(self, device: SiteDevice) -> dict[str, Any]:
        """Return node_boot_nics: the Ethernet ports that have an address each; the NIC that boots uses DHCP."""
        nics = []
        for spec in device.kind.addresses:
            ports = device.kind.model.ports[spec.ports] if device.kind.model and spec.ports else None
            for index, (port, name) in enumerate(zip(ports.names, ports.interfaces) if ports else ()):
                if port in device.cables and device.cables[port].rule.infiniband:
                    continue
                prefix_bits = self.site.blueprint.networks[spec.network].network.prefixlen
                nics.append({"name": name, "address": f"{device.addresses[f'{spec.network}-{index}']}/{prefix_bits}"})
        return {"node_boot_nics": nics} if nics else {}

    def _serve(self, device: SiteDevice, variables: dict[str, Any]) -> None:
        kind = device.kind
        if CACHES in (kind.name, *kind.groups):
            variables["boot_server_address"] = _address(device)
            variables["boot_server_servers"] = self._nearest(device, (kind.serves,), False)
            return
        own_name = kind.addresses[0].network
        own_spec, spec = self.site.blueprint.networks[own_name], self.site.blueprint.networks[kind.serves]
        numbers = {**device.rack.numbers, **device.block.numbers}
        own_subnet = self.site.subnets[own_name][numbers[own_spec.per] - 1]
        variables["boot_server_address"] = _address(device)
        variables["boot_server_netmask"] = str(own_subnet.netmask)
        variables["boot_server_servers"] = self.urls[kind.name][device.block.numbers[kind.per]]
        if own_spec.gateway:
            variables["boot_server_gateway"] = str(own_subnet[own_spec.gateway])
        # Routers relay DHCP requests from the networks that the server is not in.
        served_subnets = [
            subnet for subnet in self._served(device.block, spec.per, kind.serves) if subnet != own_subnet
        ]
        if served_subnets and spec.gateway:
            variables["boot_server_subnets"] = [
                {"network": str(subnet), "gateway": str(subnet[spec.gateway])} for subnet in served_subnets
            ]

    def _served(self, block: Block, per: str, network: str) -> list[Network]:
        """Return the networks of a name for the nodes of a block."""
        subnets = self.site.subnets[network]
        if per in block.numbers:
            return [subnets[block.numbers[per] - 1]]
        indices = []
        queue = [block]
        while queue:
            inner = queue.pop()
            if inner.kind == per:
                indices.append(inner.numbers[per] - 1)
            else:
                queue += inner.children
        return [subnets[index] for index in sorted(indices)]


def _address(device: SiteDevice) -> str:
    """Return a server's own address: its first one, which Ansible also uses."""
    return device.addresses[device.kind.addresses[0].network]
