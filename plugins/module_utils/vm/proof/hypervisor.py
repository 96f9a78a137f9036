# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layer hypervisor: the host's settings, and the state of the passed-through devices. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges, parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import host_drivers
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import KIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import FabricManager
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import Passed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import acs, claim_values
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row, of_each, once

LAYER = "hypervisor"


def iommu_passthrough(evidence: Evidence) -> Claim:
    """Claim that the host's own DMA is not translated."""
    return compare(
        LAYER,
        "the IOMMU passes the host's own DMA through (iommu=pt)",
        "identity",
        evidence.host.iommu.default_domain,
        f"{evidence.host_name} /sys/kernel/iommu_groups/*/type",
    )


def host_settings(evidence: Evidence) -> Claim:
    """Claim that gpu_host_boot would change nothing."""
    settings = evidence.host_settings
    return compare(
        LAYER,
        "every setting of the host is as requested, and is restored at every boot",
        claim_values.SAME,
        claim_values.differences(settings.differences if settings else None),
        f"{evidence.host_name} gpu_host_boot in check mode",
    )


def virtual_functions(evidence: Evidence) -> Iterator[Claim]:
    """Claim the number of virtual functions of each NIC, and the mode of its embedded switch."""
    functions = evidence.host.by_address()
    facts_by_nic = evidence.host_settings.virtual_functions if evidence.host_settings else {}
    if facts_by_nic is None:
        claim = "the host's NICs have their virtual functions"
        yield compare(LAYER, claim, "as in the inventory", None, f"{evidence.host_name} gpu_host_boot in check mode")
        return
    for address, facts in sorted(facts_by_nic.items()):
        function = functions.get(address)
        yield compare(
            LAYER,
            f"NIC {address} has its virtual functions",
            facts["count"],
            function.sriov.now if function and function.sriov else None,
            f"{evidence.host_name} /sys/bus/pci/devices/{address}/sriov_numvfs",
        )
        mode = facts.get("eswitch_mode")
        if mode is not None:
            source = f"{evidence.host_name} devlink dev eswitch show pci/{address}"
            yield compare(LAYER, f"the embedded switch of NIC {address}", mode["wanted"], mode["seen"], source)


def virtual_function_settings(evidence: Evidence) -> Iterator[Claim]:
    """Claim the requested settings of each virtual function of the virtual machine, as its NIC reports them."""
    for device in evidence.planned.passed():
        rows = evidence.settings_of_vf(device)
        if rows:
            yield compare(
                LAYER,
                f"{name(device.function)} has its settings (VF {rows[0]['vf']} of {device.function.physical_function})",
                {row["name"]: row["wanted"] for row in rows},
                {row["name"]: row["seen"] for row in rows},
                f"{evidence.host_name} ip -d link show",
            )


def huge_pages(evidence: Evidence) -> Iterator[Claim]:
    """Claim the number of huge pages of each node and size."""
    for pages in evidence.host_settings.huge_pages if evidence.host_settings else []:
        node, size_bytes = pages["node"], pages["size_mib"] * MIB
        folder = f"/sys/devices/system/node/node{node}/hugepages/hugepages-{size_bytes // KIB}kB"
        yield compare(
            LAYER,
            f"node {node} has its huge pages of {claim_values.size_text(size_bytes)}",
            pages["wanted"],
            _huge_pages(evidence.host, node, size_bytes),
            f"{evidence.host_name} {folder}/nr_hugepages",
        )


def binding(evidence: Evidence, device: Passed) -> Claim:
    """Claim that a device is bound to vfio-pci."""
    function = device.function
    source = f"{evidence.host_name} /sys/bus/pci/devices/{function.address}/driver"
    return compare(LAYER, f"{name(function)} is bound to vfio-pci", "vfio-pci", function.driver, source)


