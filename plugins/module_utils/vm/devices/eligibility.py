# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The test whether a virtual machine can have a device, and the place of a device on the host. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    MANAGEMENT,
    NVIDIA,
    is_virtual,
    possible_management,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import SharedPartition

# The drivers that may be bound to other members of an IOMMU group while a guest has one of its devices, because they do
# no DMA of their own (driver_managed_dma and pci-stub in Linux; vfio-pci is VFIO itself).
HARMLESS_DRIVERS = frozenset({"vfio-pci", "pci-stub", "pcieport"})

# The ACS bits that a port needs for the devices below it to be in separate groups: source validation, request redirect,
# completion redirect, upstream forwarding (REQ_ACS_FLAGS in Linux drivers/iommu/iommu.c; bits as in model.Acs).
ISOLATING_ACS = 0x1D
# Not a setting of a request: a virtual machine with all GPUs of a board also gets the NVSwitches of the board.
NVSWITCHES = "nvswitches"
MORE_ADDRESSES = "turn on Above 4G Decoding in the BIOS, or reboot with pci=realloc"
# The types of the ports that can have ACS.
ACS_PORTS = ("root_port", "switch_downstream")


@dataclass
class HostDevices:
    """The limits of a choice: the host, and the holder of each of its devices (address -> virtual machine)."""

    host: Host
    holder: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(init=False)
    bridge_paths: dict[str, tuple[str, ...]] = field(init=False)
    groups: dict[int, list[Function]] = field(init=False)
    # True if config space could be read: hwloc does not read it, and some recordings lack it.
    config_read: bool = field(init=False)
    # The kinds of devices whose BARs the source of the topology shows; NCCL's files and hwloc have none.
    kinds_with_bars: frozenset[str] = field(init=False)
    # Functions that could manage NVSwitches: their VPD was not read.
    unknown: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.functions = self.host.by_address()
        self.bridge_paths = {}
        self.config_read = any(function.config_bytes for function in self.host.functions)
        self.kinds_with_bars = frozenset(item.kind for item in self.host.functions if item.bars)
        self.unknown = frozenset(item.address for item in possible_management(self.host))
        self.groups = {}
        for function in sorted(self.host.functions, key=lambda item: item.address):
            if function.iommu_group is not None:
                self.groups.setdefault(function.iommu_group, []).append(function)

    def with_holders(self, holder: dict[str, str]) -> HostDevices:
        """Return the same host with other holders; the results computed from the host are shared."""
        copied = copy.copy(self)
        copied.holder = holder
        return copied

    def bridges(self, address: str) -> tuple[str, ...]:
        """Return the addresses of the bridges above ``address``, from the root bus down."""
        if address not in self.bridge_paths:
            parent = self.functions[address].parent if address in self.functions else None
            if parent in self.bridge_paths:
                self.bridge_paths[address] = (*self.bridge_paths[parent], parent)
            else:
                self.bridge_paths[address] = tuple(step.address for step in self.host.path(address)[:-1])
        return self.bridge_paths[address]

    def place(self, function: Function) -> tuple[str, ...]:
        """Return a function's place: NUMA node, root complex, bridges down to its switch (or to its own root port)."""
        bridges = self.bridges(function.address)
        node = self.host.node_of(function)
        # The last bridge is the function's own port; a function directly below an upstream port has none.
        has_port = len(bridges) > 1 and self.functions[bridges[-1]].port_type != "switch_upstream"
        bridges_below = bridges[:-1] if has_port else bridges or (function.address,)
        return (f"? {function.root_complex}" if node is None else str(node), function.root_complex, *bridges_below)


@dataclass
class Chosen:
    """The functions of one virtual machine, by the setting that gives them, each list in address order.

    The settings are those of kinds.SETTINGS, and ``NVSWITCHES`` for those that come with all GPUs of a board.
    """

    by_setting: dict[str, list[Function]]
    notes: list[str] = field(default_factory=list)
    shared: SharedPartition | None = None  # its partition of NVSwitches that it does not have itself

    @property
    def gpus(self) -> list[Function]:
        """Return the functions of setting gpus."""
        return self.by_setting.get("gpus", [])

    @property
    def nics(self) -> list[Function]:
        """Return the functions of setting nics."""
        return self.by_setting.get("nics", [])

    @property
    def nvswitches(self) -> list[Function]:
        """Return the NVSwitches that come with all GPUs of a board."""
        return self.by_setting.get(NVSWITCHES, [])

    def all(self) -> list[Function]:
        """Return every function, in address order."""
        every = (function for functions in self.by_setting.values() for function in functions)
        return sorted(every, key=lambda function: function.address)


@dataclass(frozen=True)
class Obstacle:
    """The reason (``cause``) that something is not available, and its ``remedy``."""

    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


