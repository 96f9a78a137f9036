# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The planner: from requests and the host to plans. Pure: the same input gives the same plans."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.architecture import (
    architecture,
    unsupported_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import Chosen
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import cells, nodes
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.in_use import holdings_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import (
    atomic_ops,
    bus_numbers,
    mmio,
    pci_tree,
    predicted_guest,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import Placement, place
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

# The limit if libvirt was not asked: every q35 allows it since QEMU 2.8 (max_cpus in hw/i386/pc_q35.c; 1024 since
# 8.1, 4096 since 9.0).
MAX_VCPUS = 288
# The vendors of QEMU's own devices, which stand for GPUs in the lab (QEMU docs/specs/pci-ids.rst).
EMULATED_VENDORS = (0x1AF4, 0x1B36)


def plan_domains(
    host: Host,
    specs: list[DomainSpec],
    hypervisor: Hypervisor | None = None,
    gpu_module_ids: dict[str, int] | None = None,
    gpu_partitions: dict[int, tuple[int, ...]] | None = None,
) -> list[DomainPlan]:
    """Plan all virtual machines of one host that are requested together; return the plans in the order of ``specs``.

    Their devices are chosen together, and their order makes no difference. Other domains of ``hypervisor`` keep what
    they hold. A domain of the list keeps what it holds today where its spec still allows that. If ``hypervisor`` is
    None, nothing is known about libvirt and KVM is assumed. ``gpu_module_ids``, ``gpu_partitions``: see
    nvswitch_boards.recognise.

    Raises DomainError, or TopologyError if the host's topology is inconsistent.
    """
    require_x86(host)
    domains = hypervisor.domains.values() if hypervisor else []
    listed = {spec.name for spec in specs}
    of_domains = {observed.name: holdings_of(observed, observed.name in listed) for observed in domains}

    def max_vcpus(spec: DomainSpec) -> int:
        accelerator = _accelerator(spec, hypervisor)
        machine, _notes = _machine(spec, accelerator, hypervisor)
        return hypervisor.accelerators[accelerator].vcpus_of(machine) if hypervisor else MAX_VCPUS

    try:
        placements = place(host, specs, of_domains, max_vcpus, gpu_module_ids, gpu_partitions)
    except DomainError:
        if not any(holdings.live_devices for holdings in of_domains.values()):
            raise
        # A restart in this run frees what only a running QEMU has; without it, the preflight refuses.
        of_domains = {name: replace(holdings, live_devices=[]) for name, holdings in of_domains.items()}
        placements = place(host, specs, of_domains, max_vcpus, gpu_module_ids, gpu_partitions)
    return [_plan(placement, hypervisor) for placement in placements]


def require_x86(host: Host) -> None:
    """Raise DomainError if the host is known to have another architecture than the guests."""
    reason = unsupported_reason(host.cpu)
    if reason:
        raise DomainError(f"{reason}; it can be read and recorded", "plan on another host")


def _plan(placement: Placement, hypervisor: Hypervisor | None) -> DomainPlan:
    spec, host_devices, chosen, processors = (
        placement.spec,
        placement.host_devices,
        placement.chosen,
        placement.processors,
    )
    host = host_devices.host
    accelerator = _accelerator(spec, hypervisor)
    _check_emulation(spec, accelerator, chosen)
    machine, machine_notes = _machine(spec, accelerator, hypervisor)
    devices = chosen.all()

    cell_of_complex, notes = _cells_of(host, devices, processors)
    notes = [*chosen.notes, *machine_notes, *notes, *share_notes(spec, host, chosen, processors)]
    virtio = [pci_tree.Endpoint("serial", "0")]
    virtio += [pci_tree.Endpoint("disk", str(number)) for number in range(len(spec.disks))]
    virtio += [pci_tree.Endpoint("interface", str(number)) for number in range(len(spec.interfaces))]
    virtio += [pci_tree.Endpoint("rng", "0")] * spec.rng
    on_root_ports, atomic_notes = atomic_ops.root_ports(spec, host_devices, devices)
    root, tree_notes = pci_tree.build(
        spec.name, host_devices, devices, cell_of_complex, virtio, spec.mirror_topology != "false", on_root_ports
    )
    bus_numbers.assign(spec.name, root)

    most_bits = machine_type.address_bits(machine, host.cpu.physical_address_bits)
    mode, bits = _address_bits(spec, accelerator, most_bits)
    window = mmio.size_up(
        spec.name,
        root,
        host_devices.functions,
        spec.memory_mib,
        bits,
        host.cpu.vendor,
        spec.mmio_window_mib,
        spec.firmware,
        most_bits,
    )
    if architecture(host.cpu) is None:
        notes.append(
            "the topology does not contain the processor's architecture; the plan is for x86_64, and gpu_domain "
            "refuses it"
        )
    bare = [device.address for device in devices if not device.bars]
    if bare:
        notes.append(
            f"the topology does not contain the BARs of {excerpt(bare)}: the window for large BARs has no room for "
            "them; read it on the host with host_topology_info, or set mmio_window_mib"
        )
    plan = DomainPlan(
        spec=spec,
        host=host,
        accelerator=accelerator,
        processors=processors,
        # The notes of the choice are among the notes of the plan.
        chosen=replace(chosen, notes=[]),
        root=root,
        window=window,
        address_bits_mode=mode,
        address_bits=bits,
        machine=machine,
        notes=[*notes, *atomic_notes, *tree_notes],
    )
    plan.fidelity = predicted_guest.kept(plan, host)
    plan.notes += plan.cliques.notes
    return plan


def share_notes(spec: DomainSpec, host: Host, chosen: Chosen, processors: cells.Processors) -> list[str]:
    """Return notes on parts of the host that the virtual machine could use and does not, and on interrupt remapping."""
    share, notes = processors.share, []
    vcpus_per_socket = share.vcpus // processors.sockets
    if spec.vcpus is None and share.free:
        part = "cell" if processors.sockets == len(processors.cells) else "socket"
        cause = f"every {part} has as many vCPUs as the one with the fewest CPUs left, {vcpus_per_socket}"
        if share.vcpu_limit // processors.sockets - vcpus_per_socket < processors.threads:
            cause = f"a guest can have at most {share.vcpu_limit} vCPUs here"
            if not spec.remaps_interrupts and share.vcpu_limit == cells.VCPUS_WITHOUT_REMAPPING:
                cause = (
                    f"without interrupt remapping a guest can have at most {share.vcpu_limit} vCPUs; "
                    "interrupt_remapping: true lifts that"
                )
        notes.append(f"{share.free} hardware threads of its nodes are unused: {cause}")
    gpus = {function.address for function in host.functions if function.kind == "gpu"}
    if share.nodes_without_cell and gpus and gpus <= {function.address for function in chosen.gpus}:
        unused_nodes = [node for node in host.numa_nodes if node.id in share.nodes_without_cell]
        memory_mib = sum(node.memory_bytes for node in unused_nodes) // MIB
        notes.append(
            f"it has all GPUs of the host but no cell on NUMA node {', '.join(str(node.id) for node in unused_nodes)}: "
            f"{sum(len(node.cpus) for node in unused_nodes)} hardware threads and {memory_mib} MiB are out of its "
            "reach; numa_nodes: [all] adds them"
        )
    far = [node for node in host.numa_nodes if not node.cpus and node.memory_bytes]
    if gpus and far and gpus <= {function.address for function in chosen.gpus}:
        memory_mib = sum(node.memory_bytes for node in far) // MIB
        notes.append(
            f"{memory_mib} MiB of NUMA node {', '.join(str(node.id) for node in far)} are out of its reach: the node "
            "has no CPUs (memory behind CXL or of a GPU), and a cell needs some"
        )
    if spec.interrupt_remapping and not spec.guest_iommu:
        notes.append(
            "interrupt_remapping gives the guest an IOMMU: boot it with intel_iommu=off, so that it translates no DMA; "
            "interrupts are remapped all the same"
        )
    return notes


def _cells_of(
    host: Host, devices: list[Function], processors: cells.Processors
) -> tuple[dict[str, int | None], list[str]]:
    """Return the guest cell of each root complex with a device (None: not known), and notes on differences.

    An expander bus has one node: that of most of its devices.
    """
    notes: list[str] = []
    serving: dict[str, dict[str, int | None]] = {}
    for device in devices:
        node = host.node_of(device)
        server = None if node is None else nodes.serving_node(host, node)
        if server != node:
            notes.append(
                f"NUMA node {node} of {device.address} has no CPUs or no memory; the guest sees it on the cell of "
                f"node {server}"
            )
        serving.setdefault(device.root_complex, {})[device.address] = server
    cell_of_node = {cell.host_node: cell.id for cell in processors.cells}
    cell_of_complex: dict[str, int | None] = {}
    for root_complex, served in serving.items():
        known_nodes = [node for node in served.values() if node is not None]
        if not known_nodes:
            cell_of_complex[root_complex] = None
            notes += [
                f"the host does not report which NUMA node {address} is on; the guest will not know either"
                for address in served
            ]
            continue
        main_node = min(set(known_nodes), key=lambda node: (-known_nodes.count(node), node))
        cell_of_complex[root_complex] = cell_of_node[main_node]
        for address, node in served.items():
            if node != main_node:
                cause = (
                    f"the host does not report which NUMA node {address} is on"
                    if node is None
                    else f"{address} is on NUMA node {node} of the host"
                )
                notes.append(
                    f"{cause}; in the guest it is on the cell of node {main_node}, with the others of {root_complex}: "
                    "an expander bus has one node"
                )
    return cell_of_complex, notes


def _accelerator(spec: DomainSpec, hypervisor: Hypervisor | None) -> str:
    """Return KVM where libvirt supports it, else QEMU's emulation; a requested accelerator must be available."""
    if hypervisor is None:
        return "qemu" if spec.accelerator == "qemu" else "kvm"
    wanted = ("kvm", "qemu") if spec.accelerator == "auto" else (spec.accelerator,)
    for name in wanted:
        if name in hypervisor.accelerators:
            return name
    offered = ", ".join(sorted(hypervisor.accelerators)) or "none"
    raise DomainError(
        f"accelerator {spec.accelerator} is not available: libvirt on this host offers {offered}",
        "kvm needs virtualization enabled in the BIOS and /dev/kvm (virt-host-validate shows what is missing)",
        domain=spec.name,
    )


def _check_emulation(spec: DomainSpec, accelerator: str, chosen: Chosen) -> None:
    """Raise DomainError if a real GPU would get an emulated processor that nobody asked for."""
    real = [function.address for function in chosen.gpus if function.vendor_id not in EMULATED_VENDORS]
    if spec.accelerator == "auto" and accelerator == "qemu" and real:
        raise DomainError(
            f"has GPU {real[0]}, but libvirt on this host offers no KVM: QEMU would emulate its processors, many times "
            "slower",
            "turn on virtualization in the BIOS and load kvm_intel or kvm_amd (virt-host-validate shows what is "
            "missing), or set accelerator: qemu",
            domain=spec.name,
        )


def _machine(spec: DomainSpec, accelerator: str, hypervisor: Hypervisor | None) -> tuple[str, list[str]]:
    """Return the machine type, and the notes on it."""
    if hypervisor is None:
        return machine_type.settled(spec.machine, None, machine_type.ALIAS), []
    observed = hypervisor.domains.get(spec.name)
    defined = machine_type.of_domain(observed.inactive_xml) if observed else None
    newest = hypervisor.accelerators[accelerator].machine or machine_type.ALIAS
    machine = machine_type.settled(spec.machine, defined, newest)
    text = machine_type.note(machine, spec.machine, newest)
    return machine, [text] if text else []


def _address_bits(spec: DomainSpec, accelerator: str, host_bits: int | None) -> tuple[str, int | None]:
    """Return the mode in which the guest gets its physical address bits, and their number (None: not known)."""
    wanted = spec.physical_address_bits
    if wanted == "auto":
        wanted = "passthrough" if accelerator == "kvm" else "off"
    if wanted == "passthrough":
        if accelerator != "kvm":
            raise DomainError(
                "physical_address_bits passthrough needs KVM, and this host runs guests by emulation",
                "use auto, off or a number",
                domain=spec.name,
            )
        return "passthrough", host_bits
    if wanted == "off":
        return "off", mmio.DEFAULT_ADDRESS_BITS
    bits = int(wanted)
    # libvirt refuses more bits than the host has, under emulation too.
    if host_bits is not None and bits > host_bits:
        raise DomainError(
            f"physical_address_bits {bits} is more than the host's {host_bits}", "use auto", domain=spec.name
        )
    return "emulate", bits
