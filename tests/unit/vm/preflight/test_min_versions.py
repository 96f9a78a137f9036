# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path
from typing import Any

import gpudirect_servers
import pytest
from machines import plan

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.min_versions import ELEMENTS, dotted

DOCUMENTATION = Path(__file__).parents[4] / "docs/reference/gpu-vm.md"
BITS = "physical_address_bits (maxphysaddr)"
EFI = "firmware efi without secure boot (os/firmware/feature)"
EMULATION = "accelerator qemu (cpu mode maximum)"
KVM = "accelerator kvm (cpu mode host-passthrough, migratable)"
ALWAYS = "a PCI Express guest (cpu topology with dies)"
IOMMU = "guest_iommu (aw_bits, device IOTLB)"
NODES = "several NUMA nodes (cell distances)"
MIRROR = "mirror_topology (switch ports without hot plug)"
THREADS = "memory_threads (allocation)"
IO_URING = "disks[].io (io_uring)"
CLIQUES = "gpudirect_cliques (qemu:override)"


def used(planned: DomainPlan) -> set[str]:
    return {element.name for element in ELEMENTS if element.used(planned)}


def disks(*io: str) -> list[dict[str, Any]]:
    return [{"path": f"/images/{number}.qcow2", "io": each} for number, each in enumerate(io)]


@pytest.mark.parametrize(
    ("changes", "more", "fewer"),
    [
        ({}, set(), set()),
        ({"physical_address_bits": "off"}, set(), {BITS}),
        ({"physical_address_bits": "40"}, set(), set()),
        ({"firmware": "bios"}, set(), {EFI}),
        # QEMU's emulation leaves the address bits at QEMU's default.
        ({"accelerator": "qemu"}, {EMULATION}, {KVM, BITS}),
        ({"guest_iommu": True}, {IOMMU}, set()),
        ({"interrupt_remapping": True}, set(), set()),
        ({"gpus": {"addresses": ["13:00.0"]}, "nics": {}, "vcpus": 1, "memory_mib": 1024}, set(), {NODES}),
        ({"mirror_topology": False}, set(), {MIRROR}),
        ({"memory_threads": 1}, {THREADS}, set()),
        ({"disks": []}, set(), set()),
        ({"disks": disks("threads", "auto")}, set(), set()),
        ({"disks": disks("threads", "io_uring")}, {IO_URING}, set()),
    ],
)
def test_a_setting_changes_the_elements_that_a_plan_uses(changes, more, fewer):
    assert used(plan(**changes)) == ({BITS, EFI, KVM, ALWAYS, NODES, MIRROR} | more) - fewer


def test_only_a_plan_with_cliques_uses_their_element():
    host = gpudirect_servers.pcie_cards()
    for function in host.functions:
        if function.kind == "gpu":
            function.bars = [Bar(0, 1 << 36, "memory", 64, True)]

    def of(count: int, **more: Any) -> set[str]:
        return used(plan(host, gpus={"count": count}, nics={}, vcpus=2, host_cores_per_socket=0, **more))

    assert of(4) - of(4, gpudirect_cliques=False) == {CLIQUES}
    assert CLIQUES not in of(4, gpudirect_cliques=False) | of(1)


def test_elements_have_the_versions_of_the_documentation():
    table = DOCUMENTATION.read_text(encoding="utf-8").partition("| setting | element | libvirt | QEMU |\n")[2]
    rows = table.partition("\n\n")[0].splitlines()[1:]
    assert [tuple(cell.strip() for cell in row.split("|")[3:5]) for row in rows] == [
        tuple("" if version is None else dotted(version) for version in (element.libvirt, element.qemu))
        for element in ELEMENTS
    ]
    assert [element.name for element in ELEMENTS] == [
        BITS, EFI, EMULATION, KVM, ALWAYS, IOMMU, NODES, MIRROR, THREADS, IO_URING, CLIQUES,
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "text"), [((8, 7, 0), "8.7.0"), ((10, 0, 12), "10.0.12"), ((0, 0, 0), "0.0.0")])
def test_a_version_is_written_with_dots(version, text):
    assert dotted(version) == text
