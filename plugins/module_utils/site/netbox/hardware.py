# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write serial numbers, MAC addresses and BMCs' addresses of machines to the devices of NetBox that they have become.

In NetBox 4.2 and later a MAC address is an object of its own, and an interface names one of those that are assigned to
it as its primary one (docs of NetBox, models/dcim/macaddress). A device's out-of-band address is assigned to an
interface of it (models/dcim/device). Nothing is removed: a replaced address is changed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import NetboxApi, incomplete

INTERFACE = "dcim.interface"
DEVICES, INTERFACES, MACS = "dcim/devices", "dcim/interfaces", "dcim/mac-addresses"
ADDRESSES, PREFIXES = "ipam/ip-addresses", "ipam/prefixes"
Raw = dict[str, Any]


@dataclass(frozen=True)
class RecordedMachine:
    """A device's machine: its serial number, the MAC addresses by interface, and those of its BMC, "" if not known."""

    serial: str
    macs: Mapping[str, str]
    bmc_mac: str = ""
    bmc_address: str = ""


@dataclass
class _Changes:
    """The changes to write: (name, object) for each request, the lines of a diff, what NetBox has otherwise."""

    devices: list[tuple[str, Raw]] = field(default_factory=list)
    changed: list[tuple[str, Raw]] = field(default_factory=list)
    created: list[tuple[str, Raw]] = field(default_factory=list)
    primary: list[tuple[str, Raw]] = field(default_factory=list)
    addresses: list[tuple[str, Raw]] = field(default_factory=list)
    new_addresses: list[tuple[str, Raw]] = field(default_factory=list)
    out_of_band: list[tuple[str, Raw]] = field(default_factory=list)
    new_out_of_band: list[int] = field(default_factory=list)  # the devices of new_addresses
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def show(self, name: str, old: str, new: str) -> None:
        self.before += [f"{name}: {old}"] * bool(old)
        self.after.append(f"{name}: {new}")


def write_hardware(
    api: NetboxApi,
    machines: Mapping[str, RecordedMachine],
    query: Sequence[tuple[str, Any]],
    replace: bool,
    check: bool,
) -> dict[str, Any]:
    """Return ``changed``, ``diff`` and ``left_out``, lines on addresses whose interface NetBox does not show.

    ``machines`` by device; ``query`` limits them to a site. What NetBox has otherwise is changed only to ``replace``
    it. Raises SiteError before anything is written.
    """
    changes, left_out = _Changes(), list[str]()
    try:
        devices = _devices(api, machines, query)
        interfaces = _interfaces(api, devices)
        wanted: dict[int, tuple[str, str, Raw]] = {}
        for name, machine in machines.items():
            _serial(changes, devices[name], machine.serial, replace)
            interface_macs, missing = _places(interfaces.get(name, []), machine)
            wanted.update({raw["id"]: (f"{name} {raw['name']}", mac, raw) for raw, mac in interface_macs})
            left_out += [f"{name}: {line}" for line in missing]
        macs = api.read_named(MACS, "mac_address", sorted({mac for _name, mac, _raw in wanted.values()}))
        for name, mac, raw in wanted.values():
            with_address = [item for item in macs if item["mac_address"].lower() == mac]
            _mac(changes, name, mac, raw, with_address, replace)
        for name, address in _bmc_addresses(changes, machines).items():
            management = [raw for raw in interfaces.get(name, []) if raw["mgmt_only"]]
            if len(management) == 1:
                _out_of_band(api, changes, devices[name], management[0], address, replace)
    except (AttributeError, KeyError, TypeError) as error:
        raise incomplete(error) from None
    if changes.others:
        raise SiteError(
            "; ".join(changes.others),
            "correct NetBox, or, if the machine was replaced, run with accept_nodes_replace: true",
            subject="NetBox",
        )
    if not check:
        _write(api, changes)
    diff = {"before": changes.before, "after": changes.after}
    return {
        "changed": bool(changes.after),
        "diff": {"before_header": "NetBox", "after_header": "NetBox", **{key: _text(diff[key]) for key in diff}},
        "left_out": left_out,
    }


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _devices(
    api: NetboxApi, machines: Mapping[str, RecordedMachine], query: Sequence[tuple[str, Any]]
) -> dict[str, dict[str, Any]]:
    raws = api.read_named(DEVICES, "name", list(machines), *query, ("fields", "id,name,serial,oob_ip"))
    devices = {raw["name"]: raw for raw in raws}
    absent = sorted(set(machines) - set(devices))
    if absent:
        raise SiteError(f"it has no device {', '.join(absent)}", "run playbooks/netbox.yml first", subject="NetBox")
    if len(devices) < len(raws):
        raise SiteError("it has devices of one name twice", "name the site with netbox_site", subject="NetBox")
    return devices


