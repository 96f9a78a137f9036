# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert a site to objects of NetBox's REST API. Pure.

The names are those of the inventory, so the inventory plugin netbox.netbox.nb_inventory has the same hosts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Cable, Site, SiteDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import interface
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import PortGroup

# The key that identifies an object, such as ("gpu01", "eno1") for an interface; a cable's has the keys of both ends.
Key = tuple[Any, ...]
Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

# NetBox: dcim/choices.py, InterfaceTypeChoices, by Gbit/s; all other speeds have the type "other".
ETHERNET = {
    1: "1000base-t",
    10: "10gbase-x-sfpp",
    25: "25gbase-x-sfp28",
    40: "40gbase-x-qsfpp",
    100: "100gbase-x-qsfp28",
    200: "200gbase-x-qsfp56",
    400: "400gbase-x-qsfpdd",
    800: "800gbase-x-qsfpdd",
}
INFINIBAND = {100: "infiniband-edr", 200: "infiniband-hdr", 400: "infiniband-ndr", 800: "infiniband-xdr"}
# NetBox: dcim/choices.py, CableTypeChoices; the media that a blueprint adds have no type.
CABLES = {
    "dac": "dac-passive",
    "ndr-dac": "dac-passive",
    "ndr-acc": "dac-active",
    "aoc": "aoc",
    "mmf": "mmf",
    "ndr-mmf": "mmf",
    "smf": "smf",
    "cat6a": "cat6a",
}


class Ref(NamedTuple):
    """The value of a field that is the id of another object."""

    kind: str
    key: Key

    def __str__(self) -> str:
        return " ".join(self.key)


# kind -> key -> fields, both in the order in which the objects need each other.
Objects = dict[str, dict[Key, dict[str, Any]]]