def group_not_used(evidence: Evidence, device: Passed) -> Claim:
    """Claim that no driver of the host has another function of a device's IOMMU group."""
    group = device.function.iommu_group
    used_members = None
    if group is not None:
        used_members = [
            member.address
            for member in evidence.host.group_members(group)
            if member.kind != "bridge" and member.driver not in ("vfio-pci", None)
        ]
    return compare(
        LAYER,
        f"no other function of {name(device.function)}'s IOMMU group is used by the host",
        [],
        used_members,
        f"{evidence.host_name} /sys/kernel/iommu_groups/{group}/devices",
    )


def drivers_kept_off(evidence: Evidence) -> Iterator[Claim]:
    """Claim that the running kernel does not load the drivers of a guest's GPU or NVSwitch, not even at boot."""
    settings = evidence.host_settings
    for device in evidence.planned.passed():
        function = device.function
        drivers = host_drivers.MODULES.get(function.vendor_id, ())
        if function.kind not in ("gpu", "nvswitch") or not drivers:
            continue
        claim = f"no driver of the host takes {name(function)} at boot"
        source = f"{evidence.host_name} /proc/cmdline, {host_drivers.ARGUMENT}"
        wanted = sorted(drivers)
        seen = sorted(set(drivers) & host_drivers.kept_off(evidence.host.kernel_arguments))
        if settings is not None and settings.modules_off == []:
            reason = "; ".join(settings.modules_that_may_load) or "not requested (gpu_host_keep_drivers_off)"
            yield not_applicable(LAYER, claim, wanted, source, reason, seen)
        else:
            yield compare(LAYER, claim, wanted, seen, source)


