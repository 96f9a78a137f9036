# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import shutil
import socket

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Host,
    HugePages,
    Link,
    RootComplex,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import parse_list, read_host

GPU = "pci0000:3a/0000:3a:00.0/0000:3b:00.0"


def config(size: int, **registers: int) -> bytes:
    data = bytearray(size)
    for name, value in registers.items():
        data[int(name[1:], 16)] = value
    return bytes(data)


# -- processors, memory, kernel


def test_an_empty_machine_is_a_machine(machine):
    host = machine.read()
    assert (host.functions, host.root_complexes) == ([], [])
    assert [node.id for node in host.numa_nodes] == [0]
    assert host.cpu.vendor == "GenuineIntel"
    assert host.cpu.virtualization == "vmx"
    assert host.cpu.architecture == "x86_64"
    assert host.cpu.physical_address_bits is None
    assert (host.iommu.kind, host.iommu.default_domain, host.iommu.interrupt_remapping) == (None, None, None)


def test_no_sys_there(tmp_path):
    with pytest.raises(TopologyError, match=f"{tmp_path}/sys/devices/system holds no cpu and no node"):
        read_host(str(tmp_path))


def test_nodes_with_siblings_huge_pages_and_distances(machine):
    machine.node(0, "0-1,4-5", 2048, "10 21")
    machine.node(1, "2-3,6-7", 4096, "21 10")
    for cpu in range(8):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n")
    for size, total, free in ((1048576, 4, 3), (2048, 16, 16)):
        machine.write(f"sys/devices/system/node/node1/hugepages/hugepages-{size}kB/nr_hugepages", f"{total}\n")
        machine.write(f"sys/devices/system/node/node1/hugepages/hugepages-{size}kB/free_hugepages", f"{free}\n")
    first, second = machine.read().numa_nodes
    assert first.siblings == [[0, 4], [1, 5]]
    assert (first.memory_bytes, first.memory_free_bytes) == (2 << 20, 1 << 20)
    assert (first.huge_pages, first.distances) == ([], {"0": 10, "1": 21})
    assert second.cpus == [2, 3, 6, 7]
    assert second.huge_pages == [HugePages(2 << 20, 16, 16), HugePages(1 << 30, 4, 3)]


def test_nodes_without_cpus_or_memory_are_legal(machine):
    machine.node(1, "", 4096)
    machine.node(2, "2", 0)
    nodes = machine.read().numa_nodes
    assert [(node.cpus, node.memory_bytes) for node in nodes] == [([0, 1], 1 << 20), ([], 4 << 20), ([2], 0)]
    assert nodes[1].siblings == []


def test_node_numbers_may_have_gaps(machine):
    machine.node(0, "0", distance="10 20")
    machine.node(8, "1", distance="20 10")
    assert [node.distances for node in machine.read().numa_nodes] == [{"0": 10, "8": 20}, {"0": 20, "8": 10}]


def test_a_kernel_without_numa_has_one_node(tmp_path, machine):
    root = tmp_path / "flat"
    machine.root = root
    machine.write("sys/devices/system/cpu/online", "0-3\n")
    machine.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree:        1024 kB\n")
    (node,) = machine.read().numa_nodes
    assert (node.id, node.cpus, node.memory_bytes, node.memory_free_bytes) == (0, [0, 1, 2, 3], 2 << 20, 1 << 20)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("node/node0/cpulist", "0-x", "node0/cpulist: '0-x' is not a list of numbers"),
        ("node/node0/meminfo", "Node 0 MemFree: 1 kB", "node0/meminfo has no line MemTotal"),
        ("node/node0/distance", "10 21", r"node0/distance: .*one number for each node of \[0\]"),
        ("node/node0/distance", "ten", "node0/distance"),
        ("node/node0/distance", "²", "node0/distance"),
        ("cpu/cpu1/topology/thread_siblings_list", "0", r"thread_siblings_list: \[0\] does not hold CPU 1"),
    ],
)
def test_malformed_nodes(machine, path, text, message):
    machine.write(f"sys/devices/system/{path}", text)
    with pytest.raises(TopologyError, match=message):
        machine.read()


