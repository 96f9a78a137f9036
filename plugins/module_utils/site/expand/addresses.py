# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Give the devices their addresses by the plan of networks. No address is given twice."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, Site, SiteDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import (
    AddressSpec,
    Blueprint,
    Network,
    NetworkSpec,
)


def expand_networks(blueprint: Blueprint, blocks: Mapping[str, list[Block]]) -> dict[str, list[Network]]:
    """Return the networks of each name, with those of one block in a row. Raises SiteError where any two overlap."""
    subnets: dict[str, list[Network]] = {}
    spans = []
    for name, spec in blueprint.networks.items():
        count = len(blocks[spec.per]) * spec.count
        start, size = int(spec.network.network_address), spec.network.num_addresses
        if start + count * size > 1 << spec.network.max_prefixlen:
            raise _error(
                blueprint,
                name,
                "network",
                f"{count} networks from {spec.network} on exceed the address space",
                "start at a lower address",
            )
        make = type(spec.network)
        prefix = spec.network.prefixlen
        subnets[name] = [make((start + index * size, prefix)) for index in range(count)]
        spans.append((spec.network.version, start, start + count * size, name))
    spans.sort()
    for (version, _start, end, lower), (other_version, start, _end, upper) in zip(spans, spans[1:]):
        if version == other_version and start < end:
            raise _error(
                blueprint,
                upper,
                "network",
                f"{subnets[upper][0]} overlaps with {lower}, which is {subnets[lower][0]} to {subnets[lower][-1]}",
                "move one of them",
            )
    return subnets


def _error(blueprint: Blueprint, name: str, setting: str, cause: str, remedy: str) -> SiteError:
    return SiteError(
        cause, remedy, subject=f"networks.{name}.{setting}", where=blueprint.where("networks", name, setting)
    )


def give_addresses(site: Site) -> None:
    """Set the addresses of all devices. Raises SiteError for one that is taken or outside its network."""
    owners: dict[tuple[str, int, int], str] = {}
    for name, spec in site.blueprint.networks.items():
        if spec.gateway:
            owners.update({(name, index, spec.gateway): "the gateway" for index in range(len(site.subnets[name]))})
    for kind in site.blueprint.kinds.values():
        for address in kind.addresses:
            network = site.blueprint.networks[address.network]
            ranks: Counter[int] = Counter()
            ports = kind.model.ports[address.ports].names if kind.model and address.ports else ("",)
            for device in site.by_kind[kind.name]:
                block = _block_number(site, device, network) - 1
                offset = address.first + ranks[block]
                ranks[block] += 1
                for port in range(len(ports)):
                    index = block * network.count + port
                    _give(site, device, address, index, offset, port if address.ports else -1, owners)


def _block_number(site: Site, device: SiteDevice, network: NetworkSpec) -> int:
    numbers = {**device.rack.numbers, **device.block.numbers}
    if network.per not in numbers:
        raise SiteError(
            f"{device.name} is not in a {network.per}, but {network.name} has a network for each",
            "name another network",
            subject=f"devices.{device.kind.name}.addresses.{network.name}",
            where=site.blueprint.where("devices", device.kind.name, "addresses", network.name),
        )
    return numbers[network.per]


def _give(
    site: Site,
    device: SiteDevice,
    spec: AddressSpec,
    index: int,
    offset: int,
    port: int,
    owners: dict[tuple[str, int, int], str],
) -> None:
    network = site.subnets[spec.network][index]
    path = ("devices", device.kind.name, "addresses", spec.network)
    # The last address of an IPv4 network is its broadcast address, and the first is the network's address.
    reserved = network.version == 4 and network.prefixlen < 31
    if offset > network.num_addresses - 1 - reserved or (reserved and not offset):
        raise SiteError(
            f"{device.name} would have address {offset} of {network}, which is not usable",
            "use a larger network or a lower first",
            subject=".".join(path),
            where=site.blueprint.where(*path),
        )
    key = (spec.network, index, offset)
    owner = owners.setdefault(key, device.name)
    value = str(_ADDRESS[network.version](int(network.network_address) + offset))
    if owner != device.name:
        raise SiteError(
            f"{value} is assigned twice, to {owner} and {device.name}",
            "start one kind of device after the last address of the other",
            subject=".".join(path),
            where=site.blueprint.where(*path),
        )
    device.addresses[spec.network if port < 0 else f"{spec.network}-{port}"] = value


_ADDRESS = {4: ipaddress.IPv4Address, 6: ipaddress.IPv6Address}