def _interfaces(api: NetboxApi, devices: Mapping[str, Raw]) -> dict[str, list[Raw]]:
    fields = ("fields", "id,name,device,mgmt_only,primary_mac_address")
    interfaces: dict[str, list[Raw]] = {}
    for raw in api.read_named(INTERFACES, "device_id", [str(raw["id"]) for raw in devices.values()], fields):
        interfaces.setdefault(raw["device"]["name"], []).append(raw)
    return interfaces


def _places(interfaces: Sequence[Raw], machine: RecordedMachine) -> tuple[list[tuple[Raw, str]], list[str]]:
    """Return the interfaces with their MAC addresses, and why an address has none."""
    by_name = {raw["name"]: raw for raw in interfaces}
    interface_macs = [(by_name[name], mac.lower()) for name, mac in machine.macs.items() if name in by_name]
    missing = [
        f"NetBox has no interface {name}, {mac} is not written"
        for name, mac in machine.macs.items()
        if name not in by_name
    ]
    management = [raw for raw in interfaces if raw["mgmt_only"]]
    if machine.bmc_mac and len(management) == 1:
        interface_macs.append((management[0], machine.bmc_mac.lower()))
    elif machine.bmc_mac or machine.bmc_address:
        count, told = len(management), " and ".join(filter(None, (machine.bmc_mac, machine.bmc_address)))
        missing.append(f"NetBox has {count} interfaces for management only, the BMC's {told} is not written")
    return interface_macs, missing


def _serial(changes: _Changes, device: Raw, serial: str, replace: bool) -> None:
    if not serial or device["serial"] == serial:
        return
    if device["serial"] and not replace:
        changes.others.append(f"{device['name']} has the serial number {device['serial']}, the machine {serial}")
    changes.show(f"devices {device['name']} serial", device["serial"], serial)
    changes.devices.append((device["name"], {"id": device["id"], "serial": serial}))


def _mac(changes: _Changes, name: str, mac: str, raw: Raw, with_address: Sequence[Raw], replace: bool) -> None:
    """Note what gives an interface its primary address. ``with_address``: the objects that have it already."""
    old = raw["primary_mac_address"]
    old_mac = old["mac_address"].lower() if old else ""
    attached = [item for item in with_address if _is_at(item, raw["id"])]
    elsewhere = [item for item in with_address if item["assigned_object_id"] and item not in attached]
    if elsewhere:
        place = (elsewhere[0].get("assigned_object") or {}).get("display", "another interface")
        changes.others.append(f"{mac} of {name} is that of {place}")
    if old_mac == mac:
        return
    if old_mac and not replace:
        changes.others.append(f"{name} has the MAC address {old_mac}, the machine {mac}")
    changes.show(f"interfaces {name} MAC address", old_mac, mac)
    if attached:
        # A run that was killed had made it.
        changes.primary.append((name, {"id": raw["id"], "primary_mac_address": attached[0]["id"]}))
    elif old:
        changes.changed.append((name, {"id": old["id"], "mac_address": mac}))
    else:
        changes.created.append(
            (name, {"mac_address": mac, "assigned_object_type": INTERFACE, "assigned_object_id": raw["id"]})
        )


