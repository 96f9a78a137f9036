# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a user asks of a virtual machine: checked once, here, so that nothing later needs to doubt it."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.domain import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError

FIRMWARES = ("efi", "bios")
ACCELERATORS = ("auto", "kvm", "qemu")
NIC_FUNCTIONS = ("vf", "pf")
DISK_FORMATS = ("qcow2", "raw")
INTERFACE_TYPES = ("network", "bridge", "user")

# libvirt refuses "/" and a few more; QEMU's pid and log files carry the name, so it is kept to what all of them take.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
SHORT_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# All nodes that have CPUs and memory, as the only element of numa_nodes.
ALL_NODES = "all"
NODE = re.compile(r"[0-9]{1,4}")
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")

# Names a virtual machine's uuid is derived from; any constant will do, as long as it never changes.
UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "gpu-domain.sailloft")


@dataclass
class Devices:
    """Which passed-through devices: ``addresses`` exactly, and ``count`` more that the planner chooses."""

    count: int = 0
    addresses: list[str] = field(default_factory=list)


@dataclass
class Nics:
    """Which NICs: ``addresses`` exactly, and the ``per_gpu`` nearest to each GPU, chosen among ``functions``."""

    per_gpu: int = 0
    functions: str = "vf"
    addresses: list[str] = field(default_factory=list)


@dataclass
class Disk:
    """An image file or block device on the host; the first that is not read-only is booted from.

    With ``base`` the file is made where it is missing: a qcow2 overlay of that image, of ``size_mib`` (0: the base's).
    """

    path: str
    format: str = "qcow2"
    read_only: bool = False
    base: str | None = None
    base_format: str = "qcow2"
    size_mib: int = 0


@dataclass
class Interface:
    """A virtio network interface: ``source`` is the libvirt network or the bridge; none for "user"."""

    type: str = "network"
    source: str | None = None
    mac: str | None = None


@dataclass
class Boot:
    """A kernel to boot directly, past the disk's boot loader; paths on the host."""

    kernel: str
    initrd: str | None = None
    arguments: str | None = None


@dataclass
class DomainSpec:
    """One virtual machine. Numbers are in the unit of their name; 0 of ``mmio_window_mib`` is "as computed"."""

    name: str
    memory_mib: int = 0
    gpus: Devices = field(default_factory=Devices)
    nics: Nics = field(default_factory=Nics)
    nvme: Devices = field(default_factory=Devices)
    vcpus: int | None = None
    huge_page_mib: int = 1024
    lock_memory: bool = True
    strict_memory: bool = True
    pin_cpus: bool = True
    host_cores_per_node: int = 1
    iothreads: int = 1
    mirror_topology: bool = True
    firmware: str = "efi"
    machine: str = machine_type.ALIAS
    accelerator: str = "auto"
    physical_address_bits: str = "auto"
    guest_iommu: bool = False
    interrupt_remapping: bool = False
    numa_nodes: list[str] = field(default_factory=list)
    ats: bool = True
    mmio_window_mib: int = 0
    disks: list[Disk] = field(default_factory=list)
    interfaces: list[Interface] = field(default_factory=list)
    boot: Boot | None = None
    console_log: str | None = None
    autostart: bool = True

    @property
    def uuid(self) -> str:
        """The same for the same name, everywhere: a plan needs no randomness."""
        return str(uuid.uuid5(UUID_NAMESPACE, self.name))

    def mac(self, index: int) -> str:
        """The given MAC of an interface, or one derived from the name (52:54:00 is QEMU's and KVM's prefix)."""
        given = self.interfaces[index].mac
        if given:
            return given
        digest = hashlib.sha256(f"{self.name}/{index}".encode()).digest()
        return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])

    @property
    def locked(self) -> bool:
        """Whether its memory is never swapped, passed-through devices or not: locked, or in huge pages."""
        return self.lock_memory or bool(self.huge_page_mib)

    @property
    def remaps_interrupts(self) -> bool:
        """Whether the guest has an IOMMU that remaps interrupts, which more than 255 vCPUs need."""
        return self.guest_iommu or self.interrupt_remapping

    @property
    def console_log_path(self) -> str:
        """Where the guest's serial console is written on the host."""
        return self.console_log or f"/var/log/libvirt/qemu/{self.name}-console.log"


