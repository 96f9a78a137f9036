# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bind PCI functions to vfio-pci by whole IOMMU groups, now and at every boot, through driverctl.

A guest can have a group only as a whole: Linux Documentation/driver-api/vfio.rst. driverctl keeps the binding
in /etc/driverctl.d/pci-ADDRESS, which its udev rule loads when the device appears (driverctl(8)). Until then, also in
the initramfs, another driver could bind the device: the kernel argument of ``kept_off`` prevents this for GPU drivers.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import reset_methods, users
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import host_drivers, selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import is_physical
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

DRIVER = "vfio-pci"
OVERRIDES = "/etc/driverctl.d"
# A special selector for all NVMe drives that the host does not use; "nvme" is refused if the host boots from one.
UNUSED_DRIVES = "nvme:unused"
NO_IOMMU = (
    "vfio_binding: the IOMMU is off, so nothing can be bound to vfio-pci: this is done at the next boot with the "
    "IOMMU on"
)


def wanted(data: Any, host: Host | None, system: System | None = None) -> tuple[list[Function], list[Function]]:
    """Return ``{"devices": ["gpu"], "release": []}`` as functions to bind and to release. Raises HostError.

    Of GPUs that are not named by address, those with virtual functions keep their driver, which made these, and libvirt
    binds the virtual functions. NVSwitches are bound, too, if all NVIDIA GPUs are bound, unless they are released, as
    they must be where virtual machines share them. With ``system``, "nvme:unused"
    selects the NVMe drives that ``unused_drives`` returns; without it, none.
    """
    request = _read(data)
    names = request.value("devices", values.texts)
    bind = selectors.select(host, [name for name in names if name != UNUSED_DRIVES], "vfio_binding.devices")
    by_address = {selectors.full_address(name.strip().lower()) for name in names if selectors.is_address(name)}
    bind = [item for item in bind if item.kind != "gpu" or is_physical(item) or item.address in by_address]
    if UNUSED_DRIVES in names and host is not None and system is not None:
        bind += [function for function in unused_drives(system, host) if function not in bind]
    release = selectors.select(host, request.value("release", values.texts, []), "vfio_binding.release")
    if host is not None:
        followers = host_drivers.following_switches(host, [function.address for function in bind])
        bind += [function for function in followers if function not in bind + release]
    contradictory = [function.address for function in bind if function in release]
    if contradictory:
        raise HostError(f"vfio_binding: {', '.join(contradictory)} cannot be both bound and released", "name them once")
    bridges = [function.address for function in bind if function.kind == "bridge"]
    if bridges:
        raise HostError(
            f"vfio_binding: {', '.join(bridges)} is a bridge, which stays with the host", "name the devices below it"
        )
    return bind, release


def unused_drives(system: System, host: Host) -> list[Function]:
    """Return the NVMe drives that the host does not use and that are empty: no partitions, no known content.

    udev records in /run/udev/data what it found on a block device (systemd's 60-persistent-storage.rules, blkid).
    A drive that is bound to vfio-pci has no block device any more; an earlier run has selected it.
    """
    drives = []
    for function in host.functions:
        if function.kind != "nvme" or function.used_by_host:
            continue
        disks = function.interfaces.get("block", [])
        if function.driver == DRIVER or (disks and all(_is_empty(system, disk) for disk in disks)):
            drives.append(function)
    return drives


def _is_empty(system: System, disk: str) -> bool:
    place = f"/sys/class/block/{disk}"
    number = system.read(f"{place}/dev")
    noted = system.read(f"/run/udev/data/b{number}") if number else None
    if noted is None:
        return False  # its content is not known
    partitioned = any(system.exists(f"{place}/{child}/partition") for child in system.names(place))
    return not partitioned and not re.search(r"^E:ID_(FS|PART_TABLE)_TYPE=", noted, re.MULTILINE)


def to_save(data: Any, facts: dict[str, Any]) -> Any:
    """Return ``data`` for every boot, with unused drives by address: early in a boot, others may look unused."""
    devices = data["devices"]
    if UNUSED_DRIVES not in devices or "unused_drives" not in facts:
        return data
    selectors_kept = [device for device in devices if device != UNUSED_DRIVES]
    return {
        **data,
        "devices": selectors_kept + [address for address in facts["unused_drives"] if address not in selectors_kept],
    }


def for_guests(data: Any, host: Host) -> list[Function]:
    """Return the existing functions to bind; the others may be VFs that are created later. Raises HostError."""
    request = _read(data)
    present = []
    for selector in request.value("devices", values.texts):
        if selector == UNUSED_DRIVES:
            continue
        try:
            selectors.select(host, [selector], "vfio_binding.devices")
        except selectors.SelectorError:
            if not selectors.is_address(selector):
                raise
        else:
            present.append(selector)
    return wanted({**request.data, "devices": present}, host)[0]


def kept_off(data: Any, host: Host) -> tuple[list[str], list[str]]:
    """Return the modules that must not load for the devices in ``data``, and why others may (topology/host_drivers.py).

    Both are empty without ``keep_drivers_off``. Raises HostError.
    """
    if not _read(data).value("keep_drivers_off", values.flag, False):
        return [], []
    return host_drivers.keep_off(host, [function.address for function in for_guests(data, host)])