def _bmc_addresses(changes: _Changes, machines: Mapping[str, RecordedMachine]) -> dict[str, str]:
    """Return the address of each device's BMC, without BMCs that have none: theirs is 0.0.0.0."""
    names_by_address: dict[str, str] = {}
    for name, machine in machines.items():
        address = ipaddress.ip_address(machine.bmc_address or "0.0.0.0")
        if address.is_unspecified or address.is_link_local:
            continue
        first = names_by_address.setdefault(str(address), name)
        if first != name:
            changes.others.append(f"the BMCs of {first} and {name} both have the address {address}")
    return {name: address for address, name in names_by_address.items()}


def _out_of_band(api: NetboxApi, changes: _Changes, device: Raw, interface: Raw, address: str, replace: bool) -> None:
    """Note what gives a device the address of its BMC, which the only interface for management has."""
    name, old = device["name"], device["oob_ip"]
    if old and _host(old) == address:
        return
    objects = api.read(ADDRESSES, [("address", address)])
    attached = [raw for raw in objects if _is_at(raw, interface["id"])]
    free = [raw for raw in objects if not raw["assigned_object_id"]]
    if objects and not attached and not free:
        place = (objects[0].get("assigned_object") or {}).get("display", "another interface")
        changes.others.append(f"{address} of {name}'s BMC is that of {place}")
    if old and not replace:
        changes.others.append(f"{name} has the out-of-band address {_host(old)}, the machine {address}")
    changes.show(f"devices {name} out-of-band address", _host(old) if old else "", address)
    place_of = {"assigned_object_type": INTERFACE, "assigned_object_id": interface["id"]}
    if attached or free:
        number = (attached or free)[0]["id"]
        changes.addresses += [] if attached else [(name, {"id": number, **place_of})]
        changes.out_of_band.append((name, {"id": device["id"], "oob_ip": number}))
    elif old:
        changes.addresses.append((name, {"id": old["id"], "address": _with_length(api, address)}))
    else:
        changes.new_addresses.append((name, {"address": _with_length(api, address), **place_of}))
        changes.new_out_of_band.append(device["id"])


def _host(raw: Raw) -> str:
    return str(ipaddress.ip_interface(raw["address"]).ip)


def _with_length(api: NetboxApi, address: str) -> str:
    """Return the address with the length of its narrowest prefix in NetBox; without one, as a host."""
    prefixes = api.read(PREFIXES, [("contains", address), ("vrf_id", "null")])
    lengths = [ipaddress.ip_network(raw["prefix"]).prefixlen for raw in prefixes]
    return str(ipaddress.ip_interface(f"{address}/{max(lengths)}" if lengths else address))


def _is_at(mac: Raw, number: int) -> bool:
    return bool(mac["assigned_object_type"] == INTERFACE and mac["assigned_object_id"] == number)


def _write(api: NetboxApi, changes: _Changes) -> None:
    needs = {
        ("PATCH", DEVICES): [*changes.devices, *changes.out_of_band, *changes.new_addresses],
        ("PATCH", MACS): changes.changed,
        ("POST", MACS): changes.created,
        ("PATCH", INTERFACES): [*changes.primary, *changes.created],
        ("PATCH", ADDRESSES): changes.addresses,
        ("POST", ADDRESSES): changes.new_addresses,
    }
    api.require_rights(need for need, rows in needs.items() if rows)
    api.write("PATCH", DEVICES, changes.devices)
    api.write("PATCH", MACS, changes.changed)
    created = api.write("POST", MACS, changes.created)
    primary = [
        (name, {"id": fields["assigned_object_id"], "primary_mac_address": raw["id"]})
        for (name, fields), raw in zip(changes.created, created)
    ]
    api.write("PATCH", INTERFACES, [*changes.primary, *primary])
    api.write("PATCH", ADDRESSES, changes.addresses)
    addresses = api.write("POST", ADDRESSES, changes.new_addresses)
    out_of_band = [
        (name, {"id": number, "oob_ip": raw["id"]})
        for (name, _fields), number, raw in zip(changes.new_addresses, changes.new_out_of_band, addresses)
    ]
    api.write("PATCH", DEVICES, [*changes.out_of_band, *out_of_band])
