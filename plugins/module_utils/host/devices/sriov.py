# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual functions: how many a physical function has, and MAC, GUIDs, trust, spoof check and VLAN of each.

Sources: Linux Documentation/PCI/pci-iov-howto.rst (the count can change only by way of 0, which takes all VFs
away), Documentation/ABI/testing/sysfs-bus-pci (sriov_drivers_autoprobe), and ip-link(8) for the settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.settings import HostSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import users
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

DEVICES = "/sys/bus/pci/devices"
MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
GUID = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){7}$")
# IEEE 802.1Q: 12 bits, of which 4095 is reserved.
VLAN_MAX = 4094
# PCI Express Base Specification, 9.3.3.5: NumVFs has 16 bits.
VFS_MAX = 65535
# Settings of a VF: our name, its type, the word of ip-link(8).
OF_EVERY_VF = {"trust": (bool, "trust"), "spoof_check": (bool, "spoofchk"), "vlan": (int, "vlan")}
OF_ONE_VF = {"mac": (str, "mac"), "node_guid": (str, "node_guid"), "port_guid": (str, "port_guid")}
SETTINGS = {**OF_ONE_VF, **OF_EVERY_VF}
CHECKS: dict[type, values.Check] = {
    bool: values.flag,
    int: values.within(0, VLAN_MAX),
    str: values.text,
}


@dataclass(frozen=True)
class VfRequest:
    """The request for one physical function. ``settings``: by VF index, by name of SETTINGS."""

    count: int
    drivers_autoprobe: bool | None
    settings: dict[int, dict[str, Any]] = field(default_factory=dict)


def wanted(data: Any, host: Host | None) -> dict[str, VfRequest]:
    """Return the requests in ``data`` by address of the physical function; a later entry overrides an earlier one.

    ``{"functions": [{"devices": [...], "count": 4, "trust": true, "vfs": [{"index": 0, "mac": ...}]}]}``.
    Raises HostError.
    """
    given = HostSettings("sriov", data)
    given.only("functions")
    given.need("functions")
    result = {}
    for entry in given.parts("functions"):
        entry.only("devices", "count", "drivers_autoprobe", "vfs", *OF_EVERY_VF)
        entry.need("devices", "count")
        request = _request(entry)
        for selector in entry.value("devices", values.texts):
            for function in selectors.select(host, [selector], entry.subject):
                reason = _cannot(function, request.count)
                if reason and (selectors.is_address(selector) or function.sriov):
                    raise HostError(f"{function.address} {reason}", "change its count, or leave it out", entry.subject)
                if not reason:
                    result[function.address] = request
    macs = [each["mac"] for request in result.values() for each in request.settings.values() if "mac" in each]
    twice = sorted({mac for mac in macs if macs.count(mac) > 1})
    if twice:
        raise HostError(f"sriov: {', '.join(twice)} would be the MAC of two VFs of this host", "give each its own")
    return result


def ensure(
    system: System, host: Host, data: Any, check: bool = False, read_again: Callable[[], Host] | None = None
) -> Outcome:
    """Create the VFs of physical functions and apply their settings. Raises HostError.

    The count of VFs changes only where no VF is in use. ``read_again`` reads the host after VFs were added or removed.
    """
    want = wanted(data, host)
    by_address = host.by_address()
    outcome = Outcome()
    recount = [address for address, request in want.items() if _sriov(by_address[address]).now != request.count]
    in_use = users.of_functions(
        system, [by_address[vf] for address in recount for vf in _sriov(by_address[address]).vfs if vf in by_address]
    )
    if in_use:
        counts = ", ".join(
            f"{address} from {_sriov(by_address[address]).now} to {want[address].count}" for address in recount
        )
        raise HostError(
            f"sriov: to bring the VFs of {counts} all of them have to go, and some are in use: "
            f"{users.in_words(in_use)}",
            "stop the guests that use them",
        )
    for address in recount:
        outcome.differ(f"{address} VFs", _sriov(by_address[address]).now, want[address].count)
    probes = _autoprobe_changes(system, want)
    for address, (before, after) in probes.items():
        outcome.differ(f"{address} drivers_autoprobe", before, after)
    if not check:
        for address, (_before, after) in probes.items():
            system.poke(f"{DEVICES}/{address}/sriov_drivers_autoprobe", "1" if after else "0")
        for address in recount:
            _recount(system, address, _sriov(by_address[address]).now, want[address].count)
        if recount and read_again:
            by_address = read_again().by_address()
    batch = _setting_changes(system, by_address, want, recount, outcome)
    if batch and not check:
        system.run(["ip", "-batch", "-"], stdin="\n".join(batch) + "\n")
        left = Outcome()
        _setting_changes(system, by_address, want, [], left)
        if left.changed:
            raise HostError(
                f"sriov: the driver took the settings and did not keep them: {left.before}, wanted {left.after}",
                "leave them out, or update the driver",
            )
    outcome.facts = {
        "functions": {address: _report(by_address[address], want[address], check) for address in sorted(want)}
    }
    return outcome


