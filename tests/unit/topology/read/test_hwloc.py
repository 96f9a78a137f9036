# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts read from hwloc XML.

One file because the tests change the same XML of one machine.
"""

from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import RootComplex, TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.hwloc import bitmap, read_hwloc

MACHINE = """<?xml version="1.0" encoding="UTF-8"?>
<topology version="{version}">
  <object type="Machine" nodeset="0x00000003">
    <info name="Architecture" value="x86_64"/><info name="OSRelease" value="6.1.0"/>
    <object type="Package" nodeset="0x00000001">
      <info name="CPUVendor" value="GenuineIntel"/><info name="CPUModel" value="A CPU   "/>
      <object type="NUMANode" os_index="0" cpuset="0x00000005" nodeset="0x00000001" local_memory="1024"/>
      <object type="Core"><object type="PU" os_index="0"/><object type="PU" os_index="2"/></object>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[3a-3b]">
        <object type="Bridge" bridge_type="1-1" bridge_pci="0000:[3b-3b]" pci_busid="0000:3a:00.0"
         pci_type="0604 [8086:2030] [8086:0000] 04">
          <object type="PCIDev" pci_busid="0000:3b:00.0" pci_type="0207 [15b3:1013] [15b3:0033] 00">
            <object type="OSDev" name="ib0" osdev_type="{net}"/><object type="OSDev" name="mlx5_0" osdev_type="{rdma}"/>
            <object type="OSDev" name="card0" osdev_type="{gpu}"/>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" nodeset="0x00000002">
      <object type="NUMANode" os_index="1" cpuset="0x0000000a" nodeset="0x00000002"/>
      <object type="Core"><object type="PU" os_index="1"/></object>
    </object>
    <object type="Bridge" bridge_type="0-1" bridge_pci="0001:[00-00]">
      <object type="PCIDev" pci_busid="0001:00:02.0" pci_type="0108 [144d:a804] [144d:a801] 00 02"/>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes><u64values length="6">10 21 </u64values><u64values length="6">21 10 </u64values>
  </distances2>
