# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The notes of a plan, its accelerator, machine and address bits, and the request for a whole host to the MiB."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from machines import GIB, MIB, hypervisor, lab, observed, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology import whole_host as share
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import HugePages, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Share
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Accelerator
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import planner
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

GPUS = ["0000:13:00.0", "0000:83:00.0"]


def notes(
    vcpus: int | None = None,
    free: int = 4,
    limit: int = 255,
    has: int = 8,
    cells: int = 2,
    threads: int = 1,
    lacking: tuple[int, ...] = (),
    gpus: tuple[str, ...] = (),
    **spec: Any,
) -> list[str]:
    """Return the notes on the share of a plan with ``has`` vCPUs in its cells."""
    (made,) = parse_specs([{"name": "a", "vcpus": vcpus, **spec}])
    processors = SimpleNamespace(
        share=Share(16, has, 0, 0, free, 0, limit, list(lacking), 0),
        cells=[None] * cells,
        sockets=cells,
        threads=threads,
    )
    host = lab()
    chosen = SimpleNamespace(gpus=[host.function(address) for address in gpus])
    return planner.share_notes(made, host, chosen, processors)


def unused(why: str, free: int = 4) -> list[str]:
    return [f"{free} hardware threads of its nodes are unused: {why}"]


FEWEST = "every cell has as many vCPUs as the one with the fewest CPUs left, 4"
REMAP = "without interrupt remapping a guest can have at most 255 vCPUs; interrupt_remapping: true lifts that"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, unused(FEWEST)),
        ({"free": 1}, unused(FEWEST, 1)),
        ({"free": 0}, []),
        ({"vcpus": 8}, []),
        # A cell can have no further core below the limit.
        ({"limit": 9}, unused("a guest can have at most 9 vCPUs here")),
        ({"limit": 10}, unused(FEWEST)),
        ({"limit": 11, "threads": 2}, unused("a guest can have at most 11 vCPUs here")),
        ({"limit": 12, "threads": 2}, unused(FEWEST)),
        ({"has": 254}, unused(REMAP)),
        ({"has": 254, "guest_iommu": True}, unused("a guest can have at most 255 vCPUs here")),
        ({"has": 254, "limit": 254}, unused("a guest can have at most 254 vCPUs here")),
    ],
)
def test_unused_threads_have_their_reason(more, message):
    assert notes(**more) == message


def test_nodes_out_of_reach_are_told_only_with_all_gpus():
    told = (
        "it has all GPUs of the host but no cell on NUMA node 1: 4 hardware threads and 3020 MiB are out of its reach; "
        "numa_nodes: [all] adds them"
    )
    assert notes(vcpus=8, lacking=(1,), gpus=tuple(GPUS)) == [told]
    assert notes(vcpus=8, lacking=(1,), gpus=tuple(GPUS[:1])) == []
    assert notes(vcpus=8, gpus=tuple(GPUS)) == []
    (both,) = notes(vcpus=8, lacking=(0, 1), gpus=tuple(GPUS))
    assert "no cell on NUMA node 0, 1: 8 hardware threads and 5933 MiB are" in both


def test_interrupt_remapping_alone_needs_a_kernel_argument():
    told = (
        "interrupt_remapping gives the guest an IOMMU: boot it with intel_iommu=off, so that it translates no DMA; "
        "interrupts are remapped all the same"
    )
    assert notes(vcpus=8, interrupt_remapping=True) == [told]
    assert notes(vcpus=8, interrupt_remapping=True, guest_iommu=True) == notes(vcpus=8, guest_iommu=True) == []


def test_memory_of_a_node_without_cpus_is_named_in_a_plan_with_all_gpus():
    host = lab()
    host.numa_nodes.append(NumaNode(2, [], [], 512 << 30, distances={"0": 20, "1": 20, "2": 10}))
    assert len([note for note in plan(host).notes if "524288 MiB of NUMA node 2" in note]) == 1
    assert [note for note in plan(host, gpus={"count": 1}, nics={}, vcpus=2).notes if "NUMA node 2" in note] == []


def test_a_plan_without_anything_odd_has_no_notes():
    assert [note for note in plan().notes if "ats" in note] == []


def test_a_plan_has_notes_on_architecture_and_bars():
    host = lab()
    host.cpu.architecture = host.cpu.vendor = None
    told = (
        "the topology does not contain the processor's architecture; the plan is for x86_64, and gpu_domain refuses it"
    )
    assert told in plan(host).notes
    assert told not in plan().notes
    host.function(GPUS[0]).bars = host.function(GPUS[1]).bars = []
    assert (
        f"the topology does not contain the BARs of {', '.join(GPUS)}: the window for large BARs has no room for them; "
        "read it on the host with host_topology_info, or set mmio_window_mib"
    ) in plan(host).notes


def accelerator(wanted: str, *available: str) -> str:
    accelerators = {name: hypervisor().accelerators["kvm"] for name in available}
    return plan(None, hypervisor(accelerators=accelerators) if available else None, accelerator=wanted).accelerator


