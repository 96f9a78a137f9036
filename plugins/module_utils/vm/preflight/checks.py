# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks for everything that is known to fail later, before anything is changed. Pure.

The planner itself refuses an impossible plan (bus numbers, MMIO window, address bits, devices, CPUs). This module finds
what prevents a plan on this host now: all of it, not only the first thing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import models
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.architecture import SUPPORTED, architecture
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import MAX_ELEMENTS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name, some
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    ACS_PORTS,
    ISOLATING_ACS,
    Surroundings,
    foreign_member,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor, holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import disk_use
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    REFUSE,
    WARN,
    Finding,
    RefusedError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.min_versions import ELEMENTS, dotted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import nccl_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

# The ACSCtl bit (Linux PCI_ACS_DT) that lets translated requests go straight: direct translated P2P.
ACS_DIRECT_TRANSLATED = 0x40
# The bytes that a port must show before its lack of ACS is known: extended config space.
EXTENDED_CONFIG_BYTES = 4096


def check(
    plans: list[DomainPlan],
    host: Host,
    hypervisor: Hypervisor,
    starting: set[str],
    stopping: set[str],
    paths_may_come: bool,
) -> list[Finding]:
    """Find what prevents defining ``plans`` or starting ``starting``, and what they lose without an error.

    ``stopping`` are the domains that will be stopped before any is started. ``paths_may_come``: in check mode, image
    files may be made by an earlier task that only pretended to.

    Returns the warnings. Raises RefusedError, with all findings, where one refuses.
    """
    around = Surroundings(host)
    for observed in hypervisor.domains.values():
        around.holder.update(dict.fromkeys(holdings(observed.inactive_xml).devices, observed.name))
    listed = {plan.name for plan in plans}
    around.holder = {address: holder for address, holder in around.holder.items() if holder not in listed}
    for plan in plans:
        around.holder.update({function.address: plan.name for function in plan.chosen.all()})

    found: list[Finding] = []
    if architecture(host.cpu) is None:
        found.append(
            Finding(
                "",
                "the topology does not say the processor's architecture",
                f"GPU virtual machines are for {SUPPORTED} only",
                "read the topology on the host itself with host_topology_info",
            )
        )
    for plan in plans:
        found += _versions(plan, hypervisor)
        found += _machine(plan, hypervisor)
        found += _firmware(plan, hypervisor)
        found += _devices(plan, around)
        found += _isolation(plan, around)
        found += _losses(plan, around)
    found += _memory_at_all(plans, host)
    specs = [plan.spec for plan in plans]
    found += disk_use.conflicts_on_host(specs, hypervisor, stopping)
    found += wishes(specs, hypervisor, paths_may_come)
    to_start = [plan for plan in plans if plan.name in starting]
    found += _still_running(to_start, hypervisor, stopping)
    for plan in to_start:
        found += _hugetlbfs(plan.spec, hypervisor)
    # A domain that only restarts gives its memory back first.
    found += _memory([plan for plan in to_start if plan.name not in stopping], host)
    if any(item.severity == REFUSE for item in found):
        raise RefusedError(found)
    return found


def without_libvirt(plans: list[DomainPlan], host: Host) -> list[Finding]:
    """Find the part of ``check`` that needs no libvirt: memory that the host lacks, and losses without an error.

    Returns the warnings. Raises RefusedError, with all findings, where one refuses.
    """
    around = Surroundings(host)
    found = [item for plan in plans for item in _losses(plan, around)]
    found += _memory_at_all(plans, host)
    if any(item.severity == REFUSE for item in found):
        raise RefusedError(found)
    return found


def wishes(specs: list[DomainSpec], hypervisor: Hypervisor, paths_may_come: bool) -> list[Finding]:
    """Return findings on requests that may have no plan: networks and files."""
    found: list[Finding] = []
    for spec in specs:
        found += _networks(spec, hypervisor)
        if not paths_may_come:
            found += _paths(spec, hypervisor)
    return found