</topology>
"""
VERSIONS = {
    "2.0": {"net": "2", "rdma": "3", "gpu": "1"},
    "3.0": {"net": "16", "rdma": "32", "gpu": "12"},
}


def xml(version: str = "2.0") -> str:
    return MACHINE.format(version=version, **VERSIONS[version])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_machine_is_read_from_the_2_x_and_3_x_formats(version):
    host = read_hwloc(xml(version))
    first, second = host.numa_nodes
    assert (first.cpus, first.siblings, first.memory_bytes) == ([0, 2], [[0, 2]], 1024)
    # CPU 3 is in no core of the XML, and becomes a core itself.
    assert (second.cpus, second.siblings, second.memory_bytes) == ([1, 3], [[1], [3]], 0)
    assert [node.distances for node in host.numa_nodes] == [{"0": 10, "1": 21}, {"0": 21, "1": 10}]
    assert host.root_complexes == [RootComplex("pci0000:3a", 0, 0x3A, 0), RootComplex("pci0001:00", 1, 0, None)]
    port, nic, nvme = host.functions
    assert (port.kind, port.parent, port.secondary_bus, port.subordinate_bus) == ("bridge", None, 0x3B, 0x3B)
    assert (nic.kind, nic.parent, nic.numa_node) == ("nic", "0000:3a:00.0", 0)
    assert (nic.vendor_id, nic.device_id, nic.subsystem_vendor_id, nic.subsystem_device_id) == (
        0x15B3,
        0x1013,
        0x15B3,
        0x33,
    )
    assert nic.interfaces == {"net": ["ib0"], "rdma": ["mlx5_0"]}
    assert (nvme.class_code, nvme.root_complex, nvme.numa_node) == (0x010802, "pci0001:00", None)
    assert (host.cpu.vendor, host.cpu.model, host.cpu.architecture) == ("GenuineIntel", "A CPU", "x86_64")
    assert (host.kernel_release, host.source) == ("6.1.0", "hwloc")


@pytest.mark.parametrize(
    ("text", "bits"),
    [("0x00000001", [0]), ("0x80000001", [0, 31]), ("0x1,,0x2", [1, 64]), ("0x0", []), ("", []), ("0x00000100", [8])],
)
def test_bitmaps_are_parsed(text, bits):
    assert bitmap(text) == bits


@pytest.mark.parametrize("text", ["0xf...f", "1", "0x", "0x123456789", "0x1;0x2", "0xg", "0x1" + "," * 2048])
def test_malformed_bitmaps_are_refused(text):
    with raises(TopologyError, f"{text!r:.60}", "hwloc bitmap"):
        bitmap(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</topology>", "", "not XML"),
        ('<topology version="2.0">', '<topology version="4.0">', "is not hwloc XML 1.x, 2.x or 3.x of a machine"),
        ('<topology version="2.0">', '<topology version="two">', "is not hwloc XML 1.x, 2.x or 3.x of a machine"),
        ('type="Machine"', 'type="Rack"', "is not hwloc XML"),
        ('pci_busid="0000:3b:00.0"', 'pci_busid="3b:00.0"', "pci_busid '3b:00.0' .* not an address and ids"),
        ("0207 [15b3:1013]", "0207 15b3:1013", "not an address and ids"),
        ("0000:[3b-3b]", "3b-3b", "bridge 0000:3a:00.0 has no usable bridge_pci '3b-3b'"),
        ("0001:00:02.0", "0000:3b:00.0", "0000:3b:00.0 is listed twice"),
        ('kind="5"', 'kind="five"', "kind is 'five', not a number"),
        ('bridge_type="0-1" bridge_pci="0001:[00-00]"', 'bridge_type="x"', "not an address and ids"),
        ('cpuset="0x00000005"', 'cpuset="5"', "'5' is not a finite hwloc bitmap"),
        ('os_index="1" cpuset', 'os_index="one" cpuset', "NUMANode object: os_index is 'one', not a number"),
        ("21 10 </u64values>", "21 </u64values>", "3 NUMA distances between 2 nodes"),
        ("10 21 </u64values>", "10 far </u64values>", "4 NUMA distances between 2 nodes"),
        ("10 21 </u64values>", "10 ² </u64values>", "4 NUMA distances between 2 nodes"),
        ('local_memory="1024"', 'local_memory="²"', "local_memory is '²', not a number"),
        ('local_memory="1024"', f'local_memory="{"9" * 5000}"', "local_memory is '9+, not a number"),
        ('osdev_type="2"', 'osdev_type="net"', "OSDev object: osdev_type is 'net', not a number"),
    ],
)
def test_malformed_xml_is_refused(old, new, message):
    assert old in xml()
    with pytest.raises(TopologyError, match=message):
        read_hwloc(xml().replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    # The first bit of the kind means that the distances are the kernel's.
    [('kind="5"', 'kind="6"'), ('indexing="os"', 'indexing="gp"'), ('name="NUMALatency"', 'name="Mine"')],
)
def test_distances_that_are_not_from_the_kernel_are_ignored(old, new):
    assert old in xml()
    assert [node.distances for node in read_hwloc(xml().replace(old, new)).numa_nodes] == [{}, {}]


# Output of hwloc 1.11 for two nodes, the second with only memory and a bus: a matrix with a base of 10, and one of
# cores.
OLD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_index="0" cpuset="0x0000000f" online_cpuset="0x0000000d" nodeset="0x00000003">
    <info name="CPUVendor" value="AuthenticAMD"/>
    <distances nbobjs="2" relative_depth="2" latency_base="1.000000">
      <latency value="1.000000"/><latency value="2.000000"/><latency value="2.000000"/><latency value="1.000000"/>
    </distances>
    <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
      <latency value="1.000000"/><latency value="1.600000"/><latency value="2.100000"/><latency value="1.000000"/>
    </distances>
    <object type="NUMANode" os_index="0" cpuset="0x0000000f" online_cpuset="0x0000000d" nodeset="0x00000001"
     local_memory="2048">
      <object type="Core" os_index="0"><object type="PU" os_index="0"/><object type="PU" os_index="2"/></object>
      <object type="Core" os_index="1"><object type="PU" os_index="3"/></object>
      <object type="Bridge" os_index="1" bridge_type="0-1" depth="0" bridge_pci="0000:[00-01]">
        <object type="Bridge" os_index="16" bridge_type="1-1" depth="1" bridge_pci="0000:[01-01]"
         pci_busid="0000:00:01.0" pci_type="0604 [8086:3c08] [000f:0000] 07" pci_link_speed="0.000000">
          <object type="PCIDev" os_index="4096" pci_busid="0000:01:00.0" pci_type="0280 [8086:2723] [8086:0084] 1a"
           pci_link_speed="0.000000"><object type="OSDev" name="wlan0" osdev_type="2"/></object>
        </object>
      </object>
    </object>
    <object type="NUMANode" os_index="1" cpuset="0x0" online_cpuset="0x0" nodeset="0x00000002" local_memory="4096"/>
  </object>
</topology>
"""


