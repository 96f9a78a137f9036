# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of the host's platform: interrupts, the IOMMU's address width, slow maps of BARs, split pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.outlook import Cause
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kernel_release import includes
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, Iommu
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.mmio import is_high, power_of_two
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.min_versions import Version, dotted

# OVMF puts its 64-bit window into the last eighth of the guest's address space, of which it uses 47 bits at most (edk2
# OvmfPkg/Library/PlatformInitLib/MemDetect.c, PlatformDynamicMmioWindow and PlatformAddressWidthFromCpuid).
OVMF_ADDRESS_BITS = 47
# SeaBIOS 1.17 does the same if the guest has memory above 4 GiB (src/fw/pciinit.c, pci_pad_mem64); q35 has up to 2 GiB
# below it in any case (QEMU hw/i386/pc_q35.c).
LOW_MEMORY_MIB = 2048
NO_PEER_TRAFFIC = "BARs above the IOMMU's addresses have no peer-to-peer traffic"
# The fewest address bits of an IOMMU: 3 levels of pages (VT-d specification, 10.4.2, SAGAW).
IOMMU_BITS_MIN = 39
# "around 30 seconds extra boot time per ~128GB GPU" (canonical/lxd issue 15872; edk2 pull request 10853).
STALL_S_PER_BYTE = 30 / (128 * GIB)
# A shorter stall is not reported.
STALL_MIN_S = 10
# Linux 6.12 has huge pages of BARs; since 6.15 VFIO maps DMA by them (commit 0fd06844de5d "vfio/type1: Use mapping page
# mask for pfnmaps"). QEMU aligns its maps for them since 9.2 (commit 00b519c0bca0); 10.1 is the oldest that a site
# reported to be free of the stall (Ubicloud, "Virtualizing NVIDIA HGX B200 GPUs", 2025).
FAST_LINUX = (6, 15)
FAST_QEMU: Version = (10, 1, 0)


def interrupt_remapping(plan: DomainPlan, iommu: Iommu) -> Iterator[Finding]:
    """Find an IOMMU that remaps no interrupts: VFIO then gives QEMU no device (Linux drivers/vfio, EPERM)."""
    if not plan.chosen.all() or iommu.interrupt_remapping:
        return
    problem = "the IOMMU of this host does not remap interrupts"
    reason = "VFIO refuses passed-through devices (EPERM), because a guest could send any interrupt to the host"
    remedy = "turn on interrupt remapping (x2APIC) in the BIOS, and remove intremap=off from the kernel arguments"
    if iommu.interrupt_remapping is None:
        yield Finding(
            plan.name, "it is not known whether the IOMMU remaps interrupts", f"without it {reason}", remedy, WARN
        )
    elif iommu.unsafe_interrupts:
        reason = "allow_unsafe_interrupts is on, so a guest can send any interrupt to the host"
        yield Finding(plan.name, problem, reason, f"{remedy}; then turn allow_unsafe_interrupts off", WARN)
    else:
        yield Finding(plan.name, problem, reason, remedy)


def iommu_width(plan: DomainPlan, iommu: Iommu) -> Iterator[Finding]:
    """Find guest addresses that the IOMMU cannot translate: VFIO maps memory and BARs at their guest addresses."""
    bits, devices = plan.address_bits, plan.chosen.all()
    if not devices or bits is None:
        return
    start = 4 * GIB + plan.spec.memory_mib * MIB
    width = iommu.address_bits
    if width is None:
        if bits > IOMMU_BITS_MIN:
            yield Finding(
                plan.name,
                "the number of address bits that the IOMMU translates is not known",
                f"the guest has {bits}, and BARs above the IOMMU's have no peer-to-peer traffic",
                "read the topology on the host itself",
                WARN,
            )
        return
    if start > 1 << width:
        yield Finding(
            plan.name,
            f"its memory ends above the {width} address bits that the IOMMU translates",
            "QEMU cannot map it for its devices and exits (VFIO_MAP_DMA: Invalid argument)",
            f"give it less than {(1 << width) // GIB} GiB of memory",
        )
        return
    low = plan.spec.firmware == "bios" and plan.spec.memory_mib <= LOW_MEMORY_MIB
    end = start + plan.window.window_bytes if low else 1 << min(bits, OVMF_ADDRESS_BITS)
    if end > 1 << width and len(devices) > 1:
        fits = start + plan.window.window_bytes <= 1 << width
        window = f"a window of {plan.window.window_bytes // GIB} GiB"
        yield Finding(
            plan.name,
            f"the IOMMU translates {width} address bits, but the guest has {bits}, and firmware puts BARs at their end",
            "QEMU cannot map these BARs for other devices (VFIO_MAP_DMA: Invalid argument): no peer-to-peer traffic "
            "between its GPUs and NICs",
            f"physical_address_bits: {width}"
            if fits
            else f"assign fewer devices: {window} does not fit into {width} bits",
            WARN,
        )


