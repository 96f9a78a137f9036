# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The values at both sides of every limit of a topology, and the whole messages."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Cpu,
    Function,
    Host,
    HugePages,
    Link,
    NumaNode,
    RootComplex,
    Sriov,
    TopologyError,
)

ROOT, UP, GPU, VF = "0000:10:01.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0"


def function(address, parent, kind="other", **more):
    return Function(address, "pci0000:10", parent, 0x030200, 0x10DE, 0x2330, kind, None, **more)


def host():
    """Return a root port with the buses 11 to 14, a switch below it with the buses 12 to 14, and a GPU."""
    return Host(
        [NumaNode(0, [0, 1], [[0, 1]], 1, distances={"0": 10, "1": 20}), NumaNode(1, [2], [[2]], 1)],
        [RootComplex("pci0000:10", 0, 0x10, 0), RootComplex("pci0000:20", 0, 0x20, None)],
        [
            function(ROOT, None, "bridge", secondary_bus=0x11, subordinate_bus=0x14),
            function(UP, ROOT, "bridge", secondary_bus=0x12, subordinate_bus=0x14),
            function(GPU, UP, "gpu", bars=[Bar(0, 1, "memory", 32, False)], link=Link(1.0, 1, 1.0, 1)),
            function(VF, UP, "gpu", physical_function=GPU),
        ],
    )


def refusal(seen):
    """Return the message for a host without its beginning and its end, which are always the same; None: it passes."""
    try:
        check(seen)
    except TopologyError as error:
        text = str(error)
    else:
        return None
    begin, end = "the topology contradicts itself: ", "; read it again with host_topology_info"
    assert (text[: len(begin)], text[-len(end) :]) == (begin, end)
    return text[len(begin) : -len(end)]


def changed(place, **values):
    """Return the host with other values at ``place``, an address, or a path like "numa_nodes.0"."""
    seen = host()
    if place.startswith("0000:"):
        part = seen.function(place)
    elif place == "cpu":
        part = seen.cpu = Cpu()
    else:
        name, _dot, number = place.partition(".")
        part = getattr(seen, name)[int(number)]
    for name, value in values.items():
        setattr(part, name, value)
    return seen


def test_the_host_of_these_tests_passes():
    assert refusal(host()) is None


@pytest.mark.parametrize("bits", [None, 32, 52, 64])
def test_a_possible_number_of_address_bits_passes(bits):
    assert refusal(changed("cpu", physical_address_bits=bits)) is None


@pytest.mark.parametrize("bits", [31, 65])
def test_an_impossible_number_of_address_bits_is_refused(bits):
    assert refusal(changed("cpu", physical_address_bits=bits)) == f"the processor has {bits} physical address bits"


NODE = "numa_node is -1, but must be the number of a node, or null if it is not known"


