# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tell the modes of GPUDirect Storage that a host allows for each file system, and why not the others. Pure.

Sources: NVIDIA, "GPUDirect Storage Installation and Troubleshooting Guide", sections 3 and 14, and "GDS Support for
NVMe Drives Using Linux PCI P2PDMA Support", release 615 (docs.nvidia.com, September 2026); which file system has which
mode: gds-diag of NVIDIA/MagnumIO. None of it was tried on a GPU by this project.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import facts as f
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import BARE_METAL
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.reach import Reach
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import function_roles as roles
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kernel_release import includes
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

P2PDMA, NVIDIA_FS, RDMA, COMPAT = "p2pdma", "nvidia_fs", "rdma", "compat"
MODES = (P2PDMA, NVIDIA_FS, RDMA, COMPAT)
# The GPUs that NVIDIA lists for P2PDMA (14.2): A100, A40, L4, L40S, H100 and H200, B100 and B200, B300. Ids: pci.ids.
P2PDMA_GPUS = (
    *(range(0x20B0, 0x20B4), range(0x20B5, 0x20B6), range(0x20F0, 0x20F3), range(0x2235, 0x2236)),
    *(range(0x27B8, 0x27B9), range(0x26B9, 0x26BA), range(0x2300, 0x2380)),
    *roles.NVLINK5_CHIPS[:2],
)
P2PDMA_GPU_NAMES = "A100, A40, L4, L40S, H100, H200, B100, B200 or B300"
P2PDMA_KERNEL, P2PDMA_DRIVER = (6, 2), 565
# The driver's registry for P2PDMA (14.3): GPU memory mapped as a whole, and not write-combined.
REGISTRY = {"RMForceStaticBar1": "1", "RmForceDisableIomapWC": "1"}
MULTIPATH_OFF = "nvme_core.multipath=N"
# md of the kernel passes P2PDMA from here on (gds-diag, as above); NVIDIA's own guide has RAID0 as not supported.
RAID_KERNEL = (7, 1)
# What has to be in /proc/driver/nvidia-fs/modules (NVIDIA/gds-nvidia-fs, nvfs-dma.c, modules_list), and whose it is.
REGISTERS = {
    f.NVME: ("nvme", "a patched driver: gpu_node_rdma: doca, with DOCA's packages for NVMe"),
    f.RAID: ("nvme", "a patched driver: gpu_node_rdma: doca, with DOCA's packages for NVMe"),
    f.NVMEOF: ("nvme_rdma", "a patched driver: gpu_node_rdma: doca, with DOCA's packages for NVMe"),
    "nfs": ("rpcrdma", "NFS over RDMA of DOCA (mlnx-nfsrdma), or of the storage's vendor"),
    "lustre": ("lnet", "a Lustre client that was built with GPUDirect Storage"),
    "beegfs": ("beegfs", "a BeeGFS client that was built with GPUDirect Storage"),
}


@dataclass(frozen=True)
class Hurdle:
    """A reason why a mode is not possible, and its remedy. ``known`` is False where a fact could not be read."""

    what: str
    remedy: str
    known: bool = True

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