def outlook_causes(plan: DomainPlan, iommu: Iommu) -> tuple[Cause, ...]:
    """Return why its NICs do not reach its GPUs' BARs, or why that is not known: guest addresses the IOMMU may lack."""
    if plan.address_bits is None:
        unknown = "the number of the guest's address bits is not known, and whether the IOMMU translates them all"
        return (Cause(0, unknown, NO_PEER_TRAFFIC, "read the topology on the host itself"),)
    severity = 0 if iommu.address_bits is None else 2
    findings = iommu_width(plan, iommu)
    return tuple(Cause(severity, item.what, item.why, item.remedy) for item in findings)


def boot_stall(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find large BARs that this host's kernel or QEMU maps page by page at each boot."""
    seconds = stall_s(plan, hypervisor)
    if seconds >= STALL_MIN_S:
        linux = plan.host.kernel_release or "of unknown release"
        gib = _high_bytes(plan) // GIB
        slow = hypervisor.qemu_version < FAST_QEMU or includes(plan.host.kernel_release, FAST_LINUX) is False
        delay, maps = ("delay", "maps") if slow else ("may delay", "may map")
        yield Finding(
            plan.name,
            f"its large BARs of {gib} GiB {delay} each boot by about {seconds} s without any output",
            f"QEMU {dotted(hypervisor.qemu_version)} on Linux {linux} {maps} them in pages of 4 KiB",
            f"use QEMU {dotted(FAST_QEMU)} and Linux {'.'.join(map(str, FAST_LINUX))} or newer, or a kernel with its "
            "changes to vfio; until then wait: guest_answers does",
            WARN,
        )


def stall_s(plan: DomainPlan, hypervisor: Hypervisor) -> int:
    """Return about how many seconds a boot takes longer because of the plan's BARs; 0 with a fast kernel and QEMU."""
    fast = includes(plan.host.kernel_release, FAST_LINUX)
    return 0 if fast and hypervisor.qemu_version >= FAST_QEMU else round(_high_bytes(plan) * STALL_S_PER_BYTE)


def split_pages(plan: DomainPlan, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Find KVM's protection from the erratum iTLB multihit (Linux admin-guide/hw-vuln/multihit.rst): small pages."""
    if hypervisor.nx_huge_pages and plan.accelerator == "kvm" and plan.spec.huge_page_mib:
        yield Finding(
            plan.name,
            "KVM maps the parts of its huge pages that it executes in pages of 4 KiB",
            "the host's processors have the erratum iTLB multihit, and /sys/module/kvm/parameters/nx_huge_pages is Y; "
            "code in the guest has more TLB misses",
            "accept that, or set kvm.nx_huge_pages=off in gpu_host_kernel_arguments if you trust all guests: they can "
            "then stop the host",
            WARN,
        )


def of_facts(plan: DomainPlan, host: Host) -> Iterator[Finding]:
    """Return as warnings what the facts of a host show, also without its libvirt; what they lack is not reported."""
    findings: list[Finding] = []
    if host.iommu.interrupt_remapping is not None:
        findings += interrupt_remapping(plan, host.iommu)
    if host.iommu.address_bits is not None:
        findings += iommu_width(plan, host.iommu)
    if plan.accelerator == "kvm" and host.source == "sysfs" and host.cpu.vendor and host.cpu.virtualization is None:
        findings.append(
            Finding(
                plan.name,
                "the host's processors offer no virtualization (vmx or svm)",
                "KVM needs it, and QEMU would emulate the processors",
                "turn virtualization on in the BIOS",
            )
        )
    yield from (replace(item, severity=WARN) for item in findings)


def of_host(plan: DomainPlan, host: Host, hypervisor: Hypervisor) -> Iterator[Finding]:
    """Return the findings of all checks for a plan."""
    yield from interrupt_remapping(plan, host.iommu)
    yield from iommu_width(plan, host.iommu)
    yield from boot_stall(plan, hypervisor)
    yield from split_pages(plan, hypervisor)


def _high_bytes(plan: DomainPlan) -> int:
    return sum(
        power_of_two(region.size_bytes)
        for function in plan.chosen.all()
        for region in function.bars
        if region.kind == "memory" and is_high(region)
    )
