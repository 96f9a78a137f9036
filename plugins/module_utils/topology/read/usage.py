# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel objects that a PCI function carries, and the reasons why the host itself needs it.

Sources: proc(5) for mountinfo and swaps; Linux Documentation/ABI/testing/sysfs-class-net and
sysfs-block; /proc/net/route and /proc/net/ipv6_route as net/ipv4/fib_trie.c and net/ipv6/route.c print them;
Linux Documentation/driver-api/vfio-mediated-device.rst; mdevctl(8) for mediated devices that exist after a start.

Only objects of this mount and network namespace are found. Not found: pools of file systems that name no block
device (ZFS). Processes that hold a device file open are found by processes.py.
"""

from __future__ import annotations

import ipaddress
import re

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import INTERFACES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NVME_SUBSYSTEM = "/nvme-subsystem/"
IPV6_SCOPE_LINK = "20"  # every interface that is up has an address of this scope (include/net/ipv6.h)


def find_usage(files: Files, functions: dict[str, Function]) -> None:
    """Fill ``interfaces`` and ``used_by_host`` of each function."""
    for class_name, key in INTERFACES.items():
        owners = _owners(files, class_name)
        for name, addresses in owners.items():
            for address in addresses & set(functions):
                functions[address].interfaces.setdefault(key, []).append(name)
        reasons = {"net": _network_reasons, "block": _block_reasons}.get(class_name)
        for name, reason in reasons(files, owners) if reasons else ():
            for address in owners.get(name, set()) & set(functions):
                if reason not in functions[address].used_by_host:
                    functions[address].used_by_host.append(reason)
    for address, reason in [*_parts(files), *_defined_parts(files)]:
        if address in functions and reason not in functions[address].used_by_host:
            functions[address].used_by_host.append(reason)
    for function in functions.values():
        block = function.interfaces.get("block")
        if block:  # disks, without their partitions
            function.interfaces["block"] = [
                name for name in block if not files.exists(f"sys/class/block/{name}/partition")
            ]


def _parts(files: Files) -> list[tuple[str, str]]:
    """Return pairs (address, reason) of the functions whose driver has made mediated or vDPA devices for guests."""
    return [
        (address, f"is the parent of the {label} device {name}")
        for bus, label in (("mdev", "mediated"), ("vdpa", "vDPA"))
        for name in files.names(f"sys/bus/{bus}/devices")
        for address in _last_address(files.link(f"sys/bus/{bus}/devices/{name}") or "")
    ]


def _defined_parts(files: Files) -> list[tuple[str, str]]:
    """Return pairs (address, reason) of the parents of mediated devices that mdevctl makes at boot or on request."""
    top = "etc/mdevctl.d"
    return [
        (parent, f"is the parent of the mediated device {name}")
        for parent in files.names(top)
        if ADDRESS.fullmatch(parent)
        for name in files.names(f"{top}/{parent}")
    ]


def _owners(files: Files, class_name: str) -> dict[str, set[str]]:
    """Return the PCI functions behind each device of a class, by the text of its link; virtual devices have none."""
    owners: dict[str, set[str]] = {}
    for name in files.names(f"sys/class/{class_name}"):
        target = files.link(f"sys/class/{class_name}/{name}")
        if target is None:  # "bonding_masters" in net is a file
            continue
        owners[name] = functions_behind(files, target)
    return owners


def functions_behind(files: Files, device: str) -> set[str]:
    """Return the PCI functions behind the directory of a device below /sys/devices; virtual devices have none."""
    addresses = _last_address(device)
    if not addresses and NVME_SUBSYSTEM in device:
        # With native multipath the device is below the subsystem, which links to its controllers.
        subsystem = "/".join(device.split("/")[: device.split("/").index("nvme-subsystem") + 2])
        for controller in files.names(subsystem):
            if re.fullmatch(r"nvme\d+", controller):
                addresses |= _last_address(files.link(f"{subsystem}/{controller}") or "")
    return addresses


def _last_address(path: str) -> set[str]:
    return set([step for step in path.split("/") if ADDRESS.fullmatch(step)][-1:])


def _block_reasons(files: Files, owners: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return pairs (block device, reason), down to the disks below device mapper, RAID and similar devices."""
    uses = [(name, f"holds the mounted file system {point}") for name, point in _mounts(files).items()]
    for line in (files.text_or_none("proc/swaps") or "").splitlines()[1:]:
        columns = line.split()
        if len(columns) > 1 and columns[1] == "partition":
            uses.append((_block_name(files, columns[0]), f"holds the swap space {columns[0]}"))
    reasons = []
    stacked = {
        name: files.names(f"sys/class/block/{name}/slaves")
        for name, lower_devices in owners.items()
        if not lower_devices
    }
    for name, reason in uses:
        reasons += [(disk, reason) for disk in _below(name, stacked)]
    covered = {disk for name, _reason in uses for disk in _below(name, stacked)}
    for name, slaves in stacked.items():
        reasons += [(disk, f"is part of the block device {name}") for disk in slaves if disk not in covered]
    return reasons