def parse_specs(data: list[dict[str, Any]]) -> list[DomainSpec]:
    """Specs of all virtual machines of one host, from plain data. Raises DomainError on the first thing amiss.

    ``None`` stands for "not given" (that is what Ansible puts there).
    """
    specs = [_spec(item) for item in data]
    _unique((spec.name, spec.name) for spec in specs)
    owners: dict[str, str] = {}
    macs: dict[str, str] = {}
    for spec in specs:
        for address in explicit_addresses(spec):
            if address in owners:
                other = owners[address]
                where = "twice" if other == spec.name else f"and to virtual machine {other}"
                raise DomainError(f"PCI device {address} is given to it {where}", "give it once", domain=spec.name)
            owners[address] = spec.name
        for index in range(len(spec.interfaces)):
            mac = spec.mac(index)
            if mac in macs:
                raise DomainError(f"MAC {mac} is also that of {macs[mac]}", "give another mac", domain=spec.name)
            macs[mac] = spec.name
    return specs


def parse_module_ids(data: dict[str, Any] | None) -> dict[str, int]:
    """PCI address -> GPU physical id, from plain data. Raises DomainError where one is neither."""
    ids: dict[str, int] = {}
    for text, number in (data or {}).items():
        address = str(text).lower()
        address = f"0000:{address}" if SHORT_ADDRESS.fullmatch(address) else address
        if not ADDRESS.fullmatch(address) or not str(number).isdigit():
            raise DomainError(
                f"gpu_module_ids: {text!r}: {number!r} is not a PCI address and a number",
                'write it like "0000:1b:00.0": 1',
            )
        ids[address] = int(number)
    return ids


def explicit_addresses(spec: DomainSpec) -> list[str]:
    """All addresses that the spec names itself."""
    return [*spec.gpus.addresses, *spec.nics.addresses, *spec.nvme.addresses]


def _unique(names: Any) -> None:
    seen = set()
    for name, label in names:
        if name in seen:
            raise DomainError("listed twice", "give each a name of its own", domain=label)
        seen.add(name)


def _spec(data: dict[str, Any]) -> DomainSpec:
    name = data.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DomainError(
            "not a name", "use letters, digits, '.', '_', '-', 64 at most, a letter or digit first", domain=repr(name)
        )
    given = {key: value for key, value in data.items() if value is not None}
    spec = _build(DomainSpec, given, name, "")
    spec.gpus = _devices(Devices, data.get("gpus"), name, "gpus")
    spec.nics = _devices(Nics, data.get("nics"), name, "nics")
    spec.nvme = _devices(Devices, data.get("nvme"), name, "nvme")
    spec.numa_nodes = [str(node) for node in spec.numa_nodes]
    spec.disks = [_build(Disk, item, name, f"disks[{at}]") for at, item in enumerate(data.get("disks") or [])]
    spec.interfaces = [
        _build(Interface, item, name, f"interfaces[{at}]") for at, item in enumerate(data.get("interfaces") or [])
    ]
    spec.boot = _build(Boot, data["boot"], name, "boot") if data.get("boot") else None
    _check(spec)
    return spec


def _build(kind: type, data: dict[str, Any], name: str, where: str) -> Any:
    known = {item.name for item in fields(kind)}
    for key in data:
        if key not in known:
            at = f"{where}: " if where else ""
            raise DomainError(f"{at}unknown setting {key!r}", f"there are {', '.join(sorted(known))}", domain=name)
    try:
        return kind(**{key: value for key, value in data.items() if value is not None})
    except TypeError as error:
        raise DomainError(f"{where}: {error}", domain=name) from error


def _devices(kind: type, data: dict[str, Any] | None, name: str, where: str) -> Any:
    devices = _build(kind, data or {}, name, where)
    devices.addresses = [_address(address, name, where) for address in devices.addresses]
    return devices


def _address(text: Any, name: str, where: str) -> str:
    address = str(text).lower()
    if SHORT_ADDRESS.fullmatch(address):
        address = f"0000:{address}"
    if not ADDRESS.fullmatch(address):
        raise DomainError(f"{where}: {text!r} is not a PCI address", "write it like 0000:3b:00.0", domain=name)
    return address


