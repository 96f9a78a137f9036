# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A request for a virtual machine: its settings, their types and defaults, and the check of each."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request import settings

FIRMWARES = ("efi", "bios")
ACCELERATORS = ("auto", "kvm", "qemu")
FUNCTIONS = ("vf", "pf")
DISK_FORMATS = ("qcow2", "raw")
INTERFACE_TYPES = ("network", "bridge", "user")
# "auto" is the default of libvirt and QEMU; for block devices it is no cache and native I/O.
DISK_CACHES = ("auto", "none", "writeback", "writethrough", "directsync", "unsafe")
DISK_IO = ("auto", "native", "threads", "io_uring")

# The name space of the uuids, which are derived from names. The value is arbitrary, but must never change.
UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "gpu-domain.sailloft")


SETTING, NO_DEFAULT, NOT_ON_VSPHERE = "setting", "no_default", "not_on_vsphere"


def _by(setting: settings.OptionSpec, not_on_vsphere: str = "", no_default: bool = False) -> dict[str, Any]:
    """Return the metadata of a field.

    ``not_on_vsphere``: why it has no effect there, "" if it has. ``no_default``: the option has no default, because the
    planner needs a value.
    """
    return {SETTING: setting, NOT_ON_VSPHERE: not_on_vsphere, NO_DEFAULT: no_default}


@dataclass
class DeviceRequest:
    """The passed-through devices: ``addresses`` exactly, and ``count`` more that the planner chooses."""

    count: int = field(default=0, metadata=_by(settings.number(0, settings.DEVICES_MAX)))
    addresses: list[str] = field(default_factory=list, metadata=_by(settings.ADDRESSES))

    def chosen_for(self, _gpus: int) -> int:
        """Return the number of devices to choose for a virtual machine with ``_gpus`` GPUs."""
        return self.count


@dataclass
class Gpus(DeviceRequest):
    """The GPUs, as ``DeviceRequest``; chosen among ``functions``: whole GPUs, or virtual functions of them."""

    functions: str = field(default="pf", metadata=_by(settings.choice(*FUNCTIONS)))


@dataclass
class Nics:
    """The NICs: ``addresses`` exactly, and the ``per_gpu`` nearest to each GPU, chosen among ``functions``."""

    per_gpu: int = field(default=0, metadata=_by(settings.number(0, settings.DEVICES_MAX)))
    functions: str = field(default="vf", metadata=_by(settings.choice(*FUNCTIONS)))
    addresses: list[str] = field(default_factory=list, metadata=_by(settings.ADDRESSES))

    def chosen_for(self, gpus: int) -> int:
        """Return the number of NICs to choose for a virtual machine with ``gpus`` GPUs."""
        return self.per_gpu * gpus


@dataclass
class Disk:
    """An image file or block device on the host; the guest boots from the first that is not read-only.

    With ``base``, a missing file is made as a qcow2 overlay of that image, with ``size_mib`` (0: the size of the base).
    A missing base is downloaded from ``base_url``. With ``ssh_keys``, a missing file is made as the first settings of a
    guest with cloud-init (a disk of its data source NoCloud).
    """

    path: str = field(metadata=_by(settings.PATH))
    format: str = field(default="qcow2", metadata=_by(settings.choice(*DISK_FORMATS)))
    read_only: bool = field(default=False, metadata=_by(settings.SWITCH))
    base: str | None = field(default=None, metadata=_by(settings.PATH))
    base_format: str = field(default="qcow2", metadata=_by(settings.choice(*DISK_FORMATS)))
    base_url: str | None = field(default=None, metadata=_by(settings.URL_OF_FILE))
    base_checksum: str | None = field(default=None, metadata=_by(settings.CHECKSUM_OF_FILE))
    size_mib: int = field(default=0, metadata=_by(settings.number(0, settings.DISK_MIB_MAX, "MiB")))
    ssh_keys: list[str] = field(default_factory=list, metadata=_by(settings.LINES))
    cache: str = field(default="auto", metadata=_by(settings.choice(*DISK_CACHES)))
    io: str = field(default="auto", metadata=_by(settings.choice(*DISK_IO)))

    @property
    def is_made(self) -> bool:
        """Return True if a missing file is made."""
        return bool(self.base or self.ssh_keys)

    @property
    def is_block_device(self) -> bool:
        """Return True if the disk is a block device of the host, not a file."""
        return self.path.startswith("/dev/")

    @property
    def tuning(self) -> dict[str, str]:
        """Return cache and io for libvirt, without those that are "auto" and so left to libvirt."""
        of_kind = {"cache": "none", "io": "native"} if self.is_block_device else {}
        requested = {name: value for name, value in (("cache", self.cache), ("io", self.io)) if value != "auto"}
        return {**of_kind, **requested}


@dataclass
class Interface:
    """A virtio network interface: ``source`` is the libvirt network or the bridge; none for "user"."""

    type: str = field(default="network", metadata=_by(settings.choice(*INTERFACE_TYPES)))
    source: str | None = field(default=None, metadata=_by(settings.SOURCE))
    mac: str | None = field(default=None, metadata=_by(settings.MAC))
    queues: int = field(default=1, metadata=_by(settings.number(1, settings.QUEUES_MAX)))


@dataclass
class Boot:
    """A kernel to boot directly, without the disk's boot loader; paths on the host."""

    kernel: str = field(metadata=_by(settings.PATH))
    initrd: str | None = field(default=None, metadata=_by(settings.PATH))
    arguments: str | None = field(default=None, metadata=_by(settings.ARGUMENTS))


