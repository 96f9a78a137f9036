# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether nodes can be served by a boot server: what dnsmasq and iPXE would take, and answer no node for. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.sailloft.fleet.plugins.module_utils.image.boot_script import checked_mac, checked_server
from ansible_collections.sailloft.fleet.plugins.module_utils.image.error import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.names import checked_node, listed

Address = ipaddress.IPv4Address
Found = Callable[[Any], Optional[str]]
_FOUR = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")


@dataclass(frozen=True)
class Server:
    """A boot server as the role's variables give it: texts, unchecked. ``gives`` says that it gives the addresses."""

    address: str
    netmask: str
    gateway: str
    name_servers: tuple[str, ...]
    urls: tuple[str, ...]
    gives: bool


def problems(server: Server, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong, in sentences that name the variable or the nodes and the next step; empty where nothing is.

    A node has name, mac and, where the server gives the addresses, address.
    """
    found, network = _of_server(server)
    for node in nodes:
        found += _said(lambda node=node: checked_node(node.get("name")))
        found += _said(lambda node=node: checked_mac(node.get("mac"), _subject(node)))
        if server.gives:
            found += _of_address(node, server, network)
    found += _shared(nodes, "name", lambda value: value)
    found += _shared(nodes, "mac", _mac)
    if server.gives:
        found += _shared(nodes, "address", lambda value: str(_address(value) or "") or None)
    return found


def _of_server(server: Server) -> tuple[list[str], ipaddress.IPv4Network | None]:
    """What is wrong with the server's own variables; its network, None where that cannot be told."""
    found: list[str] = []
    network = None
    if not _address(server.address):
        found.append(f"boot_server_address is {_shown(server.address)}, give an IPv4 address")
    mask = _mask_bits(server.netmask)
    if mask is None:
        found.append(f"boot_server_netmask is {_shown(server.netmask)}, give a mask like 255.255.255.0")
    elif _address(server.address):
        network = ipaddress.ip_network(f"{server.address}/{mask}", strict=False)
        if not _is_host(_address(server.address), network):
            found.append(f"boot_server_address is {server.address}, which is no host's in {network}, give its own")
    if server.gateway:
        gateway = _address(server.gateway)
        if not gateway:
            found.append(f"boot_server_gateway is {_shown(server.gateway)}, give an IPv4 address")
        elif network and not _is_host(gateway, network):
            found.append(f"boot_server_gateway is {gateway}, give an address of {network}, where the nodes are")
    found += [
        f"boot_server_name_servers names {_shown(value)}, give IPv4 addresses"
        for value in server.name_servers
        if not _address(value)
    ]
    for url in server.urls:
        found += _said(lambda url=url: checked_server(url, "boot_server_servers"))
    if not server.urls:
        found.append("boot_server_servers is empty, give http://ADDRESS of each boot server")
    return found, network


def _of_address(node: Mapping[str, Any], server: Server, network: ipaddress.IPv4Network | None) -> list[str]:
    """What is wrong with the address that the server is to give to the node."""
    subject = _subject(node)
    address = _address(node.get("address"))
    if not address:
        return [
            f"{subject} has the address {_shown(node.get('address'))}, give an IPv4 address (ansible_host), or set "
            "boot_server_dhcp to proxy"
        ]
    taken = {server.address: "this boot server's", server.gateway: "the gateway's"}
    taken.update(dict.fromkeys(server.name_servers, "a name server's"))
    # http://ADDRESS:PORT/PATH
    taken.update({url[len("http://") :].split("/")[0].split(":")[0]: "a boot server's" for url in server.urls})
    if str(address) in taken:
        return [f"{subject} has the address {address}, which is {taken[str(address)]}, give it its own"]
    if network and not _is_host(address, network):
        return [
            f"{subject} has the address {address}, which is no host's in {network}, the network of "
            "boot_server_address; correct the address (ansible_host) or boot_server_netmask"
        ]
    return []


def _shared(nodes: Sequence[Mapping[str, Any]], key: str, form: Found) -> list[str]:
    """Which nodes have the same of what is to be each one's own."""
    words = {"name": "name", "mac": "MAC address", "address": "address"}[key]
    owners: dict[str, list[str]] = {}
    for node in nodes:
        value = form(node.get(key))
        if value:
            owners.setdefault(value, []).append(str(node.get("name")))
    return [
        f"nodes {listed(names)} have the {words} {value}, give each its own"
        for value, names in owners.items()
        if len(names) > 1
    ]


def _mac(value: Any) -> str | None:
    try:
        return checked_mac(value, "").replace("-", ":")
    except ImageError:
        return None


def _said(check: Callable[[], Any]) -> list[str]:
    try:
        check()
    except ImageError as error:
        return [f"{error.subject}: {error.why}, {error.mend}"]
    return []


def _address(value: Any) -> Address | None:
    """An address in four numbers, None for all else; dnsmasq takes 010.9.0.1 for another one."""
    if not isinstance(value, str) or not _FOUR.fullmatch(value):
        return None
    try:
        return ipaddress.IPv4Address(value)
    except ValueError:
        return None


def _mask_bits(value: Any) -> int | None:
    mask = _address(value)
    if mask is None:
        return None
    bits = f"{int(mask):032b}".rstrip("0")
    return len(bits) if bits and "0" not in bits else None


def _is_host(address: Address, network: ipaddress.IPv4Network) -> bool:
    """Whether it can be a host's there. The first and the last address are the network's (RFC 919), but of a /31
    (RFC 3021) and a /32."""
    if address not in network:
        return False
    return network.prefixlen >= 31 or address not in (network.network_address, network.broadcast_address)


def _subject(node: Mapping[str, Any]) -> str:
    return f"node {node.get('name')}"


def _shown(value: Any) -> str:
    return str(value) if value not in (None, "") else "(none)"