@pytest.mark.parametrize(
    ("place", "values", "words"),
    [
        # NUMA nodes
        ("numa_nodes.1", {"id": 0}, "NUMA node 0 is listed twice or has a number below 0"),
        ("numa_nodes.1", {"id": -1}, "NUMA node -1 is listed twice or has a number below 0"),
        ("numa_nodes.1", {"id": 7}, None),
        (
            "numa_nodes.1",
            {"cpus": [1], "siblings": []},
            "CPU 1 of NUMA node 1 is also on node 0, or has a number below 0",
        ),
        (
            "numa_nodes.0",
            {"cpus": [-1], "siblings": []},
            "CPU -1 of NUMA node 0 is also on node None, or has a number below 0",
        ),
        ("numa_nodes.0", {"cpus": [1, 0], "siblings": [[1], [0]]}, None),
        ("numa_nodes.0", {"siblings": [[1, 0]]}, None),
        ("numa_nodes.0", {"siblings": []}, None),
        ("numa_nodes.0", {"siblings": [[]]}, None),
        ("numa_nodes.0", {"siblings": [[0, 1], []]}, "NUMA node 0: its siblings do not list each of its CPUs once"),
        ("numa_nodes.0", {"siblings": [[0]]}, "NUMA node 0: its siblings do not list each of its CPUs once"),
        ("numa_nodes.0", {"siblings": [[0, 1, 1]]}, "NUMA node 0: its siblings do not list each of its CPUs once"),
        ("numa_nodes.0", {"memory_bytes": 0}, None),
        ("numa_nodes.0", {"memory_bytes": -1}, "NUMA node 0: its memory is -1 bytes"),
        ("numa_nodes.0", {"huge_pages": [HugePages(1, 0, 0)]}, None),
        ("numa_nodes.0", {"huge_pages": [HugePages(0, 2, 3)]}, "NUMA node 0: 2 huge pages of 0 bytes, 3 free"),
        ("numa_nodes.0", {"huge_pages": [HugePages(1, -1, 0)]}, "NUMA node 0: -1 huge pages of 1 bytes, 0 free"),
        ("numa_nodes.0", {"huge_pages": [HugePages(1, 0, -1)]}, "NUMA node 0: 0 huge pages of 1 bytes, -1 free"),
        ("numa_nodes.0", {"distances": {"999999999": 10}}, None),
        (
            "numa_nodes.0",
            {"distances": {"1000000000": 10}},
            "NUMA node 0: it has a distance to '1000000000', which is not a node",
        ),
        ("numa_nodes.0", {"distances": {"-1": 10}}, "NUMA node 0: it has a distance to '-1', which is not a node"),
        (
            "numa_nodes.0",
            {"distances": {"x" * 80: 10}},
            f"NUMA node 0: it has a distance to '{'x' * 59}, which is not a node",
        ),
        ("numa_nodes.0", {"distances": {"1": 10}}, None),
        ("numa_nodes.0", {"distances": {"1": 255}}, None),
        (
            "numa_nodes.0",
            {"distances": {"1": 9}},
            "NUMA node 0: its distance to node 1 is 9, but ACPI's SLIT has 10 to 255",
        ),
        (
            "numa_nodes.0",
            {"distances": {"1": 256}},
            "NUMA node 0: its distance to node 1 is 256, but ACPI's SLIT has 10 to 255",
        ),
        (
            "numa_nodes.0",
            {"distances": {"00": 11}},
            "NUMA node 0: its distance to itself is 11, but ACPI's SLIT has 10 there",
        ),
        # Root complexes
        ("root_complexes.1", {"name": "pci0000:10"}, "root complex 'pci0000:10' is listed twice"),
        (
            "root_complexes.1",
            {"domain": -1},
            "root complex pci0000:20: domain -1 and bus 32 are not valid",
        ),
        ("root_complexes.1", {"bus": 0}, None),
        ("root_complexes.1", {"bus": 255}, None),
        ("root_complexes.1", {"bus": -1}, "root complex pci0000:20: domain 0 and bus -1 are not valid"),
        ("root_complexes.1", {"bus": 256}, "root complex pci0000:20: domain 0 and bus 256 are not valid"),
        ("root_complexes.1", {"numa_node": -1}, f"root complex pci0000:20: {NODE}"),
        ("root_complexes.1", {"numa_node": 9}, None),
        (
            "root_complexes.0",
            {"domain": 1},
            f"PCI function {ROOT} has another PCI domain than its root complex pci0000:10",
        ),
        (
            "root_complexes.0",
            {"bus": 0x0F},
            f"PCI function {ROOT} is not below a bridge, but the root bus of pci0000:10 is 0f",
        ),
        # Functions
        (GPU, {"numa_node": 0}, None),
        (GPU, {"numa_node": -1}, f"PCI function {GPU}: {NODE}"),
        (
            GPU,
            {"root_complex": "pci0000:99"},
            f"PCI function {GPU} is below root complex 'pci0000:99', which is not listed",
        ),
        (
            GPU,
            {"kind": "tpu"},
            f"PCI function {GPU} is of kind 'tpu'; valid values: bridge, gpu, nic, nvme, nvswitch, "
            "nvswitch_management, other",
        ),
        (GPU, {"port_type": "endpoint"}, None),
        (
            GPU,
            {"port_type": "x"},
            f"PCI function {GPU} has port_type 'x'; valid values: endpoint, legacy_endpoint, root_port, "
            "switch_upstream, switch_downstream, pcie_to_pci_bridge, pci_to_pcie_bridge, root_complex_endpoint, "
            "root_complex_event_collector",
        ),
        *(
            row
            for name, bits in (
                ("class_code", 24),
                ("vendor_id", 16),
                ("device_id", 16),
                ("subsystem_vendor_id", 16),
                ("subsystem_device_id", 16),
            )
            for row in (
                (GPU, {name: 0}, None),
                (GPU, {name: (1 << bits) - 1}, None),
                (
                    GPU,
                    {name: 1 << bits},
                    f"PCI function {GPU}: {name} is {1 << bits}, which does not fit in {bits} bits",
                ),
                (GPU, {name: -1}, f"PCI function {GPU}: {name} is -1, which does not fit in {bits} bits"),
            )
        ),
        (GPU, {"link": None}, None),
        (GPU, {"link": Link(None, 0, None, 0)}, None),
        (GPU, {"link": Link(None, -1, None, 1)}, f"PCI function {GPU}: its link has -1 lanes"),
        (GPU, {"link": Link(None, None, None, -2)}, f"PCI function {GPU}: its link has -2 lanes"),
        (GPU, {"interfaces": {"net": ["a"], "block": [], "rdma": []}}, None),
        (
            GPU,
            {"interfaces": {"x" * 80: []}},
            f"PCI function {GPU} has interfaces of class '{'x' * 59}; valid values: block, net, rdma",
        ),
        (GPU, {"sriov": Sriov(1, 1, [VF])}, None),
        (
            GPU,
            {"sriov": Sriov(1, 1, ["0000:13:00.1"])},
            f"PCI function {GPU} has the virtual function 0000:13:00.1, which is not listed",
        ),
        (
            VF,
            {"physical_function": "0000:13:00.1"},
            f"PCI function {VF} is a virtual function of 0000:13:00.1, which is not listed",
        ),
    ],
)
def test_a_value_at_its_limit_passes_and_one_beyond_is_refused(place, values, words):
    assert refusal(changed(place, **values)) == words