def test_a_machine_is_read_from_the_1_x_format():
    host = read_hwloc(OLD)
    first, second = host.numa_nodes
    # CPU 1 is offline.
    assert (first.cpus, first.siblings, first.memory_bytes) == ([0, 2, 3], [[0, 2], [3]], 2048)
    assert (second.cpus, second.siblings, second.memory_bytes) == ([], [], 4096)
    assert [node.distances for node in host.numa_nodes] == [{"0": 10, "1": 16}, {"0": 21, "1": 10}]
    assert host.root_complexes == [RootComplex("pci0000:00", 0, 0, 0)]
    port, nic = host.functions
    assert (port.secondary_bus, port.subordinate_bus, nic.parent) == (1, 1, "0000:00:01.0")
    assert (nic.class_code, nic.interfaces, host.cpu.vendor) == (0x028000, {"net": ["wlan0"]}, "AuthenticAMD")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('relative_depth="1"', 'relative_depth="3"'),
        ('latency_base="10.000000"', 'latency_base="5.000000"'),
        ('latency_base="10.000000"', 'latency_base="ten"'),
        ('<latency value="2.100000"/>', ""),
    ],
)
def test_ambiguous_or_malformed_matrices_of_the_1_x_format_are_ignored(old, new):
    assert old in OLD
    assert [node.distances for node in read_hwloc(OLD.replace(old, new)).numa_nodes] == [{}, {}]


def test_the_1_x_format_gives_one_node_without_numa_and_two_machines_are_refused():
    text = """<topology><object type="System"><object type="Machine" cpuset="0x00000003" local_memory="4096">
    <object type="Core"><object type="PU" os_index="0"/></object><object type="PU" os_index="1"/>
    </object></object></topology>"""
    (node,) = read_hwloc(text).numa_nodes
    assert (node.id, node.cpus, node.siblings, node.memory_bytes) == (0, [0, 1], [[0], [1]], 4096)
    other = '</object><object type="Machine"/></object></topology>'
    with raises(TopologyError, "2 machines", "lstopo"):
        read_hwloc(text.replace("</object></object></topology>", other))


def node(number: int, cpuset: str, more: str = "") -> str:
    return f'<object type="NUMANode" os_index="{number}" cpuset="{cpuset}" nodeset="{1 << number:#010x}" {more}/>'


@pytest.mark.parametrize(
    ("nodes", "cpus"),
    [
        # Xeon Max in flat mode: HBM shares the CPUs of the ordinary memory, and either may have the lower number.
        ([node(0, "0x3", 'subtype="DRAM"'), node(1, "0x3", 'subtype="HBM"')], {0: [0, 1], 1: []}),
        ([node(0, "0x3", 'subtype="HBM"'), node(1, "0x3", 'subtype="DRAM"')], {0: [], 1: [0, 1]}),
        # Nothing distinguishes the two: the kernel numbers nodes with CPUs first.
        ([node(1, "0x3"), node(0, "0x3")], {0: [0, 1], 1: []}),
        # CXL memory of a package, or of the machine.
        ([node(0, "0x1"), node(1, "0x2"), node(2, "0x3")], {0: [0], 1: [1], 2: []}),
        ([node(2, "0x0"), node(0, "0x3")], {0: [0, 1], 2: []}),
        # The kind as in hwloc 1.x, and memory set aside as in 3.x.
        (
            [
                node(0, "0x3")[:-2] + '><info name="Type" value="MCDRAM"/></object>',
                node(1, "0x3")[:-2] + '><info name="DAXType" value="SPM"/></object>',
                node(2, "0x3"),
            ],
            {0: [], 1: [], 2: [0, 1]},
        ),
    ],
)
def test_shared_cpus_are_assigned_to_one_node(nodes, cpus):
    bridge = (
        '<object type="Group" nodeset="0x00000007"><object type="Bridge" bridge_type="0-1" bridge_pci="0000:[3a-3b]"/>'
        "</object>"
    )
    text = f'<topology version="2.0"><object type="Machine">{"".join(nodes)}{bridge}</object></topology>'
    host = read_hwloc(text)
    assert {item.id: item.cpus for item in host.numa_nodes} == cpus
    # A bus is on the only node that has CPUs; if two have CPUs, its node is unknown.
    owners = [number for number, own in cpus.items() if own]
    assert [item.numa_node for item in host.root_complexes] == [owners[0] if len(owners) == 1 else None]


