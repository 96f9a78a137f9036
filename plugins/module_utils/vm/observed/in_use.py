# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices that something on the host has: domains, libvirt's networks, processes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import OpenFile
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Holdings,
    Hypervisor,
    ObservedDomain,
    holdings,
)

# The address of the PCI function in a link to a disk (systemd's udev-builtin-path_id.c).
BY_PATH = re.compile(r"^/dev/disk/by-path/pci-([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])-")


def holdings_of(observed: ObservedDomain, listed: bool) -> Holdings:
    """Return what a domain holds by its definition, and the devices that only its running QEMU has.

    These are among its devices if it is not ``listed`` among the requests, which could make it give them up.
    """
    used = holdings(observed.inactive_xml)
    live_devices = holdings(observed.live_xml).devices if observed.live_xml is not None else []
    (used.live_devices if listed else used.devices).extend(
        address for address in live_devices if address not in used.devices
    )
    return used


def reserve(host: Host, hypervisor: Hypervisor, opened: list[OpenFile]) -> None:
    """Add to ``used_by_host`` of each function what holds it besides a domain that passes it through."""
    functions = host.by_address()
    for address, reason in [
        *_of_networks(host, hypervisor),
        *_of_domains(host, hypervisor),
        *_of_disks(host, hypervisor),
        *_opened(hypervisor, opened),
    ]:
        if address in functions and reason not in functions[address].used_by_host:
            functions[address].used_by_host.append(reason)


def _of_networks(host: Host, hypervisor: Hypervisor) -> Iterator[tuple[str, str]]:
    """Yield (address, reason) for what libvirt's networks lend, whether or not a domain has it now."""
    for network, lent in sorted(hypervisor.lent.items()):
        owners = [owner for name in lent.owners for owner in _with_interface(host, name)]
        vfs = [address for owner in owners if owner.sriov for address in owner.sriov.vfs]
        lent_addresses = [function.address for name in lent.interfaces for function in _with_interface(host, name)]
        for address in [*lent.devices, *lent_addresses, *vfs]:
            yield address, f"libvirt's network {network} lends it to virtual machines"
        for owner in owners:
            yield owner.address, f"libvirt's network {network} lends its virtual functions to virtual machines"


def _of_domains(host: Host, hypervisor: Hypervisor) -> Iterator[tuple[str, str]]:
    """Yield (address, reason) for the host's interfaces that domains use as a whole."""
    for name, observed in sorted(hypervisor.domains.items()):
        for xml in (observed.inactive_xml, observed.live_xml):
            for interface in holdings(xml).interfaces if xml else []:
                for function in _with_interface(host, interface):
                    yield function.address, f"virtual machine {name} uses its {interface}"


def _of_disks(host: Host, hypervisor: Hypervisor) -> Iterator[tuple[str, str]]:
    """Yield (address, reason) for the drives that domains' disks and storage pools are on.

    A link to a drive that has no block device now, such as one with vfio-pci, is not there: it could be any of these
    drives, except those that domains pass through.
    """
    used = {f"libvirt's storage pool {name}": paths for name, paths in hypervisor.pools.items()}
    passed: set[str] = set()
    for observed in hypervisor.domains.values():
        texts = (observed.inactive_xml, observed.live_xml)
        disks = [holdings(xml) for xml in texts if xml]
        used[f"virtual machine {observed.name}"] = [path for item in disks for path in item.disks]
        passed.update(address for item in disks for address in item.devices)
    hidden = [
        function.address
        for function in host.functions
        if function.kind == "nvme" and not function.interfaces.get("block") and function.address not in passed
    ]
    for user, paths in sorted(used.items()):
        for path in dict.fromkeys(paths):
            real_path = hypervisor.real_paths.get(path, path)
            name = real_path.rsplit("/", 1)[-1]
            by_path = BY_PATH.search(path)
            addresses = [function.address for function in _with_interface(host, name)]
            if by_path:
                addresses.append(by_path[1])
            for address in addresses if real_path.startswith("/dev/") else []:
                yield address, f"{user} uses its {name}"
            if not addresses and path.startswith("/dev/") and "nvme" in name:
                for address in hidden:
                    yield address, f"{user} uses {path}, which is not there now and could be this drive"


def _opened(hypervisor: Hypervisor, opened: list[OpenFile]) -> Iterator[tuple[str, str]]:
    """Yield (address, reason) for files that are open in a process other than the domain that has the device."""
    running = {
        name: set(holdings(observed.live_xml).devices)
        for name, observed in hypervisor.domains.items()
        if observed.live_xml is not None
    }
    for item in opened:
        # The file of a group opens all its functions, of which libvirt may have given the domain one.
        if item.guest is None or not running.get(item.guest, set()) & set(item.addresses):
            for address in item.addresses:
                yield address, f"{item} has {item.path} open"


def _with_interface(host: Host, name: str) -> list[Function]:
    """Return the functions with the kernel's interface or disk ``name``; nvme0n1p2 and ng0n1 are on nvme0n1."""
    name = re.sub(r"^ng(?=\d+n\d)", "nvme", name)
    disk = re.sub(r"(?<=\d)p\d+$|(?<=[a-z])\d+$", "", name)
    return [
        function
        for function in host.functions
        if name in function.interfaces.get("net", []) or {name, disk} & set(function.interfaces.get("block", []))
    ]
