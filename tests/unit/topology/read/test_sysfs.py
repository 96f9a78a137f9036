# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host as read from /sys: processors, memory, kernel and IOMMU."""

from __future__ import annotations

import pytest
from messages import raises
from sysfs_samples import GPU

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    HugePages,
    NvidiaSoftware,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import parse_list, read_host

# -- processors, memory, kernel


def test_a_machine_without_pci_functions_is_read(machine):
    host = machine.read()
    assert (host.functions, host.root_complexes) == ([], [])
    assert [node.id for node in host.numa_nodes] == [0]
    assert host.cpu.vendor == "GenuineIntel"
    assert host.cpu.virtualization == "vmx"
    assert host.cpu.architecture == "x86_64"
    assert host.cpu.physical_address_bits is None
    assert (host.iommu.kind, host.iommu.default_domain, host.iommu.interrupt_remapping) == (None, None, None)


def test_a_missing_sys_is_refused(tmp_path):
    with raises(TopologyError, f"{tmp_path}/sys/devices/system", "cpu", "node"):
        read_host(str(tmp_path))


def test_nodes_are_read_with_siblings_huge_pages_and_distances(machine):
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


def test_nodes_without_cpus_or_memory_are_accepted(machine):
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


def test_missing_and_malformed_huge_pages_are_refused(machine):
    top = "sys/devices/system/node/node0/hugepages/hugepages-2048kB"
    machine.write(f"{top}/nr_hugepages", "many")
    with raises(TopologyError, f"{machine.root}/{top}/nr_hugepages", "'many'"):
        machine.read()
    machine.write(f"{top}/nr_hugepages", "1")
    with raises(TopologyError, "free_hugepages", "missing"):
        machine.read()


@pytest.mark.parametrize(
    ("text", "numbers"), [("", []), ("\n", []), ("0\n", [0]), ("0-3,8", [0, 1, 2, 3, 8]), ("7,1", [7, 1])]
)
def test_kernel_lists_are_parsed(text, numbers):
    assert parse_list(text, "path") == numbers


@pytest.mark.parametrize("text", [",", "1,", "1-", "-1", "1 2", "0x1", "0-65536", "0-40000," * 2 + "1", "9" * 5000])
def test_malformed_kernel_lists_are_refused(text):
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
def test_architecture_virtualization_and_address_bits_are_read(machine, cpuinfo, architecture, virtualization, bits):
    machine.write("proc/cpuinfo", cpuinfo)
    cpu = machine.read().cpu
    assert (cpu.architecture, cpu.virtualization, cpu.physical_address_bits) == (architecture, virtualization, bits)


def test_only_the_first_processor_is_read(machine):
    machine.write("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : fpu\n\nvendor_id : Other\nflags : vmx\n")
    assert machine.read().cpu.vendor == "GenuineIntel"
    assert machine.read().cpu.virtualization is None


def test_kernel_arguments_keep_quoted_blanks(machine):
    machine.write("proc/cmdline", 'ro  dyndbg="file a.c +p" root="x y" quiet\n')
    assert machine.read().kernel_arguments == ["ro", 'dyndbg="file a.c +p"', 'root="x y"', "quiet"]


def test_the_kernel_release_is_read_from_osrelease_or_else_from_version(machine):
    machine.write("proc/version", "Linux version 6.1.0-18-amd64 (someone) #1 SMP\n")
    assert machine.read().kernel_release == "6.1.0-18-amd64"
    machine.write("proc/sys/kernel/osrelease", "6.1.0-20-amd64\n")
    assert machine.read().kernel_release == "6.1.0-20-amd64"


# -- IOMMU


@pytest.mark.parametrize(("name", "kind"), [("dmar0", "intel"), ("ivhd12", "amd"), ("smmu3.0x1", "other")])
def test_the_iommu_kind_is_derived_from_the_device_name(machine, name, kind):
    machine.write(f"sys/class/iommu/{name}/uevent", "")
    assert machine.read().iommu.kind == kind


@pytest.mark.parametrize(
    ("types", "domain"), [(["identity", "identity"], "identity"), (["DMA-FQ", "identity"], "mixed"), ([], None)]
)
def test_the_default_domain_is_derived_from_the_types_of_the_groups(machine, types, domain):
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
def test_interrupt_remapping_is_derived_from_the_interrupt_chip_names(machine, chips, remapped):
    for number, chip in enumerate(chips):
        machine.write(f"sys/kernel/irq/{number}/chip_name", f"{chip}\n")
    assert machine.read().iommu.interrupt_remapping is remapped


