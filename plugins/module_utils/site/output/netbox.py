# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A site as objects of NetBox: the arguments ``data`` of the modules of the collection netbox.netbox. Pure.

Names are those of the inventory, so the inventory plugin netbox.netbox.nb_inventory has the same hosts.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Cable, Device, Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import interface
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import PortGroup

Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

# NetBox: dcim/choices.py, InterfaceTypeChoices, by Gbit/s; a speed that is not here is "other".
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
# The choices of netbox_cable; a site's own media have none.
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


def slug(text: str) -> str:
    """Return a name as NetBox has it in URLs; nb_inventory names groups by it."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def netbox(site: Site, manufacturer: str) -> dict[str, list[dict[str, Any]]]:
    """Return the objects by kind, in the order in which they need each other.

    A blueprint does not say who makes a device: ``manufacturer`` is that of all device types.
    """
    name = site.blueprint.site
    physical = [kind for kind in site.blueprint.kinds.values() if kind.model]
    devices = [device for device in site.devices.values() if device.kind.model]
    models = {kind.model.name: kind.model for kind in physical if kind.model}
    return {
        "sites": [{"name": name, "slug": slug(name)}],
        "manufacturers": [{"name": manufacturer, "slug": slug(manufacturer)}],
        "device_types": [
            {
                "manufacturer": manufacturer,
                "model": model.name,
                "slug": slug(model.name),
                "part_number": model.part,
                "u_height": model.units,
            }
            for model in models.values()
        ],
        "device_roles": [{"name": kind.name, "slug": slug(kind.name), "vm_role": False} for kind in physical],
        "racks": [
            {"name": rack.name, "site": name, "u_height": rack.spec.rack.units}
            for rack in site.racks
            if rack.spec and rack.spec.rack
        ],
        "prefixes": [
            {
                "prefix": str(subnet),
                "scope_type": "dcim.site",
                "scope": name,
                "description": network if len(subnets) == 1 else f"{network} {number}",
            }
            for network, subnets in site.subnets.items()
            for number, subnet in enumerate(subnets, 1)
        ],
        "devices": [_device(name, device) for device in devices],
        "interfaces": [each for device in site.devices.values() if device.kind.model for each in _interfaces(device)],
        "addresses": [
            each for device in site.devices.values() if device.kind.model for each in _addresses(site, device)
        ],
        # The first address is the one by which Ansible reaches the device.
        "primary_addresses": [
            {"name": device.name, "site": name, f"primary_ip{_ip(site, device).version}": str(_ip(site, device))}
            for device in devices
            if device.addresses
        ],
        "cables": [_cable(cable) for cable in site.cables],
    }


def _device(site: str, device: Device) -> dict[str, Any]:
    if device.kind.model is None:
        raise AssertionError("the blueprint was read without its check")
    return {
        "name": device.name,
        "device_type": device.kind.model.name,
        "device_role": device.kind.name,
        "site": site,
        "rack": device.rack.name,
        "position": device.unit,
        "face": "front",
    }


def _interfaces(device: Device) -> list[dict[str, Any]]:
    """Return the interfaces with a cable, and one for each network whose address is at none of them."""
    ports = [_interface(device, port, cable) for port, cable in device.cables.items()]
    names = {each["name"] for each in ports}
    others = [name for network in device.addresses if (name := _at(device, network)) not in names]
    return ports + [{"device": device.name, "name": name, "type": "virtual"} for name in others]


def _interface(device: Device, port: str, cable: Cable) -> dict[str, Any]:
    types = INFINIBAND if cable.rule.infiniband else ETHERNET
    # NetBox has speeds in kbit/s.
    speed = int(cable.speed_gbit_s * 1_000_000)
    kind = types.get(int(cable.speed_gbit_s), "other") if cable.speed_gbit_s >= 1 else "other"
    found: dict[str, Any] = {"device": device.name, "name": interface(device, port), "type": kind, "speed": speed}
    if port != found["name"]:
        found["label"] = port
    if not _group(device, port).lldp:
        found["mgmt_only"] = True
    return found


def _group(device: Device, port: str) -> PortGroup:
    if device.kind.model is None:
        raise AssertionError("the blueprint was read without its check")
    return next(group for group in device.kind.model.ports.values() if port in group.names)


def _at(device: Device, network: str) -> str:
    """Return the name of the interface that has the address of a network: a port's, else the network's name."""
    for spec in device.kind.addresses:
        if spec.ports and device.kind.model and network.startswith(f"{spec.network}-"):
            number = network[len(spec.network) + 1 :]
            if number.isdigit():
                return device.kind.model.ports[spec.ports].interfaces[int(number)]
    return network


def _addresses(site: Site, device: Device) -> list[dict[str, Any]]:
    domain = f".{site.blueprint.domain}" if site.blueprint.domain else ""
    return [
        {
            "address": str(_ip(site, device, network)),
            "assigned_object": {"device": device.name, "name": _at(device, network)},
            "dns_name": f"{device.name}-{network.replace('_', '-')}{domain}" if at else f"{device.name}{domain}",
        }
        for at, network in enumerate(device.addresses)
    ]


def _ip(site: Site, device: Device, network: str = "") -> Interface:
    """Return an address of a device, its first one unless told otherwise, with the length of its network's prefix."""
    network = network or next(iter(device.addresses))
    address = ipaddress.ip_address(device.addresses[network])
    spec = next(each.network for each in device.kind.addresses if each.network in (network, _base(network)))
    subnet = next(each for each in site.subnets[spec] if address in each)
    return ipaddress.ip_interface(f"{address}/{subnet.prefixlen}")


def _base(network: str) -> str:
    """Return the network of "NETWORK-PORT"."""
    return network.rpartition("-")[0]


def _cable(cable: Cable) -> dict[str, Any]:
    medium = CABLES.get(cable.rule.medium.name)
    return {
        "termination_a_type": "dcim.interface",
        "termination_a": {"device": cable.a.name, "name": interface(cable.a, cable.a_port)},
        "termination_b_type": "dcim.interface",
        "termination_b": {"device": cable.b.name, "name": interface(cable.b, cable.b_port)},
        **({"type": medium} if medium else {}),
        "label": f"{cable.rule.name}-{cable.number:06d}",
        "length": cable.length_m,
        "length_unit": "m",
    }