def _check(spec: DomainSpec) -> None:
    """Everything that is wrong whatever the host is."""

    def need(good: bool, why: str, mend: str = "") -> None:
        if not good:
            raise DomainError(why, mend, spec.name)

    for setting, value, known in (
        ("firmware", spec.firmware, FIRMWARES),
        ("accelerator", spec.accelerator, ACCELERATORS),
        ("nics.functions", spec.nics.functions, NIC_FUNCTIONS),
    ):
        need(value in known, f"{setting} {value!r} is unknown", f"there are {', '.join(known)}")
    for setting, number, least in (
        ("memory_mib", spec.memory_mib, 0),
        ("vcpus", spec.vcpus if spec.vcpus is not None else 1, 1),
        ("huge_page_mib", spec.huge_page_mib, 0),
        ("host_cores_per_node", spec.host_cores_per_node, 0),
        ("iothreads", spec.iothreads, 0),
        ("mmio_window_mib", spec.mmio_window_mib, 0),
        ("gpus.count", spec.gpus.count, 0),
        ("nics.per_gpu", spec.nics.per_gpu, 0),
        ("nvme.count", spec.nvme.count, 0),
    ):
        need(
            isinstance(number, int) and number >= least,
            f"{setting} {number!r} is not a whole number of at least {least}",
        )
    need(
        spec.machine == machine_type.ALIAS or machine_type.is_version(spec.machine),
        f"machine {spec.machine!r} is no version of q35",
        "write it as virsh capabilities tells it, like pc-q35-8.2, or leave it out",
    )
    need(
        spec.numa_nodes == [ALL_NODES] or all(NODE.fullmatch(node) for node in spec.numa_nodes),
        f"numa_nodes {spec.numa_nodes!r} is neither [all] nor a list of NUMA nodes",
        "write it like [0, 1]",
    )
    size = spec.huge_page_mib
    need(size & (size - 1) == 0, f"huge_page_mib {size} is no size of a huge page", "2 and 1024 are x86's, 0 is none")
    window = spec.mmio_window_mib
    need(
        window & (window - 1) == 0,
        f"mmio_window_mib {window} is not a power of two",
        "leave it out to have it computed",
    )
    bits = spec.physical_address_bits
    need(
        bits in ("auto", "passthrough", "off") or (bits.isdigit() and 32 <= int(bits) <= 64),
        f"physical_address_bits {bits!r} is unknown",
        "it is auto, passthrough, off, or a number from 32 to 64",
    )
    need(
        not (spec.accelerator == "qemu" and bits == "passthrough"),
        "physical_address_bits passthrough needs KVM, and accelerator is qemu",
        "use auto, off or a number",
    )
    for disk in spec.disks:
        need(
            disk.format in DISK_FORMATS,
            f"disk {disk.path}: format {disk.format!r} is unknown",
            f"there are {', '.join(DISK_FORMATS)}",
        )
        need(
            disk.base_format in DISK_FORMATS,
            f"disk {disk.path}: base_format {disk.base_format!r} is unknown",
            f"there are {', '.join(DISK_FORMATS)}",
        )
        for path in filter(None, (disk.path, disk.base)):
            need(path.startswith("/"), f"disk {path!r}: not an absolute path on the host")
        need(
            disk.base is None or (disk.format == "qcow2" and not disk.path.startswith("/dev/") and not disk.read_only),
            f"disk {disk.path}: only a writable qcow2 file can be an overlay of a base image",
        )
        need(
            disk.base is not None or disk.size_mib == 0,
            f"disk {disk.path}: size_mib is for one that is made from a base",
        )
    for interface in spec.interfaces:
        need(
            interface.type in INTERFACE_TYPES,
            f"interface type {interface.type!r} is unknown",
            f"there are {', '.join(INTERFACE_TYPES)}",
        )
        named = bool(interface.source)
        need(
            named or interface.type == "user",
            f"an interface of type {interface.type} needs a source: the {interface.type}'s name",
        )
        need(not (named and interface.type == "user"), "an interface of type user has no source")
        need(
            interface.mac is None or bool(MAC.fullmatch(interface.mac)),
            f"{interface.mac!r} is not a MAC",
            "write it like 52:54:00:12:34:56",
        )