def test_missing_and_malformed_huge_pages(machine):
    top = "sys/devices/system/node/node0/hugepages/hugepages-2048kB"
    machine.write(f"{top}/nr_hugepages", "many")
    with pytest.raises(TopologyError, match=f"{machine.root}/{top}/nr_hugepages: 'many' is not a number"):
        machine.read()
    machine.write(f"{top}/nr_hugepages", "1")
    with pytest.raises(TopologyError, match="free_hugepages is missing"):
        machine.read()


@pytest.mark.parametrize(
    ("text", "numbers"), [("", []), ("\n", []), ("0\n", [0]), ("0-3,8", [0, 1, 2, 3, 8]), ("7,1", [7, 1])]
)
def test_kernel_lists(text, numbers):
    assert parse_list(text, "path") == numbers


@pytest.mark.parametrize("text", [",", "1,", "1-", "-1", "1 2", "0x1", "0-65536", "0-40000," * 2 + "1", "9" * 5000])
def test_malformed_kernel_lists(text):
    with pytest.raises(TopologyError, match=r"^path: "):
        parse_list(text, "path")


@pytest.mark.parametrize(
    ("cpuinfo", "architecture", "virtualization", "bits"),
    [
        (
            "vendor_id : AuthenticAMD\nflags : svm\naddress sizes : 52 bits physical, 57 bits virtual\n",
            "x86_64",
            "svm",
            52,
        ),
        ("processor : 0\nBogoMIPS : 2000.00\nCPU implementer : 0x41\n", "aarch64", None, None),
        ("processor : 0\ncpu : POWER9, altivec supported\n", "ppc64le", None, None),
        ("vendor_id       : IBM/S390\n# processors    : 2\nbogomips per cpu: 3033.00\n", "s390x", None, None),
        ("processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdc\n", "riscv64", None, None),
        ("", None, None, None),
    ],
)
def test_processors(machine, cpuinfo, architecture, virtualization, bits):
    machine.write("proc/cpuinfo", cpuinfo)
    cpu = machine.read().cpu
    assert (cpu.architecture, cpu.virtualization, cpu.physical_address_bits) == (architecture, virtualization, bits)


def test_the_second_processor_is_not_mixed_into_the_first(machine):
    machine.write("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : fpu\n\nvendor_id : Other\nflags : vmx\n")
    assert machine.read().cpu.vendor == "GenuineIntel"
    assert machine.read().cpu.virtualization is None


def test_kernel_arguments_keep_quoted_blanks(machine):
    machine.write("proc/cmdline", 'ro  dyndbg="file a.c +p" root="x y" quiet\n')
    assert machine.read().kernel_arguments == ["ro", 'dyndbg="file a.c +p"', 'root="x y"', "quiet"]


def test_kernel_release(machine):
    machine.write("proc/version", "Linux version 6.1.0-18-amd64 (someone) #1 SMP\n")
    assert machine.read().kernel_release == "6.1.0-18-amd64"
    machine.write("proc/sys/kernel/osrelease", "6.1.0-20-amd64\n")
    assert machine.read().kernel_release == "6.1.0-20-amd64"


# -- IOMMU


@pytest.mark.parametrize(("name", "kind"), [("dmar0", "intel"), ("ivhd12", "amd"), ("smmu3.0x1", "other")])
def test_iommu_kinds(machine, name, kind):
    machine.write(f"sys/class/iommu/{name}/uevent", "")
    assert machine.read().iommu.kind == kind


@pytest.mark.parametrize(
    ("types", "domain"), [(["identity", "identity"], "identity"), (["DMA-FQ", "identity"], "mixed"), ([], None)]
)
def test_default_domains(machine, types, domain):
    for number, text in enumerate(types):
        machine.write(f"sys/kernel/iommu_groups/{number}/type", f"{text}\n")
    assert machine.read().iommu.default_domain == domain


@pytest.mark.parametrize(
    ("chips", "remapped"),
    [
        (["XT-PIC", "IR-IO-APIC"], True),
        (["DMAR-MSI", "IR-PCI-MSI-0000:10:00.0"], True),
        (["", "IO-APIC"], False),
        (["PCI-MSI"], False),
        (["GICv3"], None),
    ],
)
def test_interrupt_remapping(machine, chips, remapped):
    for number, chip in enumerate(chips):
        machine.write(f"sys/kernel/irq/{number}/chip_name", f"{chip}\n")
    assert machine.read().iommu.interrupt_remapping is remapped