def obstacle(host_devices: HostDevices, function: Function, name: str, vm_devices: Iterable[str]) -> Obstacle | None:
    """Return why virtual machine ``name``, which has ``vm_devices``, cannot have ``function``; None if it can."""
    if function.kind == "bridge":
        return Obstacle("it is a bridge", "assign the devices behind it instead")
    if not function.config_bytes and host_devices.config_read:
        return Obstacle(
            "it does not answer (its config space reads as ones): it has fallen off the bus", "reset or reseat it"
        )
    if function.address in host_devices.unknown:
        return Obstacle(
            "it could manage the NVSwitches: its VPD, which says so, was not read",
            "read or record the host as root with this version",
        )
    if function.unassigned_bars and host_devices.kinds_with_bars:
        numbers = ", ".join(map(str, function.unassigned_bars))
        return Obstacle(
            f"neither firmware nor kernel assigned an address to its BAR {numbers}, and so VFIO cannot enable it",
            MORE_ADDRESSES,
        )
    # The kernel forgets BARs that it cannot place (reset_resource in drivers/pci/setup-bus.c).
    if not function.bars and function.kind in host_devices.kinds_with_bars:
        return Obstacle("it has no BAR, unlike others of its kind, and so no guest can reach it", MORE_ADDRESSES)
    if function.used_by_host:
        uses = "; ".join(function.used_by_host)
        return Obstacle(f"it is in use on the host ({uses})", "free it on the host, or choose another device")

    holder = host_devices.holder.get(function.address)
    if holder not in (None, name):
        return Obstacle(
            f"virtual machine {holder} has it", "remove it from that virtual machine first, or choose another device"
        )
    return _sriov_obstacle(host_devices, function) or foreign_member(host_devices, function, name, vm_devices)


def _sriov_obstacle(host_devices: HostDevices, function: Function) -> Obstacle | None:
    """Return why a function cannot be given away because of its virtual functions, or because it is one."""
    for address in function.sriov.vfs if function.sriov else []:
        vf_holder = host_devices.holder.get(address)
        if vf_holder is not None:
            return Obstacle(
                f"its virtual function {address} belongs to virtual machine {vf_holder}, and would disappear",
                "remove the virtual function from that virtual machine first, or choose another device",
            )
        uses = "; ".join(host_devices.functions[address].used_by_host) if address in host_devices.functions else ""
        if uses:
            return Obstacle(
                f"its virtual function {address} is in use ({uses}), and would disappear",
                "free the virtual function, or choose another device",
            )
    if function.sriov and function.sriov.now:
        remedy = "request these (functions: vf), or set their number to 0 first"
        if function.kind == MANAGEMENT:
            remedy = f"write 0 to /sys/bus/pci/devices/{function.address}/sriov_numvfs"
        elif _has_vgpu(function):
            remedy = f"turn them off: /usr/lib/nvidia/sriov-manage -d {function.address} (NVIDIA vGPU)"
        return Obstacle(f"it has virtual functions ({function.sriov.now}), which would disappear", remedy)
    owner = host_devices.holder.get(function.physical_function or "")
    if owner is not None:
        return Obstacle(
            f"it is a virtual function of {function.physical_function}, which virtual machine {owner} has",
            "choose a virtual function of another device",
        )
    if is_virtual(function) and function.kind == MANAGEMENT:
        return Obstacle(
            f"it is a virtual function of {function.physical_function}, which manages the NVSwitches: whether they "
            "obey it, too, is not known",
            "choose a virtual function of a NIC",
        )
    if is_virtual(function) and _has_vgpu(function):
        return Obstacle(
            f"it is a virtual function of {function.physical_function} for NVIDIA's vGPU, which VFIO alone cannot pass "
            "through",
            f"request whole GPUs, after /usr/lib/nvidia/sriov-manage -d {function.physical_function}",
        )
    return None


def _has_vgpu(function: Function) -> bool:
    """Return True for a GPU whose virtual functions NVIDIA's vGPU makes and removes (sriov-manage)."""
    return function.kind == "gpu" and function.vendor_id == NVIDIA


def foreign_member(
    host_devices: HostDevices, function: Function, name: str, vm_devices: Iterable[str]
) -> Obstacle | None:
    """Return the obstacle if another member of the function's IOMMU group keeps VFIO from taking the group, or None."""
    group = function.iommu_group
    if group is None:
        return None
    allowed = {function.address, *vm_devices}
    for member in host_devices.groups.get(group, []):
        if member.address in allowed or member.kind == "bridge":
            continue
        holder = host_devices.holder.get(member.address)
        if holder not in (None, name):
            group_cause = group_obstacle(host_devices, group)
            return Obstacle(
                f"its IOMMU group {group} also holds {member.address}, which belongs to virtual machine {holder}, and "
                f"two virtual machines never share a group; {group_cause.cause}",
                group_cause.remedy,
            )
        if member.driver is not None and member.driver not in HARMLESS_DRIVERS:
            return Obstacle(
                f"its IOMMU group {group} also holds {member.address} (driver {member.driver})",
                f"assign that device to the same virtual machine, unbind it from {member.driver}, or use a slot whose "
                "ports have ACS",
            )
    return None


def group_obstacle(host_devices: HostDevices, group: int) -> Obstacle:
    """Return the members of an IOMMU group, the cause that keeps them together, and the remedy."""
    members = [member for member in host_devices.groups[group] if member.kind != "bridge"]
    ports = {address for member in members for address in host_devices.bridges(member.address)}
    lacking, off = [], []
    for address in sorted(ports):
        port = host_devices.functions[address]
        if port.port_type not in ACS_PORTS:
            continue
        if port.acs is None:
            lacking.append(address)
        elif ~port.acs.control & ISOLATING_ACS & port.acs.capability:
            off.append(address)
    names = ", ".join(member.address for member in members)
    if off:
        cause, remedy = f"ACS is off at port {', '.join(off)}", "turn it on (role gpu_host)"
    elif lacking:
        cause = f"port {', '.join(lacking)} has no ACS"
        remedy = "assign all of them to one virtual machine, or use other slots"
    else:
        cause, remedy = "nothing isolates them from each other", "assign all of them to one virtual machine"
    return Obstacle(f"group {group} contains {names}; {cause}", remedy)
