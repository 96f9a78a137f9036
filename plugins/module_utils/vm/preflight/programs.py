# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of what libvirt, QEMU and the host's files offer. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import atomic_ops
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Hypervisor,
    holdings,
    unpinned_guests,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    WARN,
    Finding,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.min_versions import ELEMENTS, dotted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec, Interface

ATOMIC_OPS_SINCE = (8, 1, 0)


def versions(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find elements of the plan that this host's libvirt or QEMU is too old for."""
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
                    "an older version refuses it or, worse, omits it",
                    f"install a newer {program}, or leave the setting out",
                )


def atomic_operations(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find a QEMU that does not complete AtomicOps for GPUs that need them (vfio_pci_enable_rp_atomics, since 8.1)."""
    gpus = [gpu.address for gpu in plan.chosen.gpus if atomic_ops.needed(gpu)]
    if gpus and hypervisor.qemu_version < ATOMIC_OPS_SINCE:
        yield Finding(
            plan.name,
            f"GPU {excerpt(gpus)} has no PCIe AtomicOps in a guest of QEMU {dotted(hypervisor.qemu_version)}",
            "amdgpu reports that PCIE atomic ops is not supported, and programs of ROCm that use them fail",
            f"install QEMU {dotted(ATOMIC_OPS_SINCE)} or newer, and Linux 6.5 or newer on this host",
            WARN,
        )


def machine(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find a machine type that this host's QEMU lacks."""
    machines = hypervisor.accelerators[plan.accelerator].machines
    if plan.machine not in (machine_type.ALIAS, *machines):
        is_kept = plan.spec.machine == machine_type.ALIAS
        yield Finding(
            plan.name,
            f"QEMU on this host has no machine {plan.machine}",
            "it was defined with that machine type, and QEMU cannot start it"
            if is_kept
            else "its setting machine requests it",
            f"set machine to one of {', '.join(machine_type.in_order(list(machines))) or 'those of another QEMU'}",
        )


def firmware(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find firmware that is not installed."""
    firmwares = hypervisor.accelerators[plan.accelerator].firmwares
    if plan.spec.firmware not in firmwares:
        yield Finding(
            plan.name,
            f"firmware {plan.spec.firmware} is not available on this host",
            f"libvirt finds no descriptor of it, only {', '.join(firmwares)}",
            "install OVMF (package ovmf or edk2-ovmf)",
        )


def networks(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find libvirt networks that are missing or not active, and bridges that are missing."""
    for interface in spec.interfaces:
        if interface.type == "bridge" and bridge_path(interface) in hypervisor.missing_paths:
            yield Finding(
                spec.name,
                f"there is no bridge {interface.source} on this host",
                "a virtual machine does not start without it",
                "make it in the host's network configuration, or choose another",
            )
        if interface.type != "network":
            continue
        if interface.source not in hypervisor.networks:
            existing = ", ".join(sorted(hypervisor.networks)) or "none"
            yield Finding(
                spec.name,
                f"libvirt has no network {interface.source}",
                f"existing networks: {existing}",
                "define it with virsh net-define, or choose another",
            )
        elif not hypervisor.networks[interface.source]:
            yield Finding(
                spec.name,
                f"libvirt's network {interface.source} is not active",
                "a virtual machine does not start without its network",
                f"start it with virsh net-start {interface.source}",
            )


def paths(spec: DomainSpec, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find files of disks and kernels that are missing and that nothing makes."""
    created = {disk.path for disk in spec.disks if disk.is_made} | {disk.base for disk in spec.disks if disk.base_url}
    for path in wanted_paths([spec]):
        if path in hypervisor.missing_paths and path not in created:
            yield Finding(
                spec.name,
                f"{path} does not exist on this host",
                "QEMU opens it when it starts",
                "put the file there, or correct the path",
            )


def bridge_path(interface: Interface) -> str:
    """Return the directory that the kernel has for an interface's bridge (Linux net/bridge/br_sysfs_br.c)."""
    return f"/sys/class/net/{interface.source}/bridge"


def observed_paths(specs: list[DomainSpec]) -> list[str]:
    """Return all paths of the host whose existence the checks need."""
    bridges = [bridge_path(item) for spec in specs for item in spec.interfaces if item.type == "bridge"]
    return [*wanted_paths(specs), *bridges]


def boot_source(spec: DomainSpec) -> Iterator[Finding]:
    """Find a virtual machine with nothing to boot from. Firmware also boots from NICs and passed-through drives."""
    devices = [spec.nics.per_gpu, *spec.nics.addresses, spec.nvme.count, *spec.nvme.addresses]
    if not (spec.disks or spec.boot or spec.interfaces or any(devices)):
        yield Finding(
            spec.name,
            "it has nothing to boot from",
            "its request has no disks, no boot (a kernel), no interfaces, and no NIC or NVMe drive of the host",
            "give it disks, or boot",
        )


def wanted_paths(specs: list[DomainSpec]) -> list[str]:
    """Return the files and devices of the host that the guests need."""
    paths = [path for spec in specs for disk in spec.disks for path in (disk.path, disk.base) if path]
    for spec in specs:
        if spec.boot:
            paths += [path for path in (spec.boot.kernel, spec.boot.initrd) if path]
    return paths


def shared_cpus(plan: DomainPlan, hypervisor: Hypervisor, stopping: set[str]) -> Iterator[Finding]:
    """Find running domains whose vCPUs may run on the CPUs that are pinned to the virtual machine's own."""
    if not plan.spec.pin_cpus:
        return
    cpus = {cpu for cell in plan.processors.cells for cpu in cell.cpus}
    other_names = {
        name: observed for name, observed in hypervisor.domains.items() if name != plan.name and name not in stopping
    }
    for name, shared in unpinned_guests(other_names, cpus).items():
        yield Finding(
            plan.name,
            f"virtual machine {name} may run on {len(shared)} of the {len(cpus)} CPUs that are pinned to its vCPUs "
            f"({format_ranges(shared)})",
            "its vCPUs wait while that one runs"
            + (", and kvm_dedicated tells its kernel that they never do" if plan.spec.kvm_dedicated else ""),
            f"limit that one to other CPUs (virsh vcpupin {name}, or cpuset of its element vcpu)",
            WARN,
        )


def still_running(plans: list[DomainPlan], hypervisor: Hypervisor, stopping: set[str]) -> Iterator[Finding]:
    """Find devices that another domain's QEMU still has open, although its definition does not have them."""
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
                        "its QEMU has the device until it stops, whatever its definition says",
                        "restart or stop that virtual machine first",
                    )