# -- the PCI tree


def test_the_tree_from_the_links(machine):
    machine.pci("pci0000:3a/0000:3a:00.0", "60400")
    machine.pci(GPU, "30200")
    machine.pci("pci0000:3a/0000:3a:01.0", "20000")
    host = machine.read()
    assert [(item.address, item.parent, item.kind) for item in host.functions] == [
        ("0000:3a:00.0", None, "bridge"),
        ("0000:3a:01.0", None, "nic"),
        ("0000:3b:00.0", "0000:3a:00.0", "gpu"),
    ]
    assert host.root_complexes == [RootComplex("pci0000:3a", 0, 0x3A, 0)]
    gpu = host.function("0000:3b:00.0")
    assert (gpu.vendor_id, gpu.device_id, gpu.subsystem_vendor_id, gpu.subsystem_device_id) == (
        0x10DE, 0x2330, 0x10DE, 0x16C1,
    )  # fmt: skip


def test_functions_are_sorted_by_number_and_not_by_text(machine):
    for address in ("10000:01:00.0", "0001:00:00.0", "0000:ff:1f.7", "0000:00:02.0"):
        machine.pci(f"pci{address.rsplit(':', 1)[0]}/{address}")
    assert [function.address for function in machine.read().functions] == [
        "0000:00:02.0",
        "0000:ff:1f.7",
        "0001:00:00.0",
        "10000:01:00.0",
    ]


def test_a_root_complex_below_a_volume_management_device(machine):
    machine.pci("pci0000:00/0000:00:0e.0", "10400")
    machine.pci("pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0", "60400")
    machine.pci("pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0/10000:01:00.0", "10802")
    host = machine.read()
    assert [item.name for item in host.root_complexes] == ["pci0000:00", "pci10000:00"]
    assert [step.address for step in host.path("10000:01:00.0")] == ["10000:00:02.0", "10000:01:00.0"]
    assert host.function("10000:01:00.0").root_complex == "pci10000:00"


def test_a_root_complex_below_a_bus_of_its_own(machine):
    machine.pci("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0", "30200")
    assert machine.one().root_complex == "pci0001:00"


def test_an_empty_root_complex_is_there(machine):
    machine.pci("pci0000:3a/0000:3a:00.0")
    machine.write("sys/devices/pci0000:d7/uevent", "")
    assert machine.read().root_complexes[1] == RootComplex("pci0000:d7", 0, 0xD7, None)


def test_a_root_complex_with_functions_on_two_nodes_has_none(machine):
    machine.pci("pci0000:00/0000:00:01.0", numa_node="0")
    machine.pci("pci0000:00/0000:00:02.0", numa_node="1")
    assert machine.read().root_complexes[0].numa_node is None


def test_no_node_is_none(machine):
    machine.pci("pci0000:00/0000:00:01.0", numa_node="-1\n")
    assert machine.one().numa_node is None
    assert machine.read().root_complexes[0].numa_node is None


def test_a_bridge_missing_from_the_listing_is_read_from_its_place(machine):
    machine.pci("pci0000:3a/0000:3a:00.0", "60400")
    machine.pci(GPU, "30200")
    (machine.root / "sys/bus/pci/devices/0000:3a:00.0").unlink()
    assert machine.read().function("0000:3b:00.0").parent == "0000:3a:00.0"
    assert len(machine.read().functions) == 2


def test_driver_and_group(machine):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/uevent", "DRIVER=vfio-pci\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n")
    machine.link(f"{top}/iommu_group", "sys/kernel/iommu_groups/17")
    function = machine.one()
    assert (function.driver, function.iommu_group, function.subsystem_vendor_id) == ("vfio-pci", 17, None)


def test_bars(machine):
    resource = """\
0x0000383fe0000000 0x0000383fe0ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000380000000000 0x0000381fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000002000 0x000000000000207f 0x0000000000040101
0x00000000fe200000 0x00000000fe21ffff 0x0000000000040200
0x00000000000c0000 0x00000000000dffff 0x0000000000000212
0x0000383fde000000 0x0000383fdfffffff 0x000000000014220c
"""
    machine.pci("pci0000:00/0000:00:01.0", resource=resource)
    assert machine.one().bars == [
        Bar(0, 16 << 20, "memory", 64, True),
        Bar(2, 128 << 30, "memory", 64, True),
        Bar(4, 128, "io", 32, False),
        Bar(5, 128 << 10, "memory", 32, False),
    ]


