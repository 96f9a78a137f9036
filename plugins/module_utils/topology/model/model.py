# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The model of a host: the one structure that every reader writes and every planner reads.

A ``Host`` is plain data. ``Host.to_dict`` gives JSON-ready dictionaries with sorted, stable
content; ``read_saved`` is its inverse. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError

FORMAT = "sailloft-topology/1"


@dataclass
class HugePages:
    """Huge pages of one size on one NUMA node (counts of pages)."""

    size_bytes: int
    total: int
    free: int


@dataclass
class NumaNode:
    """One NUMA node. ``distances`` maps node id (as text) to the ACPI SLIT distance (10 = local)."""

    id: int
    cpus: list[int]
    # Hardware threads of one core together, ascending: [[0, 4], [1, 5]].
    siblings: list[list[int]]
    memory_bytes: int
    memory_free_bytes: int | None = None
    huge_pages: list[HugePages] = field(default_factory=list)
    distances: dict[str, int] = field(default_factory=dict)
    # The processor package that has all CPUs of the node; None where it is not known, or where several have them.
    socket: int | None = None


@dataclass
class Bar:
    """A base address register: the address space that the function requests. ``index`` 0-5; 6 is the expansion ROM."""

    index: int
    size_bytes: int
    kind: str  # "memory" or "io"
    width_bits: int  # 32 or 64
    prefetchable: bool


@dataclass
class Link:
    """A PCIe link in gigatransfers per second and lanes; None where the kernel says "Unknown"."""

    speed_gt_s: float | None
    width: int | None
    max_speed_gt_s: float | None
    max_width: int | None


@dataclass
class Sriov:
    """SR-IOV of a physical function: the maximum and current number of VFs, and their addresses by VF index.

    ``vf_bars`` are the BARs of each VF, which are known before any VF exists.
    """

    total: int
    now: int
    vfs: list[str] = field(default_factory=list)
    vf_bars: list[Bar] = field(default_factory=list)


@dataclass
class Passthrough:
    """DirectPath I/O of ESXi: ``capable`` of it, ``enabled`` in the settings, ``active`` since the last boot."""

    capable: bool
    enabled: bool
    active: bool


@dataclass
class Acs:
    """Access Control Services: the capability and control registers as in the specification.

    Bits (Linux PCI_ACS_*): 0 source validation, 1 translation blocking, 2 P2P request redirect,
    3 P2P completion redirect, 4 upstream forwarding, 5 P2P egress control, 6 direct translated P2P.
    """

    capability: int
    control: int


@dataclass
class Ats:
    """Address Translation Services of an endpoint."""

    enabled: bool
    smallest_translation_unit: int


@dataclass
class AtomicOps:
    """PCIe AtomicOps, from DevCap2 and DevCtl2: the sizes in bits that the function completes, and the others' way.

    ``routes`` and ``blocks_egress`` are of ports; ``requests`` is AtomicOp Requester Enable.
    """

    completes_bits: list[int]
    routes: bool
    requests: bool
    blocks_egress: bool


@dataclass
class Function:
    """One PCI function. ``None`` means "not known" (or, for acs, ats, sriov, link: "has no such capability")."""

    address: str  # "0000:3b:00.0", lower case
    root_complex: str  # name of the RootComplex it is under
    parent: str | None  # address of the bridge above; None when directly on the root bus
    class_code: int  # 24 bits: 0x030200 is a 3D controller
    vendor_id: int
    device_id: int
    kind: str  # a name of topology/model/kinds.py, such as "gpu"
    port_type: (
        str | None
    )  # a value of PORT_TYPES in topology/model/kinds.py; None where config space was not readable so far
    subsystem_vendor_id: int | None = None
    subsystem_device_id: int | None = None
    secondary_bus: int | None = None  # of a bridge: the first bus below it
    subordinate_bus: int | None = None  # of a bridge: the last bus below it
    driver: str | None = None
    numa_node: int | None = None  # None where the kernel says -1
    iommu_group: int | None = None
    bars: list[Bar] = field(default_factory=list)
    # The indexes of the memory BARs that have no address: the firmware assigned none, and the kernel found no room.
    unassigned_bars: list[int] = field(default_factory=list)
    link: Link | None = None
    sriov: Sriov | None = None
    physical_function: str | None = None  # of a VF: its PF
    acs: Acs | None = None
    ats: Ats | None = None
    atomic_ops: AtomicOps | None = None
    passthrough: Passthrough | None = None
    max_read_request_bytes: int | None = None
    max_payload_bytes: int | None = None
    relaxed_ordering: bool | None = None
    # True if VPD says that the function manages NVSwitches (topology/model/function_roles.py); None: VPD was not read.
    manages_nvswitches: bool | None = None
    config_bytes: int = 0  # how much of config space could be read: 0, 64 (not root), 256 or 4096
    # The kernel objects of the function by class: {"net": ["eno1"], "block": ["nvme0n1"], "rdma": ["mlx5_0"]}
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    # Reasons why the host itself needs the function: ["holds the mounted file system /", "carries the default route"].
    # Empty: the function is free.
    used_by_host: list[str] = field(default_factory=list)


