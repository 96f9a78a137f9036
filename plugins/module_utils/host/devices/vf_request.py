# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's request for virtual functions, checked against the host. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import eswitch
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.nvswitch_management import refuse_unknown
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.vf_settings import (
    NOT_IN_SWITCHDEV,
    OF_EVERY_VF,
    OF_ONE_VF,
    SETTINGS,
    VfSetting,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import MANAGEMENT
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# PCI Express Base Specification, 9.3.3.5: NumVFs has 16 bits.
VFS_MAX = 65535


@dataclass(frozen=True)
class VfRequest:
    """The request for one physical function. ``settings``: by VF index, by name of SETTINGS."""

    count: int
    drivers_autoprobe: bool | None
    eswitch_mode: str | None = None
    derive_addresses: bool = False
    settings: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def of_vfs(self) -> bool:
        """Return True if the VFs have settings, which need the physical function's interface."""
        return bool(self.settings) or (self.derive_addresses and self.count > 0)


INDEX = {"type": "int", "required": True}


def options() -> dict[str, Any]:
    """Return the options of one entry of ``functions``, as a module declares them."""
    every = {name: _option(setting) for name, setting in OF_EVERY_VF.items()}
    settings = {name: _option(setting) for name, setting in SETTINGS.items()}
    return {
        "devices": {"type": "list", "elements": "str", "required": True},
        "count": {"type": "int", "required": True},
        "drivers_autoprobe": {"type": "bool"},
        "eswitch_mode": {"type": "str", "choices": list(eswitch.MODES)},
        "derive_addresses": {"type": "bool", "default": False},
        **every,
        "vfs": {"type": "list", "elements": "dict", "options": {"index": INDEX, **settings}},
    }


def _option(setting: VfSetting) -> dict[str, Any]:
    return {"type": setting.kind.__name__, **({"choices": list(setting.choices)} if setting.choices else {})}


def wanted(data: Any, host: Host | None) -> dict[str, VfRequest]:
    """Return the requests in ``data`` by address of the physical function; a later entry overrides an earlier one.

    ``{"functions": [{"devices": [...], "count": 4, "trust": true, "vfs": [{"index": 0, "mac": ...}]}]}``.
    Raises HostError.
    """
    section = Settings(RequestError, "sriov", data)
    section.only("functions")
    section.need("functions")
    result = {}
    for entry in section.parts("functions"):
        entry.only("devices", "count", "drivers_autoprobe", "eswitch_mode", "derive_addresses", "vfs", *OF_EVERY_VF)
        entry.need("devices", "count")
        request = _request(entry)
        for selector in entry.value("devices", values.texts):
            for function in selectors.select(host, [selector], entry.subject):
                reason = _cannot(function, request.count)
                if reason and (selectors.is_address(selector) or function.sriov):
                    raise HostError(
                        f"{function.address} {reason}", "change its count, or leave it out", subject=entry.subject
                    )
                if not reason:
                    result[function.address] = request
    if host is not None:
        refuse_unknown(host, result, section.subject)
    refuse_twice(result)
    return result


def refuse_twice(want: dict[str, VfRequest]) -> None:
    """Refuse an address that several VFs of the host would have."""
    for name in OF_ONE_VF:
        addresses = [
            settings[name] for request in want.values() for settings in request.settings.values() if name in settings
        ]
        twice = sorted({address for address in addresses if addresses.count(address) > 1})
        if twice:
            raise HostError(
                f"sriov: {', '.join(twice)} would be the {name} of two VFs of this host",
                "give each its own, or have them derived (derive_addresses: true)",
            )


def _request(entry: Settings) -> VfRequest:
    count = entry.value("count", values.within(0, VFS_MAX))
    every = _of_vf(entry, OF_EVERY_VF)
    settings = {index: dict(every) for index in range(count)} if every else {}
    for row in entry.parts("vfs"):
        row.only("index", *SETTINGS)
        row.need("index")
        index = row.value("index", values.within(0, VFS_MAX))
        if index >= count:
            raise row.refuse(f"index is {index}, but there will be {count} VFs", f"use one from 0 to {count - 1}")
        settings.setdefault(index, {}).update(_of_vf(row, SETTINGS))
    mode = entry.value("eswitch_mode", values.among(*eswitch.MODES))
    for index, of_one in sorted(settings.items()):
        refused = [name for name in NOT_IN_SWITCHDEV if name in of_one]
        if mode == eswitch.SWITCHDEV and refused:
            raise entry.refuse(
                f"VF {index} has {', '.join(refused)}, which drivers refuse in switchdev mode",
                "leave them out, and set them on the VF's representor (bridge, tc, ip link)",
            )
        if of_one.get("min_tx_mbps", 0) > of_one.get("max_tx_mbps", 0) > 0:
            raise entry.refuse(
                f"min_tx_mbps of VF {index} is more than its max_tx_mbps", "lower it, or give max_tx_mbps 0 (no limit)"
            )
    return VfRequest(
        count,
        entry.value("drivers_autoprobe", values.flag),
        mode,
        entry.value("derive_addresses", values.flag, False),
        settings,
    )


def _of_vf(entry: Settings, valid: dict[str, VfSetting]) -> dict[str, Any]:
    """Return the given settings among ``valid``, checked."""
    return {name: entry.value(name, setting.check) for name, setting in valid.items() if name in entry.data}


def _cannot(function: Function, count: int) -> str:
    """Return why a function cannot have so many VFs; empty if it can."""
    if function.physical_function:
        return f"is itself a VF, of {function.physical_function}"
    if function.kind == MANAGEMENT:
        return "manages NVSwitches and is no NIC"
    if function.sriov is None:
        return "has no SR-IOV capability: turn SR-IOV on in the BIOS and in the device's firmware"
    if count > function.sriov.total:
        return (
            f"can have {function.sriov.total} VFs, but {count} are requested: "
            "request fewer, or raise NUM_OF_VFS in its firmware"
        )
    if count != function.sriov.now and not function.driver:
        return "has no driver, which is needed to create VFs: load it first"
    if count != function.sriov.now and function.driver == "vfio-pci":
        return (
            "is bound to vfio-pci for a guest, and vfio-pci creates no VFs: give guests the device or its VFs, not both"
        )
    return ""