def test_a_rom_is_bar_6_and_a_bridges_windows_are_none(machine):
    lines = ["0x0 0x0 0x0"] * 6 + ["0xfe000000 0xfe0fffff 0x46200"] + ["0x0 0x0 0x0"] * 6 + ["0x1000 0x1fff 0x101"]
    machine.pci("pci0000:00/0000:00:01.0", resource="\n".join(lines))
    assert machine.one().bars == [Bar(6, 1 << 20, "memory", 32, True)]


def test_low_flag_bits_are_not_the_kind(machine):
    # Bit 0 of a ROM's flags says that it is enabled; a line with that alone, or without an end, is no BAR.
    lines = ["0x1000 0x1fff 0x1", "0x0 0x0 0x40200", *["0x0 0x0 0x0"] * 4, "0xfe000000 0xfe0fffff 0x46201"]
    machine.pci("pci0000:00/0000:00:01.0", resource="\n".join(lines))
    assert machine.one().bars == [Bar(6, 1 << 20, "memory", 32, True)]


def test_a_readable_config_space_is_believed_above_the_files(machine):
    files = {"current_link_speed": "8.0 GT/s", "current_link_width": "8", "max_link_speed": "8.0 GT/s"}
    machine.pci("pci0000:00/0000:00:01.0", config=config(256), **files, max_link_width="8")
    assert (machine.one().config_bytes, machine.one().link) == (256, None)


@pytest.mark.parametrize("line", ["0x0 0x0", "0x0 0x0 zero", "0x2000 0x1fff 0x200"])
def test_malformed_bars(machine, line):
    machine.pci("pci0000:00/0000:00:01.0", resource=f"{line}\n")
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/resource: line 1"):
        machine.read()


def test_links_from_files_where_config_space_is_short(machine):
    machine.pci(
        "pci0000:00/0000:00:01.0",
        config=config(64),
        current_link_speed="16.0 GT/s PCIe\n",
        current_link_width="8\n",
        max_link_speed="32.0 GT/s PCIe\n",
        max_link_width="16\n",
    )
    assert machine.one().link == Link(16.0, 8, 32.0, 16)
    assert machine.one().config_bytes == 64


def test_an_unknown_link_is_none(machine):
    files = {"current_link_speed": "Unknown", "current_link_width": "0", "max_link_speed": "8 GT/s"}
    machine.pci("pci0000:00/0000:00:01.0", **files, max_link_width="63")
    assert machine.one().link == Link(None, None, 8.0, 63)


def test_bus_numbers_of_a_bridge(machine):
    machine.pci("pci0000:00/0000:00:01.0", "60400", config=config(64, x0e=0x81, x19=0x3B, x1a=0x41))
    assert (machine.one().secondary_bus, machine.one().subordinate_bus) == (0x3B, 0x41)


def test_registers_of_a_live_looking_function(machine):
    data = bytearray(config(4096, x06=0x10, x34=0x60, x60=0x10, x62=0x02, x68=0x37, x69=0x59))
    data[0x100:0x108] = bytes.fromhex("0d000115 5f001d00")
    data[0x150:0x158] = bytes.fromhex("0f000100 00000580")
    machine.pci("pci0000:00/0000:00:01.0", "30200", config=bytes(data))
    function = machine.one()
    assert (function.port_type, function.config_bytes) == ("endpoint", 4096)
    assert (function.max_read_request_bytes, function.max_payload_bytes) == (4096, 256)
    assert function.relaxed_ordering is True
    assert (function.acs.capability, function.acs.control) == (0x5F, 0x1D)
    assert (function.ats.enabled, function.ats.smallest_translation_unit) == (True, 5)


def test_a_vf_does_as_its_physical_function(machine):
    pf = machine.pci("pci0000:00/0000:00:01.0", sriov_totalvfs="4", sriov_numvfs="1")
    vf = machine.pci(
        "pci0000:00/0000:00:02.0", config=config(4096, x06=0x10, x34=0x60, x60=0x10, x62=0x02, x68=0x37, x69=0x59)
    )
    machine.link(f"{pf}/virtfn0", vf)
    machine.link(f"{vf}/physfn", pf)
    physical, virtual = machine.read().functions
    assert (physical.sriov.total, physical.sriov.now, physical.sriov.vfs) == (4, 1, ["0000:00:02.0"])
    assert virtual.physical_function == "0000:00:01.0"
    assert (virtual.max_read_request_bytes, virtual.relaxed_ordering, virtual.max_payload_bytes) == (None, None, None)


