# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the parts of a RoCE NIC beside its QoS: its GIDs, its VFs, and the other active ports of its card.

Sources: Linux Documentation/ABI/stable/sysfs-class-infiniband (ports/*/gids, gid_attrs, state), Documentation/ABI/
testing/sysfs-bus-pci (sriov_numvfs), Documentation/networking/representors.rst (phys_port_name). Never seen on such a
NIC.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from ipaddress import IPv6Address

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic, VirtualFunction
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import eswitch, vf_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import read as nics

VF_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+vf(\d+)")


def read(system: System, wanted: list[str]) -> dict[str, SeenNic]:
    """Return the named RDMA devices as ``nic.read`` does, with what is beside their QoS. Raises HostError."""
    return {name: _with_context(system, seen, wanted) for name, seen in nics.read(system, wanted).items()}


def _with_context(system: System, seen: SeenNic, wanted: list[str]) -> SeenNic:
    vfs, reason = _vfs(system, seen)
    return replace(
        seen,
        mac=nics.quiet(system, f"{nics.NETWORK}/{seen.nic.interface}/address"),
        gids=_gids(system, seen.nic.name, seen.nic.interface),
        vfs=vfs,
        vfs_unread=reason,
        uncovered=() if seen.nic.is_vf else _uncovered(system, seen, wanted),
    )


def _gids(system: System, name: str, interface: str) -> tuple[str | None, ...]:
    """Return, by index, the version and the kind of address of each GID: "RoCE v2, IPv4"; None where there is none."""
    port = f"{nics.DEVICES}/{name}/ports/{nics.PORT}"
    gids: dict[int, str] = {}
    for index in system.names(f"{port}/gids"):
        address = _address_kind(nics.quiet(system, f"{port}/gids/{index}") or "")
        version = nics.quiet(system, f"{port}/gid_attrs/types/{index}")  # refused for an index without a GID
        if address and version:
            device = nics.quiet(system, f"{port}/gid_attrs/ndevs/{index}")
            of_other = f", of {device}" if device not in (None, interface) else ""
            gids[int(index)] = f"{version.replace('IB/', '')}, {address}{of_other}"
    return tuple(gids.get(index) for index in range(max(gids, default=-1) + 1))


def _address_kind(gid: str) -> str | None:
    """Return "IPv4", "IPv6" or "link-local"; None for an empty GID."""
    try:
        address = IPv6Address(gid)
    except ValueError:
        return None
    if not int(address):
        return None
    plain = address.ipv4_mapped or address
    return "link-local" if plain.is_link_local else f"IPv{plain.version}"


def _vfs(system: System, seen: SeenNic) -> tuple[tuple[VirtualFunction, ...], str]:
    """Return the VFs of a physical function, and why they cannot be read ("" where they can)."""
    device = f"{nics.DEVICES}/{seen.nic.name}/device"
    if (nics.quiet(system, f"{device}/sriov_numvfs") or "0") == "0" or not seen.address:
        return (), ""
    try:
        link = vf_settings.link(system, seen.nic.interface)
    except HostError as error:
        return (), str(error)
    representors = {}
    for interface in system.names(f"{device}/net"):
        port = VF_REPRESENTOR.fullmatch(nics.quiet(system, f"{nics.NETWORK}/{interface}/phys_port_name") or "")
        if port:
            representors[int(port[1])] = interface
    mode = eswitch.SWITCHDEV if representors else _mode(system, seen.address)
    return tuple(
        VirtualFunction(index, vf["mac"], vf["vlan"], link.vlan_qos[index], mode, representors.get(index))
        for index, vf in sorted(link.vfs.items())
    ), ""


def _mode(system: System, address: str) -> str | None:
    try:
        return eswitch.mode(system, address)
    except HostError:
        return None


def _uncovered(system: System, seen: SeenNic, wanted: Collection[str]) -> tuple[str, ...]:
    """Return the active Ethernet ports of the same card that are in no RDMA device of ``wanted``."""
    names = [f"{seen.nic.name} port {port}" for port in _ports(system, seen.nic.name) if port != nics.PORT]
    for name in system.names(nics.DEVICES):
        device = f"{nics.DEVICES}/{name}/device"
        address = system.link_name(device) or ""
        same_card = seen.address and address.rpartition(".")[0] == seen.address.rpartition(".")[0]
        if same_card and name not in wanted and not system.link_name(f"{device}/physfn") and _ports(system, name):
            names.append(name)
    return tuple(names)


def _ports(system: System, name: str) -> list[str]:
    """Return the ports of an RDMA device with an active Ethernet link."""
    ports = f"{nics.DEVICES}/{name}/ports"
    return [
        port
        for port in system.names(ports)
        if nics.quiet(system, f"{ports}/{port}/link_layer") == "Ethernet"
        and (nics.quiet(system, f"{ports}/{port}/state") or "").endswith("ACTIVE")
    ]
