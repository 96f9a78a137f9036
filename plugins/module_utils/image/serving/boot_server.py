# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check a boot server's variables for values that dnsmasq, nginx and iPXE accept but that would boot no node. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import (
    checked_digest,
    checked_node,
    listed,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_plan import (
    CPUS,
    DEFAULT_CPU,
    DRIVERS,
    FIRMWARE,
    IPXE,
    address_range,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import (
    INTERFACE,
    checked_mac,
    checked_server,
)

Address = ipaddress.IPv4Address
Found = Callable[[Any], Optional[str]]
Network = ipaddress.IPv4Network
_FOUR = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_FULL = "boot_server_dhcp to full"
# Paths are not quoted in the configurations of nginx and dnsmasq, which interpret quotes, semicolons, braces, '$' and
# '#'.
_FOLDER = re.compile(r"[A-Za-z0-9/._-]+")


@dataclass(frozen=True)
class Server:
    """A boot server as the role's variables give it, unchecked. ``gives``: whether it assigns the nodes' addresses."""

    address: str
    netmask: str
    gateway: str
    name_servers: tuple[str, ...]
    urls: tuple[str, ...]
    gives: bool
    subnets: tuple[Any, ...] = ()
    interface: str = "eth0"
    http_port: int = 80
    store_dir: str = "/srv/sailloft"
    tftp_dir: str = "/srv/tftp"
    discovery: Any = None


def problems(server: Server, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the errors as sentences that name the variable or the nodes, and the remedy.

    A node has name and mac, and address if the server assigns the addresses; it may have architecture and nic_driver.
    """
    texts, network = _of_server(server)
    wrong, subnets = _of_subnets(server, network)
    texts += wrong
    networks = [subnet for subnet in (network, *subnets) if subnet]
    gateways = {subnet.get("gateway"): "a gateway's" for subnet in server.subnets if isinstance(subnet, Mapping)}
    for node in nodes:
        texts += _said(checked_node, node.get("name"))
        texts += _said(checked_mac, node.get("mac"), _subject(node))
        texts += _value(_subject(node), _architecture, node)
        texts += _value(_subject(node), _driver, node)
        if server.gives:
            # A problem of a network itself is reported once and not for each node.
            texts += _of_address(node, server, [] if wrong or not network else networks, gateways)
    if server.discovery:
        texts += _of_discovery(server, networks, {_address(node.get("address")) for node in nodes})
    texts += _shared(nodes, "name", lambda value: value)
    texts += _shared(nodes, "mac", _mac)
    if server.gives:
        texts += _shared(nodes, "address", lambda value: str(_address(value) or "") or None)
    return texts


def _of_server(server: Server) -> tuple[list[str], Network | None]:
    """Return the errors in the server's own variables; and its network, None if it is unknown."""
    texts: list[str] = [
        *_value("boot_server_interface", _matching, server.interface, INTERFACE, "name one interface, like eth1"),
        *_value("boot_server_http_port", values.integer, server.http_port, 1, 65535),
        *_value("boot_server_store_dir", _folder, server.store_dir),
        *_value("boot_server_tftp_dir", _folder, server.tftp_dir),
    ]
    network = None
    address = _address(server.address)
    if not address:
        texts.append(f"boot_server_address is {_shown(server.address)}, give an IPv4 address")
    mask = _mask_bits(server.netmask)
    if mask is None:
        texts.append(f"boot_server_netmask is {_shown(server.netmask)}, give a mask like 255.255.255.0")
    elif address:
        network = Network(f"{address}/{mask}", strict=False)
        if not _is_host(address, network):
            texts.append(
                f"boot_server_address is {server.address}, which is not a host address in {network}, "
                "give the server's own"
            )
    if server.gateway:
        gateway = _address(server.gateway)
        if not gateway:
            texts.append(f"boot_server_gateway is {_shown(server.gateway)}, give an IPv4 address")
        elif network and not _is_host(gateway, network):
            texts.append(f"boot_server_gateway is {gateway}, give an address of {network}, where the nodes are")
    texts += [
        f"boot_server_name_servers names {_shown(value)}, give IPv4 addresses"
        for value in server.name_servers
        if not _address(value)
    ]
    for url in server.urls:
        texts += _said(checked_server, url, "boot_server_servers")
    if not server.urls:
        texts.append("boot_server_servers is empty, give http://ADDRESS of each boot server")
    return texts, network


def _of_subnets(server: Server, server_network: Network | None) -> tuple[list[str], list[Network]]:
    """Return the errors in boot_server_subnets, and the networks of its valid items."""
    texts: list[str] = []
    networks: list[Network] = []
    for subnet in server.subnets:
        try:
            network, gateway = _subnet(subnet)
        except InvalidValueError as error:
            texts.append(f"boot_server_subnets: {error.cause}, {error.remedy}")
            continue
        subject = f"boot_server_subnets: {network}"
        if server_network and network.overlaps(server_network):
            texts.append(
                f"{subject} overlaps {server_network}, the network of boot_server_address; leave it out or correct it"
            )
        elif any(network.overlaps(neighbour) for neighbour in networks):
            neighbour = next(neighbour for neighbour in networks if network.overlaps(neighbour))
            texts.append(f"{subject} overlaps {neighbour}; correct one of them")
        elif not _is_host(gateway, network):
            texts.append(f"{subject} has the gateway {gateway}, give an address of that network")
        networks.append(network)
    return texts, networks


def _of_discovery(server: Server, networks: Sequence[Network], used_addresses: set[Address | None]) -> list[str]:
    """Return the errors in boot_server_discovery; ``used_addresses`` are the addresses of nodes."""
    discovery, name = server.discovery, "boot_server_discovery"
    if not isinstance(discovery, Mapping) or not {"image", "ranges"} <= set(discovery) or not discovery["ranges"]:
        return [f"{name} has not both image and ranges, give {{image: DIGEST, ranges: [FIRST-LAST]}}"]
    texts = [] if server.gives else [f"{name}: unknown machines need addresses of this server, set {_FULL}"]
    texts += _said(checked_digest, discovery["image"], f"{name}.image")
    texts += _value(name, _architecture, discovery)
    for text in values.items(discovery["ranges"]):
        try:
            first, last = address_range(str(text))
        except ValueError:
            texts.append(
                f"{name}.ranges: {text!r} is not FIRST-LAST, give two IPv4 addresses, as 10.9.0.200-10.9.0.250"
            )
            continue
        if not any(_is_host(first, network) and _is_host(last, network) for network in networks):
            texts.append(f"{name}.ranges: {text} is not in one network of this server, give addresses of one")
        conflicts = [
            address for address in (*used_addresses, _address(server.address)) if address and first <= address <= last
        ]
        if conflicts:
            texts.append(f"{name}.ranges: {text} contains {min(conflicts)} of a node or server, give free addresses")
    return texts


def _subnet(entry: Any) -> tuple[Network, Address]:
    """Return network and gateway of an item of boot_server_subnets. Raises InvalidValueError."""
    if not isinstance(entry, Mapping) or set(entry) != {"network", "gateway"}:
        raise InvalidValueError(
            f"{entry!r} is not a subnet", "give {network: ADDRESS/BITS, gateway: ADDRESS}, and nothing else"
        )
    text, _slash, bits = str(entry["network"]).partition("/")
    first = _address(text)
    if not first or not re.fullmatch(r"[1-9]|[12][0-9]|30", bits):
        raise InvalidValueError(f"{entry['network']!r} is not a network", "give ADDRESS/BITS, like 10.9.16.0/20")
    network = Network(f"{first}/{bits}", strict=False)
    if network.network_address != first:
        raise InvalidValueError(f"{entry['network']!r} begins with a host address", f"give {network} if that is meant")
    gateway = _address(entry["gateway"])
    if not gateway:
        raise InvalidValueError(
            f"{network} has the gateway {_shown(entry['gateway'])}", "give the IPv4 address of its router"
        )
    return network, gateway


def _of_address(
    node: Mapping[str, Any], server: Server, networks: Sequence[Network], gateways: Mapping[Any, str]
) -> list[str]:
    """Return the errors in the address that the server assigns to the node; ``networks`` is empty if unknown."""
    subject = _subject(node)
    address = _address(node.get("address"))
    if not address:
        return [
            f"{subject} has the address {_shown(node.get('address'))}, give an IPv4 address (ansible_host), or set "
            "boot_server_dhcp to proxy"
        ]
    owners = {server.address: "this boot server's", server.gateway: "the gateway's", **gateways}
    owners.update(dict.fromkeys(server.name_servers, "a name server's"))
    # http://ADDRESS:PORT/PATH
    owners.update({url[len("http://") :].split("/")[0].split(":")[0]: "a boot server's" for url in server.urls})
    if str(address) in owners:
        return [f"{subject} has the address {address}, which is {owners[str(address)]}, give the node its own"]
    if networks and not any(_is_host(address, network) for network in networks):
        if len(networks) == 1:
            place = f"{networks[0]}, the network of boot_server_address"
            remedy = "boot_server_netmask, or name its network in boot_server_subnets"
        else:
            place = f"any of {listed([str(network) for network in networks])}"
            remedy = "boot_server_subnets"
        return [
            f"{subject} has the address {address}, which is not a host address in {place}; correct the address "
            f"(ansible_host) or {remedy}"
        ]
    return []


def _shared(nodes: Sequence[Mapping[str, Any]], key: str, form: Found) -> list[str]:
    """Return the problems of nodes that share a value of ``key``, which must differ between nodes."""
    nouns = {"name": "name", "mac": "MAC address", "address": "address"}[key]
    owners: dict[str, list[str]] = {}
    for node in nodes:
        value = form(node.get(key))
        if value:
            owners.setdefault(value, []).append(str(node.get("name")))
    return [
        f"nodes {listed(names)} have the {nouns} {value}, give each its own"
        for value, names in owners.items()
        if len(names) > 1
    ]


def _value(subject: str, check: Callable[..., Any], *arguments: Any) -> list[str]:
    try:
        check(*arguments)
    except InvalidValueError as error:
        return [f"{subject}: {error.cause}, {error.remedy}"]
    return []


def _matching(value: Any, pattern: re.Pattern[str], remedy: str) -> None:
    if not pattern.fullmatch(values.text(value)):
        raise InvalidValueError(f"{value!r} is not valid", remedy)


def _folder(value: Any) -> None:
    _matching(values.path(value), _FOLDER, "use letters, digits, '/', '.', '_' and '-'")


def _architecture(node: Mapping[str, Any]) -> None:
    try:
        values.one_of(node.get("architecture", DEFAULT_CPU), CPUS)
    except InvalidValueError as error:
        raise InvalidValueError(
            f"its architecture {error.cause}", f"{error.remedy} (boot_server_architecture)"
        ) from error


def _driver(node: Mapping[str, Any]) -> None:
    try:
        driver = values.one_of(node.get("nic_driver", IPXE), DRIVERS)
    except InvalidValueError as error:
        raise InvalidValueError(f"its NIC driver {error.cause}", f"{error.remedy} (boot_server_nic_driver)") from error
    if driver == FIRMWARE and node.get("architecture", DEFAULT_CPU) != DEFAULT_CPU:
        raise InvalidValueError(
            f"its NIC driver is {FIRMWARE}, which only nodes with {DEFAULT_CPU} may have",
            "remove boot_server_nic_driver",
        )


def _mac(value: Any) -> str | None:
    try:
        return checked_mac(value, "").replace("-", ":")
    except ImageError:
        return None


def _said(check: Callable[..., Any], *arguments: Any) -> list[str]:
    try:
        check(*arguments)
    except ImageError as error:
        return [f"{error.subject}: {error.cause}, {error.remedy}"]
    return []


def _address(value: Any) -> Address | None:
    """Return an address of four numbers, None for other values; dnsmasq reads 010.9.0.1 as a different address."""
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


def _is_host(address: Address, network: Network) -> bool:
    """Return whether the address can be a host's in the network.

    The first and the last address are reserved (RFC 919), except in a /31 (RFC 3021) and a /32.
    """
    if address not in network:
        return False
    return network.prefixlen >= 31 or address not in (network.network_address, network.broadcast_address)


def _subject(node: Mapping[str, Any]) -> str:
    return f"node {node.get('name')}"


def _shown(value: Any) -> str:
    return str(value) if value not in (None, "") else "(none)"