@pytest.mark.parametrize("of_a_vf", [False, True])
@pytest.mark.parametrize(
    ("region", "passes"),
    [
        (Bar(0, 1, "memory", 32, True), True),
        (Bar(6, 1, "io", 64, True), True),
        (Bar(-1, 1, "memory", 32, True), False),
        (Bar(7, 1, "memory", 32, True), False),
        (Bar(0, 0, "memory", 32, True), False),
        (Bar(0, 1, "rom", 32, True), False),
        (Bar(0, 1, "memory", 16, True), False),
        (Bar(0, 1, "memory", 33, True), False),
        (Bar(0, 1, "memory", 65, True), False),
    ],
)
def test_the_place_size_and_width_of_a_bar_are_checked(region, passes, of_a_vf):
    values = {"sriov": Sriov(1, 0, [], [region])} if of_a_vf else {"bars": [region]}
    words = (
        f"PCI function {GPU}: BAR {region.index} is not valid: {region.size_bytes} bytes, {region.kind!r}, "
        f"{region.width_bits} bit"
    )
    assert refusal(changed(GPU, **values)) == (None if passes else words)


@pytest.mark.parametrize(
    ("place", "first", "last", "words"),
    [
        (UP, 0x12, 0x12, None),
        (UP, 0x12, 0x14, None),
        (UP, None, None, None),
        (UP, 0x12, None, None),
        (UP, 0, 0x14, None),
        (UP, 0x12, 0x11, f"bridge {UP} has the buses 12-11, which are not valid"),
        (UP, 0x11, 0x14, f"bridge {UP} has the buses 11-14, but {ROOT} above it has 11-14"),
        (UP, 0x12, 0x15, f"bridge {UP} has the buses 12-15, but {ROOT} above it has 11-14"),
        (ROOT, 0x11, 0xFF, None),
        (ROOT, 0x11, 0x100, f"bridge {ROOT} has the buses 11-100, which are not valid"),
        (ROOT, -1, 0x14, f"bridge {ROOT} has the buses -1-14, which are not valid"),
        (ROOT, 0x10, 0x14, f"PCI function {UP} is below {ROOT}, whose bus is 10"),
    ],
)
def test_the_buses_of_a_bridge_are_within_those_of_the_bridge_above(place, first, last, words):
    seen = changed(place, secondary_bus=first, subordinate_bus=last)
    if place == UP:
        seen.function(VF).address = "0000:12:01.0"
    assert refusal(seen) == words


