# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory of nodes and of the host, to the MiB and the page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from machines import GIB, MIB, hypervisor

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, HugePages, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import memory
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def host(*nodes_mib: int, free_bytes: int | None = None, pages: HugePages | None = None) -> Host:
    """Return a host whose nodes have the ids 1, 0, ... so that their order differs from that of their ids."""
    made = [
        NumaNode(len(nodes_mib) - 1 - at, [at], [], mib * MIB, free_bytes, [pages] if pages else [])
        for at, mib in enumerate(nodes_mib)
    ]
    return Host(made, [], [])


def plan(name: str, *cells: tuple[int, int], devices: int = 0, **spec: Any) -> Any:
    """Return a plan with cells of (node, MiB) each."""
    (made,) = parse_specs(
        [{"name": name, "memory_mib": sum(mib for _node, mib in cells), "huge_page_mib": 1024, **spec}]
    )
    return SimpleNamespace(
        name=name,
        spec=made,
        chosen=SimpleNamespace(all=lambda: [None] * devices),
        processors=SimpleNamespace(cells=[Cell(at, node, mib, [], [], {}) for at, (node, mib) in enumerate(cells)]),
    )


LOOSE = {"strict_memory": False}
KILLS = "the kernel kills QEMU when it uses memory that does not exist"


def test_memory_that_is_bound_to_a_node_must_be_there():
    assert list(memory.of_host([plan("a", (0, 1024), (1, 1024))], host(1024, 1024))) == []
    assert list(memory.of_host([plan("a", (0, 1025), (1, 1024))], host(2048, 1024))) == [
        Finding(
            "a",
            "strict_memory binds 1025 MiB to NUMA node 0, which has 1024 MiB",
            KILLS,
            "give it less memory, or turn strict_memory off",
            REFUSE,
        )
    ]
    two = [plan("b", (0, 1024)), plan("a", (0, 1), (1, 1))]
    assert list(memory.of_host(two, host(0, 1024))) == [
        Finding(
            "",
            "strict_memory binds 1025 MiB (a 1, b 1024) to NUMA node 0, which has 1024 MiB",
            KILLS,
            "give them less memory",
            REFUSE,
        ),
        Finding(
            "a",
            "strict_memory binds 1 MiB to NUMA node 1, which has 0 MiB",
            KILLS,
            "give it less memory, or turn strict_memory off",
            REFUSE,
        ),
    ]


@pytest.mark.parametrize(
    ("spec", "devices", "counts"),
    [
        ({}, 0, True),
        ({"lock_memory": False}, 0, True),
        ({"huge_page_mib": 0}, 0, True),
        ({"lock_memory": False, "huge_page_mib": 0}, 0, False),
        ({"lock_memory": False, "huge_page_mib": 0}, 1, True),
    ],
)
def test_memory_that_is_never_swapped_must_be_on_the_host(spec, devices, counts):
    made = plan("a", (0, 2049), devices=devices, **LOOSE, **spec)
    assert list(memory.of_host([made], host(1024, 1025))) == []
    assert list(memory.of_host([made], host(1024, 1024))) == (
        [
            Finding(
                "a",
                "the virtual machines need 2049 MiB that is never swapped, but this host has 2048 MiB",
                "QEMU does not start, or the kernel kills it",
                "give them less memory",
                REFUSE,
            )
        ]
        if counts
        else []
    )


def test_the_sum_of_the_host_names_all_machines_unless_a_node_is_named():
    made = [plan("b", (0, 1024), **LOOSE), plan("a", (0, 1025), **LOOSE)]
    (found,) = memory.of_host(made, host(2048))
    assert (found.domain, found.what) == (
        "",
        "the virtual machines need 2049 MiB (a 1025, b 1024) that is never swapped, but this host has 2048 MiB",
    )
    narrow = [plan("a", (0, 4096))]
    assert len(list(memory.of_host(narrow, host(2048)))) == 1


@pytest.mark.parametrize(("size", "mounted", "missing"), [(2, [2], False), (2, [1024], True), (0, [], False)])
def test_pages_need_a_mount_of_their_size(size, mounted, missing):
    (spec,) = parse_specs([{"name": "a", "huge_page_mib": size}])
    assert list(memory.hugetlbfs(spec, hypervisor(hugetlbfs_mib=mounted))) == (
        [
            Finding(
                "a",
                "no hugetlbfs is mounted for pages of 2 MiB",
                "QEMU takes its memory from there",
                "mount one (mount -t hugetlbfs -o pagesize=2M none /dev/hugepages-2M) and restart libvirt",
                REFUSE,
            )
        ]
        if missing
        else []
    )


def free(*plans: Any, pages: HugePages | None = None, free_bytes: int | None = None) -> list[Finding]:
    return list(memory.free(list(plans), host(65536, 65536, pages=pages, free_bytes=free_bytes)))


def lacking(name: str, what: str, why: str, remedy: str) -> Finding:
    return Finding(name, what, why, remedy, REFUSE)


TAKES = "QEMU takes them all at its start"
RESERVE = "reserve more (role gpu_host, module hugepages) or give it less memory"


def test_machines_that_start_need_free_pages_in_their_order():
    two = HugePages(GIB, 9, 2)
    assert free(plan("a", (0, 1024), (1, 2048)), plan("b", (0, 1024)), pages=two) == []
    assert free(plan("a", (0, 1024)), plan("b", (0, 2048)), pages=two) == [
        lacking(
            "b",
            "needs 2 huge pages of 1024 MiB on NUMA node 0, which has 2 free, 1024 MiB of which go to virtual machines "
            "before it",
            TAKES,
            RESERVE,
        )
    ]
    assert free(plan("a", (1, 3072)), pages=two) == [
        lacking("a", "needs 3 huge pages of 1024 MiB on NUMA node 1, which has 2 free", TAKES, RESERVE)
    ]
    # Pages of another size are of no use, and those of two sizes are not added.
    assert free(plan("a", (0, 4), huge_page_mib=2), pages=two) == [
        lacking("a", "needs 2 huge pages of 2 MiB on NUMA node 0, which has 0 free", TAKES, RESERVE)
    ]
    assert free(plan("a", (0, 2048)), plan("b", (0, 2048), huge_page_mib=0), pages=two) == []
    # Pages are on their node even if the memory is not bound strictly.
    assert len(free(plan("a", (0, 3072), **LOOSE), pages=two)) == 1


def test_machines_that_start_need_free_ordinary_memory_if_it_is_bound():
    ordinary = {"huge_page_mib": 0}
    first, second = plan("a", (0, 1024), **ordinary), plan("b", (0, 1024), **ordinary)
    assert free(first, second) == []
    assert free(first, second, free_bytes=2048 * MIB) == []
    assert free(first, second, free_bytes=2048 * MIB - 1) == [
        lacking(
            "b",
            "needs 1024 MiB on NUMA node 0, which has 2047 MiB free, 1024 MiB of which go to virtual machines "
            "before it",
            "strict memory comes only from that node",
            "give it less memory, or turn strict_memory off",
        )
    ]
    assert free(plan("a", (0, 4096), **ordinary, **LOOSE), free_bytes=0) == []
    assert len(free(first, free_bytes=0)) == 1