def test_a_duplicate_address_is_read_only_on_the_bus_of_its_bridge():
    stray = (
        '<object type="PCIDev" pci_busid="0001:00:02.0" pci_type="0200 [8086:1572] [8086:0000] 01">'
        '<object type="OSDev" name="eth0" osdev_type="2"/></object>'
    )
    text = xml().replace(
        '<object type="PCIDev" pci_busid="0000:3b:00.0"', f'{stray}<object type="PCIDev" pci_busid="0000:3b:00.0"'
    )
    assert text != xml()
    host = read_hwloc(text)
    assert host.functions == read_hwloc(xml()).functions
    assert host.notes == [
        "hwloc XML has several PCI functions 0001:00:02.0: the one below 0000:3a:00.0, which is not on its bus, and "
        "all below it are left out"
    ]
    assert read_hwloc(xml()).notes == []


def test_too_deeply_nested_objects_are_refused():
    deep = '<object type="Group">' * 5000 + "</object>" * 5000
    with raises(TopologyError, "nested", "hwloc"):
        read_hwloc(xml().replace("</object>\n  <distances2", f"{deep}</object>\n  <distances2"))


def test_a_function_that_is_not_below_a_host_bridge_is_refused():
    stray = '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0200 [8086:1572] [8086:0000] 01"/>'
    with raises(TopologyError, "0000:01:00.0", "host bridge"):
        read_hwloc(xml().replace("</object>\n  <distances2", f"{stray}</object>\n  <distances2"))


def bus(devices, nodeset="0x1", buses="0000:[3a-3b]", version="2.0"):
    """Return a machine with one node and one bus with these devices."""
    return (
        f'<topology version="{version}"><object type="Machine"><object type="NUMANode" os_index="0" cpuset="0x1" '
        f'nodeset="0x1"/><object type="Group" nodeset="{nodeset}"><object type="Bridge" bridge_type="0-1" '
        f'bridge_pci="{buses}">{devices}</object></object></object></topology>'
    )


def pci(address, identity, inside=""):
    return f'<object type="PCIDev" pci_busid="{address}" pci_type="{identity}">{inside}</object>'


@pytest.mark.parametrize(
    ("identity", "kind", "class_code"),
    [
        ("0302 [10de:2330] [10de:16c1] a1", "gpu", 0x030200),
        ("0302 [10df:2330] [10de:16c1] a1", "other", 0x030200),
        ("0380 [1af4:1043] [1af4:1100] 01", "gpu", 0x038000),
        ("0380 [1af4:1050] [1af4:1100] 01", "other", 0x038000),
        ("0108 [144d:a824] [144d:a801] 00 02", "nvme", 0x010802),
        ("0604 [8086:2030] [8086:0000] 04 01", "bridge", 0x060401),
    ],
)
def test_the_kind_of_a_function_is_derived_from_its_class_and_ids(identity, kind, class_code):
    (function,) = read_hwloc(bus(pci("0000:3a:00.0", identity))).functions
    assert (function.kind, function.class_code) == (kind, class_code)
    assert function.vendor_id == int(identity[6:10], 16)
    assert function.device_id == int(identity[11:15], 16)
    assert function.subsystem_vendor_id == int(identity[18:22], 16)
    assert function.subsystem_device_id == int(identity[23:27], 16)
    assert (function.secondary_bus, function.subordinate_bus, function.port_type) == (None, None, None)


