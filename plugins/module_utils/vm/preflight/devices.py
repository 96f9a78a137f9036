# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of a plan's devices: in use, isolated, and what they lose without an error. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import PCI_ACS_DT
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import VIRTUAL_MACHINES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import models
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    LARGE_BARS,
    is_virtual,
    unreachable_memory_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl_format import MAX_ELEMENTS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import nvswitch_boards
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    ACS_PORTS,
    ISOLATING_ACS,
    MORE_ADDRESSES,
    HostDevices,
    foreign_member,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    WARN,
    Finding,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import nccl_topology

# The bytes of a port's config space that must be readable to be sure that it has no ACS: extended config space.
EXTENDED_CONFIG_BYTES = 4096


def in_use(plan: DomainPlan, host_devices: HostDevices) -> Iterator[Finding]:
    """Find devices that the host uses, that have no IOMMU group, or whose group holds something else."""
    vm_devices = [function.address for function in plan.chosen.all()]
    without_group = [function.address for function in plan.chosen.all() if function.iommu_group is None]
    if without_group:
        yield Finding(
            plan.name,
            f"PCI device {excerpt(without_group)} {'is' if len(without_group) == 1 else 'are'} in no IOMMU group",
            "the host's IOMMU is off, and VFIO needs it",
            "enable it in the BIOS and boot with intel_iommu=on or amd_iommu=on",
        )
    for function in plan.chosen.all():
        device = f"PCI device {function.address}"
        if function.used_by_host:
            yield Finding(
                plan.name,
                f"{device} is in use by the host",
                "; ".join(function.used_by_host),
                "free it on the host, or choose another device",
            )
        if not function.bars and host_devices.host.source == "sysfs" and function.kind in ("gpu", "nvswitch"):
            yield Finding(
                plan.name,
                f"{device} has no BAR",
                "neither firmware nor kernel found an address for one, and no guest can reach it",
                MORE_ADDRESSES,
            )
        reason = foreign_member(host_devices, function, plan.name, vm_devices)
        if reason:
            without = [port.address for port in _ports(host_devices, function) if _lacks_acs(port)]
            reason_text = "VFIO takes a group only as a whole, and QEMU reports that it is not viable"
            if without:
                reason_text += f" (no ACS, which would split the group: port {excerpt(without)})"
            yield Finding(plan.name, f"{device}: {reason.cause}", reason_text, reason.remedy)


def host_drivers(plan: DomainPlan, host_devices: HostDevices) -> Iterator[Finding]:
    """Find virtual functions of GPUs without the host driver that makes them and serves them while guests run."""
    for function in plan.chosen.gpus:
        owner = host_devices.functions.get(function.physical_function or "")
        if is_virtual(function) and owner is not None and owner.driver in (None, "vfio-pci"):
            yield Finding(
                plan.name,
                f"{name(function)} is a virtual function of GPU {owner.address}, which has "
                f"{f'the driver {owner.driver}' if owner.driver else 'no driver'} on the host",
                "the host driver of the GPU makes its virtual functions and serves them",
                "bind the GPU to its host driver (AMD Instinct: gim), and leave it out of gpu_host_vfio",
            )


def _ports(host_devices: HostDevices, function: Function) -> list[Function]:
    steps = (host_devices.functions[address] for address in host_devices.bridges(function.address))
    return [step for step in steps if step.port_type in ACS_PORTS]


def _lacks_acs(port: Function) -> bool:
    return port.acs is None and port.config_bytes >= EXTENDED_CONFIG_BYTES


def isolation(plan: DomainPlan, host_devices: HostDevices) -> Iterator[Finding]:
    """Find ACS that was turned off after the kernel made the groups: the groups look separate, the devices are not."""
    reported = set()
    for function in plan.chosen.all():
        bridges = set(host_devices.bridges(function.address))
        neighbours = sorted(
            {
                holder
                for address, holder in host_devices.holder.items()
                if holder != plan.name
                and address in host_devices.functions
                and bridges & set(host_devices.bridges(address))
            }
        )
        for port in _ports(host_devices, function):
            if port.acs is None:
                continue
            off = port.acs.capability & ISOLATING_ACS & ~port.acs.control
            if off and neighbours and port.address not in reported:
                reported.add(port.address)
                yield Finding(
                    plan.name,
                    f"ACS of port {port.address} above {name(function)} is weakened (ACSCtl {port.acs.control:#04x}, "
                    f"without {off:#04x})",
                    f"devices of virtual machine {excerpt(neighbours)} are below the same switch or port, and each "
                    "virtual machine could write to the other's devices",
                    "turn ACS on (gpu_host_acs), or assign all devices of that switch to one virtual machine",
                )