@pytest.mark.parametrize(
    ("address", "physical_function", "words"),
    [
        ("0000:12:01.0", None, None),
        ("0000:13:00.0", None, f"PCI function 0000:13:00.0 is below {UP}, whose bus is 12"),
        ("0000:12:01.0", GPU, None),
        ("0000:14:1f.7", GPU, None),
        ("0000:15:00.0", GPU, f"PCI function 0000:15:00.0 is below {UP}, whose bus is 12"),
        ("0000:11:01.0", GPU, f"PCI function 0000:11:01.0 is below {UP}, whose bus is 12"),
        ("0000:12:20.0", None, "PCI function '0000:12:20.0': not an address like 0000:3b:00.0"),
        ("0000:12:01.8", None, "PCI function '0000:12:01.8': not an address like 0000:3b:00.0"),
        ("000:12:01.0", None, "PCI function '000:12:01.0': not an address like 0000:3b:00.0"),
    ],
)
def test_a_function_is_on_the_first_bus_of_its_bridge_and_a_vf_on_any(address, physical_function, words):
    assert refusal(changed(VF, address=address, physical_function=physical_function)) == words


@pytest.mark.parametrize(
    ("parent", "words"),
    [
        ("0000:12:09.0", f"PCI function {GPU} is below 0000:12:09.0, which is not listed"),
        (VF, f"PCI function {GPU} is below {VF}, which is not a bridge"),
        (None, f"PCI function {GPU} is not below a bridge, but the root bus of pci0000:10 is 10"),
    ],
)
def test_the_parent_of_a_function_is_a_bridge(parent, words):
    assert refusal(changed(GPU, parent=parent)) == words


def test_the_parent_of_a_function_is_under_the_same_root_complex():
    seen = changed(GPU, root_complex="pci0000:20")
    assert refusal(seen) == Mentions(GPU, UP, "root complex")


def test_a_function_is_listed_once():
    seen = host()
    seen.functions.append(seen.functions[0])
    assert refusal(seen) == Mentions(ROOT, "listed twice")


def test_domains_and_root_buses_of_nccl_are_not_checked():
    for values in ({"domain": 1}, {"bus": 0x0F}):
        seen = changed("root_complexes.0", **values)
        seen.source = "nccl"
        assert refusal(seen) is None


def test_a_virtual_function_on_the_root_bus_may_be_on_the_next_bus():
    seen = changed(VF, parent=None)
    assert refusal(seen) is None


def test_a_loop_is_refused():
    seen = host()
    for address in (ROOT, UP):
        seen.function(address).secondary_bus = None
    seen.function(ROOT).parent = UP
    assert refusal(seen) == Mentions(ROOT, "loop")


@pytest.mark.parametrize(("count", "passes"), [(256, True), (257, False)])
def test_a_path_has_at_most_as_many_functions_as_there_are_buses(count, passes):
    addresses = [f"0000:{bus:02x}:{slot:02x}.0" for bus in range(0x10, 0x20) for slot in range(32)][:count]
    seen = Host([], [RootComplex("pci0000:10", 0, 0x10, None)], [])
    seen.functions = [function(here, above, "bridge") for above, here in zip([None, *addresses], addresses)]
    facts = Mentions(addresses[-1], "256 bridges", "256 buses")
    assert refusal(seen) == (None if passes else facts)
    seen.functions.reverse()
    assert refusal(seen) == (None if passes else facts)


def test_domains_of_more_than_one_digit_are_compared():
    seen = Host([], [RootComplex("pci0010:10", 0x10, 0x10, None)], [function("0010:10:01.0", None)])
    seen.functions[0].root_complex = "pci0010:10"
    assert refusal(seen) is None
    seen.root_complexes[0].domain = 0x11
    assert refusal(seen) == Mentions("0010:10:01.0", "PCI domain", "pci0010:10")
