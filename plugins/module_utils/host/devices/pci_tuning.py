# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MaxReadReq, relaxed ordering and ACS of all devices of a host, written to config space.

A register may be read-only, as the whole of DevCtl is on QEMU's devices. If a register has its former value after the
write, it is reported as ``not_writable``, and does not count as a change on the next run either. A write that the
kernel refuses (lockdown) is reported as ``refused``; the call fails after it has made the other writes.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import (
    HostError,
    KernelRefusedError,
    RequestError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, acs_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import lockdown
from ansible_collections.sailloft.fleet.plugins.module_utils.pci import capabilities, registers, writes
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace, PciError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import Mask
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

DEVICES = "/sys/bus/pci/devices"
READ_ONLY = "/run/sailloft/read_only_registers.json"
# The order in which they are reported.
SETTINGS: dict[str, values.Check] = {
    "max_read_request_bytes": values.among(*writes.READ_REQUEST_BYTES),
    "relaxed_ordering": values.flag,
    "acs": values.each(values.among(*acs_bits.BITS)),
}


@dataclass(frozen=True)
class DeviceTuning:
    """One setting for one device."""

    name: str  # a key of SETTINGS
    value: Any  # for acs: the names of the bits to turn on (all others off), or a Mask
    by_address: bool  # the device was named by its address, so it must have the setting
    allow_less_isolation: bool | None  # None for a Mask: the table of its ports decides


@dataclass(frozen=True)
class TuningWrite:
    """One register to write."""

    address: str
    setting: DeviceTuning
    write: writes.RegisterWrite

    @property
    def name(self) -> str:
        """Return the name in the diff."""
        return f"{self.address} {self.setting.name}"

    def shown(self, value: int) -> Any:
        """Return a value of the register in readable form."""
        if self.setting.name == "acs":
            return acs_bits.names(value)
        if self.setting.name == "relaxed_ordering":
            return bool(value & registers.PCI_EXP_DEVCTL_RELAX_EN)
        return capabilities.size_bytes((value & registers.PCI_EXP_DEVCTL_READRQ) >> 12)


def wanted(data: Any, host: Host | None) -> tuple[dict[str, dict[str, DeviceTuning]], AcsPlan | None]:
    """Return ``{"settings": [{"devices": [...], "max_read_request_bytes": 4096, ...}]}`` by address and setting.

    A later entry overrides an earlier one, and each overrides ``acs_by_port``, whose plan is returned too (see
    ``acs_ports.wanted``). Raises HostError.
    """
    request = Settings(RequestError, "pci_tuning", data)
    request.only("settings", "acs_by_port")
    request.need("settings")
    result: dict[str, dict[str, DeviceTuning]] = {}
    acs = None
    if "acs_by_port" in request.data:
        acs = acs_ports.wanted(request.part("acs_by_port"), host)
    for port in acs.ports if acs else []:
        # The table decides which ports may be less isolated; acs_ports.wanted has checked the devices of guests.
        result[port.address] = {"acs": DeviceTuning("acs", port.mask, False, None)}
    for entry in request.parts("settings"):
        entry.only("devices", *SETTINGS, "allow_less_isolation")
        entry.need("devices")
        wanted_values = {name: entry.value(name, check) for name, check in SETTINGS.items() if name in entry.data}
        if not wanted_values:
            raise entry.refuse("no setting is given", f"give one of {', '.join(SETTINGS)}")
        less = entry.value("allow_less_isolation", values.flag, False)
        for selector in entry.value("devices", values.texts):
            for function in selectors.select(host, [selector], entry.subject):
                for name, value in wanted_values.items():
                    setting = DeviceTuning(name, value, selectors.is_address(selector), less)
                    result.setdefault(function.address, {})[name] = setting
    return result, acs


def plan(
    function: Function, config: ConfigSpace, settings: dict[str, DeviceTuning]
) -> tuple[list[TuningWrite], dict[str, str]]:
    """Return the registers of one device to write, and the reasons why settings do not apply to it, by setting.

    Raises HostError if a device that was named by its address has no such register, and if tenants would be less
    isolated than before and this was not requested.
    """
    changes = []
    skipped = {}
    for name, setting in settings.items():
        try:
            reason = _does_not_apply(function, config, name)
            if reason and setting.by_address:
                raise HostError(f"pci_tuning: {function.address} cannot have {name}: {reason}", "leave it out")
            if reason:
                skipped[name] = reason
            else:
                changes.append(TuningWrite(function.address, setting, _write(function, config, setting)))
        except PciError as error:
            raise HostError(f"pci_tuning: {function.address}: {error.cause}", error.remedy) from error
    return changes, skipped


def ensure(system: System, host: Host, data: Any, check: bool = False) -> Outcome:
    """Apply the settings in ``data`` (see ``wanted``) to the devices that it selects.

    Everything is planned before anything is written. Raises HostError if a change cannot be planned. A write that a
    device or the kernel refuses is in the outcome's ``failed``, after all other writes.
    """
    by_address = host.by_address()
    outcome = Outcome()
    planned: list[TuningWrite] = []
    report: dict[str, dict[str, Any]] = {}
    requested, acs_plan = wanted(data, host)
    for address, settings in sorted(requested.items()):
        changes, skipped = plan(by_address[address], _config(system, address), settings)
        planned += changes
        report[address] = {change.setting.name: change.shown(change.write.value) for change in changes}
        if skipped:
            report[address]["not_applicable"] = skipped
    read_only = _read_only(system)
    level = lockdown.level(system)
    refused: list[TuningWrite] = []
    errors: list[str] = []
    for change in planned:
        if not change.write.changes:
            continue
        of_device, name = report[change.address], change.setting.name
        try:
            took = _took(system, change, check, change.name in read_only, lockdown.forbids_config_writes(level))
        except HostError as error:
            if isinstance(error, KernelRefusedError) and error.errno == errno.EPERM:
                refused.append(change)
            else:
                errors.append(str(error))
            of_device.setdefault("refused", {})[name] = change.shown(change.write.value)
            of_device[name] = change.shown(change.write.current)
            continue
        if took:
            outcome.differ(change.name, change.shown(change.write.current), change.shown(change.write.value))
            read_only.discard(change.name)
        else:
            of_device[name] = change.shown(change.write.current)
            of_device.setdefault("not_writable", []).append(name)
            read_only.add(change.name)
    if not check and read_only != _read_only(system):
        system.replace(READ_ONLY, (json.dumps(sorted(read_only), indent=1) + "\n").encode())
    if refused:
        errors.append(f"pci_tuning: {lockdown.cause(level)}: not set {counts_of_devices(refused)}; {lockdown.WAY_OUT}")
    outcome.failed = "; ".join(errors)
    outcome.facts = {"devices": report, **({"acs_by_port": acs_ports.report(acs_plan)} if acs_plan else {})}
    return outcome


def counts_of_devices(changes: list[TuningWrite]) -> str:
    """Return "acs of 2 devices (0000:10:00.0, 0000:10:01.0)", by setting, naming the first few devices."""
    by_setting: dict[str, list[str]] = {}
    for change in changes:
        by_setting.setdefault(change.setting.name, []).append(change.address)
    return " and ".join(
        f"{name} of {len(addresses)} device{'s' * (len(addresses) > 1)} "
        f"({', '.join(addresses[:3])}{', ...' * (len(addresses) > 3)})"
        for name, addresses in by_setting.items()
    )


def _took(system: System, change: TuningWrite, check: bool, known_read_only: bool, locked: bool) -> bool:
    """Write a change, or in check mode predict the result: False if the register keeps its value.

    Raises KernelRefusedError, and HostError if the register took another value.
    """
    if locked:
        raise KernelRefusedError(f"{change.name}: config space is locked", errno.EPERM)
    return not known_read_only if check else _apply(system, change)


def _does_not_apply(function: Function, config: ConfigSpace, name: str) -> str:
    """Return why a device of the requested kind has no such setting; empty if it has."""
    if config.size < registers.PCI_CFG_SPACE_SIZE:
        raise PciError(
            f"only {config.size} bytes of its config space can be read, which is the part readable without root",
            "run as root",
        )
    if name == "acs":
        return "" if capabilities.acs(config) else "it has no ACS capability"
    if capabilities.express(config) is None:
        return "it is not a PCI Express device"
    if function.physical_function:
        # PCI Express Base Specification 9.3.5.4: these fields of a VF are reserved.
        return f"it is a VF, and follows its physical function {function.physical_function}"
    return ""


def _write(function: Function, config: ConfigSpace, setting: DeviceTuning) -> writes.RegisterWrite:
    if setting.name == "max_read_request_bytes":
        return writes.max_read_request(config, setting.value)
    if setting.name == "relaxed_ordering":
        return writes.relaxed_ordering(config, setting.value)
    acs = capabilities.acs(config)
    if acs is None:
        raise PciError("it has no ACS capability", "leave it out")
    if isinstance(setting.value, Mask):
        return writes.acs_control(config, setting.value.applied(acs.control, acs.capability) & registers.PCI_ACS_BITS)
    requested = acs_bits.mask(setting.value)
    lacking = acs_bits.names(requested & ~acs.capability)
    if lacking and setting.by_address:
        raise HostError(f"pci_tuning: {function.address} has no ACS {', '.join(lacking)}", "request only what it has")
    removed = acs_bits.names(acs.control & ~requested & acs_bits.mask(list(acs_bits.ISOLATING)))
    if removed and not setting.allow_less_isolation:
        raise HostError(
            f"pci_tuning: {function.address} has ACS {', '.join(removed)} on, which keeps the devices below it apart",
            "add it to acs, or set allow_less_isolation: true if no two tenants ever share them",
        )
    return writes.acs_control(config, requested & acs.capability)


def _config(system: System, address: str) -> ConfigSpace:
    data = system.read_bytes(f"{DEVICES}/{address}/config")
    if data is None:
        raise HostError(f"pci_tuning: {address} is gone", "read the host again")
    try:
        return ConfigSpace.of_bytes(data)
    except PciError as error:
        raise HostError(f"pci_tuning: {address}: {error.cause}", error.remedy) from error


def _apply(system: System, change: TuningWrite) -> bool:
    """Write and read back. Returns False if the register kept its value. Raises HostError if it took another value."""
    # Only the bits of this setting are changed: another setting of the same register may have been written just before.
    bits = change.write.value ^ change.write.current
    offset, size = change.write.offset, change.write.size_bytes
    old_value = _config(system, change.address).read(offset, size)
    aim = (old_value & ~bits) | (change.write.value & bits)
    system.poke_bytes(f"{DEVICES}/{change.address}/config", aim.to_bytes(size, "little"), offset)
    now = _config(system, change.address).read(offset, size)
    if now not in (aim, old_value):
        raise HostError(
            f"pci_tuning: {change.name}: wrote {change.shown(aim)}, reads back {change.shown(now)}: "
            "the device does not support this value",
            "give one that it supports, or leave it out",
        )
    return now == aim


def _read_only(system: System) -> set[str]:
    """Return the registers found read-only since this kernel booted, so that check mode knows them without a write."""
    return set(json.loads(system.read(READ_ONLY) or "[]"))