# The settings of gpu_host_boot's kernel_settings (host/kernel/kernel_settings.py): the claim, and where it is read.
KERNEL_SETTINGS = {
    "governor": (
        "the frequency governor of the host's CPUs",
        "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    ),
    "idle_exit_latency_us_max": (
        "the longest time in us that the host's CPUs take to wake",
        "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
    ),
    "numa_balancing": ("automatic NUMA balancing of the host", "/proc/sys/kernel/numa_balancing"),
    "ksm": ("merging of equal pages on the host (KSM)", "/sys/kernel/mm/ksm/run"),
    "transparent_huge_pages": ("transparent huge pages of the host", "/sys/kernel/mm/transparent_hugepage/enabled"),
    "avic": ("the virtual interrupt controller of AMD's CPUs (AVIC)", "/sys/module/kvm_amd/parameters/avic"),
}


def kernel_settings(evidence: Evidence) -> Iterator[Claim]:
    """Claim each setting of the host's kernel that the inventory requests."""
    if evidence.host_settings is None:
        return
    read = evidence.host_settings.kernel_settings
    for setting, (claim, place) in KERNEL_SETTINGS.items():
        source = f"{evidence.host_name} {place}"
        if read is None:
            yield compare(LAYER, claim, "as in the inventory", None, source)
            continue
        facts = read.get(setting)
        if facts is None:
            reason = f"the inventory leaves it as it is (gpu_host_kernel_settings.{setting})"
            yield not_applicable(LAYER, claim, "unchanged", source, reason)
            continue
        wanted = str(int(facts["wanted"]) if isinstance(facts["wanted"], bool) else facts["wanted"])
        if "not_applicable" in facts:
            yield not_applicable(LAYER, claim, wanted, source, facts["not_applicable"])
        else:
            yield compare(LAYER, claim, wanted, facts.get("seen"), source)


def shared_nvswitches(evidence: Evidence) -> Iterator[Claim]:
    """Claim the partition of a virtual machine that shares NVSwitches, and that both sides have one driver version."""
    shared = evidence.planned.chosen.shared
    if shared is None:
        return
    manager = evidence.fabric_manager or FabricManager()
    listed = (manager.partitions or {}).get(shared.partition)
    yield compare(
        LAYER,
        f"partition {shared.partition} of Fabric Manager is active and has exactly its GPUs",
        {"active": True, "gpus": list(shared.physical_ids)},
        {"active": listed.active, "gpus": list(listed.gpus)} if listed else manager.cause or None,
        f"{evidence.host_name} fmpm -l",
    )
    software = evidence.guest.nvidia if evidence.guest else None
    yield compare(
        LAYER,
        "the guest's driver has the version of the host's Fabric Manager",
        manager.version or "the version of Fabric Manager",
        software.driver if software else None,
        f"{evidence.host_name} nv-fabricmanager --version; guest /proc/driver/nvidia/version",
    )


def pinned_cpus(evidence: Evidence) -> Iterator[Claim]:
    """Claim that processes of the host and interrupts that irqbalance moves stay off the pinned CPUs."""
    facts = evidence.host_cpus or {}
    pinned = set(parse_ranges(facts.get("pinned", "")))
    reason = facts.get("not_applicable", "")
    if facts and not pinned:
        reason = "no CPU is pinned, or the inventory turns it off (gpu_vm_keep_host_off_pinned_cpus)"
    claim, source = (
        "the host's processes stay off pinned CPUs",
        f"{evidence.host_name} /sys/fs/cgroup/*/cpuset.cpus.effective",
    )
    used = {unit: format_ranges(set(parse_ranges(cpus)) & pinned) for unit, cpus in facts.get("units", {}).items()}
    used |= {f"virtual machine {guest}": cpus for guest, cpus in facts.get("guests", {}).items()}
    wanted = dict.fromkeys(used, "")
    of_irqbalance = facts.get("irqbalance", {})
    interrupts = "irqbalance leaves pinned CPUs alone"
    environment = f"{evidence.host_name} /proc/PID/environ of irqbalance"
    if reason:
        yield not_applicable(LAYER, claim, "none of them", source, reason)
        yield not_applicable(LAYER, interrupts, facts["pinned"], environment, reason)
        return
    yield compare(LAYER, claim, wanted or "none of them", used or None, source)
    if "not_applicable" in of_irqbalance:
        yield not_applicable(LAYER, interrupts, facts["pinned"], environment, of_irqbalance["not_applicable"])
    else:
        yield compare(LAYER, interrupts, facts.get("pinned", "the pinned CPUs"), of_irqbalance.get("seen"), environment)


def known_reset_failures(evidence: Evidence) -> Iterator[Claim]:
    """Name devices whose reset between guests is known to fail: a hardware fault, which no setting changes."""
    failures = evidence.host_settings.reset_failures if evidence.host_settings else {}
    for device in evidence.planned.passed():
        if device.address in failures:
            yield not_applicable(
                LAYER,
                f"{name(device.function)} can be reset between guests",
                "a reset that works",
                f"{evidence.host_name} /sys/bus/pci/devices/{device.address}/reset_method",
                failures[device.address],
            )


def max_read_request(evidence: Evidence, device: Passed) -> Claim:
    """Claim MaxReadReq of a device, or of the physical function that it follows.

    A virtual function has no DevCtl fields of its own (PCI Express Base Specification, "Device Control Register",
    changes for VFs).
    """
    function = device.function
    owner = evidence.host.function(function.physical_function) if function.physical_function else function
    claim = f"MaxReadReq of {name(owner)}" + (f", which {name(function)} follows" if owner is not function else "")
    source = f"{evidence.host_name} config space of {owner.address}, DevCtl bits 14:12"
    return claim_values.read_request(LAYER, claim, owner.address, owner, evidence.host_settings, source)


def _huge_pages(host: Host, node_id: int, size_bytes: int) -> int | None:
    for node in host.numa_nodes:
        if node.id == node_id:
            return next((pages.total for pages in node.huge_pages if pages.size_bytes == size_bytes), None)
    return None


CLAIMS: tuple[Row[Evidence], ...] = (
    once(iommu_passthrough),
    once(host_settings),
    virtual_functions,
    virtual_function_settings,
    huge_pages,
    kernel_settings,
    pinned_cpus,
    acs.ports_and_groups,
    of_each(Evidence.devices, binding, group_not_used, acs.ats, max_read_request),
    drivers_kept_off,
    shared_nvswitches,
    known_reset_failures,
)
