# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Everything that is known to fail later, found before anything is touched. Pure.

What makes a plan impossible is refused by the planner itself; here is what stands between a plan and this host now.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.hypervisor import Hypervisor, holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.placement import Surroundings, foreign_member
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import DomainSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Host

MIB = 1024**2

# Elements that need a certain libvirt or QEMU: libvirt's are the "Since" notes of
# https://libvirt.org/formatdomain.html,
# QEMU's its changelogs.
MINIMUM_LIBVIRT = {
    "physical_address_bits (maxphysaddr)": (8, 7, 0),
    "firmware efi without secure boot (os/firmware/feature)": (7, 2, 0),
    "guest_iommu with aw_bits": (6, 5, 0),
    "mirror_topology (switch ports without hot plug)": (6, 3, 0),
}


def check(
    plans: list[DomainPlan],
    host: Host,
    hypervisor: Hypervisor,
    starting: set[str],
    stopping: set[str],
    paths_may_come: bool,
) -> None:
    """Raise DomainError on the first thing that would keep ``plans`` from being defined, or ``starting`` from starting.

    ``stopping`` are the domains that will be stopped before any is started. ``paths_may_come``: in check mode, image
    files may be made by an earlier task that only pretended to.
    """
    for plan in plans:
        _versions(plan, hypervisor)
        _firmware(plan, hypervisor)
        _devices(plan, host)
        _networks(plan, hypervisor)
        if not paths_may_come:
            _paths(plan, hypervisor)
    to_start = [plan for plan in plans if plan.name in starting]
    _not_running_elsewhere(to_start, hypervisor, stopping)
    for plan in to_start:
        _hugetlbfs(plan, hypervisor)
    # One that only restarts gives its memory back first.
    _memory([plan for plan in to_start if plan.name not in stopping], host)


def _refuse(plan: DomainPlan, message: str) -> None:
    raise DomainError(f"virtual machine {plan.name}: {message}")


def _versions(plan: DomainPlan, hypervisor: Hypervisor) -> None:
    used = {
        "physical_address_bits (maxphysaddr)": plan.address_bits_mode != "off",
        "firmware efi without secure boot (os/firmware/feature)": plan.spec.firmware == "efi",
        "guest_iommu with aw_bits": plan.spec.guest_iommu,
        "mirror_topology (switch ports without hot plug)": bool(plan.root.expanders),
    }
    for element, minimum in MINIMUM_LIBVIRT.items():
        if used[element] and hypervisor.libvirt_version < minimum:
            _refuse(
                plan, f"{element} needs libvirt {_dotted(minimum)}, this host has {_dotted(hypervisor.libvirt_version)}"
            )


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _firmware(plan: DomainPlan, hypervisor: Hypervisor) -> None:
    there = hypervisor.accelerators[plan.accelerator].firmwares
    if plan.spec.firmware not in there:
        _refuse(
            plan,
            f"firmware {plan.spec.firmware} is not to be had on this host; install OVMF (package ovmf or edk2-ovmf)",
        )


def _devices(plan: DomainPlan, host: Host) -> None:
    around = Surroundings(host)
    own = [function.address for function in plan.chosen.all()]
    for function in plan.chosen.all():
        if function.iommu_group is None:
            _refuse(
                plan,
                f"PCI device {function.address} is in no IOMMU group: the host's IOMMU is off; "
                "enable it in the BIOS and boot with intel_iommu=on or amd_iommu=on",
            )
        reason = foreign_member(around, function, plan.name, own)
        if reason:
            _refuse(plan, f"PCI device {function.address}: {reason}")


def _networks(plan: DomainPlan, hypervisor: Hypervisor) -> None:
    for interface in plan.spec.interfaces:
        if interface.type != "network":
            continue
        if interface.source not in hypervisor.networks:
            there = ", ".join(sorted(hypervisor.networks)) or "none"
            _refuse(plan, f"libvirt has no network {interface.source}; there are {there}")
        if not hypervisor.networks[interface.source]:
            _refuse(
                plan,
                f"libvirt's network {interface.source} is not active; start it with virsh net-start {interface.source}",
            )


def _paths(plan: DomainPlan, hypervisor: Hypervisor) -> None:
    made = {disk.path for disk in plan.spec.disks if disk.base}
    for path in wanted_paths([plan.spec]):
        if path in hypervisor.missing_paths and path not in made:
            _refuse(plan, f"{path} does not exist on this host")


def wanted_paths(specs: list[DomainSpec]) -> list[str]:
    """Files and devices of the host that the guests need."""
    paths = [path for spec in specs for disk in spec.disks for path in (disk.path, disk.base) if path]
    for spec in specs:
        if spec.boot:
            paths += [path for path in (spec.boot.kernel, spec.boot.initrd) if path]
    return paths


def _not_running_elsewhere(plans: list[DomainPlan], hypervisor: Hypervisor, stopping: set[str]) -> None:
    """A device that another domain's QEMU still has open, although its definition has let go of it."""
    for plan in plans:
        wanted = {function.address for function in plan.chosen.all()}
        for observed in hypervisor.domains.values():
            if observed.name == plan.name or observed.name in stopping or observed.live_xml is None:
                continue
            for address in holdings(observed.live_xml).devices:
                if address in wanted:
                    _refuse(
                        plan,
                        f"PCI device {address} is still in the running virtual machine {observed.name}; restart "
                        f"or stop that first",
                    )


def _hugetlbfs(plan: DomainPlan, hypervisor: Hypervisor) -> None:
    size = plan.spec.huge_page_mib
    if size and size not in hypervisor.hugetlbfs_mib:
        _refuse(
            plan,
            f"no hugetlbfs is mounted for pages of {size} MiB, and QEMU takes its memory from there; mount one "
            f"(mount -t hugetlbfs -o pagesize={size}M none /dev/hugepages-{size}M) and restart libvirt",
        )


def _memory(starting: list[DomainPlan], host: Host) -> None:
    """Free memory of each node against all that are about to start, in the order in which they will."""
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
                    _refuse(
                        plan,
                        f"needs {cell.memory_mib // size} huge pages of {size} MiB on NUMA node {node.id}, which "
                        f"has {free} free{others}; "
                        "reserve more (role gpu_host, module hugepages) or give it less memory",
                    )
            elif node.memory_free_bytes is not None and asked[node.id, size] * MIB > node.memory_free_bytes:
                _refuse(
                    plan,
                    f"needs {cell.memory_mib} MiB on NUMA node {node.id}, which has "
                    f"{node.memory_free_bytes // MIB} MiB free{others}; "
                    "give it less memory, or turn strict_memory off",
                )