@dataclass
class RootComplex:
    """A PCI host bridge: one root bus. ``name`` is the kernel's ("pci0000:10")."""

    name: str
    domain: int
    bus: int
    numa_node: int | None = None


@dataclass
class Cpu:
    """The properties of the processors that planning needs."""

    architecture: str | None = None  # "x86_64"
    vendor: str | None = None  # "GenuineIntel", "AuthenticAMD"
    model: str | None = None
    virtualization: str | None = None  # "vmx", "svm" or None
    physical_address_bits: int | None = None


@dataclass
class Iommu:
    """The IOMMU as the kernel runs it. ``kind`` is "intel", "amd", "other" or None where there is none."""

    kind: str | None = None
    # The type of the groups' default domain; "identity" is the result of iommu=pt ("passthrough").
    default_domain: str | None = None
    interrupt_remapping: bool | None = None
    # The address bits that every IOMMU of the host translates at least; None where the kernel does not show them.
    address_bits: int | None = None
    # Whether VFIO gives out devices without interrupt remapping (allow_unsafe_interrupts).
    unsafe_interrupts: bool | None = None


@dataclass
class NvidiaSoftware:
    """NVIDIA's software as it runs: the version of the loaded driver, and the programs that manage NVSwitches.

    ``programs`` is None if the host has no NVSwitches, and the programs were not looked for.
    """

    driver: str | None = None
    programs: list[str] | None = None


@dataclass
class Host:
    """A whole host, as one reader call saw it."""

    numa_nodes: list[NumaNode]
    root_complexes: list[RootComplex]
    functions: list[Function]
    cpu: Cpu = field(default_factory=Cpu)
    iommu: Iommu = field(default_factory=Iommu)
    kernel_release: str | None = None
    kernel_arguments: list[str] = field(default_factory=list)
    nvidia: NvidiaSoftware | None = None  # None: not read
    source: str = "sysfs"  # which reader: "sysfs", "hwloc", "nccl", "vsphere"
    # Notes about omissions and assumptions of a reader, where the recording is incomplete or contradicts itself.
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form; ``read_saved`` is its inverse."""
        return {"format": FORMAT, **asdict(self)}

    def function(self, address: str) -> Function:
        """Return the function at ``address``. Raises TopologyError if there is none."""
        for function in self.functions:
            if function.address == address:
                return function
        raise TopologyError(f"no PCI function {address} on this host", "read the host again")

    def by_address(self) -> dict[str, Function]:
        """Return all functions by their address."""
        return {function.address: function for function in self.functions}

    def node_of(self, function: Function) -> int | None:
        """Return the NUMA node of a device: its own, else its root complex's, else the only one; None if not known."""
        if function.numa_node is not None:
            return function.numa_node
        for item in self.root_complexes:
            if item.name == function.root_complex and item.numa_node is not None:
                return item.numa_node
        return self.numa_nodes[0].id if len(self.numa_nodes) == 1 else None

    def path(self, address: str) -> list[Function]:
        """Return the functions from the root bus down to ``address``, both ends included."""
        functions = self.by_address()
        steps: list[Function] = []
        next_address: str | None = address
        while next_address is not None:
            if next_address not in functions:
                raise TopologyError(f"no PCI function {next_address} on this host", "read the host again")
            if any(step.address == next_address for step in steps):
                raise TopologyError(f"PCI function {next_address} is above itself: the topology has a loop")
            steps.append(functions[next_address])
            next_address = functions[next_address].parent
        return steps[::-1]

    def group_members(self, group: int) -> list[Function]:
        """Return all functions of an IOMMU group."""
        return [function for function in self.functions if function.iommu_group == group]