@dataclass(frozen=True)
class StorageRoute:
    """A mounted file system with the hurdles of each mode, by mode; an empty list: the mode is possible."""

    mount: str
    kind: str
    route: str
    hurdles: dict[str, tuple[Hurdle, ...]]
    notes: tuple[str, ...] = field(default=())

    @property
    def possible(self) -> list[str]:
        """Return the possible modes, the fastest first."""
        return [mode for mode in MODES if not self.hurdles[mode]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {**asdict(self), "possible": self.possible}

    def lines(self) -> list[str]:
        """Return the route as text: the possible modes, and each other mode with its reasons."""
        text = [f"{self.mount} ({self.kind}): {', '.join(self.possible)}", *(f"  note: {note}" for note in self.notes)]
        for mode in MODES:
            for hurdle in self.hurdles[mode]:
                text.append(f"  {'no' if hurdle.known else 'not known:'} {mode}: {hurdle}")
        return text


def routes(host: Host, facts: f.StorageFacts) -> list[StorageRoute]:
    """Return the modes of each mounted file system; without any, those of the host's NVMe drives as if mounted."""
    systems = list(facts.file_systems)
    if not systems and any(item.kind == "nvme" for item in host.functions):
        systems = [f.MountedFileSystem("NVMe drives", "not mounted", f.NVME)]
    return [_route(host, facts, system) for system in systems]


def _route(host: Host, facts: f.StorageFacts, system: f.MountedFileSystem) -> StorageRoute:
    gpus = [item for item in host.functions if item.kind == "gpu"]
    everywhere = [] if gpus else [Hurdle("this host has no GPU", "mount the file system on GPU nodes")]
    shared = [*everywhere, *_driver(facts), *_iommu(host)]
    local = system.route in (f.NVME, f.RAID, f.NVMEOF)
    forbidden, slow = _pairs(host, gpus, system) if system.route in (f.NVME, f.RAID) else ([], [])
    by_mode = {
        P2PDMA: [*shared, *_p2pdma(host, facts, gpus), *_p2pdma_file_system(host, system), *forbidden]
        if local
        else [Hurdle(f"cuFile has no P2PDMA for {system.kind}", "use another mode")],
        NVIDIA_FS: [*shared, *_nvidia_fs(facts, system)],
        RDMA: [*shared, *_rdma(host, facts, system)],
        COMPAT: everywhere,
    }
    if local:
        ordered = [*_ordered(system), *_virtual(facts)]
        by_mode[P2PDMA] += ordered
        by_mode[NVIDIA_FS] += ordered
    hurdles = {mode: tuple(dict.fromkeys(reasons)) for mode, reasons in by_mode.items()}
    return StorageRoute(system.mount, system.kind, system.route, hurdles, tuple(slow))


def _virtual(facts: f.StorageFacts) -> list[Hurdle]:
    """Return the hurdle of a guest, in whose tree the host's switches and ACS are not seen (gds-nvidia-fs#11)."""
    if not facts.virtual_machine:
        return []
    cause = "this is a virtual machine, in which no success with NVMe drives is known"
    return [Hurdle(cause, "measure it with gdsio", known=False)]


def _driver(facts: f.StorageFacts) -> list[Hurdle]:
    if facts.driver is None:
        return [Hurdle("NVIDIA's driver is not loaded", "apply the role gpu_node, and reboot")]
    if not facts.open_driver:
        # GDS Release Notes 1.7.2: the proprietary kernel module is not supported.
        return [Hurdle("the driver's kernel modules are the proprietary ones", "install the open ones (gpu_node)")]
    return []


def _iommu(host: Host) -> list[Hurdle]:
    """Return the hurdle of a translating IOMMU (3.1): off is best, passthrough works on some platforms."""
    if host.iommu.kind is None or host.iommu.default_domain == "identity":
        return []
    if host.iommu.default_domain is None:
        return [Hurdle("whether the IOMMU translates is not known", "read the host as root", known=False)]
    return [Hurdle("the IOMMU translates", "set gpu_node_pci.iommu: passthrough, and reboot")]


def _p2pdma(host: Host, facts: f.StorageFacts, gpus: list[Function]) -> list[Hurdle]:
    hurdles = []
    if host.cpu.architecture not in (None, "x86_64"):
        hurdles.append(
            Hurdle(f"NVIDIA describes P2PDMA on x86_64, and this is {host.cpu.architecture}", "use nvidia_fs")
        )
    newer = f"boot a kernel from {P2PDMA_KERNEL[0]}.{P2PDMA_KERNEL[1]} on that has CONFIG_PCI_P2PDMA"
    if includes(host.kernel_release, P2PDMA_KERNEL) is False:
        hurdles.append(Hurdle(f"kernel {host.kernel_release} is older than 6.2", newer))
    if facts.p2pdma_symbol is None:
        hurdles.append(Hurdle("/proc/kallsyms could not be read", "run as root", known=False))
    elif not facts.p2pdma_symbol:
        hurdles.append(Hurdle(f"kernel {host.kernel_release} has no p2pdma_pgmap_ops", newer))
    if facts.driver and int(facts.driver.split(".")[0]) < P2PDMA_DRIVER:
        hurdles.append(Hurdle(f"driver {facts.driver} is older than {P2PDMA_DRIVER}", "set gpu_node_driver"))
    strange = [gpu.address for gpu in gpus if not _listed(gpu)]
    if strange:
        hurdles.append(Hurdle(f"GPU {excerpt(strange)} is no {P2PDMA_GPU_NAMES}", "use nvidia_fs"))
    for gpu in gpus:
        reason = roles.unreachable_memory_reason(gpu)
        if reason:
            hurdles.append(Hurdle(f"GPU {gpu.address}: {reason}", roles.LARGE_BARS))
    by_role = "set gpu_node_storage: p2pdma, and reboot"
    if facts.nvme_multipath is None:
        hurdles.append(Hurdle("nvme_core is not loaded", "look for the NVMe drives", known=False))
    elif facts.nvme_multipath:
        hurdles.append(Hurdle("nvme_core uses multipath", by_role))
    if facts.driver and not set_for_p2pdma(facts.registry):
        hurdles.append(Hurdle(f"the driver was loaded with RegistryDwords {facts.registry or 'empty'}", by_role))
    return hurdles


def set_for_p2pdma(registry: str | None) -> bool:
    """Return whether RegistryDwords, "A=1;B=1;", has all of REGISTRY."""
    pairs = dict(part.split("=", 1) for part in (registry or "").split(";") if "=" in part)
    return all(pairs.get(name) == value for name, value in REGISTRY.items())


def _listed(gpu: Function) -> bool:
    return gpu.vendor_id == roles.NVIDIA and any(gpu.device_id in ids for ids in P2PDMA_GPUS)


def _p2pdma_file_system(host: Host, system: f.MountedFileSystem) -> list[Hurdle]:
    if system.route == f.NVMEOF:
        return [Hurdle("NVIDIA does not support NVMe over Fabrics by P2PDMA", "use nvidia_fs")]
    if system.route == f.RAID and (system.raid_level != "raid0" or not includes(host.kernel_release, RAID_KERNEL)):
        level = system.raid_level or "a device of several drives"
        return [Hurdle(f"P2PDMA does not pass {level} before Linux 7.1", "mount the drives one by one")]
    return []


def _pairs(host: Host, gpus: list[Function], system: f.MountedFileSystem) -> tuple[list[Hurdle], list[str]]:
    """Return the hurdle if no GPU reaches a drive (Linux drivers/pci/p2pdma.c), and the slow pairs as notes."""
    names = set(system.drives)
    drives = [
        item
        for item in host.functions
        if item.kind == "nvme" and (not names or names & set(item.interfaces.get("block", [])))
    ]
    reach = Reach(host, gpus, BARE_METAL, as_planned=False)
    hurdles: list[Hurdle] = []
    slow: list[str] = []
    unread = reach.unread(item.address for item in (*gpus, *drives))
    if unread:
        return [Hurdle(f"ACS of port {excerpt(unread)} is not known", "read the host as root", known=False)], []
    for drive in drives:
        reasons = {gpu.address: reach.forbidden(gpu.address, drive.address) for gpu in gpus}
        if reasons and all(reasons.values()):
            cause = next(reason for reason in reasons.values() if reason)
            hurdles.append(Hurdle(f"no GPU reaches drive {drive.address}: {cause}", "set gpu_node_pci.acs: bare_metal"))
            continue
        redirected = [gpu.address for gpu in gpus if reach.redirected(gpu.address, drive.address)]
        if redirected:
            slow.append(
                f"ACS sends requests of drive {drive.address} to GPU {excerpt(redirected)} through the root complex; "
                "set gpu_node_pci.acs: bare_metal"
            )
        if not any(reach.below_one_switch(gpu.address, drive.address) for gpu in gpus):
            slow.append(f"drive {drive.address} shares no switch with a GPU: its transfers cross the root complex")
    return hurdles, slow


def _nvidia_fs(facts: f.StorageFacts, system: f.MountedFileSystem) -> list[Hurdle]:
    registers = REGISTERS.get(system.route)
    if registers is None:
        return [Hurdle(f"cuFile reaches {system.kind} by RDMA of user space, without nvidia-fs", "use rdma")]
    if not facts.nvidia_fs:
        return [Hurdle("nvidia-fs is not loaded", "set gpu_node_storage: nvidia_fs")]
    module, whose = registers
    if module not in facts.registered:
        return [Hurdle(f"the driver {module} has not registered with nvidia-fs", f"it needs {whose}")]
    if system.route == "nfs" and "proto=rdma" not in system.options:
        return [Hurdle(f"{system.mount} is not mounted with proto=rdma", "mount it with proto=rdma,port=20049")]
    return []


def _rdma(host: Host, facts: f.StorageFacts, system: f.MountedFileSystem) -> list[Hurdle]:
    if system.route not in ("scale", "weka"):
        return [Hurdle(f"cuFile has no RDMA of user space for {system.kind}", "use another mode")]
    if not any(item.interfaces.get("rdma") for item in host.functions if item.kind == "nic"):
        return [Hurdle("no NIC has an RDMA device", "load its RDMA driver")]
    # The guide's dmabuf needs the open driver, which _driver demands, and Linux from 5.12 on (gpu-operator-rdma.rst).
    if not facts.peermem and includes(host.kernel_release, (5, 12)) is False:
        return [Hurdle("neither dma-buf nor nvidia-peermem", "boot a newer kernel, or gpu_node_gpudirect: peermem")]
    return []


def _ordered(system: f.MountedFileSystem) -> list[Hurdle]:
    """Return the hurdle of ext4 without data=ordered, which cuFile wants among its mount options (section 10)."""
    if system.kind != "ext4" or "data=ordered" in system.options:
        return []
    return [Hurdle(f"{system.mount} is not mounted with data=ordered", "add data=ordered to its mount options")]