def slug(text: str) -> str:
    """Return NetBox's slug of a name, for URLs; nb_inventory names groups by it."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def netbox(site: Site, manufacturer: str) -> Objects:
    """Return the objects of a site.

    A blueprint has no manufacturers: ``manufacturer`` is set for all device types.
    """
    name = site.blueprint.site
    at_site = Ref("sites", (slug(name),))
    maker = Ref("manufacturers", (slug(manufacturer),))
    physical = [kind for kind in site.blueprint.kinds.values() if kind.model]
    devices = [device for device in site.devices.values() if device.kind.model]
    models = {kind.model.name: kind.model for kind in physical if kind.model}
    return {
        "sites": {at_site.key: {"name": name, "slug": slug(name)}},
        "manufacturers": {maker.key: {"name": manufacturer, "slug": slug(manufacturer)}},
        "device_types": {
            (slug(model.name),): {
                "manufacturer": maker,
                "model": model.name,
                "slug": slug(model.name),
                "part_number": model.part,
                "u_height": model.units,
            }
            for model in models.values()
        },
        "device_roles": {
            (slug(kind.name),): {"name": kind.name, "slug": slug(kind.name), "vm_role": False} for kind in physical
        },
        "racks": {
            (rack.name,): {"name": rack.name, "site": at_site, "u_height": rack.rack_spec.units} for rack in site.racks
        },
        "prefixes": {
            (str(subnet),): {
                "prefix": str(subnet),
                "scope_type": "dcim.site",
                "scope_id": at_site,
                "description": network if len(subnets) == 1 else f"{network} {number}",
            }
            for network, subnets in site.subnets.items()
            for number, subnet in enumerate(subnets, 1)
        },
        "devices": {(device.name,): _device(at_site, device) for device in devices},
        "interfaces": {(device.name, item["name"]): item for device in devices for item in _interfaces(device)},
        "addresses": dict(item for device in devices for item in _addresses(site, device)),
        # Ansible connects to a device at its first address.
        "primary_addresses": {
            (device.name,): {f"primary_ip{address.version}": Ref("addresses", (str(address.ip),))}
            for device in devices
            if device.addresses
            for address in [_ip(site, device)]
        },
        "cables": dict(_cable(cable) for cable in site.cables),
    }


def _device(at_site: Ref, device: SiteDevice) -> dict[str, Any]:
    return {
        "name": device.name,
        "device_type": Ref("device_types", (slug(device.model.name),)),
        "role": Ref("device_roles", (slug(device.kind.name),)),
        "site": at_site,
        "rack": Ref("racks", (device.rack.name,)),
        "position": device.unit,
        "face": "front",
    }


def _interfaces(device: SiteDevice) -> list[dict[str, Any]]:
    """Return the interfaces with a cable, and one for each network whose address belongs to none of them."""
    ports = [_interface(device, port, cable) for port, cable in device.cables.items()]
    names = {interface["name"] for interface in ports}
    virtual = [name for network in device.addresses if (name := _at(device, network)) not in names]
    return ports + [{"device": Ref("devices", (device.name,)), "name": name, "type": "virtual"} for name in virtual]


def _interface(device: SiteDevice, port: str, cable: Cable) -> dict[str, Any]:
    types = INFINIBAND if cable.rule.infiniband else ETHERNET
    # NetBox stores speeds in kbit/s.
    speed = int(cable.speed_gbit_s * 1_000_000)
    kind = types.get(int(cable.speed_gbit_s), "other") if cable.speed_gbit_s >= 1 else "other"
    fields = {
        "device": Ref("devices", (device.name,)),
        "name": interface(device, port),
        "type": kind,
        "speed": speed,
    }
    if port != fields["name"]:
        fields["label"] = port
    if not _group(device, port).lldp:
        fields["mgmt_only"] = True
    return fields


def _group(device: SiteDevice, port: str) -> PortGroup:
    return next(group for group in device.model.ports.values() if port in group.names)


def _at(device: SiteDevice, network: str) -> str:
    """Return the name of the interface with the address of a network: a port's name, or else the network's."""
    for spec in device.kind.addresses:
        if spec.ports and device.kind.model and network.startswith(f"{spec.network}-"):
            number = network[len(spec.network) + 1 :]
            if number.isdecimal():
                return device.kind.model.ports[spec.ports].interfaces[int(number)]
    return network


def _addresses(site: Site, device: SiteDevice) -> list[tuple[Key, dict[str, Any]]]:
    domain = f".{site.blueprint.domain}" if site.blueprint.domain else ""
    addresses = []
    for index, network in enumerate(device.addresses):
        address = _ip(site, device, network)
        name = f"{device.name}-{network.replace('_', '-')}{domain}" if index else f"{device.name}{domain}"
        fields = {
            "address": str(address),
            "assigned_object_type": "dcim.interface",
            "assigned_object_id": Ref("interfaces", (device.name, _at(device, network))),
            "dns_name": name,
        }
        addresses.append(((str(address.ip),), fields))
    return addresses


def _ip(site: Site, device: SiteDevice, network: str = "") -> Interface:
    """Return a device's address in a network, by default its first address, with the network's prefix length."""
    network = network or next(iter(device.addresses))
    address = ipaddress.ip_address(device.addresses[network])
    spec = next(
        network_spec.network
        for network_spec in device.kind.addresses
        if network_spec.network in (network, _base(network))
    )
    prefix = next(network_spec for network_spec in site.subnets[spec] if address in network_spec)
    return ipaddress.ip_interface(f"{address}/{prefix.prefixlen}")


def _base(network: str) -> str:
    """Return the name of the network in "NETWORK-PORT"."""
    return network.rpartition("-")[0]


def _cable(cable: Cable) -> tuple[Key, dict[str, Any]]:
    medium = CABLES.get(cable.rule.medium.name)
    ends = [(cable.a.name, interface(cable.a, cable.a_port)), (cable.b.name, interface(cable.b, cable.b_port))]
    fields = {
        **{f"{end}_terminations": [Ref("interfaces", key)] for end, key in zip("ab", ends)},
        **({"type": medium} if medium else {}),
        "label": f"{cable.rule.name}-{cable.number:06d}",
        "length": cable.length_m,
        "length_unit": "m",
    }
    return cable_key(ends), fields


def cable_key(ends: Iterable[Key]) -> Key:
    """Return the key of the cable between two interfaces. NetBox may have the ends A and B exchanged."""
    return tuple(sorted(ends))