@pytest.mark.parametrize(
    ("version", "types"),
    [
        ("2.0", {0: "block", 2: "net", 3: "rdma"}),
        ("3.0", {1: "block", 16: "net", 32: "rdma"}),
    ],
)
def test_devices_of_the_kernel_are_listed_by_their_type(version, types):
    inside = "".join(f'<object type="OSDev" name="n{number}" osdev_type="{number}"/>' for number in range(40))
    text = bus(pci("0000:3a:00.0", "0200 [15b3:101d] [15b3:0000] 00", inside), version=version)
    assert read_hwloc(text).functions[0].interfaces == {name: [f"n{number}"] for number, name in types.items()}


@pytest.mark.parametrize(("nodeset", "node"), [("0x1", 0), ("0x3", 0), ("0x2", 1), ("0x6", None), ("0x0", None)])
def test_a_bus_is_on_the_only_node_of_its_object_that_has_cpus(nodeset, node):
    host = read_hwloc(bus(pci("0000:3a:00.0", "0200 [15b3:101d] [15b3:0000] 00"), nodeset))
    assert host.root_complexes == [RootComplex("pci0000:3a", 0, 0x3A, node)]
    assert host.functions[0].numa_node == node


def test_a_root_complex_of_a_large_domain_is_named_as_in_linux():
    text = bus(pci("10000:3a:00.0", "0200 [15b3:101d] [15b3:0000] 00"), buses="10000:[3a-ff]")
    host = read_hwloc(text)
    assert host.root_complexes == [RootComplex("pci10000:3a", 0x10000, 0x3A, 0)]
    assert host.functions[0].root_complex == "pci10000:3a"


def test_root_complexes_and_functions_are_sorted_by_number():
    one = pci("0000:3a:10.0", "0200 [15b3:101d] [15b3:0000] 00") + pci(
        "0000:3a:02.0", "0200 [15b3:101d] [15b3:0000] 00"
    )
    other = bus(pci("0000:05:00.0", "0200 [15b3:101d] [15b3:0000] 00"), buses="0000:[05-05]")
    more = other[other.index('<object type="Bridge"') : other.rindex("</object></object></topology>")]
    host = read_hwloc(bus(one).replace('<object type="Bridge"', f'{more}<object type="Bridge"', 1))
    assert [item.bus for item in host.root_complexes] == [0x05, 0x3A]
    assert [item.address for item in host.functions] == ["0000:05:00.0", "0000:3a:02.0", "0000:3a:10.0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<topology version='2'><object type='Machine'/></topology>", "<topology version='2'>"),
        ("<topology version='1000.0'><object type='Machine'/></topology>", "<topology version='1000.0'>"),
        ("<topology version='0.9'><object type='Machine'/></topology>", "<topology version='0.9'>"),
        ("<system version='2.0'><object type='Machine'/></system>", "<system version='2.0'>"),
        ("<topology/>", "<topology version=None>"),
    ],
)
def test_another_format_is_refused(text, message):
    with raises(TopologyError, message, "hwloc", "lstopo"):
        read_hwloc(text)


@pytest.mark.parametrize(("words", "bits"), [(2048, [65504]), (2049, None)])
def test_a_bitmap_has_at_most_as_many_words_as_linux_has_cpus(words, bits):
    text = "0x1" + "," * (words - 1)
    if bits is None:
        with raises(TopologyError, f"{text!r:.60}", "bitmap"):
            bitmap(text)
    else:
        assert bitmap(text) == bits


@pytest.mark.parametrize(("digits", "passes"), [(20, True), (21, False)])
def test_a_number_has_at_most_20_digits(digits, passes):
    text = xml().replace('local_memory="1024"', f'local_memory="{"1" * digits}"')
    if passes:
        assert read_hwloc(text).numa_nodes[0].memory_bytes == int("1" * digits)
        return
    with raises(TopologyError, "NUMANode", "local_memory", "1" * digits):
        read_hwloc(text)


def test_distances_without_kind_and_indexing_are_the_kernels():
    text = xml().replace('kind="5" name="NUMALatency" indexing="os"', 'name="NUMALatency"')
    assert text != xml()
    assert read_hwloc(text).numa_nodes[0].distances == {"0": 10, "1": 21}