def kept_off_on_any_host(data: Any) -> list[str]:
    """Return the modules that must not load for ``data`` if no host was read, as for an image. Raises HostError."""
    request = _read(data)
    selected = request.value("devices", values.texts)
    selectors.select(None, [name for name in selected if name != UNUSED_DRIVES], "vfio_binding.devices")
    if not request.value("keep_drivers_off", values.flag, False):
        return []
    if "gpu" in selected:
        return host_drivers.of_any_host(None)
    return host_drivers.of_any_host({int(name.split(":")[0], 16) for name in selected if selectors.is_vendor(name)})


def _read(data: Any) -> Settings:
    request = Settings(RequestError, "vfio_binding", data)
    request.only("devices", "release", "keep_drivers_off")
    request.need("devices")
    return request


def check_groups(host: Host, bind: list[Function]) -> None:
    """Raise HostError if a group would be split, or the host needs a function in it."""
    chosen = {function.address for function in bind}
    for function in bind:
        if function.used_by_host:
            raise HostError(
                f"vfio_binding: {function.address} is in use by the host: it {' and '.join(function.used_by_host)}",
                "remove it from the list",
            )
        if function.sriov and function.sriov.now:
            raise HostError(
                f"vfio_binding: {function.address} has {function.sriov.now} VFs, which disappear when its driver is "
                "unbound",
                "bind the VFs, or set its count to 0 first",
            )
        if function.iommu_group is None:
            continue
        foreign = [
            member
            for member in host.group_members(function.iommu_group)
            if member.address not in chosen and member.kind != "bridge" and member.driver != DRIVER
        ]
        if foreign:
            names = ", ".join(f"{member.address} ({member.driver or 'no driver'})" for member in foreign)
            raise HostError(
                f"vfio_binding: {function.address} shares IOMMU group {function.iommu_group} with {names}, but a guest "
                "can only get a whole group",
                "bind that as well, or turn ACS on in the BIOS so that each gets its own",
            )


def ensure(system: System, host: Host, data: Any, check: bool = False) -> Outcome:
    """Bind and release the devices in ``data`` (see ``wanted``). Raises HostError before anything is changed."""
    bind, release = wanted(data, host, system)
    check_groups(host, bind)
    off, may_load = kept_off(data, host)
    outcome = Outcome(
        facts={
            "bound": [function.address for function in bind],
            "drivers_off": {"modules": off, "reasons": may_load},
            "reset_failures": reset_methods.of_functions(system, bind),
            "unused_drives": _unused_addresses(system, data, host),
        }
    )
    without_group = [function for function in bind if function.iommu_group is None]
    if without_group and any(function.iommu_group is not None for function in host.functions):
        raise HostError(
            f"vfio_binding: {without_group[0].address} has no IOMMU group: no IOMMU is in front of it",
            "turn the IOMMU on in the BIOS and the kernel",
        )
    released = [function for function in release if function.driver == DRIVER or _override(system, function)]
    in_use = users.of_functions(system, [function for function in released if function.driver == DRIVER])
    if in_use:
        raise HostError(
            f"vfio_binding: devices to be released are in use: {users.in_words(in_use)}", "stop the guest first"
        )
    open_elsewhere = users.of_functions(system, [item for item in bind if item.driver not in (None, DRIVER)])
    if open_elsewhere:
        raise HostError(
            f"vfio_binding: devices to be bound are in use: {users.in_words(open_elsewhere)}",
            "stop these programs first, or remove the devices from the list",
        )
    for function in bind:
        state = _state(function.driver, _override(system, function))
        if state != _state(DRIVER, DRIVER):
            outcome.differ(function.address, state, _state(DRIVER, DRIVER))
    for function in released:
        outcome.differ(function.address, _state(function.driver, _override(system, function)), "its own driver")
    if without_group:
        outcome.pending.append(NO_IOMMU)
        outcome.before, outcome.after = {}, {}
        outcome.facts["bound"] = []
        return outcome
    if check:
        return outcome
    for function in bind:
        if function.address in outcome.after:
            _bind(system, function)
    for function in released:
        system.run(["driverctl", "unset-override", function.address])
    return outcome


def _unused_addresses(system: System, data: Any, host: Host) -> list[str]:
    if UNUSED_DRIVES not in data["devices"]:
        return []
    return [function.address for function in unused_drives(system, host)]


def _bind(system: System, function: Function) -> None:
    if function.driver == DRIVER:
        # Only the persistent binding is missing; driverctl would unbind the device from its guest to write it.
        system.replace(f"{OVERRIDES}/pci-{function.address}", f"{DRIVER}\n".encode())
        return
    system.run(["driverctl", "set-override", function.address, DRIVER])
    driver = system.link_name(f"/sys/bus/pci/devices/{function.address}/driver")
    if driver != DRIVER:
        raise HostError(
            f"vfio_binding: {function.address} is bound to {driver or 'nothing'} after driverctl gave it to {DRIVER}",
            "see the kernel's log",
        )


def _override(system: System, function: Function) -> str | None:
    return system.read(f"{OVERRIDES}/pci-{function.address}")


def _state(driver: str | None, override: str | None) -> str:
    at_boot = f"{override} at boot" if override else "kernel's choice at boot"
    return f"{driver or 'no driver'}, {at_boot}"