@dataclass
class DomainSpec:
    """One virtual machine. Numbers are in the unit of their name; ``mmio_window_mib`` 0 means computed."""

    name: str = field(metadata=_by(settings.NAME))
    memory_mib: int = field(
        default=0, metadata=_by(settings.number(0, settings.MEMORY_MIB_MAX, "MiB"), no_default=True)
    )
    gpus: Gpus = field(default_factory=Gpus)
    nics: Nics = field(default_factory=Nics)
    nvme: DeviceRequest = field(default_factory=DeviceRequest)
    vcpus: int | None = field(default=None, metadata=_by(settings.number(1, settings.VCPUS_MAX)))
    huge_page_mib: int = field(default=1024, metadata=_by(settings.PAGE_SIZE))
    lock_memory: bool = field(default=True, metadata=_by(settings.SWITCH))
    memory_threads: int = field(
        default=0, metadata=_by(settings.number(0, settings.VCPUS_MAX), "ESXi allocates the memory itself")
    )
    strict_memory: bool = field(default=True, metadata=_by(settings.SWITCH))
    pin_cpus: bool = field(default=True, metadata=_by(settings.SWITCH))
    host_cores_per_socket: int = field(default=1, metadata=_by(settings.number(0, settings.VCPUS_MAX)))
    iothreads: int = field(
        default=1, metadata=_by(settings.number(0, settings.DEVICES_MAX), "ESXi schedules its I/O itself")
    )
    mirror_topology: str = field(
        default="auto",
        metadata=_by(
            settings.AUTO_SWITCH, "vSphere does not give a guest the host's PCI tree; NCCL's topology file contains it"
        ),
    )
    firmware: str = field(default="efi", metadata=_by(settings.choice(*FIRMWARES)))
    machine: str = field(
        default=machine_type.ALIAS,
        metadata=_by(settings.MACHINE, "vSphere has virtual hardware versions instead (vsphere.hardware_version)"),
    )
    accelerator: str = field(default="auto", metadata=_by(settings.choice(*ACCELERATORS), "vSphere is the hypervisor"))
    physical_address_bits: str = field(
        default="auto", metadata=_by(settings.ADDRESS_BITS, "vSphere controls address bits")
    )
    guest_iommu: bool = field(default=False, metadata=_by(settings.SWITCH))
    interrupt_remapping: bool = field(default=False, metadata=_by(settings.SWITCH))
    numa_nodes: list[str] = field(default_factory=list, metadata=_by(settings.NODES))
    ats: bool = field(default=True, metadata=_by(settings.SWITCH, "vSphere has no virtio devices"))
    gpudirect_cliques: bool = field(default=True, metadata=_by(settings.SWITCH, "it is an option of QEMU's devices"))
    hpet: bool = field(default=True, metadata=_by(settings.SWITCH, "vSphere has its own timers"))
    kvm_dedicated: bool = field(
        default=False,
        metadata=_by(settings.SWITCH, "vSphere is the hypervisor; vsphere.latency_sensitivity is its setting"),
    )
    rom_bar: bool = field(default=True, metadata=_by(settings.SWITCH, "vSphere controls option ROMs"))
    rng: bool = field(default=False, metadata=_by(settings.SWITCH, "vSphere has no virtio devices"))
    mmio_window_mib: int = field(default=0, metadata=_by(settings.POWER_OF_TWO))
    disks: list[Disk] = field(default_factory=list)
    interfaces: list[Interface] = field(default_factory=list)
    boot: Boot | None = field(default=None, metadata={NOT_ON_VSPHERE: "vSphere boots no kernel directly"})
    console_log: str | None = field(default=None, metadata=_by(settings.PATH, "vSphere writes no console log"))
    autostart: bool = field(
        default=True, metadata=_by(settings.SWITCH, "vSphere HA and the autostart of the host start virtual machines")
    )

    @property
    def uuid(self) -> str:
        """Return the uuid, which depends on the name only: a plan needs no randomness."""
        return str(uuid.uuid5(UUID_NAMESPACE, self.name))

    def mac(self, index: int) -> str:
        """Return the given MAC of an interface, or one derived from the name (52:54:00 is QEMU's and KVM's prefix)."""
        requested = self.interfaces[index].mac
        if requested:
            return requested
        digest = hashlib.sha256(f"{self.name}/{index}".encode()).digest()
        return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])

    @property
    def locked(self) -> bool:
        """Return True if its memory is never swapped, even without passed-through devices: locked, or in huge pages."""
        return self.lock_memory or bool(self.huge_page_mib)

    @property
    def remaps_interrupts(self) -> bool:
        """Return True if the guest has an IOMMU that remaps interrupts, which more than 255 vCPUs need."""
        return self.guest_iommu or self.interrupt_remapping

    @property
    def console_log_path(self) -> str:
        """Return the path on the host to which the guest's serial console is written."""
        return self.console_log or f"/var/log/libvirt/qemu/{self.name}-console.log"


def explicit_addresses(spec: DomainSpec) -> list[str]:
    """Return all addresses that the spec names itself."""
    return [address for key in kinds.SETTINGS.values() for address in getattr(spec, key).addresses]


def inner_kind(annotation: str) -> type:
    """Return the class of a field that has fields of its own: "Gpus", "list[Disk]", "Boot | None"."""
    kind: type = globals()[annotation.replace(" | None", "").replace("list[", "").rstrip("]")]
    return kind