def _versions(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    for element in ELEMENTS:
        if not element.used(plan):
            continue
        for program, minimum, have in (
            ("libvirt", element.libvirt, hypervisor.libvirt_version),
            ("QEMU", element.qemu, hypervisor.qemu_version),
        ):
            if minimum is not None and have < minimum:
                yield Finding(
                    plan.name,
                    f"{element.name} needs {program} {dotted(minimum)}, this host has {dotted(have)}",
                    "what a version does not know it refuses or, worse, leaves out",
                    f"install a newer {program}, or leave the setting out",
                )


def _machine(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    there = hypervisor.accelerators[plan.accelerator].machines
    if plan.machine not in (machine_type.ALIAS, *there):
        kept = plan.spec.machine == machine_type.ALIAS
        yield Finding(
            plan.name,
            f"QEMU on this host has no machine {plan.machine}",
            "it was defined with that one, and QEMU cannot start it"
            if kept
            else "its setting machine asks for that one",
            f"set machine to one of {', '.join(machine_type.in_order(list(there))) or 'those of another QEMU'}",
        )


def _firmware(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    there = hypervisor.accelerators[plan.accelerator].firmwares
    if plan.spec.firmware not in there:
        yield Finding(
            plan.name,
            f"firmware {plan.spec.firmware} is not to be had on this host",
            f"libvirt finds no descriptor of it, only {', '.join(there)}",
            "install OVMF (package ovmf or edk2-ovmf)",
        )


def _devices(plan: DomainPlan, around: Surroundings) -> Iterator[Finding]:
    own = [function.address for function in plan.chosen.all()]
    for function in plan.chosen.all():
        device = f"PCI device {function.address}"
        if function.used_by_host:
            yield Finding(
                plan.name,
                f"{device} is in use by the host",
                "; ".join(function.used_by_host),
                "move that elsewhere, or choose another device",
            )
        if function.iommu_group is None:
            yield Finding(
                plan.name,
                f"{device} is in no IOMMU group",
                "the host's IOMMU is off, and VFIO needs it",
                "enable it in the BIOS and boot with intel_iommu=on or amd_iommu=on",
            )
        reason = foreign_member(around, function, plan.name, own)
        if reason:
            without = [port.address for port in _ports(around, function) if _lacks_acs(port)]
            why = "VFIO takes a group as a whole, and QEMU says that it is not viable"
            if without:
                why += f" (no ACS, which would part the group: port {some(without)})"
            yield Finding(plan.name, f"{device}: {reason.why}", why, reason.mend)


def _ports(around: Surroundings, function: Function) -> list[Function]:
    steps = (around.functions[address] for address in around.bridges(function.address))
    return [step for step in steps if step.port_type in ACS_PORTS]


def _lacks_acs(port: Function) -> bool:
    return port.acs is None and port.config_bytes >= EXTENDED_CONFIG_BYTES


def _isolation(plan: DomainPlan, around: Surroundings) -> Iterator[Finding]:
    """Find ACS that was turned off after the kernel made its groups: the groups look separate, the devices are not."""
    told = set()
    for function in plan.chosen.all():
        above = set(around.bridges(function.address))
        neighbours = sorted(
            {
                holder
                for address, holder in around.holder.items()
                if holder != plan.name and address in around.functions and above & set(around.bridges(address))
            }
        )
        for port in _ports(around, function):
            if port.acs is None:
                continue
            off = port.acs.capability & ISOLATING_ACS & ~port.acs.control
            if off and neighbours and port.address not in told:
                told.add(port.address)
                yield Finding(
                    plan.name,
                    f"ACS of port {port.address} above {name(function)} is weakened (ACSCtl {port.acs.control:#04x}, "
                    f"without {off:#04x})",
                    f"devices of virtual machine {some(neighbours)} are below the same switch or port, and each could "
                    "write into the other's",
                    "turn ACS on (gpu_host_pci), or give all devices of that switch to one virtual machine",
                )


def _losses(plan: DomainPlan, around: Surroundings) -> Iterator[Finding]:
    yield from _address_bits(plan)
    yield from _models(plan, around.host)
    yield from _nodes(plan)
    yield from _nccl(plan, around.host)
    # Without the host's config space, nothing is known of ATS and ACS.
    if around.config_read:
        yield from _ats(plan, around)


def _address_bits(plan: DomainPlan) -> Iterator[Finding]:
    if plan.address_bits is None:
        yield Finding(
            plan.name,
            "the host's physical address bits are not known",
            f"whether a window of {plan.window.window_bytes >> 30} GiB for large BARs fits could not be checked",
            "read the topology on the host itself",
            WARN,
        )


def _nccl(plan: DomainPlan, host: Host) -> Iterator[Finding]:
    needed = nccl_topology.elements(plan, host) if plan.chosen.gpus else 0
    if needed > MAX_ELEMENTS:
        yield Finding(
            plan.name,
            f"NCCL's topology of its GPUs and NICs would have {needed} elements, and NCCL reads {MAX_ELEMENTS}",
            "no topology file is made for the guest, where NCCL then plans with the links of QEMU's switches",
            "give it fewer NICs, if NCCL is to be fast there",
            WARN,
        )


def _nodes(plan: DomainPlan) -> Iterator[Finding]:
    lost = sorted(address for address, node in plan.host_nodes.items() if node is None)
    if lost:
        cells = ", ".join(str(cell.host_node) for cell in plan.processors.cells)
        yield Finding(
            plan.name,
            f"the host does not say which NUMA node {some(lost)} {'is' if len(lost) == 1 else 'are'} on",
            f"its cells are on node {cells}, and which of them is near to a device nobody knows",
            "look for a BIOS setting or update that gives root bridges their node (_PXM), or choose with numa_nodes",
            WARN,
        )


def _models(plan: DomainPlan, host: Host) -> Iterator[Finding]:
    """Find GPUs of several models, where a number is chosen among them or one virtual machine has several models."""
    there = models([function for function in host.functions if function.kind == "gpu"])
    if len(there) > 1 and (plan.spec.gpus.count or len(models(plan.chosen.gpus)) > 1):
        listed = [f"{len(addresses)} of {model} ({some(addresses)})" for model, addresses in there.items()]
        own = ", ".join(f"{len(addresses)} of {model}" for model, addresses in models(plan.chosen.gpus).items())
        yield Finding(
            plan.name,
            f"the GPUs of this host are of several models: {', '.join(listed)}",
            f"gpus.count takes any of them; it gets {own or 'none'}",
            "say with accelerators which of them are no GPUs, or name its own in gpus.addresses",
            WARN,
        )


def _ats(plan: DomainPlan, around: Surroundings) -> Iterator[Finding]:
    """Find ATS that is requested and works nowhere, or is on in a device and stopped on its way."""
    if not plan.spec.ats:
        return
    able = [function for function in plan.chosen.all() if function.ats]
    if not able and not plan.spec.guest_iommu:
        yield Finding(
            plan.name,
            "ats has no effect",
            "no device of it has the ATS capability, and virtio devices translate through guest_iommu only",
            "turn ATS on in the NIC's firmware (gpu_host_nic_firmware), or set ats: false",
            WARN,
        )
    told = set()
    for function in able:
        for port in _ports(around, function):
            if port.acs is None:
                continue
            off = port.acs.capability & ACS_DIRECT_TRANSLATED & ~port.acs.control
            if off and port.address not in told:
                told.add(port.address)
                yield Finding(
                    plan.name,
                    f"ats has no effect on peer-to-peer traffic through port {port.address} above {name(function)}",
                    "its ACS does not let translated requests go straight (direct translated P2P), so they go to the "
                    "root complex and back",
                    "set it with the role gpu_host (gpu_host_pci)",
                    WARN,
                )


def _networks(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    for interface in spec.interfaces:
        if interface.type != "network":
            continue
        if interface.source not in hypervisor.networks:
            there = ", ".join(sorted(hypervisor.networks)) or "none"
            yield Finding(
                spec.name,
                f"libvirt has no network {interface.source}",
                f"there are {there}",
                "define it with virsh net-define, or choose another",
            )
        elif not hypervisor.networks[interface.source]:
            yield Finding(
                spec.name,
                f"libvirt's network {interface.source} is not active",
                "a virtual machine does not start without its network",
                f"start it with virsh net-start {interface.source}",
            )


def _paths(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    made = {disk.path for disk in spec.disks if disk.base}
    for path in wanted_paths([spec]):
        if path in hypervisor.missing_paths and path not in made:
            yield Finding(
                spec.name,
                f"{path} does not exist on this host",
                "QEMU opens it at the start",
                "put it there, or mend the path",
            )


def wanted_paths(specs: list[DomainSpec]) -> list[str]:
    """Return the files and devices of the host that the guests need."""
    paths = [path for spec in specs for disk in spec.disks for path in (disk.path, disk.base) if path]
    for spec in specs:
        if spec.boot:
            paths += [path for path in (spec.boot.kernel, spec.boot.initrd) if path]
    return paths


def _still_running(plans: list[DomainPlan], hypervisor: Hypervisor, stopping: set[str]) -> Iterator[Finding]:
    """Find devices that another domain's QEMU still has open, although its definition no longer has them."""
    for plan in plans:
        wanted = {function.address for function in plan.chosen.all()}
        for observed in hypervisor.domains.values():
            if observed.name == plan.name or observed.name in stopping or observed.live_xml is None:
                continue
            for address in holdings(observed.live_xml).devices:
                if address in wanted:
                    yield Finding(
                        plan.name,
                        f"PCI device {address} is still in the running virtual machine {observed.name}",
                        "its definition has let go of the device, its QEMU has not",
                        "restart or stop that first",
                    )


def _hugetlbfs(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    size = spec.huge_page_mib
    if size and size not in hypervisor.hugetlbfs_mib:
        yield Finding(
            spec.name,
            f"no hugetlbfs is mounted for pages of {size} MiB",
            "QEMU takes its memory from there",
            f"mount one (mount -t hugetlbfs -o pagesize={size}M none /dev/hugepages-{size}M) and restart libvirt",
        )


def _memory_at_all(plans: list[DomainPlan], host: Host) -> Iterator[Finding]:
    """Find memory that the host lacks even if only ``plans`` run: for each node, and for all together.

    Memory that is bound to a node counts there. Memory of a guest with devices, locked memory and huge pages are never
    swapped, and count in the total.
    """
    whole = {plan.name: plan.spec.memory_mib for plan in plans if plan.chosen.all() or plan.spec.locked}
    bound: dict[int, dict[str, int]] = {}
    for plan in plans:
        for cell in plan.processors.cells if plan.spec.strict_memory else []:
            bound.setdefault(cell.host_node, {})[plan.name] = cell.memory_mib
    narrow = False
    for node in sorted(host.numa_nodes, key=lambda node: node.id):
        asked = bound.get(node.id, {})
        if sum(asked.values()) > node.memory_bytes // MIB:
            narrow = True
            yield Finding(
                min(asked) if len(asked) == 1 else "",
                f"strict_memory binds {_sum(asked)} to NUMA node {node.id}, which has {node.memory_bytes // MIB} MiB",
                "the kernel ends QEMU when it touches what is not there",
                "give it less memory, or turn strict_memory off" if len(asked) == 1 else "give them less memory",
            )
    there = sum(node.memory_bytes for node in host.numa_nodes) // MIB
    if sum(whole.values()) > there and not narrow:
        yield Finding(
            min(whole) if len(whole) == 1 else "",
            f"the virtual machines want {_sum(whole)} that is never swapped, and this host has {there} MiB",
            "QEMU does not start, or the kernel ends it",
            "give them less memory",
        )


def _sum(asked: dict[str, int]) -> str:
    """Return the sum with its parts: "3072 MiB (a 1024, b 2048)"."""
    each = ", ".join(f"{name} {memory_mib}" for name, memory_mib in sorted(asked.items()))
    return f"{sum(asked.values())} MiB" + (f" ({each})" if len(asked) > 1 else "")


def _memory(starting: list[DomainPlan], host: Host) -> Iterator[Finding]:
    """Compare the free memory of each node with the domains about to start, in the order of their start."""
    nodes = {node.id: node for node in host.numa_nodes}
    asked: dict[tuple[int, int], int] = {}
    for plan in starting:
        if not plan.spec.strict_memory and not plan.spec.huge_page_mib:
            continue
        size = plan.spec.huge_page_mib
        for cell in plan.processors.cells:
            node = nodes[cell.host_node]
            before = asked.get((node.id, size), 0)
            asked[node.id, size] = before + cell.memory_mib
            others = f", {before} MiB of it go to virtual machines before it" if before else ""
            if size:
                pages = next((item for item in node.huge_pages if item.size_bytes == size * MIB), None)
                free = pages.free if pages else 0
                if asked[node.id, size] > free * size:
                    yield Finding(
                        plan.name,
                        f"needs {cell.memory_mib // size} huge pages of {size} MiB on NUMA node {node.id}, which "
                        f"has {free} free{others}",
                        "QEMU takes them all at its start",
                        "reserve more (role gpu_host, module hugepages) or give it less memory",
                    )
            elif node.memory_free_bytes is not None and asked[node.id, size] * MIB > node.memory_free_bytes:
                yield Finding(
                    plan.name,
                    f"needs {cell.memory_mib} MiB on NUMA node {node.id}, which has "
                    f"{node.memory_free_bytes // MIB} MiB free{others}",
                    "strict memory comes from that node or not at all",
                    "give it less memory, or turn strict_memory off",
                )
