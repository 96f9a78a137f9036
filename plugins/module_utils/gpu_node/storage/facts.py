# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts that decide on the modes of GPUDirect Storage: kernel, drivers, modules, mounted file systems."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# The driver's settings as it was loaded, one "Name: value" a line; RegistryDwords is quoted.
PARAMS = "/proc/driver/nvidia/params"
MULTIPATH = "/sys/module/nvme_core/parameters/multipath"
# The symbol by which NVIDIA tells that the kernel has P2PDMA (GDS Installation and Troubleshooting Guide 14.1).
P2PDMA_SYMBOL = re.compile(r"\bp2pdma_pgmap_ops\b")
BLOCK, RDMA = "/sys/class/block", "/sys/class/infiniband"
LOCAL = ("ext4", "xfs")
# cuFile's names of file systems by the kernel's.
ROUTES = {
    "nfs": "nfs",
    "nfs4": "nfs",
    "lustre": "lustre",
    "beegfs": "beegfs",
    "wekafs": "weka",
    "gpfs": "scale",
}
NVME, NVMEOF, RAID = "nvme", "nvmeof", "raid"


@dataclass(frozen=True)
class MountedFileSystem:
    """A file system that cuFile may reach directly. ``route`` is a name of ``modes.ROUTES``.

    ``drives`` are the NVMe namespaces below a local one ("nvme0n1").
    """

    mount: str
    kind: str
    route: str
    options: tuple[str, ...] = ()
    drives: tuple[str, ...] = ()
    raid_level: str = ""


@dataclass(frozen=True)
class StorageFacts:
    """The state of one host. None: it could not be read, or the part is not loaded.

    ``registered`` are the storage drivers that have registered with nvidia-fs (/proc/driver/nvidia-fs/modules).
    """

    driver: str | None = None
    open_driver: bool | None = None
    p2pdma_symbol: bool | None = None
    nvme_multipath: bool | None = None
    registry: str | None = None
    nvidia_fs: bool = False
    registered: tuple[str, ...] = ()
    peermem: bool = False
    virtual_machine: bool = False
    file_systems: tuple[MountedFileSystem, ...] = ()


def observe(system: System) -> StorageFacts:
    """Return the facts of the running host."""
    version = system.read("/proc/driver/nvidia/version") or ""
    driver = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", version, re.MULTILINE)
    return StorageFacts(
        driver=driver[1] if driver else None,
        open_driver="Open Kernel Module" in version if driver else None,
        p2pdma_symbol=_symbol(system),
        nvme_multipath=multipath(system),
        registry=registry(system),
        nvidia_fs=system.exists("/sys/module/nvidia_fs"),
        registered=_registered(system),
        peermem=system.exists("/sys/module/nvidia_peermem"),
        # CPUID says so by this flag (Linux arch/x86/include/asm/cpufeatures.h, X86_FEATURE_HYPERVISOR).
        virtual_machine=bool(
            re.search(r"^flags\s*:.*\bhypervisor\b", system.read("/proc/cpuinfo") or "", re.MULTILINE)
        ),
        file_systems=tuple(_mounted(system)),
    )


def registry(system: System) -> str | None:
    """Return RegistryDwords of the loaded driver, "" if none are set; None without the driver."""
    match = re.search(r'^RegistryDwords:\s*"?([^"\n]*)', system.read(PARAMS) or "", re.MULTILINE)
    return match[1].strip() if match else None


def rail_addresses(system: System) -> tuple[str, ...]:
    """Return the IPv4 addresses of the interfaces of RDMA devices, in the order of their PCI addresses."""
    devices = sorted((system.link_name(f"{RDMA}/{name}/device") or name, name) for name in system.names(RDMA))
    interfaces = [net for _place, name in devices for net in system.names(f"{RDMA}/{name}/device/net")]
    if not interfaces:
        return ()
    links = {link["ifname"]: link for link in json.loads(system.run(["ip", "-j", "-4", "address", "show"]))}
    addresses = [links.get(name, {}).get("addr_info", []) for name in interfaces]
    return tuple(item["local"] for part in addresses for item in part[:1])


def multipath(system: System) -> bool | None:
    """Return whether nvme_core uses multipath; False if it was built without; None if it is not loaded."""
    text = system.read(MULTIPATH)
    if text is None:
        return False if system.exists("/sys/module/nvme_core") else None
    return text == "Y"


def _symbol(system: System) -> bool | None:
    try:
        symbols = system.read("/proc/kallsyms")
    except HostError:
        return None
    return bool(P2PDMA_SYMBOL.search(symbols)) if symbols else None


def _registered(system: System) -> tuple[str, ...]:
    lines = (system.read("/proc/driver/nvidia-fs/modules") or "").splitlines()
    return tuple(sorted(line.split(":")[0].strip() for line in lines if ":" in line))


def _mounted(system: System) -> list[MountedFileSystem]:
    """Return the mounted file systems that cuFile knows, each once, by its first mount point."""
    mounts: dict[str, MountedFileSystem] = {}
    for line in (system.read("/proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[0] in mounts:
            continue
        source, mount, kind, options = fields[0], _decoded(fields[1]), fields[2], tuple(fields[3].split(","))
        if kind in ROUTES:
            mounts[source] = MountedFileSystem(mount, kind, ROUTES[kind], options)
        elif kind in LOCAL and source.startswith("/dev/"):
            local = _local(system, source, mount, kind, options)
            if local:
                mounts[source] = local
    return list(mounts.values())


def _decoded(text: str) -> str:
    r"""Return a field of /proc/mounts with its octal escapes resolved: "\040" is a space (fstab(5))."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _local(system: System, source: str, mount: str, kind: str, options: tuple[str, ...]) -> MountedFileSystem | None:
    name = _block_name(system, source)
    levels: list[str] = []
    leaves = _leaves(system, name, levels)
    drives = sorted({leaf for leaf in leaves if leaf.startswith("nvme")})
    if not drives or len(drives) < len(leaves):
        return None
    fabrics = {_transport(system, drive) for drive in drives} - {"pcie"}
    route = NVMEOF if fabrics else RAID if levels or len(drives) > 1 else NVME
    return MountedFileSystem(mount, kind, route, options, tuple(drives), levels[0] if levels else "")


def _block_name(system: System, source: str) -> str:
    """Return the kernel's name of a block device: "dm-0" for the link /dev/mapper/data."""
    return (system.link_name(source) or source).rpartition("/")[2]


def _leaves(system: System, name: str, levels: list[str]) -> set[str]:
    """Return the lowest devices below a block device, partitions as their drives; add the md levels to ``levels``."""
    level = system.read(f"{BLOCK}/{name}/md/level")
    if level:
        levels.append(level)
    slaves = system.names(f"{BLOCK}/{name}/slaves")
    if slaves:
        return {leaf for slave in slaves for leaf in _leaves(system, slave, levels)}
    return {re.sub(r"(nvme\d+n\d+)p\d+$", r"\1", name)}


def _transport(system: System, drive: str) -> str:
    """Return "pcie", "rdma" or "tcp" of a namespace's controller; "" if it is not known."""
    controller = re.match(r"nvme\d+", drive)
    return (system.read(f"/sys/class/nvme/{controller[0]}/transport") or "") if controller else ""
