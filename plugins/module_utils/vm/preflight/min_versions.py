# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The oldest libvirt and QEMU for each element of the XML. Pure.

libvirt: the "since" notes of https://libvirt.org/formatdomain.html, and https://libvirt.org/news.html. QEMU: the
comment at the row. An element of every plan (NUMA memory nodes, huge pages by cell, I/O threads) has no row if another
row of every plan needs a newer version, because it would never be reported. The same applies to pcie-expander-bus,
which is older than the element of the row with hot plug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan

Version = tuple[int, int, int]


@dataclass
class VersionedElement:
    """``name`` is the setting of the request, with the XML in brackets. A version None: any version is enough."""

    name: str
    libvirt: Version | None
    qemu: Version | None
    used: Callable[[DomainPlan], bool]


ELEMENTS = (
    # QEMU: "available since QEMU 2.7.0", libvirt commit 1c1a7cdd4096.
    VersionedElement(
        "physical_address_bits (maxphysaddr)", (8, 7, 0), (2, 7, 0), lambda plan: plan.address_bits_mode != "off"
    ),
    VersionedElement(
        "firmware efi without secure boot (os/firmware/feature)",
        (7, 2, 0),
        None,
        lambda plan: plan.spec.firmware == "efi",
    ),
    VersionedElement("accelerator qemu (cpu mode maximum)", (7, 1, 0), None, lambda plan: plan.accelerator == "qemu"),
    VersionedElement(
        "accelerator kvm (cpu mode host-passthrough, migratable)",
        (6, 5, 0),
        None,
        lambda plan: plan.accelerator == "kvm",
    ),
    # QEMU qapi/machine.json, CpuInstanceProperties, die-id: "since 4.1".
    VersionedElement("a PCI Express guest (cpu topology with dies)", None, (4, 1, 0), lambda plan: True),
    # QEMU: the first version for which libvirt's tests list device-iotlb (qemucapabilitiesdata/caps_2.9.0).
    VersionedElement("guest_iommu (aw_bits, device IOTLB)", (6, 5, 0), (2, 9, 0), lambda plan: plan.spec.guest_iommu),
    # QEMU qapi/machine.json, NumaDistOptions: "Since: 2.10".
    VersionedElement(
        "several NUMA nodes (cell distances)", (3, 10, 0), (2, 10, 0), lambda plan: len(plan.processors.cells) > 1
    ),
    # libvirt: "hotplug" of a PCI controller's target. QEMU: property "hotplug" of PCI Express ports, since 5.0.
    VersionedElement(
        "mirror_topology (switch ports without hot plug)", (6, 3, 0), (5, 0, 0), lambda plan: bool(plan.root.expanders)
    ),
    # libvirt: "threads" of memoryBacking/allocation. QEMU qapi/qom.json, prealloc-threads: "since 5.0".
    VersionedElement("memory_threads (allocation)", (8, 2, 0), (5, 0, 0), lambda plan: bool(plan.spec.memory_threads)),
    # QEMU qapi/block-core.json, BlockdevAioOptions: io_uring since 5.0; QEMU has it only if built with liburing.
    VersionedElement(
        "disks[].io (io_uring)", None, (5, 0, 0), lambda plan: any(disk.io == "io_uring" for disk in plan.spec.disks)
    ),
    # libvirt: qemu:override of https://libvirt.org/drvqemu.html. QEMU: ChangeLog/2.11.
    VersionedElement(
        "gpudirect_cliques (qemu:override)", (8, 2, 0), (2, 11, 0), lambda plan: bool(plan.cliques.cliques)
    ),
)


def dotted(version: Version) -> str:
    """Return the version as text: (8, 7, 0) is "8.7.0"."""
    return ".".join(map(str, version))