def test_vfs_are_in_the_order_of_their_index(machine):
    pf = machine.pci("pci0000:00/0000:00:01.0", sriov_totalvfs="16", sriov_numvfs="11")
    for index in range(11):
        machine.link(f"{pf}/virtfn{index}", machine.pci(f"pci0000:00/0000:00:{index + 2:02x}.0"))
    assert machine.read().functions[0].sriov.vfs == [f"0000:00:{index + 2:02x}.0" for index in range(11)]


def test_size_of_one_vf_bar(machine):
    lines = ["0x0 0x0 0x0"] * 7 + ["0xc000000000 0xc000ffffff 0x14220c"] + ["0x0 0x0 0x0"] * 5
    data = bytearray(config(4096))
    data[0x100:0x104] = bytes.fromhex("10000100")
    data[0x10E] = 8  # TotalVFs, of which the driver allows 7
    files = {"sriov_totalvfs": "7", "sriov_numvfs": "0", "resource": "\n".join(lines)}
    top = machine.pci("pci0000:00/0000:00:01.0", **files, config=bytes(data))
    assert machine.one().sriov.vf_bars == [Bar(0, 2 << 20, "memory", 64, True)]
    machine.write(f"{top}/config", bytes(data[:256]))
    assert machine.one().sriov.vf_bars == []


def test_a_device_that_is_gone_from_the_bus_is_still_listed(machine):
    machine.pci("pci0000:00/0000:00:01.0", "30200", config=b"\xff" * 4096)
    function = machine.one()
    assert (function.kind, function.config_bytes, function.port_type) == ("gpu", 0, None)


# -- bad input: each names its path


def test_vfs_that_are_not_all_there(machine):
    machine.pci("pci0000:00/0000:00:01.0", sriov_totalvfs="4", sriov_numvfs="2")
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/sriov_numvfs says 2, and 0 VFs are there; read again"):
        machine.read()


@pytest.mark.parametrize("length", [0, 1, 63, 100, 255, 300, 4095])
def test_truncated_config_space(machine, length):
    machine.pci("pci0000:00/0000:00:01.0", config=bytes(length))
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/config: config space is truncated"):
        machine.read()


def test_config_space_with_a_loop(machine):
    machine.pci("pci0000:00/0000:00:01.0", config=config(256, x06=0x10, x34=0x40, x40=0x01, x41=0x40))
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/config: the capability list loops at 0x40"):
        machine.read()


@pytest.mark.parametrize(
    "uevent", ["", "PCI_CLASS=30200\n", "PCI_CLASS=x\nPCI_ID=10DE:2330\n", "PCI_CLASS=1\nPCI_ID=1\n"]
)
def test_malformed_identity(machine, uevent):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/uevent", uevent)
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/uevent has no usable PCI_CLASS"):
        machine.read()


def test_a_function_that_went_away(machine):
    machine.pci("pci0000:00/0000:00:01.0")
    (machine.root / "sys/devices/pci0000:00/0000:00:01.0/uevent").unlink()
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/uevent is missing"):
        machine.read()


def test_malformed_node_of_a_function(machine):
    machine.pci("pci0000:00/0000:00:01.0", numa_node="one")
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/numa_node: 'one' is not a number"):
        machine.read()


def test_what_is_no_function_among_the_devices(machine):
    machine.link("sys/bus/pci/devices/0000:00:01.0", "sys/devices/platform/0000:00:01.0")
    with pytest.raises(TopologyError, match="below no pciDDDD:BB"):
        machine.read()
    (machine.root / "sys/bus/pci/devices/0000:00:01.0").unlink()
    machine.write("sys/bus/pci/devices/0000:00:02.0", "")
    with pytest.raises(TopologyError, match=r"0000:00:02\.0"):
        machine.read()


# -- copies that are not as the kernel has it


