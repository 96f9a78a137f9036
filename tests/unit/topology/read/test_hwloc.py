# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

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
    with pytest.raises(TopologyError, match="is not a finite hwloc bitmap"):
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
    with pytest.raises(TopologyError) as error:
        read_hwloc(text.replace("</object></object></topology>", other))
    assert str(error.value) == "it describes 2 machines together; write it with lstopo on one of them"


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
    with pytest.raises(TopologyError, match="its objects are nested deeper than those of any machine"):
        read_hwloc(xml().replace("</object>\n  <distances2", f"{deep}</object>\n  <distances2"))


def test_a_function_that_is_not_below_a_host_bridge_is_refused():
    stray = '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0200 [8086:1572] [8086:0000] 01"/>'
    with pytest.raises(TopologyError, match=r"0000:01:00\.0 is not below a host bridge"):
        read_hwloc(xml().replace("</object>\n  <distances2", f"{stray}</object>\n  <distances2"))
