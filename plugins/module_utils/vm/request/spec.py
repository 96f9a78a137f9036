# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's request for a virtual machine, checked once here, so that later code need not check it again."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.given.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError

FIRMWARES = ("efi", "bios")
ACCELERATORS = ("auto", "kvm", "qemu")
NIC_FUNCTIONS = ("vf", "pf")
DISK_FORMATS = ("qcow2", "raw")
INTERFACE_TYPES = ("network", "bridge", "user")

# libvirt refuses "/" and a few more. QEMU's pid and log files have the name, so only characters valid in all are used.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
SHORT_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# All nodes that have CPUs and memory, as the only element of numa_nodes.
ALL_NODES = "all"
NODE = re.compile(r"[0-9]{1,4}")

# The name space of the uuids, which are derived from names; any constant is good that never changes.
UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "gpu-domain.sailloft")


# The limits of any guest, where no host sets a lower one: 4096 vCPUs (QEMU's q35 since 9.0), 52 physical
# address bits and so 4 PiB (AMD64 Architecture Programmer's Manual, volume 2, 5.1), 256 buses, a device on each.
VCPUS_MAX = 4096
MEMORY_MIB_MAX = 1 << 32
WINDOW_MIB_MAX = 1 << 32
ADDRESS_BITS_MAX = 52
DEVICES_MAX = 256
# A disk: 1 PiB, more than QEMU's qcow2 can address with its default clusters and tables in use.
DISK_MIB_MAX = 1 << 30
# x86-64's sizes of huge pages; 0 is ordinary memory.
HUGE_PAGES_MIB = (0, 2, 1024)
# Linux on x86 takes 2048 bytes with the closing NUL (COMMAND_LINE_SIZE, arch/x86/include/asm/setup.h).
ARGUMENTS_MAX = 2047
# Linux: IFNAMSIZ is 16 with the closing NUL. The characters are those of libvirt's schema.
BRIDGE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}")
SOURCE_MAX = 255
MODULE_ID = re.compile(r"[0-9]{1,3}")
BITS = re.compile(r"[1-9][0-9]")

CHECK = "check"
Check = Callable[[Any], Any]


def _number(least: int, most: int, unit: str = "") -> Check:
    return lambda value: values.whole(value, least, most, unit)


def _choice(*known: str) -> Check:
    return lambda value: values.one_of(value, known)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValueError(f"{value!r} is not possible", "use true or false")
    return value


def _power_of_two(value: Any) -> int:
    if values.whole(value, 0, WINDOW_MIB_MAX, "MiB") & (value - 1):
        raise InvalidValueError(f"{value} is not a power of two", "leave it out to have it computed")
    return value


def _page_size(value: Any) -> int:
    if isinstance(value, bool) or value not in HUGE_PAGES_MIB:
        raise InvalidValueError(f"{value!r} is no size of a huge page", "x86 has 2 and 1024; 0 is ordinary memory")
    return value


def _address_bits(value: Any) -> str:
    words = values.text(value)
    if words not in ("auto", "passthrough", "off") and not (
        BITS.fullmatch(words) and 32 <= int(words) <= ADDRESS_BITS_MAX
    ):
        raise InvalidValueError(
            f"{value!r} is unknown", f"it is auto, passthrough, off, or a number from 32 to {ADDRESS_BITS_MAX}"
        )
    return words


def _machine(value: Any) -> str:
    if value != machine_type.ALIAS and not machine_type.is_version(values.text(value)):
        raise InvalidValueError(
            f"{value!r} is no version of q35",
            "write it as virsh capabilities tells it, like pc-q35-8.2, or leave it out",
        )
    return str(value)


def _nodes(value: Any) -> list[str]:
    """Return nodes as text; a number is accepted, too."""
    nodes = [str(node) for node in value] if isinstance(value, list) else [str(value)]
    if not isinstance(value, list) or (nodes != [ALL_NODES] and not all(NODE.fullmatch(node) for node in nodes)):
        raise InvalidValueError(f"{nodes!r} is neither [all] nor a list of NUMA nodes", "write it like [0, 1]")
    return nodes