def followed(machine):
    """Put in place of each link to a function what it leads to, as ``scp -r`` and ``cp -rL`` do."""
    for link in (machine.root / "sys/bus/pci/devices").iterdir():
        target = link.resolve()
        link.unlink()
        shutil.copytree(target, link, symlinks=True)


@pytest.fixture
def two_switches(machine):
    """A root port, and below it a switch with a GPU and an SR-IOV NIC; a GPU on another root bus."""
    port = "pci0000:3a/0000:3a:00.0"

    def bridge(path: str, first: int, last: int) -> None:
        machine.pci(path, "60400", config=config(64, x0e=0x01, x19=first, x1a=last))

    bridge(port, 0x3B, 0x3E)
    bridge(f"{port}/0000:3b:00.0", 0x3C, 0x3E)
    bridge(f"{port}/0000:3b:00.0/0000:3c:00.0", 0x3D, 0x3E)
    nic = machine.pci(f"{port}/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", "20000", sriov_totalvfs="4", sriov_numvfs="1")
    virtual = machine.pci(f"{port}/0000:3b:00.0/0000:3c:00.0/0000:3e:00.0", "20000")
    machine.pci("pci0000:00/0000:00:01.0", "30200")
    for function, name, other in ((nic, "virtfn0", virtual), (virtual, "physfn", nic)):
        for file in ("uevent", "numa_node"):
            text = (machine.root / other / file).read_text()
            machine.write(
                f"{function}/{name}/{file}", f"{text}PCI_SLOT_NAME={other[-12:]}\n" if file == "uevent" else text
            )
    return machine


@pytest.mark.parametrize("tree", [True, False], ids=["with the tree", "by the buses"])
def test_folders_in_place_of_links(two_switches, tree):
    machine = two_switches
    host = machine.read()
    assert [function.parent for function in host.functions] == [
        None,
        None,
        "0000:3a:00.0",
        "0000:3b:00.0",
        "0000:3c:00.0",
        "0000:3c:00.0",
    ]
    assert host.function("0000:3d:00.0").sriov.vfs == ["0000:3e:00.0"]
    assert host.function("0000:3e:00.0").physical_function == "0000:3d:00.0"
    followed(machine)
    if not tree:
        for name in ("pci0000:3a", "pci0000:00"):
            shutil.rmtree(machine.root / "sys/devices" / name)
            (machine.root / "sys/devices" / name).mkdir()
    assert machine.read() == host
    if not tree:
        (machine.root / "sys/devices/pci0000:3a").rmdir()
        assert machine.read().notes == [
            "bus 0000:3a is below no bridge that was copied, and counts as a root bus of its own: how far its devices "
            "are from others is not sure; copy /sys with its links (tar)"
        ]
        # That bus 0 is a root bus needs no proof.
        (machine.root / "sys/devices/pci0000:00").rmdir()
        assert len(machine.read().notes) == 1


def test_folders_of_bridges_in_a_circle(machine):
    machine.pci("pci0000:01/0000:01:00.0", "60400", config=config(64, x0e=0x01, x19=2, x1a=2))
    machine.pci("pci0000:02/0000:02:00.0", "60400", config=config(64, x0e=0x01, x19=1, x1a=1))
    followed(machine)
    for name in ("pci0000:01", "pci0000:02"):
        shutil.rmtree(machine.root / "sys/devices" / name)
    with pytest.raises(TopologyError, match=r"0000:0[12]:00\.0/config: its buses make it a bridge above itself"):
        machine.read()


def test_a_function_of_which_little_was_copied(machine):
    top = machine.pci("pci0000:00/0000:00:01.0", class_="")
    for name in ("uevent", "numa_node", "class_"):
        (machine.root / top / name).unlink()
    machine.write(f"{top}/class", "0x030200\n")
    function = machine.one()
    assert (function.class_code, function.vendor_id, function.device_id) == (0x030200, 0, 0)
    assert (function.subsystem_vendor_id, function.numa_node) == (None, None)
    assert machine.read().notes == ["vendor and device of 0000:00:01.0 were not copied, so that its kind is not known"]
    for name, value in {
        "vendor": "10de",
        "device": "2330",
        "subsystem_vendor": "10de",
        "subsystem_device": "16c1",
    }.items():
        machine.write(f"{top}/{name}", f"0x{value}\n")
    function = machine.one()
    assert (function.vendor_id, function.device_id) == (0x10DE, 0x2330)
    assert (function.subsystem_vendor_id, function.subsystem_device_id) == (0x10DE, 0x16C1)
    assert machine.read().notes == []