def _request(entry: HostSettings) -> VfRequest:
    count = entry.value("count", values.within(0, VFS_MAX))
    every = _of_vf(entry, OF_EVERY_VF)
    settings = {index: dict(every) for index in range(count)} if every else {}
    for one in entry.parts("vfs"):
        one.only("index", *SETTINGS)
        one.need("index")
        index = one.value("index", values.within(0, VFS_MAX))
        if index >= count:
            raise one.refuse(f"index is {index}, and there will be {count} VFs", f"use one from 0 to {count - 1}")
        settings.setdefault(index, {}).update(_of_vf(one, SETTINGS))
    return VfRequest(count, entry.value("drivers_autoprobe", values.flag), settings)


def _of_vf(given: HostSettings, known: Iterable[str]) -> dict[str, Any]:
    """Return those of ``known`` that are given, checked."""
    found = {name: given.value(name, CHECKS[SETTINGS[name][0]]) for name in known if name in given.data}
    for name, pattern in (("mac", MAC), ("node_guid", GUID), ("port_guid", GUID)):
        if name in found:
            found[name] = found[name].lower().replace("-", ":")
            if not pattern.fullmatch(found[name]):
                raise given.refuse(f"{name} is {found[name]!r}, which is none", "write bytes like 02:00:00:00:00:01")
    if "mac" in found and int(found["mac"][:2], 16) & 1:
        raise given.refuse(f"mac {found['mac']} is a multicast address", "use a local one (02:...)")
    return found


def _cannot(function: Function, count: int) -> str:
    """Return why a function cannot have so many VFs; empty if it can."""
    if function.physical_function:
        return f"is itself a VF, of {function.physical_function}"
    if function.sriov is None:
        return "has no SR-IOV capability: turn SR-IOV on in the BIOS and in the device's firmware"
    if count > function.sriov.total:
        return (
            f"can have {function.sriov.total} VFs, and {count} are wanted: "
            "ask for fewer, or raise NUM_OF_VFS in its firmware"
        )
    if count != function.sriov.now and not function.driver:
        return "has no driver, which is what makes VFs: load it first"
    if count != function.sriov.now and function.driver == "vfio-pci":
        return "is bound to vfio-pci for a guest, which makes no VFs: give out the device or its VFs, not both"
    return ""


def _sriov(function: Function) -> Any:
    if function.sriov is None:
        raise HostError(f"sriov: {function.address} has no SR-IOV capability", "leave it out")
    return function.sriov


def _autoprobe_changes(system: System, want: dict[str, VfRequest]) -> dict[str, tuple[bool, bool]]:
    changes = {}
    for address, request in want.items():
        if request.drivers_autoprobe is not None:
            now = system.read(f"{DEVICES}/{address}/sriov_drivers_autoprobe") == "1"
            if now != request.drivers_autoprobe:
                changes[address] = (now, request.drivers_autoprobe)
    return changes


def _recount(system: System, address: str, now: int, count: int) -> None:
    path = f"{DEVICES}/{address}/sriov_numvfs"
    if now:
        system.poke(path, "0")
    if count:
        system.poke(path, str(count))
    got = system.read(path)
    if got != str(count):
        raise HostError(
            f"sriov: {address} has {got} VFs after {count} were asked for", "look at the kernel's log for its driver"
        )


def _setting_changes(
    system: System, by_address: dict[str, Function], want: dict[str, VfRequest], made_anew: list[str], outcome: Outcome
) -> list[str]:
    """Return the lines for ``ip -batch``; VFs of ``made_anew`` have none of their settings.

    Their driver's defaults are not read, so that check mode, which cannot know them, reports the same.
    """
    batch = []
    for address, request in sorted(want.items()):
        if not request.settings:
            continue
        interface = _interface(by_address[address])
        now = {} if address in made_anew else _vf_settings(system, interface)
        for index, settings in sorted(request.settings.items()):
            before = {name: now.get(index, {}).get(name) for name in settings}
            differing = {name: value for name, value in settings.items() if before[name] != value}
            if differing:
                outcome.differ(f"{address} VF {index}", {name: before[name] for name in differing}, differing)
                words = [word for name, value in differing.items() for word in (SETTINGS[name][1], _word(value))]
                batch.append(f"link set dev {interface} vf {index} {' '.join(words)}")
    return batch


def _interface(function: Function) -> str:
    interfaces = function.interfaces.get("net", [])
    if not interfaces:
        raise HostError(
            f"sriov: {function.address} (driver {function.driver}) has no network interface, by which the settings of "
            "its VFs are made",
            "load its network driver, or leave trust, spoof_check, vlan and vfs out",
        )
    return interfaces[0]


def _word(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _vf_settings(system: System, interface: str) -> dict[int, dict[str, Any]]:
    """Return the settings by VF index, as ``ip -j link`` reports them."""
    links = json.loads(system.run(["ip", "-j", "-d", "link", "show", "dev", interface]))
    return {item["vf"]: _settings(item) for item in links[0].get("vfinfo_list", [])}


def _settings(item: dict[str, Any]) -> dict[str, Any]:
    vlans = item.get("vlan_list") or []
    return {
        "mac": item.get("mac", item.get("address")),
        "trust": item.get("trust"),
        "spoof_check": item.get("spoofchk"),
        "vlan": vlans[0].get("vlan", 0) if vlans else 0,
        "node_guid": item.get("node guid", item.get("node_guid")),
        "port_guid": item.get("port guid", item.get("port_guid")),
    }


def _report(function: Function, request: VfRequest, check: bool) -> dict[str, Any]:
    return {"count": request.count if check else _sriov(function).now, "vfs": list(_sriov(function).vfs)}