def test_the_first_matrix_of_the_kernel_is_used():
    other = (
        '<distances2 name="NUMALatency" kind="{}"><indexes>0 1</indexes><u64values>10 40 40 10</u64values></distances2>'
    )
    for kind, far in (("4", 21), ("1", 40)):
        text = xml().replace("<distances2", other.format(kind) + "<distances2", 1)
        assert read_hwloc(text).numa_nodes[0].distances == {"0": 10, "1": far}


def refusal(text):
    with pytest.raises(TopologyError) as error:
        read_hwloc(text)
    return str(error.value)


def test_equal_addresses_and_impossible_places_are_refused():
    nic = "0200 [15b3:101d] [15b3:0000] 00"
    assert refusal(bus(pci("0000:3a:00.0", nic) * 2)) == Mentions("0000:3a:00.0", "twice")
    assert refusal(bus(pci("0000:3b:00.0", nic))) == Mentions("0000:3b:00.0", "pci0000:3a")


@pytest.mark.parametrize("address", ["0000:3c:00.0", "0001:3b:00.0"])
def test_of_equal_addresses_the_one_on_another_bus_or_domain_is_left_out(address):
    stray = pci(address, "0200 [8086:1572] [8086:0000] 01")
    domain, number = address.split(":")[:2]
    own = f'<object type="Bridge" bridge_type="0-1" bridge_pci="{domain}:[{number}-{number}]">{stray}</object>'
    text = xml().replace('<object type="PCIDev" pci_busid="0000:3b', f'{stray}<object type="PCIDev" pci_busid="0000:3b')
    text = text.replace("</object>\n  <distances2", f"{own}</object>\n  <distances2")
    host = read_hwloc(text)
    assert host.function(address).parent is None
    assert len(host.notes) == 1


def test_infos_of_the_file_have_precedence_over_those_of_the_machine():
    text = xml("3.0").replace(
        '<topology version="3.0">', '<topology version="3.0"><info name="OSRelease" value="7.0"/>'
    )
    assert read_hwloc(text).kernel_release == "7.0"


def test_a_machine_without_infos_is_unknown():
    host = read_hwloc(bus(""))
    assert (host.cpu.architecture, host.cpu.vendor, host.cpu.model, host.kernel_release) == (None, None, None, None)


def test_distances_of_three_nodes_are_read_by_row():
    nodes = "".join(node(number, f"{1 << number:#x}") for number in range(3))
    values = "10 11 12 20 10 22 30 31 10"
    text = (
        f'<topology version="2.0"><object type="Machine">{nodes}</object><distances2 name="NUMALatency">'
        f"<indexes>2 0 1</indexes><u64values>{values}</u64values></distances2></topology>"
    )
    assert [item.distances for item in read_hwloc(text).numa_nodes] == [
        {"2": 20, "0": 10, "1": 22},
        {"2": 30, "0": 31, "1": 10},
        {"2": 10, "0": 11, "1": 12},
    ]


def test_distances_of_three_nodes_of_the_1_x_format_are_read_by_row():
    nodes = "".join(node(number, f"{1 << number:#x}") for number in range(3))
    values = "".join(f'<latency value="{value}"/>' for value in (1.0, 1.1, 1.2, 2.0, 1.0, 2.2, 3.0, 3.1, 1.0))
    text = (
        '<topology><object type="Machine"><distances relative_depth="1" latency_base="10">'
        f"{values}</distances>{nodes}</object></topology>"
    )
    assert [item.distances for item in read_hwloc(text).numa_nodes] == [
        {"0": 10, "1": 11, "2": 12},
        {"0": 20, "1": 10, "2": 22},
        {"0": 30, "1": 31, "2": 10},
    ]


@pytest.mark.parametrize(("relative", "far"), [("1", None), ("2", 21), ("3", None), ("0", None)])
def test_a_matrix_of_the_1_x_format_is_that_of_the_nodes_at_its_depth(relative, far):
    nodes = "".join(f'<object type="Package">{node(number, f"{1 << number:#x}")}</object>' for number in range(2))
    values = "".join(f'<latency value="{value}"/>' for value in (1.0, 2.1, 2.1, 1.0))
    text = (
        f'<topology><object type="Machine"><distances relative_depth="{relative}" latency_base="10">'
        f"{values}</distances>{nodes}</object></topology>"
    )
    assert read_hwloc(text).numa_nodes[0].distances == ({"0": 10, "1": far} if far else {})
