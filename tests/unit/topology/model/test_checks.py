# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Topologies that no machine can have are refused by name; unusual but possible ones are not."""

from __future__ import annotations

import copy
from typing import Any, Callable

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved

PORT, UPSTREAM, DOWNSTREAM = "0000:10:00.0", "0000:11:00.0", "0000:12:00.0"
GPU, PF, VF = "0000:13:00.0", "0000:15:00.0", "0000:15:10.0"


@pytest.fixture
def data(recording) -> dict[str, Any]:
    return recording("emulated-gpu-server").to_dict()


def function(data: dict[str, Any], address: str) -> dict[str, Any]:
    return next(item for item in data["functions"] if item["address"] == address)


def change(place: str, /, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: function(data, place).update(values)


def node(number: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["numa_nodes"][number].update(values)


def drop(address: str) -> Callable[[dict[str, Any]], None]:
    def remove(data: dict[str, Any]) -> None:
        data["functions"] = [item for item in data["functions"] if item["address"] != address]

    return remove


def chain_of_bridges(count: int) -> list[dict[str, Any]]:
    """Return a chain of ``count`` bridges below the root bus of pci0000:10; their bus numbers are unknown."""
    places = [f"0000:{bus:02x}:{slot:02x}.7" for bus in (0x10, *range(0xF0, 0x100)) for slot in range(32)]
    places = ["0000:10:1f.7", *(place for place in reversed(places) if not place.startswith("0000:10"))][: count - 1]
    places.append("0000:f0:00.0")
    ids = {"class_code": 0x060400, "vendor_id": 0, "device_id": 0, "kind": "bridge", "port_type": None}
    return [
        {"address": place, "root_complex": "pci0000:10", "parent": above, **ids}
        for above, place in zip([None, *places], places)
    ]


BROKEN = {
    "an address twice": (
        lambda data: data["functions"].append(copy.deepcopy(function(data, GPU))),
        f"PCI function {GPU} is listed twice",
    ),
    "no address": (change(GPU, address="13:00.0"), "PCI function '13:00.0': not an address like 0000:3b:00.0"),
    "an address that is a number": (change(GPU, address=13), "].address is 13, expected str"),
    "a parent that is not there": (change(GPU, parent="0000:ff:00.0"), f"{GPU} is below 0000:ff:00.0, which is not"),
    "a bridge lost": (drop(UPSTREAM), f"{DOWNSTREAM} is below {UPSTREAM}, which is not listed"),
    "a parent that is no bridge": (change(GPU, parent=PF), f"{GPU} is below {PF}, which is not a bridge"),
    "a parent elsewhere": (change(GPU, parent="0000:82:00.0"), f"{GPU} is below 0000:82:00.0, which is under another"),
    "its own parent": (
        change(UPSTREAM, parent=UPSTREAM, secondary_bus=None),
        f"PCI function {UPSTREAM} is above itself: the tree has a loop",
    ),
    "a loop": (
        lambda data: [
            change(address, parent=parent, secondary_bus=None)(data)
            for address, parent in ((PORT, DOWNSTREAM), (UPSTREAM, PORT), (DOWNSTREAM, UPSTREAM))
        ],
        "the tree has a loop",
    ),
    "another bus": (
        change(DOWNSTREAM, secondary_bus=0x14, subordinate_bus=0x14),
        f"{GPU} is below {DOWNSTREAM}, whose",
    ),
    "a bus outside": (
        change("0000:12:01.0", secondary_bus=0x40, subordinate_bus=0x40),
        "bridge 0000:12:01.0 has the buses 40-40, but 0000:11:00.0 above it has 12-14",
    ),
    "a bus of the parent's": (change(UPSTREAM, secondary_bus=0x11), f"bridge {UPSTREAM} has the buses 11-14"),
    "a last bus before the first": (
        change(PORT, subordinate_bus=0x10),
        f"bridge {PORT} has the buses 11-10, which are not valid",
    ),
    "a bus that is none": (change(PORT, secondary_bus=300), "has the buses 12c-14, which are not valid"),
    "the root bus of another": (
        change(UPSTREAM, parent=None),
        f"{UPSTREAM} is not below a bridge, but the root bus of",
    ),
    "a kind that is none": (
        change(GPU, kind="tpu"),
        f"{GPU} is of kind 'tpu'; valid values: {', '.join(sorted(kinds.NAMES))}",
    ),
    "a port type that is none": (
        change(PORT, port_type="port"),
        f"{PORT} has port_type 'port'; valid values: endpoint",
    ),
    "no such root complex": (change(GPU, root_complex="pci0000:77"), "below root complex 'pci0000:77', which is not"),
    "a root complex lost": (
        lambda data: data["root_complexes"].pop(),
        "root complex 'pci0000:80', which is not listed",
    ),
    "a root complex twice": (
        lambda data: data["root_complexes"].append(dict(data["root_complexes"][0])),
        "root complex 'pci0000:00' is listed twice",
    ),
    "another PCI domain": (
        lambda data: data["root_complexes"][1].update(domain=1),
        "has another PCI domain than its root complex pci0000:10",
    ),
    "a node of -1": (change(GPU, numa_node=-1), f"{GPU}: numa_node is -1, but must be the number of a node, or null"),
    "a node that is text": (change(GPU, numa_node="0"), f"{GPU}).numa_node is '0', expected int"),
    "a group of text": (change(GPU, iommu_group="4"), f"{GPU}).iommu_group is '4', expected int"),
    "a vendor of text": (change(GPU, vendor_id="10de"), f"{GPU}).vendor_id is '10de', expected int"),
    "a BAR of nothing": (
        lambda data: function(data, GPU)["bars"][0].update(size_bytes=0),
        f"{GPU}: BAR 1 is not valid: 0 bytes",
    ),
    "a BAR of 3 GiB": (
        lambda data: function(data, GPU)["bars"][0].update(size_bytes=3 << 30),
        f"{GPU}: BAR 1 has 3221225472 bytes, which is not a power of two",
    ),
    "a socket below 0": (lambda data: data["numa_nodes"][0].update(socket=-1), "NUMA node 0: its socket is -1"),
    "a BAR of text": (
        lambda data: function(data, GPU)["bars"][0].update(size_bytes="1"),
        f"{GPU}).bars[0].size_bytes is '1', expected int",
    ),
    "a VF's BAR": (lambda data: function(data, PF)["sriov"]["vf_bars"][0].update(width_bits=16), "16 bit"),
    "a VF lost": (drop(VF), f"{PF} has the virtual function {VF}, which is not listed"),
    "a VF without its function": (
        change(VF, physical_function="0000:16:00.0"),
        f"{VF} is a virtual function of 0000:16",
    ),
    "a CPU twice": (node(1, cpus=[0, 4]), "CPU 0 of NUMA node 1 is also on node 0"),
    "siblings elsewhere": (node(1, siblings=[[0, 1]]), "NUMA node 1: its siblings do not list each of its CPUs"),
    "siblings of text": (node(1, siblings=["ab"]), "numa_nodes[1].siblings[0] is 'ab', expected a list"),
    "CPUs that are text": (node(0, cpus="0-3"), "numa_nodes[0].cpus is '0-3', expected a list"),
    "a node twice": (node(1, id=0), "NUMA node 0 is listed twice"),
    "memory below zero": (node(0, memory_bytes=-1), "NUMA node 0: its memory is -1 bytes"),
    "distances of text": (node(0, distances={"0": "near"}), "numa_nodes[0].distances['0'] is 'near', expected int"),
    **{
        f"a distance of {distance}": (
            node(0, distances={"0": 10, "1": distance}),
            f"NUMA node 0: its distance to node 1 is {distance}, but ACPI's SLIT has 10 to 255",
        )
        for distance in (999, 256, 9, 5, 0, -1)
    },
    **{
        f"a distance of {distance} to itself": (
            node(0, distances={"0": distance}),
            f"NUMA node 0: its distance to itself is {distance}, but ACPI's SLIT has 10 there",
        )
        for distance in (20, 9, 0)
    },
    "distances to what is no node": (node(0, distances={"x": 10}), "NUMA node 0: it has a distance to 'x', which is"),
    "an interface of another class": (
        change(GPU, interfaces={"(": ["eth0"]}),
        f"{GPU} has interfaces of class '('; valid values: block, net, rdma",
    ),
    "more bridges than buses": (
        lambda data: data["functions"].extend(chain_of_bridges(257)),
        "PCI function 0000:f0:00.0 is below 256 bridges or more, but a PCI domain has 256 buses",
    ),
    "more address bits than there can be": (
        lambda data: data["cpu"].update(physical_address_bits=1 << 40),
        "the processor has 1099511627776 physical address bits",
    ),
    "no address bits": (
        lambda data: data["cpu"].update(physical_address_bits=0),
        "the processor has 0 physical address",
    ),
    "an id of more than 16 bits": (
        change(GPU, device_id=0x10000),
        f"{GPU}: device_id is 65536, which does not fit in 16 bits",
    ),
    "a class below 0": (change(GPU, class_code=-1), f"{GPU}: class_code is -1, which does not fit in 24 bits"),
    "a link of no lanes": (
        lambda data: function(data, GPU)["link"].update(max_width=-1),
        f"{GPU}: its link has -1 lanes",
    ),
    "pages of no size": (
        node(0, huge_pages=[{"size_bytes": 0, "total": 1, "free": 1}]),
        "NUMA node 0: 1 huge pages of 0 bytes, 1 free",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_impossible_topology_is_refused_with_the_reason(data, name):
    spoil, words = BROKEN[name]
    spoil(data)
    with pytest.raises(TopologyError) as caught:
        read_saved(data)
    assert words in str(caught.value)


ODD = {
    "no node": change(GPU, numa_node=None),
    "no BARs": change(GPU, bars=[]),
    "no config space": change(GPU, config_bytes=0, port_type=None, link=None, max_read_request_bytes=None),
    "a bridge without config space": change(UPSTREAM, config_bytes=0, port_type=None, secondary_bus=None),
    "a bridge that was given no bus": change("0000:12:01.0", secondary_bus=0, subordinate_bus=0),
    "a node without memory": node(1, memory_bytes=0),
    "a node without CPUs": node(1, cpus=[], siblings=[]),
    "a node of memory alone": lambda data: data["numa_nodes"].append(
        {
            "id": 252,
            "cpus": [],
            "siblings": [],
            "memory_bytes": 1 << 34,
            "memory_free_bytes": None,
            "huge_pages": [],
            "distances": {},
            "socket": None,
        }
    ),
    "siblings that are not known": node(0, siblings=[]),
    "a group that is not known": change(GPU, iommu_group=None),
}


@pytest.mark.parametrize("name", ODD)
def test_an_unusual_but_possible_topology_is_accepted(data, name):
    if name == "a bridge that was given no bus":
        drop("0000:14:00.0")(data)
    ODD[name](data)
    assert read_saved(data).to_dict() == data


@pytest.mark.parametrize("place", ["numa_nodes", "root_complexes", "functions"])
@pytest.mark.parametrize("value", [None, 1, "text", {"a": 1}, [None], [1], ["text"], [[]], [{}]])
def test_parts_of_a_wrong_type_are_refused(data, place, value):
    data[place] = value
    with pytest.raises(TopologyError, match=r"not a complete topology|contradicts itself"):
        read_saved(data)
