# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write serial numbers and MAC addresses of machines to the devices of NetBox that they have become.

In NetBox 4.2 and later a MAC address is an object of its own, and an interface names one of those that are assigned to
it as its primary one (docs of NetBox, models/dcim/macaddress). Nothing is removed: a replaced address is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import NetboxApi

INTERFACE = "dcim.interface"
DEVICES, INTERFACES, MACS = "dcim/devices", "dcim/interfaces", "dcim/mac-addresses"
Raw = dict[str, Any]


@dataclass(frozen=True)
class RecordedMachine:
    """A device's machine: its serial number and the MAC addresses by interface; ``bmc_mac`` is that of its BMC."""

    serial: str
    macs: Mapping[str, str]
    bmc_mac: str = ""


@dataclass
class _Changes:
    """The changes to write: (name, object) for each request, the lines of a diff, what NetBox has otherwise."""

    devices: list[tuple[str, Raw]] = field(default_factory=list)
    changed: list[tuple[str, Raw]] = field(default_factory=list)
    created: list[tuple[str, Raw]] = field(default_factory=list)
    primary: list[tuple[str, Raw]] = field(default_factory=list)
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
            found, missing = _places(interfaces.get(name, []), machine)
            wanted.update({raw["id"]: (f"{name} {raw['name']}", mac, raw) for raw, mac in found})
            left_out += [f"{name}: {line}" for line in missing]
        macs = api.read_named(MACS, "mac_address", sorted({mac for _name, mac, _raw in wanted.values()}))
        for name, mac, raw in wanted.values():
            same = [other for other in macs if other["mac_address"].lower() == mac]
            _mac(changes, name, mac, raw, same, replace)
    except (AttributeError, KeyError, TypeError) as error:
        raise SiteError(
            f"its response has no {error}",
            "check that the URL is a NetBox URL, and that its version is 4.2 or later",
            subject="NetBox",
        ) from None
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
    raws = api.read_named(DEVICES, "name", list(machines), *query, ("fields", "id,name,serial"))
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
    found = [(by_name[name], mac.lower()) for name, mac in machine.macs.items() if name in by_name]
    missing = [
        f"NetBox has no interface {name}, {mac} is not written"
        for name, mac in machine.macs.items()
        if name not in by_name
    ]
    management = [raw for raw in interfaces if raw["mgmt_only"]]
    if machine.bmc_mac and len(management) == 1:
        found.append((management[0], machine.bmc_mac.lower()))
    elif machine.bmc_mac:
        count = len(management)
        missing.append(f"NetBox has {count} interfaces for management only, the BMC's {machine.bmc_mac} is not written")
    return found, missing


def _serial(changes: _Changes, device: Raw, serial: str, replace: bool) -> None:
    if not serial or device["serial"] == serial:
        return
    if device["serial"] and not replace:
        changes.others.append(f"{device['name']} has the serial number {device['serial']}, the machine {serial}")
    changes.show(f"devices {device['name']} serial", device["serial"], serial)
    changes.devices.append((device["name"], {"id": device["id"], "serial": serial}))


def _mac(changes: _Changes, name: str, mac: str, raw: Raw, same: Sequence[Raw], replace: bool) -> None:
    """Note what gives an interface its primary address. ``same``: the objects that have this address already."""
    old = raw["primary_mac_address"]
    old_mac = old["mac_address"].lower() if old else ""
    own = [other for other in same if _is_at(other, raw["id"])]
    elsewhere = [other for other in same if other["assigned_object_id"] and other not in own]
    if elsewhere:
        place = (elsewhere[0].get("assigned_object") or {}).get("display", "another interface")
        changes.others.append(f"{mac} of {name} is that of {place}")
    if old_mac == mac:
        return
    if old_mac and not replace:
        changes.others.append(f"{name} has the MAC address {old_mac}, the machine {mac}")
    changes.show(f"interfaces {name} MAC address", old_mac, mac)
    if own:
        # A run that was killed had made it.
        changes.primary.append((name, {"id": raw["id"], "primary_mac_address": own[0]["id"]}))
    elif old:
        changes.changed.append((name, {"id": old["id"], "mac_address": mac}))
    else:
        changes.created.append(
            (name, {"mac_address": mac, "assigned_object_type": INTERFACE, "assigned_object_id": raw["id"]})
        )


def _is_at(mac: Raw, number: int) -> bool:
    return bool(mac["assigned_object_type"] == INTERFACE and mac["assigned_object_id"] == number)


def _write(api: NetboxApi, changes: _Changes) -> None:
    api.write("PATCH", DEVICES, changes.devices)
    api.write("PATCH", MACS, changes.changed)
    created = api.write("POST", MACS, changes.created)
    primary = [
        (name, {"id": fields["assigned_object_id"], "primary_mac_address": raw["id"]})
        for (name, fields), raw in zip(changes.created, created)
    ]
    api.write("PATCH", INTERFACES, [*changes.primary, *primary])
