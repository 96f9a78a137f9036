# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a boot server: its networks, the firmwares that it answers, and capacities for its nodes. Pure.

The default limits of dnsmasq, nginx and Linux are far below the number of nodes of a large site. Here, each limit is
computed from that number.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import listed

DEFAULT_CPU = "x86_64"
CPUS = (DEFAULT_CPU, "aarch64")
# Whose driver of the NIC iPXE uses under UEFI: its own, or that of the firmware (Simple Network Protocol), for NICs
# that iPXE does not know or drives badly. It then sees only the NIC that booted.
IPXE, FIRMWARE = "ipxe", "firmware"
DRIVERS = (IPXE, FIRMWARE)


@dataclass(frozen=True)
class Firmware:
    """A way in which firmware requests its boot file.

    ``architectures`` are from IANA's list "Processor Architecture Types" (first in RFC 4578, section 2.1); ``services``
    are dnsmasq's names of them for a proxy (dnsmasq(8), --pxe-service). ``file`` is the boot file that the firmware
    gets, by HTTP if ``http`` is true, else by TFTP. The row is for nodes with this ``driver``, or for all if it is
    empty. ``uefi`` firmware may have Secure Boot: then a node gets the signed kernel of its image, and not this file.
    """

    tag: str
    cpu: str
    architectures: tuple[int, ...]
    services: tuple[str, ...]
    file: str
    http: bool
    driver: str = ""
    uefi: bool = True


# In IANA's list, 7 is x86_64 UEFI and 9 is EBC; RFC 4578 had them the other way round, and firmware sends both.
# UEFI specification, section 24.7 (HTTP boot): the answer has the vendor class HTTPClient and a URL as boot file.
# dnsmasq as a proxy answers only PXE clients.
FIRMWARES = (
    Firmware("bios", "x86_64", (0,), ("x86PC",), "undionly.kpxe", False, uefi=False),
    Firmware("efi-x86_64", "x86_64", (7, 9), ("BC_EFI", "X86-64_EFI"), "ipxe.efi", False, IPXE),
    Firmware("snp-x86_64", "x86_64", (7, 9), ("BC_EFI", "X86-64_EFI"), "snponly.efi", False, FIRMWARE),
    Firmware("efi-aarch64", "aarch64", (11,), ("ARM64_EFI",), "ipxe-arm64.efi", False),
    Firmware("http-x86_64", "x86_64", (16,), (), "ipxe.efi", True, IPXE),
    Firmware("http-snp-x86_64", "x86_64", (16,), (), "snponly.efi", True, FIRMWARE),
    Firmware("http-aarch64", "aarch64", (19,), (), "ipxe-arm64.efi", True),
)
# Those of nodes with Secure Boot, which get their own file; whose driver the NIC has is the firmware's in any case.
SIGNING = (
    Firmware("uefi", "", (7, 9, 11), ("BC_EFI", "X86-64_EFI", "ARM64_EFI"), "", False),
    Firmware("uefi-http", "", (16, 19), (), "", True),
)

# dnsmasq's own defaults (MAXLEASES and TFTP_MAX_CONNECTIONS in its src/config.h).
LEAST_LEASES = 1000
LEAST_TRANSFERS = 50
# Files besides those of transfers: dnsmasq keeps 50 and its DNS sockets (64) for itself (src/dnsmasq.c).
DNSMASQ_FILES = 256
LEAST_CONNECTIONS = 4096
# A node has one transfer, and for a moment also a report or the rest of a transfer that it gave up.
CONNECTIONS_PER_NODE = 2
OPEN_FILE_CACHE = 4096
# nginx, ngx_http_limit_conn_module and ngx_http_limit_req_module: an address takes at most 128 bytes on 64-bit
# machines, so 1 MiB has 8192. A zone has room for twice the nodes, since a full one answers 503 to all clients.
NODES_PER_ZONE_MIB = 4096
# The defaults of Linux (net/ipv4/arp.c). Above the third, new neighbours are refused ("neighbour table overflow"), and
# above the second, the kernel drops some for each new one, so the second must be above the number of all nodes.
NEIGHBOURS = {"gc_thresh1": 128, "gc_thresh2": 512, "gc_thresh3": 1024}


@dataclass(frozen=True)
class Capacity:
    """Limits for a number of nodes.

    leases, transfers and dnsmasq_files (open files) are dnsmasq's; connections and files are each nginx worker's;
    zone_mib is the size of nginx' tables of addresses; neighbours are Linux' settings below net.ipv4.neigh.default, and
    empty if its defaults are enough.
    """

    leases: int
    transfers: int
    dnsmasq_files: int
    connections: int
    files: int
    zone_mib: int
    neighbours: dict[str, int]