# -- the whole


def test_two_reads_of_one_machine_give_equal_content(machine):
    machine.pci("pci0000:3a/0000:3a:00.0", "60400")
    machine.pci(GPU, "30200")
    assert machine.read().to_dict() == machine.read().to_dict()


def test_recorded_hosts_are_unchanged_after_a_dictionary_round_trip(recording):
    for name in ("emulated-gpu-server", "supermicro-4029gp-ve"):
        host = recording(name)
        assert read_saved(host.to_dict()) == host
        assert host.functions


@pytest.mark.parametrize(
    ("text", "count"), [("0-65534", 65535), ("0-65535", 65536), ("0-65533,65534,65535", 65536), ("0,1-65535", 65536)]
)
def test_a_list_of_as_many_cpus_as_the_limit_is_read(text, count):
    assert parse_list(text, "path") == list(range(count))


@pytest.mark.parametrize("text", ["0-65536", "0-65535,1", "0,0-65535"])
def test_a_list_beyond_the_limit_is_refused(text):
    with raises(TopologyError, repr(text), "65536"):
        parse_list(text, "path")


def test_an_invalid_list_is_named(machine):
    with raises(TopologyError, "path", "'1,x'"):
        parse_list(" 1,x\n", "path")
    assert parse_list("999999999", "path") == [999999999]
    with pytest.raises(TopologyError):
        parse_list("1000000000", "path")


def test_a_core_whose_threads_are_on_two_nodes_is_divided(machine):
    machine.node(0, "0,2")
    machine.node(1, "1,3")
    for cpu in range(4):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", "0-3\n")
    assert [node.siblings for node in machine.read().numa_nodes] == [[[0, 2]], [[1, 3]]]


def test_memory_without_its_free_part_is_read(machine):
    machine.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 3 kB\nxNode 0 MemFree: 1 kB\n")
    (node,) = machine.read().numa_nodes
    assert (node.memory_bytes, node.memory_free_bytes) == (3072, None)


def test_directories_with_other_names_are_no_nodes_or_pages(machine):
    machine.write("sys/devices/system/node/node10x/cpulist", "9\n")
    machine.write("sys/devices/system/node/xnode1/cpulist", "9\n")
    machine.write("sys/devices/system/node/node0/hugepages/hugepages-4MB/nr_hugepages", "1\n")
    (node,) = machine.read().numa_nodes
    assert (node.id, node.huge_pages) == (0, [])


def test_the_architecture_is_the_first_of_the_known_keys(machine):
    machine.write("proc/cpuinfo", "vendor_id : a\ncpu : b\naddress sizes : 46 bits physical, x\nflags : xvmx svm vmx\n")
    cpu = machine.read().cpu
    assert (cpu.architecture, cpu.vendor, cpu.model, cpu.virtualization, cpu.physical_address_bits) == (
        "x86_64",
        "a",
        None,
        "vmx",
        46,
    )


def test_the_kind_of_several_iommus_is_the_first_by_name(machine):
    for name in ("dmar1", "ivhd0"):
        machine.write(f"sys/class/iommu/{name}/uevent", "")
    assert machine.read().iommu.kind == "amd"


def test_groups_without_a_type_are_ignored(machine):
    machine.write("sys/kernel/iommu_groups/0/devices", "")
    machine.write("sys/kernel/iommu_groups/1/type", "DMA\n")
    machine.write("sys/kernel/iommu_groups/2/type", "\n")
    assert machine.read().iommu.default_domain == "mixed"
    (machine.root / "sys/kernel/iommu_groups/2/type").unlink()
    assert machine.read().iommu.default_domain == "DMA"


@pytest.mark.parametrize(
    ("text", "release"), [("Linux version 6.1.0", "6.1.0"), ("Linux version", None), ("", None), ("a b c d", "c")]
)
def test_the_release_is_the_third_word_of_the_version(machine, text, release):
    machine.write("proc/version", text)
    assert machine.read().kernel_release == release


def test_an_unmatched_quote_ends_with_the_arguments(machine):
    machine.write("proc/cmdline", 'a="b c\n')
    assert machine.read().kernel_arguments == ['a="b c\n']


