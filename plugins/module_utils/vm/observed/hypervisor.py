# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts that libvirt and the host's kernel report, as plain data: the observed side of a plan.

``client.observe`` fills these classes; everything here is pure.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import libvirt_devices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import BYTES_OF_UNIT, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.disk_files import ImageFile


@dataclass
class Accelerator:
    """One virtualization type ("kvm" or "qemu") as domcapabilities report it."""

    max_vcpus: int
    firmwares: list[str]  # "bios" always; "efi" where libvirt finds a firmware descriptor
    machine: str  # the version that the alias q35 stands for
    machines: dict[str, int] = field(default_factory=dict)  # versions of q35, and the vCPUs of each (0: not reported)

    def vcpus_of(self, machine: str) -> int:
        """Return the most vCPUs of a guest with ``machine``: an old version may allow fewer than the newest one."""
        return min(self.max_vcpus, self.machines.get(machine) or self.max_vcpus)


@dataclass
class ObservedDomain:
    """A domain that libvirt knows. ``live_xml`` is None if it does not run."""

    name: str
    uuid: str
    inactive_xml: str
    live_xml: str | None = None
    autostart: bool = False
    state: str = "shutoff"  # libvirt's: running, paused, shutdown, shutoff, crashed, pmsuspended, blocked

    @property
    def running(self) -> bool:
        """Return True if there is a QEMU process."""
        return self.live_xml is not None


@dataclass
class Hypervisor:
    """libvirt's state. ``hugetlbfs_mib``: page sizes of the mounted hugetlbfs; ``networks``: which are active.

    ``lent``: what each network lends to its domains. ``pools``: the paths of the devices of each storage pool.
    ``real_paths``: where links among the paths of disks and pools lead. ``nx_huge_pages``: whether KVM splits huge
    pages of code.
    """

    accelerators: dict[str, Accelerator] = field(default_factory=dict)
    libvirt_version: tuple[int, int, int] = (0, 0, 0)
    qemu_version: tuple[int, int, int] = (0, 0, 0)
    hugetlbfs_mib: list[int] = field(default_factory=list)
    networks: dict[str, bool] = field(default_factory=dict)
    lent: dict[str, libvirt_devices.Lent] = field(default_factory=dict)
    pools: dict[str, list[str]] = field(default_factory=dict)
    real_paths: dict[str, str] = field(default_factory=dict)
    nx_huge_pages: bool = False
    missing_paths: list[str] = field(default_factory=list)
    domains: dict[str, ObservedDomain] = field(default_factory=dict)
    files: dict[str, ImageFile] = field(default_factory=dict)  # by path; see disk_use.paths


@dataclass
class Holdings:
    """The host resources of a domain: PCI addresses, CPUs that are pinned one by one, memory by node.

    ``interfaces`` are the kernel's names of the host's network interfaces that it uses as a whole, ``disks`` are paths.
    ``memory_mib`` is by host node. ``page_mib`` 0 is ordinary memory; None means that the memory counts for every page
    size. ``live_devices`` are only in its running QEMU, not in its definition: hot-plugged, or defined away since.
    """

    devices: list[str] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    memory_mib: dict[int, int] = field(default_factory=dict)
    page_mib: int | None = 0
    interfaces: list[str] = field(default_factory=list)
    disks: list[str] = field(default_factory=list)
    live_devices: list[str] = field(default_factory=list)


def unpinned_guests(domains: dict[str, ObservedDomain], cpus: set[int]) -> dict[str, list[int]]:
    """Return the ``cpus`` that vCPUs of running domains may use without being pinned to one of them, by domain.

    A vCPU without vcpupin has the CPUs of the element vcpu, or all (https://libvirt.org/formatdomain.html).
    """
    cpus_of_domain = {}
    for name, observed in sorted(domains.items()):
        if observed.live_xml is None:
            continue
        root = ET.fromstring(observed.live_xml)
        vcpu = root.find("vcpu")
        number = int((root.findtext("vcpu") or "1").strip() or 1)
        ranges = [pin.get("cpuset", "") for pin in root.iterfind("cputune/vcpupin")]
        if len(ranges) < number:
            ranges.append(vcpu.get("cpuset", "") if vcpu is not None else "")
        allowed = [set(parse_ranges(text)) for text in ranges]
        shared = {
            cpu for guest_cpus in allowed if len(guest_cpus) != 1 for cpu in (guest_cpus & cpus if guest_cpus else cpus)
        }
        if shared:
            cpus_of_domain[name] = sorted(shared)
    return cpus_of_domain


def holdings(xml: str) -> Holdings:
    """Read what the domain of this libvirt XML holds. Memory that is not bound to one node is not counted."""
    root = ET.fromstring(xml)
    used = Holdings(
        devices=libvirt_devices.devices(root),
        interfaces=libvirt_devices.interfaces(root),
        disks=libvirt_devices.disks(root),
    )
    for pin in root.iterfind("cputune/vcpupin"):
        cpus = parse_ranges(pin.get("cpuset", ""))
        # A vCPU that is pinned to several CPUs is limited to them, and does not hold all of them.
        if len(cpus) == 1:
            used.cpus.append(cpus[0])
    page = root.find("memoryBacking/hugepages/page")
    if page is not None:
        used.page_mib = int(page.get("size", "0")) * BYTES_OF_UNIT[page.get("unit", "KiB")] // MIB
    nodes = {node.get("cellid"): parse_ranges(node.get("nodeset", "")) for node in root.iterfind("numatune/memnode")}
    for cell in root.iterfind("cpu/numa/cell"):
        bound = nodes.get(cell.get("id"), [])
        if len(bound) == 1:
            memory_mib = int(cell.get("memory", "0")) * BYTES_OF_UNIT[cell.get("unit", "KiB")] // MIB
            used.memory_mib[bound[0]] = used.memory_mib.get(bound[0], 0) + memory_mib
    return used
