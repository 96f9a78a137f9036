# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The VFs that libvirt's definitions name: those of domains, running or shut off, and of networks.

The definitions are read as libvirt stores them (configDir in libvirt's src/qemu/qemu_conf.c, networkConfigDir in
src/network/bridge_driver.c): so they are known also early in a boot, and if libvirt does not run or hangs. A host
without these files has no definitions. What a running guest has besides its definition is found by ``users``.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.vf_settings import DEVICES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import libvirt_devices

DOMAINS = "/etc/libvirt/qemu"
NETWORKS = f"{DOMAINS}/networks"


def refuse_removal(system: System, address: str, count: int) -> None:
    """Raise HostError if a definition names a VF of ``address`` that is gone when the function has ``count`` VFs.

    A network that lends all VFs of the function would have fewer.
    """
    device = f"{DEVICES}/{address}"
    present = [name for name in system.names(device) if name.startswith("virtfn")]
    removed = [name for name in present if int(name[len("virtfn") :]) >= count]
    if not removed:
        return
    vfs = {system.link_name(f"{device}/{name}") or name for name in removed}
    vfs |= {interface for name in removed for interface in system.names(f"{device}/{name}/net")}
    users = [f"{user} ({', '.join(sorted(vfs & names))})" for user, names in _domains(system) if vfs & names]
    owners = set(system.names(f"{device}/net"))
    for user, lent in _networks(system):
        if owners & set(lent.owners) or vfs & {*lent.devices, *lent.interfaces}:
            users.append(user)
    if users:
        raise HostError(
            f"sriov: {address} would have {count} VFs instead of {len(present)}, but libvirt's definitions name "
            f"those that disappear: {'; '.join(users)}",
            "keep their number (count), or remove them from these definitions first",
        )


def _domains(system: System) -> Iterator[tuple[str, set[str]]]:
    for name, text in _definitions(system, DOMAINS):
        domain = ET.fromstring(text)
        yield (
            f"virtual machine {name}",
            {*libvirt_devices.devices(domain), *libvirt_devices.interfaces(domain)},
        )


def _networks(system: System) -> Iterator[tuple[str, libvirt_devices.Lent]]:
    for name, text in _definitions(system, NETWORKS):
        yield f"network {name}", libvirt_devices.lent(text)


def _definitions(system: System, directory: str) -> Iterator[tuple[str, str]]:
    """Yield name and XML of each definition in ``directory``. Raises HostError if one is not XML."""
    for name in system.names(directory):
        if name.endswith(".xml"):
            text = system.read(f"{directory}/{name}") or ""
            try:
                ET.fromstring(text)
            except ET.ParseError as error:
                raise HostError(
                    f"sriov: which VFs libvirt needs is not known: {directory}/{name} is not XML ({error})",
                    "restore or remove it",
                ) from error
            yield name[: -len(".xml")], text