def losses(plan: DomainPlan, host_devices: HostDevices) -> Iterator[Finding]:
    """Find what the virtual machine loses without an error."""
    yield from _address_bits(plan)
    yield from _models(plan, host_devices.host)
    yield from _incomplete_board(plan, host_devices.host)
    yield from _unreachable(plan)
    yield from _nodes(plan)
    yield from _nccl(plan, host_devices.host)
    # Without the host's config space, nothing is known of ATS and ACS.
    if host_devices.config_read:
        yield from _ats(plan, host_devices)


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
            f"NCCL's topology of its GPUs and NICs would have {needed} elements, but NCCL reads at most {MAX_ELEMENTS}",
            "no topology file is made for the guest, where NCCL then plans with the links of QEMU's switches",
            "assign fewer NICs if NCCL must be fast there",
            WARN,
        )


def _nodes(plan: DomainPlan) -> Iterator[Finding]:
    without_node = [function.address for function in plan.chosen.all() if plan.host.node_of(function) is None]
    if without_node:
        cells = ", ".join(str(cell.host_node) for cell in plan.processors.cells)
        yield Finding(
            plan.name,
            f"the host does not report which NUMA node {excerpt(without_node)} "
            f"{'is' if len(without_node) == 1 else 'are'} on",
            f"its cells are on node {cells}, and it is not known which of them is near a device",
            "look for a BIOS setting or update that gives root bridges their node (_PXM), or choose with numa_nodes",
            WARN,
        )


def _models(plan: DomainPlan, host: Host) -> Iterator[Finding]:
    """Find GPUs of several models, where a number is chosen among them or one virtual machine has several models."""
    virtual = plan.spec.gpus.functions == "vf"
    host_models = models([item for item in host.functions if item.kind == "gpu" and is_virtual(item) == virtual])
    if len(host_models) > 1 and (plan.spec.gpus.count or len(models(plan.chosen.gpus)) > 1):
        listed = [f"{len(addresses)} of {model} ({excerpt(addresses)})" for model, addresses in host_models.items()]
        vm_gpus = ", ".join(f"{len(addresses)} of {model}" for model, addresses in models(plan.chosen.gpus).items())
        yield Finding(
            plan.name,
            f"the GPUs of this host are of several models: {', '.join(listed)}",
            f"gpus.count takes those of one model; it gets {vm_gpus or 'none'}",
            "list those that are not GPUs under accelerators, or choose them with gpus.addresses, which can mix models",
            WARN,
        )


def _incomplete_board(plan: DomainPlan, host: Host) -> Iterator[Finding]:
    fabric = nvswitch_boards.recognise(host)
    if fabric is not None and fabric.incomplete and {item.address for item in plan.chosen.gpus} & set(fabric.gpus):
        yield Finding(
            plan.name,
            f"the {fabric.board.name} of this host is incomplete: {fabric.incomplete} are present",
            "Fabric Manager may not start, or leaves out NVLink connections",
            "see the log of the kernel and of the BMC for the missing ones, then power cycle or repair the board",
            WARN,
        )


def _unreachable(plan: DomainPlan) -> Iterator[Finding]:
    """Find GPUs whose memory other devices cannot reach."""
    reasons: dict[str, list[str]] = {}
    for function in plan.chosen.gpus:
        reason = unreachable_memory_reason(function)
        if reason:
            reasons.setdefault(reason, []).append(function.address)
    for reason, addresses in reasons.items():
        yield Finding(
            plan.name,
            f"GPU {excerpt(addresses)}: {reason}",
            "GPUDirect P2P and RDMA cannot reach its memory by PCIe",
            LARGE_BARS,
            WARN,
        )


def _ats(plan: DomainPlan, host_devices: HostDevices) -> Iterator[Finding]:
    """Find ATS that is requested and works nowhere, or is on in a device and blocked by a port."""
    if not plan.spec.ats:
        return
    able = [function for function in plan.chosen.all() if function.ats]
    # Without a NIC there is no ATS to turn on, and the default is no request.
    if not plan.chosen.nics and not able:
        return
    if any("noats" in item[4:].split(",") for item in host_devices.host.kernel_arguments if item.startswith("pci=")):
        yield Finding(
            plan.name,
            "ats has no effect",
            "the kernel was started with pci=noats, which turns ATS off whatever the NIC's firmware says",
            "set pci= without noats in gpu_host_kernel_arguments, or set ats: false",
            WARN,
        )
        return
    if not able and not plan.spec.guest_iommu:
        yield Finding(
            plan.name,
            "ats has no effect",
            "none of its devices has the ATS capability, and virtio devices translate through guest_iommu only",
            "turn ATS on in the NIC's firmware (gpu_host_nic_firmware), or set ats: false",
            WARN,
        )
    acs_plan = AcsPlan(host_devices.host, plan.chosen.all(), VIRTUAL_MACHINES)
    for port in acs_plan.ports:
        acs = host_devices.host.function(port.address).acs
        nics = [function for function in able if function.address in port.below and function.kind == "nic"]
        if acs and nics and port.mask.on & acs.capability & ~acs.control & PCI_ACS_DT:
            yield Finding(
                plan.name,
                f"ats has no effect on peer-to-peer traffic through port {port.address} above {name(nics[0])}",
                "its ACS does not let translated requests go straight (direct translated P2P), so they go to the root "
                "complex and back",
                "set it with the role gpu_host (gpu_host_acs: auto)",
                WARN,
            )