def capacity(nodes: int, local_nodes: int) -> Capacity:
    """Return the limits for ``nodes`` nodes; ``local_nodes`` of them are in the server's own network."""
    # Twice the number of nodes: firmware that repeats its request begins a second transfer.
    transfers = max(LEAST_TRANSFERS, 2 * nodes)
    connections = max(LEAST_CONNECTIONS, 1024 + CONNECTIONS_PER_NODE * nodes)
    times = -(-2 * local_nodes // NEIGHBOURS["gc_thresh2"])
    return Capacity(
        # Twice the number of nodes: a node that was removed from the inventory keeps its lease until that expires.
        leases=max(LEAST_LEASES, 2 * nodes),
        transfers=transfers,
        dnsmasq_files=transfers + DNSMASQ_FILES,
        connections=connections,
        # Two files per connection: its socket, and the file that is sent.
        files=2 * connections + 2 * OPEN_FILE_CACHE,
        zone_mib=1 + nodes // NODES_PER_ZONE_MIB,
        neighbours={name: value * times for name, value in NEIGHBOURS.items()} if times > 1 else {},
    )


def plan(
    address: str,
    netmask: str,
    gateway: str,
    subnets: Sequence[Mapping[str, str]],
    nodes: Sequence[Mapping[str, Any]],
    discovery: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return networks, firmwares, files and capacity of a boot server, whose variables boot_server.problems accepts.

    Each file has the nodes that need it, as text for messages. With ``discovery`` (boot_server_discovery), the networks
    also have the ``unknown`` ranges of addresses, as (first, last), and machines that are no nodes boot as well.
    """
    server_network = ipaddress.IPv4Network(f"{address}/{netmask}", strict=False)
    networks: list[dict[str, Any]] = [{"tag": "net0", "first": address, "netmask": netmask, "gateway": gateway}]
    for number, subnet in enumerate(subnets, 1):
        network = ipaddress.ip_network(subnet["network"])
        first = str(network.network_address)
        networks.append(
            {"tag": f"net{number}", "first": first, "netmask": str(network.netmask), "gateway": subnet["gateway"]}
        )
    machines, unknown = list(nodes), 0
    if discovery:
        machines.append({**discovery, "name": "unknown machines"})
        ranges = [address_range(text) for text in discovery["ranges"]]
        unknown = sum(int(last) - int(first) + 1 for first, last in ranges)
        for net in networks:
            within = ipaddress.IPv4Network(f"{net['first']}/{net['netmask']}", strict=False)
            net["unknown"] = [(str(first), str(last)) for first, last in ranges if first in within]
    served = {firmware: [node["name"] for node in machines if _is_for(firmware, node)] for firmware in FIRMWARES}
    firmwares = [firmware for firmware in FIRMWARES if served[firmware] or (not machines and _is_for(firmware, {}))]
    files = {firmware.file: firmware for firmware in firmwares}
    local_nodes = sum(_is_in(node.get("address"), server_network) for node in nodes)
    return {
        "networks": networks,
        "firmwares": [asdict(firmware) for firmware in firmwares],
        "signing": [asdict(firmware) for firmware in SIGNING] if any(map(is_signed, machines)) else [],
        "files": [{"name": name, "cpu": user.cpu, "nodes": listed(served[user])} for name, user in files.items()],
        "capacity": asdict(capacity(len(nodes) + unknown, local_nodes + unknown)),
    }


def address_range(text: str) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
    """Return the first and the last address of "10.9.0.200-10.9.0.250". Raises ValueError for any other text."""
    first, last = (ipaddress.IPv4Address(part) for part in text.split("-"))
    if first > last:
        raise ValueError(f"{last} is before {first}")
    return first, last


def is_signed(node: Mapping[str, Any]) -> bool:
    """Return whether the firmware of this node starts only signed programs."""
    return bool(node.get("secure_boot"))


def _is_for(firmware: Firmware, node: Mapping[str, Any]) -> bool:
    """Return whether a node may boot with this firmware."""
    cpu, driver = node.get("architecture", DEFAULT_CPU), node.get("nic_driver", IPXE)
    return firmware.cpu == cpu and firmware.driver in ("", driver)


def _is_in(address: Any, network: ipaddress.IPv4Network) -> bool:
    """Return whether the node is in the network; True if its address is unknown, as with another DHCP server."""
    try:
        return ipaddress.IPv4Address(address) in network
    except ValueError:
        return True