def _addresses(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise InvalidValueError(f"{value!r} is not a list", "write it like ['0000:3b:00.0']")
    return [_address(item) for item in value]


def _address(value: Any) -> str:
    # YAML reads 10:00.0 without quotes as a number, of base 60.
    address = value.lower() if isinstance(value, str) else ""
    if SHORT_ADDRESS.fullmatch(address):
        address = f"0000:{address}"
    if not ADDRESS.fullmatch(address):
        raise InvalidValueError(f"{value!r} is not a PCI address", "write it like '0000:3b:00.0', in quotes")
    return address


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidValueError("not a name", "use letters, digits, '.', '_', '-', 64 at most, a letter or digit first")
    return value


def _arguments(value: Any) -> str:
    return values.text(value, ARGUMENTS_MAX)


def _source(value: Any) -> str:
    return values.text(value, SOURCE_MAX)


def _by(check: Check) -> dict[str, Check]:
    """Return the metadata of a field with its type: ``check`` returns its value, or raises InvalidValueError."""
    return {CHECK: check}


@dataclass
class Devices:
    """The passed-through devices: ``addresses`` exactly, and ``count`` more that the planner chooses."""

    count: int = field(default=0, metadata=_by(_number(0, DEVICES_MAX)))
    addresses: list[str] = field(default_factory=list, metadata=_by(_addresses))


@dataclass
class Nics:
    """The NICs: ``addresses`` exactly, and the ``per_gpu`` nearest to each GPU, chosen among ``functions``."""

    per_gpu: int = field(default=0, metadata=_by(_number(0, DEVICES_MAX)))
    functions: str = field(default="vf", metadata=_by(_choice(*NIC_FUNCTIONS)))
    addresses: list[str] = field(default_factory=list, metadata=_by(_addresses))


@dataclass
class Disk:
    """An image file or block device on the host; the first that is not read-only is booted from.

    With ``base`` a missing file is made: a qcow2 overlay of that image, of ``size_mib`` (0: the base's).
    """

    path: str = field(metadata=_by(values.path))
    format: str = field(default="qcow2", metadata=_by(_choice(*DISK_FORMATS)))
    read_only: bool = field(default=False, metadata=_by(_switch))
    base: str | None = field(default=None, metadata=_by(values.path))
    base_format: str = field(default="qcow2", metadata=_by(_choice(*DISK_FORMATS)))
    size_mib: int = field(default=0, metadata=_by(_number(0, DISK_MIB_MAX, "MiB")))


@dataclass
class Interface:
    """A virtio network interface: ``source`` is the libvirt network or the bridge; none for "user"."""

    type: str = field(default="network", metadata=_by(_choice(*INTERFACE_TYPES)))
    source: str | None = field(default=None, metadata=_by(_source))
    mac: str | None = field(default=None, metadata=_by(values.unicast_mac))


@dataclass
class Boot:
    """A kernel to boot directly, past the disk's boot loader; paths on the host."""

    kernel: str = field(metadata=_by(values.path))
    initrd: str | None = field(default=None, metadata=_by(values.path))
    arguments: str | None = field(default=None, metadata=_by(_arguments))


@dataclass
class DomainSpec:
    """One virtual machine. Numbers are in the unit of their name; 0 of ``mmio_window_mib`` is "as computed"."""

    name: str = field(metadata=_by(_name))
    memory_mib: int = field(default=0, metadata=_by(_number(0, MEMORY_MIB_MAX, "MiB")))
    gpus: Devices = field(default_factory=Devices)
    nics: Nics = field(default_factory=Nics)
    nvme: Devices = field(default_factory=Devices)
    vcpus: int | None = field(default=None, metadata=_by(_number(1, VCPUS_MAX)))
    huge_page_mib: int = field(default=1024, metadata=_by(_page_size))
    lock_memory: bool = field(default=True, metadata=_by(_switch))
    strict_memory: bool = field(default=True, metadata=_by(_switch))
    pin_cpus: bool = field(default=True, metadata=_by(_switch))
    host_cores_per_node: int = field(default=1, metadata=_by(_number(0, VCPUS_MAX)))
    iothreads: int = field(default=1, metadata=_by(_number(0, DEVICES_MAX)))
    mirror_topology: bool = field(default=True, metadata=_by(_switch))
    firmware: str = field(default="efi", metadata=_by(_choice(*FIRMWARES)))
    machine: str = field(default=machine_type.ALIAS, metadata=_by(_machine))
    accelerator: str = field(default="auto", metadata=_by(_choice(*ACCELERATORS)))
    physical_address_bits: str = field(default="auto", metadata=_by(_address_bits))
    guest_iommu: bool = field(default=False, metadata=_by(_switch))
    interrupt_remapping: bool = field(default=False, metadata=_by(_switch))
    numa_nodes: list[str] = field(default_factory=list, metadata=_by(_nodes))
    ats: bool = field(default=True, metadata=_by(_switch))
    mmio_window_mib: int = field(default=0, metadata=_by(_power_of_two))
    disks: list[Disk] = field(default_factory=list)
    interfaces: list[Interface] = field(default_factory=list)
    boot: Boot | None = None
    console_log: str | None = field(default=None, metadata=_by(values.path))
    autostart: bool = field(default=True, metadata=_by(_switch))

    @property
    def uuid(self) -> str:
        """Return the uuid, the same for the same name everywhere: a plan needs no randomness."""
        return str(uuid.uuid5(UUID_NAMESPACE, self.name))

    def mac(self, index: int) -> str:
        """Return the given MAC of an interface, or one derived from the name (52:54:00 is QEMU's and KVM's prefix)."""
        given = self.interfaces[index].mac
        if given:
            return given
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


def parse_specs(data: list[dict[str, Any]]) -> list[DomainSpec]:
    """Return the specs of all virtual machines of one host, from plain data. Raises DomainError on the first error.

    ``None`` is "not given" (Ansible passes it for an option without a value).
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
    """Return PCI address -> GPU physical id, from plain data. Raises DomainError where one is neither."""
    ids: dict[str, int] = {}
    for key, number in (data or {}).items():
        try:
            # A key of a dictionary, and a value from the command line, may be text.
            written = isinstance(number, str) and MODULE_ID.fullmatch(number)
            ids[_address(key)] = values.whole(int(number) if written else number, 0, DEVICES_MAX)
        except InvalidValueError as error:
            raise DomainError(
                f"gpu_module_ids: {key!r}: {number!r} is not a PCI address and a number",
                'write it like "0000:1b:00.0": 1',
            ) from error
    return ids


def explicit_addresses(spec: DomainSpec) -> list[str]:
    """Return all addresses that the spec names itself."""
    return [*spec.gpus.addresses, *spec.nics.addresses, *spec.nvme.addresses]


def _unique(names: Any) -> None:
    seen = set()
    for name, label in names:
        if name in seen:
            raise DomainError("listed twice", "give each a name of its own", domain=label)
        seen.add(name)


def _spec(data: dict[str, Any]) -> DomainSpec:
    if not isinstance(data, dict):
        raise DomainError(f"{data!r:.80} is not a virtual machine", "write a dictionary of settings for each")
    given = data.get("name")
    name = given if isinstance(given, str) and NAME.fullmatch(given) else repr(given)
    inner = {
        "gpus": lambda value: _build(Devices, value, name, "gpus"),
        "nics": lambda value: _build(Nics, value, name, "nics"),
        "nvme": lambda value: _build(Devices, value, name, "nvme"),
        "disks": lambda value: _each(Disk, value, name, "disks"),
        "interfaces": lambda value: _each(Interface, value, name, "interfaces"),
        "boot": lambda value: _build(Boot, value, name, "boot") if value else None,
    }
    parts = {key: build(data[key]) for key, build in inner.items() if data.get(key) is not None}
    spec = _build(DomainSpec, {**data, "name": given}, name, "", parts)
    for check in TOGETHER:
        check(spec)
    return spec


def _each(kind: type, data: Any, name: str, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise DomainError(f"{where}: {data!r:.80} is not a list", "begin each element with '-'", domain=name)
    return [_build(kind, item, name, f"{where}[{at}]") for at, item in enumerate(data)]


def _build(kind: type, data: Any, name: str, where: str, parts: dict[str, Any] | None = None) -> Any:
    """Build a ``kind`` from plain data, each setting by its own type; ``parts`` are already built."""
    before = f"{where}: " if where else ""
    known = {item.name: item for item in fields(kind)}
    if not isinstance(data, dict):
        raise DomainError(
            f"{before}{data!r:.80} is not a dictionary",
            f"write {{setting: value}}; there are {', '.join(sorted(known))}",
            domain=name,
        )
    made: dict[str, Any] = dict(parts or {})
    for key, value in data.items():
        if key not in known:
            raise DomainError(f"{before}unknown setting {key!r}", f"there are {', '.join(sorted(known))}", domain=name)
        if (value is None and key != "name") or key in made:
            continue
        try:
            made[key] = known[key].metadata[CHECK](value)
        except InvalidValueError as error:
            label = "" if kind is DomainSpec and key == "name" else f"{where}.{key} " if where else f"{key} "
            raise DomainError(f"{label}{error.why}", error.remedy, domain=name) from error
    for key, item in known.items():
        if key not in made and item.default is MISSING and item.default_factory is MISSING:
            raise DomainError(f"{before}{key} is missing", f"give {key}", domain=name)
    return kind(**made)


# The rules for settings together, on any host.


def _bits_and_accelerator(spec: DomainSpec) -> None:
    if spec.accelerator == "qemu" and spec.physical_address_bits == "passthrough":
        raise DomainError(
            "physical_address_bits passthrough needs KVM, and accelerator is qemu",
            "use auto, off or a number",
            spec.name,
        )


def _overlays(spec: DomainSpec) -> None:
    for disk in spec.disks:
        if disk.base is not None and (disk.format != "qcow2" or disk.path.startswith("/dev/") or disk.read_only):
            raise DomainError(
                f"disk {disk.path}: only a writable qcow2 file can be an overlay of a base image",
                "leave out base, or format and read_only",
                spec.name,
            )
        if disk.base is None and disk.size_mib:
            raise DomainError(
                f"disk {disk.path}: size_mib is for one that is made from a base", "leave it out", spec.name
            )


def _sources(spec: DomainSpec) -> None:
    for interface in spec.interfaces:
        kind, source = interface.type, interface.source
        if kind == "user":
            if source is not None:
                raise DomainError("an interface of type user has no source", "leave it out", spec.name)
        elif source is None:
            raise DomainError(
                f"an interface of type {kind} needs a source: the {kind}'s name", "give source", spec.name
            )
        elif kind == "bridge" and not BRIDGE.fullmatch(source):
            raise DomainError(
                f"{source!r} is no name of a bridge", "it has 15 letters, digits, '_', '.', '-' at most", spec.name
            )


TOGETHER = (_bits_and_accelerator, _overlays, _sources)
