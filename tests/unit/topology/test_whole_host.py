# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The part of a host that a guest with the whole host gets, and that it stays the same when it is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology import whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Function,
    Host,
    HugePages,
    NumaNode,
    Sriov,
)

GIB = 1 << 30


def node(number: int, memory_gib: float, pages: int = 0) -> NumaNode:
    reserved = [HugePages(GIB, pages, pages)]
    return NumaNode(number, [number], [[number]], int(memory_gib * GIB), huge_pages=reserved)


def host(*nodes: NumaNode, functions: tuple[Function, ...] = ()) -> Host:
    return Host(list(nodes) or [node(0, 16)], [], list(functions))


def nic(address: str, **more: object) -> Function:
    settings = {"kind": "nic", "driver": "mlx5_core", "sriov": Sriov(8, 0), **more}
    return Function(address, "pci0000:00", None, 0x020000, 0x15B3, 0x101D, port_type=None, **settings)


@pytest.mark.parametrize("memory_gib", [(768, 768), (768.9, 768.1), (768, 1024)])
def test_its_pages_are_the_same_before_and_after_they_were_reserved(memory_gib):
    first = whole_host.memory(host(*(node(i, size) for i, size in enumerate(memory_gib))))
    assert first.pages() == [{"node": i, "size_mib": 1024, "count": 672} for i in range(2)]
    # An update of the kernel counts less memory.
    later = host(*(node(i, size - 1.5, pages=672) for i, size in enumerate(memory_gib)))
    assert whole_host.memory(later) == first


def test_pages_that_a_node_did_not_get_stay_requested():
    assert whole_host.memory(host(node(0, 768, pages=671), node(1, 768, pages=672))).pages()[0]["count"] == 672


@pytest.mark.parametrize(
    ("memory_mib", "page_mib", "pages"),
    [(4096, 1024, (1024, 2)), (4097, 1024, (1024, 3)), (4096, 2, (2, 1024)), (4096, 0, None), (None, 2, (2, 3584))],
)
def test_memory_and_page_size_can_be_given(memory_mib, page_mib, pages):
    seen = whole_host.memory(host(node(0, 8), node(1, 8)), memory_mib, page_mib).pages()
    assert [(page["size_mib"], page["count"]) for page in seen] == ([pages] * 2 if pages else [])


def test_nodes_without_cpus_or_memory_have_no_part():
    assert whole_host.memory(host(NumaNode(0, [], [], 8 * GIB), node(1, 8), NumaNode(2, [2], [], 0))).nodes == (1,)
    with pytest.raises(TopologyError):
        whole_host.memory(host(NumaNode(0, [0], [], 0)))


def test_free_nics_are_divided_before_and_after_their_functions_exist():
    gpu = Function("0000:09:00.0", "pci0000:00", None, 0x030200, 0x10DE, 0x2330, "gpu", None, iommu_group=9)
    functions = (
        gpu,
        nic("0000:07:00.0"),
        nic("0000:01:00.0", sriov=Sriov(8, 1, ["0000:01:00.1"]), iommu_group=1),
        nic("0000:01:00.1", sriov=None, physical_function="0000:01:00.0", iommu_group=2),
        nic("0000:02:00.0", used_by_host=["carries the default route"]),
        nic("0000:03:00.0", sriov=None),
        nic("0000:04:00.0", sriov=Sriov(0, 0)),
        nic("0000:05:00.0", driver="vfio-pci"),
        nic("0000:06:00.0", driver=None),
        nic("0000:08:00.0", iommu_group=9),
    )
    server = host(functions=functions)
    assert [item.address for item in whole_host.nics_to_divide(server)] == ["0000:01:00.0", "0000:07:00.0"]
    # A guest with the GPU has its whole IOMMU group.
    assert [item.address for item in whole_host.nics_with_gpus(server)] == ["0000:08:00.0"]


@pytest.mark.parametrize(
    ("acs", "config_bytes", "whole"), [(None, 4096, True), (Acs(0x1D, 0), 4096, False), (None, 0, False)]
)
def test_a_group_is_known_before_the_iommu_is_on(acs, config_bytes, whole):
    def port(address: str, parent: str | None, kind: str) -> Function:
        more = {"acs": acs if kind == "switch_downstream" else None, "config_bytes": config_bytes}
        return Function(address, "pci0000:00", parent, 0x060400, 0x1000, 0xC030, "bridge", port_type=kind, **more)

    ports = (
        port("0000:00:01.0", None, "root_port"),
        port("0000:01:00.0", "0000:00:01.0", "switch_upstream"),
        port("0000:02:00.0", "0000:01:00.0", "switch_downstream"),
        port("0000:02:01.0", "0000:01:00.0", "switch_downstream"),
    )
    gpu = Function("0000:03:00.0", "pci0000:00", "0000:02:00.0", 0x030200, 0x10DE, 0x2330, "gpu", None)
    beside = replace(nic("0000:04:00.0"), parent="0000:02:01.0")
    server = host(functions=(*ports, gpu, beside))
    assert whole_host.nics_with_gpus(server) == ([beside] if whole else [])
    assert whole_host.nics_to_divide(server) == ([] if whole else [beside])