def test_sys_without_nodes_or_cpus_is_not_mounted(tmp_path):
    with raises(TopologyError, f"{tmp_path}/sys/devices/system", "cpu", "node"):
        read_host(str(tmp_path))
    for name in ("cpu", "node"):
        (tmp_path / name / "sys/devices/system" / name).mkdir(parents=True)
        (tmp_path / name / "proc").mkdir()
        (tmp_path / name / "proc/meminfo").write_text("MemTotal: 1 kB\n")
        assert read_host(str(tmp_path / name)).numa_nodes[0].memory_bytes == 1024


def test_the_first_16_kib_of_cpuinfo_are_read(machine):
    begin, end = "vendor_id : A\nnote : ", "\nmodel name : B"
    machine.write("proc/cpuinfo", begin + "x" * (16384 - len(begin + end)) + end + "C\n")
    assert machine.read().cpu.model == "B"


VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build  (x@y)\nGCC version: 13\n"


def test_the_driver_is_read_and_the_programs_where_there_are_nvswitches(machine):
    assert machine.read().nvidia is None
    machine.write("proc/driver/nvidia/version", VERSION)
    for process, name in (("7", "nv-fabricmanage"), ("8", "nvlsm-x"), ("9x", "nvlsm")):
        machine.write(f"proc/{process}/comm", f"{name}\n")
    assert machine.read().nvidia == NvidiaSoftware("595.91.07")
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/uevent", "PCI_CLASS=68000\nPCI_ID=10DE:22A3\n")
    assert machine.read().nvidia == NvidiaSoftware("595.91.07", ["nv-fabricmanager"])
    machine.write("proc/10/comm", "nvlsm\n")
    machine.write("proc/driver/nvidia/version", "")
    assert machine.read().nvidia == NvidiaSoftware(None, ["nv-fabricmanager", "nvlsm"])


# Capability registers: a Skylake-SP server (48 bits), QEMU with aw-bits=39, one with 5 levels but MGAW 52, and one with
# first-stage tables only.
@pytest.mark.parametrize(
    ("capability", "bits"),
    [
        ("8d2078c106f0466", 48),
        ("d2008c22260286", 39),
        ("d2008c40330e86", 52),
        ("d2008c40380086", 48),
        ("", None),
        ("none", None),
    ],
)
def test_the_width_of_an_intel_iommu_is_read_from_its_capabilities(machine, capability, bits):
    machine.write("sys/class/iommu/dmar0/intel-iommu/cap", f"{capability}\n")
    assert machine.read().iommu.address_bits == bits


def test_the_width_is_that_of_the_narrowest_iommu_and_unknown_if_one_is(machine):
    assert machine.read().iommu.address_bits is None
    machine.write("sys/class/iommu/ivhd0/amd-iommu/features", "58f77ef22294ade:0\n")
    assert machine.read().iommu.address_bits == 48
    machine.write("sys/class/iommu/dmar1/intel-iommu/cap", "d2008c22260286\n")
    assert machine.read().iommu.address_bits == 39
    machine.write("sys/class/iommu/ivhd1/uevent", "")
    assert machine.read().iommu.address_bits is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [({}, None), ({"iommufd": "N"}, False), ({"iommufd": "N", "vfio_iommu_type1": "Y"}, True)],
)
def test_unsafe_interrupts_are_read_from_vfios_modules(machine, values, expected):
    for module, text in values.items():
        machine.write(f"sys/module/{module}/parameters/allow_unsafe_interrupts", f"{text}\n")
    assert machine.read().iommu.unsafe_interrupts is expected


@pytest.mark.parametrize(
    ("package", "of_package", "socket"),
    [("1\n", "0-3\n", 1), ("1\n", "0,2\n", None), ("-1\n", "0-3\n", None), (None, "0-3\n", None), ("1\n", None, None)],
)
def test_the_socket_of_a_node_is_the_package_of_all_its_cpus(machine, package, of_package, socket):
    for node, cpus in enumerate(("0-1", "2-3")):
        machine.node(node, cpus, 1024)
    for cpu in range(4):
        for name, text in (("physical_package_id", package), ("core_siblings_list", of_package)):
            if text is not None:
                machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/{name}", text)
    assert {node.socket for node in machine.read().numa_nodes} == {socket}
