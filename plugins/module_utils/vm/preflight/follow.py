# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check whether a virtual machine can follow to another server when its own one has crashed. Pure.

Its uuid and MACs depend on its name, so they stay. Devices, memory and CPUs are chosen anew by the planner. Disks and
addresses follow only if both servers reach the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

# File systems that several servers mount (the third column of /proc/mounts).
SHARED_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "gpfs", "ceph", "lustre", "beegfs", "ocfs2", "gfs2", "glusterfs", "fuse.glusterfs", "fuse.ceph")
)


@dataclass(frozen=True)
class FilePlace:
    """A path on the new server: whether it exists, and the type of its file system ("" if it is not known)."""

    path: str
    exists: bool
    file_system: str


@dataclass(frozen=True)
class CrashedServer:
    """The server that a virtual machine leaves.

    ``answers``: Ansible reaches it. ``bmc``: the address of the BMC that can say whether it is off, "" for none.
    """

    name: str
    answers: bool
    bmc: str


def needed_paths(spec: DomainSpec) -> list[str]:
    """Return the files and block devices without which the virtual machine is not the same."""
    paths = [path for disk in spec.disks for path in (disk.path, disk.base) if path]
    paths += [path for path in (spec.boot.kernel, spec.boot.initrd) if path] if spec.boot else []
    return list(dict.fromkeys(paths))


def check(
    spec: DomainSpec, server: CrashedServer, places: Mapping[str, FilePlace], shared: Iterable[str]
) -> list[Finding]:
    """Return the reasons why it cannot follow, and what to know if it can.

    ``places``: those of ``needed_paths``. ``shared``: files, and directories with all files below them, that the site
    says are the same ones on all servers.
    """
    findings = [*_of_server(spec, server), *_devices(spec, server), *_addresses(spec)]
    for path in needed_paths(spec):
        findings += _disk(spec, places[path], tuple(shared))
    return [*findings, *_autostart(spec, server)]


def _of_server(spec: DomainSpec, server: CrashedServer) -> Iterator[Finding]:
    if server.answers:
        yield Finding(
            spec.name,
            f"{server.name} answers",
            "it may run the virtual machine, and others, which a loss of power would end",
            f"stop the virtual machine there and move its entry in gpu_vm_domains, or power {server.name} off",
        )
    if not server.bmc:
        yield Finding(
            spec.name,
            f"{server.name} has no BMC in the inventory",
            "without it nothing says that the server is off, and two virtual machines would write the same disks",
            "set node_boot_bmc",
        )


def _devices(spec: DomainSpec, server: CrashedServer) -> Iterator[Finding]:
    for setting in kinds.SETTINGS.values():
        for address in getattr(spec, setting).addresses:
            yield Finding(
                spec.name,
                f"{setting}.addresses names {address}",
                f"it is a device of {server.name}",
                f"request {setting} by number, which the planner chooses on each server",
            )
    if spec.nvme.count:
        yield Finding(
            spec.name,
            f"it has {spec.nvme.count} NVMe drives",
            f"they are in {server.name}, with their data",
            "repair the server, or leave nvme out of the request if the data may be lost",
        )


def _addresses(spec: DomainSpec) -> Iterator[Finding]:
    for interface in spec.interfaces:
        if interface.type == "network":
            yield Finding(
                spec.name,
                f"its interface is in libvirt's network {interface.source}",
                "each server may have a network of that name with addresses of its own",
                "use a bridge to the site's network (type: bridge)",
            )


def _disk(spec: DomainSpec, place: FilePlace, shared: tuple[str, ...]) -> Iterator[Finding]:
    is_shared = place.file_system in SHARED_FILE_SYSTEMS or any(
        place.path == item or place.path.startswith(f"{item.rstrip('/')}/") for item in shared
    )
    if not place.exists:
        yield Finding(
            spec.name,
            f"{place.path} is not on the new server",
            "the virtual machine would start without its data",
            "mount the shared storage there",
        )
    elif not is_shared:
        yield Finding(
            spec.name,
            f"{place.path} is on {place.file_system or 'storage that is not known'}",
            "another file of that name may be on each server",
            "put it on storage that the servers share; name it in vm_shared_paths if it is",
        )


def _autostart(spec: DomainSpec, server: CrashedServer) -> Iterator[Finding]:
    if not spec.autostart:
        return
    cause = f"{server.name} starts it at its next boot (autostart)"
    devices = [disk.path for disk in spec.disks if disk.is_block_device and not disk.read_only]
    if devices:
        yield Finding(
            spec.name,
            cause,
            f"QEMU does not lock block devices, so both would write {devices[0]}",
            "set autostart: false for it before a crash; now, take the device away from the server at the storage",
        )
    else:
        yield Finding(
            spec.name,
            cause,
            "only QEMU's lock on its disks then keeps it from running twice",
            f"before {server.name} boots, move its entry in gpu_vm_domains, and undefine it there once it is up",
            WARN,
        )