def test_a_group_that_was_copied_as_a_folder_is_not_known(machine):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/iommu_group/type", "DMA\n")
    assert machine.one().iommu_group is None


def test_link_files_of_an_older_kernel(machine):
    machine.pci("pci0000:00/0000:00:01.0", current_link_speed="8 GT/s")
    assert machine.one().link == Link(8.0, None, None, None)


def test_vfs_without_their_number(machine):
    pf = machine.pci("pci0000:00/0000:00:01.0", sriov_totalvfs="4")
    machine.link(f"{pf}/virtfn0", machine.pci("pci0000:00/0000:00:02.0"))
    assert (machine.read().functions[0].sriov.now, machine.read().functions[0].sriov.total) == (1, 4)


def test_a_nul_behind_a_value(machine):
    machine.write("sys/devices/system/node/node0/cpulist", b"0-1\n\0")
    machine.pci("pci0000:00/0000:00:01.0", numa_node=b"0\n\0")
    assert machine.read().numa_nodes[0].cpus == [0, 1]
    assert machine.one().numa_node == 0


def test_a_node_with_the_mask_of_its_cpus_alone(machine):
    (machine.root / "sys/devices/system/node/node0/cpulist").unlink()
    machine.write("sys/devices/system/node/node0/cpumap", "2,00000003\n")
    assert machine.read().numa_nodes[0].cpus == [0, 1, 33]
    machine.write("sys/devices/system/node/node0/cpumap", "x\n")
    with pytest.raises(TopologyError, match="node0/cpumap: 'x' is not a mask in words of up to 8 digits"):
        machine.read()


def test_a_kernel_without_numa_and_without_the_list_of_cpus(machine):
    shutil.rmtree(machine.root / "sys/devices/system/node")
    (machine.root / "sys/devices/system/cpu/online").unlink()
    machine.write("proc/meminfo", "MemTotal: 4 kB\n")
    for cpu in (0, 10):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", "0\n")
    assert machine.read().numa_nodes[0].cpus == [0, 10]


def test_distances_of_a_node_beside_one_that_is_offline(machine):
    machine.write("sys/devices/system/node/possible", "0-1\n")
    machine.write("sys/devices/system/node/node0/distance", "10 21\n")
    assert machine.read().numa_nodes[0].distances == {"0": 10}


def test_nodes_that_share_cpus_are_an_error_that_names_the_path(machine):
    machine.node(1, "1-2")
    with pytest.raises(TopologyError) as error:
        machine.read()
    assert str(error.value) == (
        f"{machine.root}/sys: the topology contradicts itself: CPU 1 of NUMA node 1 is on node 0 too, or has a number "
        "below 0; read it again with host_topology_info"
    )


def test_a_pipe_in_place_of_a_file_makes_nobody_wait(machine):
    path = machine.root / "proc/cmdline"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(TopologyError) as error:
        machine.read()
    assert (
        str(error.value)
        == f"{path} is no regular file: this is no copy of /sys or /proc; read or record the host again"
    )


def test_a_socket_in_place_of_a_file(machine, monkeypatch):
    path = machine.root / "proc/cmdline"
    path.unlink()
    monkeypatch.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("cmdline")
    with pytest.raises(TopologyError) as error:
        machine.read()
    assert str(error.value) == f"{path} cannot be read: No such device or address; read it as root"


@pytest.mark.parametrize("group", ["none", "²"])
def test_a_group_that_is_no_number(machine, group):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.link(f"{top}/iommu_group", f"sys/kernel/iommu_groups/{group}")
    with pytest.raises(TopologyError, match=f"iommu_group leads to '{group}'"):
        machine.read()


# -- the whole


def test_the_same_machine_gives_the_same_content(machine):
    machine.pci("pci0000:3a/0000:3a:00.0", "60400")
    machine.pci(GPU, "30200")
    assert machine.read().to_dict() == machine.read().to_dict()


def test_there_and_back(recording):
    for name in ("emulated-gpu-server", "supermicro-4029gp-ve"):
        host = recording(name)
        assert Host.from_dict(host.to_dict()) == host
        assert host.functions