def _below(name: str, stacked: dict[str, list[str]]) -> list[str]:
    """Return the device itself and all devices that it is stacked on."""
    devices = [name]
    for device in devices:
        devices += [slave for slave in stacked.get(device, []) if slave not in devices]
    return devices


def _mounts(files: Files) -> dict[str, str]:
    """Return the shortest mount point of each block device, by its name."""
    points: dict[str, str] = {}
    for line in (files.text_or_none("proc/self/mountinfo") or "").splitlines():
        head, divider, tail = line.partition(" - ")
        columns, source = head.split(), tail.split()[1:2]
        if not divider or len(columns) < 5 or not source:
            raise TopologyError(f"{files.path('proc/self/mountinfo')}: {line!r} is not a line of mountinfo")
        # Btrfs has a device number of its own (major 0) and names one of its block devices as source.
        device = (files.link(f"sys/dev/block/{columns[2]}") or "").rsplit("/", 1)[-1]
        names = [device] if device else _members(files, source[0])
        for name in names:
            points[name] = min(points.get(name, columns[4]), columns[4], key=lambda point: (len(point), point))
    return points


def _members(files: Files, source: str) -> list[str]:
    """Return the block devices of a source ("/dev/sda1"): all devices of its file system if that is btrfs."""
    if not source.startswith("/dev/"):
        return []
    name = _block_name(files, source)
    for identifier in files.names("sys/fs/btrfs"):
        devices = files.names(f"sys/fs/btrfs/{identifier}/devices")
        if name in devices:
            return devices
    return [name]


def _block_name(files: Files, path: str) -> str:
    """Return the kernel's name of a device file; those in /dev/mapper are links to it."""
    return (files.link(path.lstrip("/")) or path).rsplit("/", 1)[-1]


def _network_reasons(files: Files, owners: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return pairs (interface, reason): its own routes and addresses, and those of interfaces stacked on it."""
    reasons_of = _routes(files)
    reasons = []
    for name, addresses in owners.items():
        if not addresses:
            continue
        reasons += [(name, reason) for reason in reasons_of.get(name, [])]
        for upper in _above(files, name):
            through = [f"{reason} through {upper}" for reason in reasons_of.get(upper, [])]
            reasons += [(name, reason) for reason in through or [f"is under the interface {upper}"]]
    return reasons


def _above(files: Files, name: str) -> list[str]:
    """Return all interfaces stacked on one: bonds, bridges, VLANs, and the interfaces on those."""
    interfaces = [name]
    for lower in interfaces:
        entries = files.names(f"sys/class/net/{lower}")
        uppers = [entry[len("upper_") :] for entry in entries if entry.startswith("upper_")]
        if "master" in entries:
            uppers.append((files.link(f"sys/class/net/{lower}/master") or "").rsplit("/", 1)[-1])
        interfaces += [upper for upper in uppers if upper and upper not in interfaces]
    return interfaces[1:]


def _routes(files: Files) -> dict[str, list[str]]:
    """Return the default routes, networks and addresses of each interface, by its name."""
    reasons_of: dict[str, list[str]] = {}

    def add(name: str, reason: str) -> None:
        if reason not in reasons_of.setdefault(name, []):
            reasons_of[name].append(reason)

    path = "proc/net/route"
    for line in (files.text_or_none(path) or "").splitlines()[1:]:
        columns = line.split()
        try:
            # Hexadecimal, in the byte order of the processor, which is little-endian on all hosts with GPUs.
            destination, mask = (int.from_bytes(bytes.fromhex(columns[column]), "little") for column in (1, 7))
            network = ipaddress.IPv4Network((destination, bin(mask).count("1")), strict=False)
        except (IndexError, ValueError) as error:
            raise TopologyError(f"{files.path(path)}: {line.strip()!r} is not a route: {error}") from error
        add(columns[0], "carries the default route" if network.prefixlen == 0 else f"carries the route to {network}")
    for line in (files.text_or_none("proc/net/ipv6_route") or "").splitlines():
        columns = line.split()
        if columns[:2] == ["0" * 32, "00"] and columns[-1] != "lo":
            add(columns[-1], "carries the IPv6 default route")
    path = "proc/net/if_inet6"
    for line in (files.text_or_none(path) or "").splitlines():
        columns = line.split()
        try:
            if columns[3] != IPV6_SCOPE_LINK:
                add(columns[5], f"has the address {ipaddress.IPv6Address(int(columns[0], 16))}")
        except (IndexError, ValueError) as error:
            raise TopologyError(f"{files.path(path)}: {line.strip()!r} is not an address: {error}") from error
    return reasons_of