def test_kvm_is_used_where_it_is_available():
    assert [accelerator(wanted) for wanted in ("auto", "kvm", "qemu")] == ["kvm", "kvm", "qemu"]
    assert [accelerator("auto", *names) for names in (("kvm", "qemu"), ("qemu",), ("kvm",))] == ["kvm", "qemu", "kvm"]
    assert accelerator("qemu", "kvm", "qemu") == "qemu"
    with raises(DomainError, "gpu-vm", "kvm", "qemu", "BIOS", "/dev/kvm"):
        accelerator("kvm", "qemu")
    with raises(DomainError, "libvirt", "none", "kvm"):
        plan(None, hypervisor(accelerators={}))


def test_address_bits_have_a_mode_and_a_number():
    host = lab()
    for wanted, name, host_bits, found in (
        ("auto", "kvm", 46, ("passthrough", 46)),
        ("auto", "kvm", None, ("passthrough", None)),
        ("auto", "qemu", 46, ("off", 40)),
        ("passthrough", "kvm", 46, ("passthrough", 46)),
        ("off", "kvm", 46, ("off", 40)),
        ("46", "kvm", 46, ("emulate", 46)),
        ("39", "qemu", 46, ("emulate", 39)),
        ("52", "kvm", None, ("emulate", 52)),
    ):
        host.cpu.physical_address_bits = host_bits
        made = plan(host, accelerator=name, physical_address_bits=wanted)
        assert (made.address_bits_mode, made.address_bits) == found
    host.cpu.physical_address_bits = 46
    for name in ("kvm", "qemu"):
        with raises(DomainError, "gpu-vm", "47", "46"):
            plan(host, physical_address_bits="47", accelerator=name)
    with raises(DomainError, "gpu-vm", "passthrough", "KVM"):
        plan(host, accelerator="qemu", physical_address_bits="passthrough")


def test_a_machine_version_is_pinned_kept_or_the_newest():
    newer = hypervisor(accelerators={"kvm": Accelerator(288, ["efi"], "pc-q35-9.0", {"pc-q35-7.2": 255})})
    nameless = hypervisor(accelerators={"kvm": Accelerator(288, ["efi"], "", {})})
    assert (plan().machine, plan(None, newer).machine, plan(None, nameless).machine) == ("q35", "pc-q35-9.0", "q35")
    assert plan(None, newer, machine="pc-q35-8.0").machine == "pc-q35-8.0"
    newer.domains["gpu-vm"] = observed(plan(machine="pc-q35-7.2"))
    kept = plan(None, newer)
    assert kept.machine == "pc-q35-7.2"
    assert [note for note in kept.notes if "machine type" in note] == [
        "the virtual machine keeps machine type pc-q35-7.2; a new one would get pc-q35-9.0 on this host; machine: "
        "pc-q35-9.0 changes it, and the guest's hardware with it, at the next start"
    ]


def test_the_limit_of_vcpus_is_that_of_the_machine_or_288():
    host = lab()
    for at, node in enumerate(host.numa_nodes):
        node.cpus = list(range(at * 256, at * 256 + 256))
        node.siblings = [[cpu] for cpu in node.cpus]
    many = {"vcpus": None, "guest_iommu": True}
    assert plan(host, **many).processors.share.vcpu_limit == 288
    old = hypervisor(accelerators={"kvm": Accelerator(4096, ["efi"], "pc-q35-9.0", {"pc-q35-9.0": 100})})
    assert plan(host, old, **many).processors.share.vcpu_limit == 100


def server(*nodes: tuple[int, list[HugePages]]) -> Any:
    host = lab()
    for node, (memory_mib, pages) in zip(host.numa_nodes, nodes):
        node.memory_bytes, node.huge_pages = memory_mib * MIB, pages
    return host


def large(total: int) -> list[HugePages]:
    return [HugePages(GIB, total, total)]


def small(total: int) -> list[HugePages]:
    return [HugePages(2 * MIB, total, total)]


@pytest.mark.parametrize(
    ("nodes", "size", "memory_mib"),
    [
        # Pages count if they are the same on each node, from half of the larger node on.
        (((8192, large(4)), (8192, large(4))), 1024, 8192),
        (((8192, large(3)), (8192, large(4))), 1024, 14 * 1024),
        (((8192, large(4)), (8193, large(4))), 1024, 14 * 1024),
        (((8192, large(6)), (8192, large(5))), 1024, 14 * 1024),
        (((8192, small(2048)), (8192, small(2048))), 2, 8192),
        (((8192, small(2047)), (8192, small(2048))), 1024, 14 * 1024),
        # Otherwise, seven eighths of the smaller node, in pages of 1 GiB if it has one.
        (((8192, []), (4096, [])), 1024, 6144),
        (((1171, []), (4096, [])), 1024, 2048),
        (((1170, []), (4096, [])), 2, 2 * 1022),
    ],
)
def test_the_memory_of_a_whole_host_is_that_of_its_pages_or_most_of_it(nodes, size, memory_mib):
    memory = share.memory(server(*nodes))
    assert (memory.page_mib, memory.total_mib) == (size, memory_mib)


def test_a_node_of_less_than_a_page_gives_none():
    memory = share.memory(server((1, []), (1, [])))
    assert (memory.page_mib, memory.total_mib) == (2, 0)
