# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The PCI tree as read from /sys."""

from __future__ import annotations

import os

import pytest
from messages import raises
from sysfs_samples import GPU, config

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    AtomicOps,
    Bar,
    Link,
    RootComplex,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved

# -- the PCI tree


def test_the_pci_tree_is_read_from_the_links(machine):
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


def test_a_root_complex_below_a_volume_management_device_is_read(machine):
    machine.pci("pci0000:00/0000:00:0e.0", "10400")
    machine.pci("pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0", "60400")
    machine.pci("pci0000:00/0000:00:0e.0/pci10000:00/10000:00:02.0/10000:01:00.0", "10802")
    host = machine.read()
    assert [item.name for item in host.root_complexes] == ["pci0000:00", "pci10000:00"]
    assert [step.address for step in host.path("10000:01:00.0")] == ["10000:00:02.0", "10000:01:00.0"]
    assert host.function("10000:01:00.0").root_complex == "pci10000:00"


def test_a_root_complex_below_a_vmbus_device_is_read(machine):
    machine.pci("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0", "30200")
    assert machine.one().root_complex == "pci0001:00"


def test_an_empty_root_complex_is_listed(machine):
    machine.pci("pci0000:3a/0000:3a:00.0")
    machine.write("sys/devices/pci0000:d7/uevent", "")
    assert machine.read().root_complexes[1] == RootComplex("pci0000:d7", 0, 0xD7, None)


def test_a_root_complex_with_functions_on_two_nodes_has_no_node(machine):
    machine.pci("pci0000:00/0000:00:01.0", numa_node="0")
    machine.pci("pci0000:00/0000:00:02.0", numa_node="1")
    assert machine.read().root_complexes[0].numa_node is None


def test_a_numa_node_of_minus_1_is_read_as_none(machine):
    machine.pci("pci0000:00/0000:00:01.0", numa_node="-1\n")
    assert machine.one().numa_node is None
    assert machine.read().root_complexes[0].numa_node is None


def test_a_bridge_missing_from_the_listing_is_read_from_the_device_tree(machine):
    machine.pci("pci0000:3a/0000:3a:00.0", "60400")
    machine.pci(GPU, "30200")
    (machine.root / "sys/bus/pci/devices/0000:3a:00.0").unlink()
    assert machine.read().function("0000:3b:00.0").parent == "0000:3a:00.0"
    assert len(machine.read().functions) == 2


def test_the_driver_and_the_iommu_group_are_read(machine):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/uevent", "DRIVER=vfio-pci\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n")
    machine.link(f"{top}/iommu_group", "sys/kernel/iommu_groups/17")
    function = machine.one()
    assert (function.driver, function.iommu_group, function.subsystem_vendor_id) == ("vfio-pci", 17, None)


def test_bars_are_read_with_size_kind_width_and_prefetchability(machine):
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


def test_a_rom_is_bar_6_and_bridge_windows_are_not_bars(machine):
    lines = ["0x0 0x0 0x0"] * 6 + ["0xfe000000 0xfe0fffff 0x46200"] + ["0x0 0x0 0x0"] * 6 + ["0x1000 0x1fff 0x101"]
    machine.pci("pci0000:00/0000:00:01.0", resource="\n".join(lines))
    assert machine.one().bars == [Bar(6, 1 << 20, "memory", 32, True)]


def test_the_low_flag_bits_do_not_determine_the_bar_kind(machine):
    # Bit 0 of a ROM's flags means that it is enabled; a line with only that bit, or without an end address, is no BAR.
    lines = ["0x1000 0x1fff 0x1", "0x0 0x0 0x40200", *["0x0 0x0 0x0"] * 4, "0xfe000000 0xfe0fffff 0x46201"]
    machine.pci("pci0000:00/0000:00:01.0", resource="\n".join(lines))
    assert machine.one().bars == [Bar(6, 1 << 20, "memory", 32, True)]


def test_a_readable_config_space_has_precedence_over_the_link_files(machine):
    files = {"current_link_speed": "8.0 GT/s", "current_link_width": "8", "max_link_speed": "8.0 GT/s"}
    machine.pci("pci0000:00/0000:00:01.0", config=config(256), **files, max_link_width="8")
    assert (machine.one().config_bytes, machine.one().link) == (256, None)


@pytest.mark.parametrize("line", ["0x0 0x0", "0x0 0x0 zero", "0x2000 0x1fff 0x200"])
def test_malformed_bars_are_refused(machine, line):
    machine.pci("pci0000:00/0000:00:01.0", resource=f"{line}\n")
    with pytest.raises(TopologyError, match=r"0000:00:01\.0/resource: line 1"):
        machine.read()


def test_links_are_read_from_files_if_config_space_is_short(machine):
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


def test_unknown_link_values_are_read_as_none(machine):
    files = {"current_link_speed": "Unknown", "current_link_width": "0", "max_link_speed": "8 GT/s"}
    machine.pci("pci0000:00/0000:00:01.0", **files, max_link_width="63")
    assert machine.one().link == Link(None, None, 8.0, 63)


def test_the_bus_numbers_of_a_bridge_are_read(machine):
    machine.pci("pci0000:00/0000:00:01.0", "60400", config=config(64, x0e=0x81, x19=0x3B, x1a=0x41))
    assert (machine.one().secondary_bus, machine.one().subordinate_bus) == (0x3B, 0x41)


def test_the_capability_registers_of_a_function_are_read(machine):
    data = bytearray(
        config(4096, x06=0x10, x34=0x60, x60=0x10, x62=0x02, x68=0x37, x69=0x59, x84=0xC0, x85=0x02, x88=0x40)
    )
    data[0x100:0x108] = bytes.fromhex("0d000115 5f001d00")
    data[0x150:0x158] = bytes.fromhex("0f000100 00000580")
    machine.pci("pci0000:00/0000:00:01.0", "30200", config=bytes(data))
    function = machine.one()
    assert (function.port_type, function.config_bytes) == ("endpoint", 4096)
    assert (function.max_read_request_bytes, function.max_payload_bytes) == (4096, 256)
    assert function.relaxed_ordering is True
    assert (function.acs.capability, function.acs.control) == (0x5F, 0x1D)
    assert (function.ats.enabled, function.ats.smallest_translation_unit) == (True, 5)
    assert function.atomic_ops == AtomicOps([32, 128], routes=True, requests=True, blocks_egress=False)


def test_settings_of_the_physical_function_are_not_read_from_a_vf(machine):
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


def test_the_size_of_one_vf_bar_is_computed_from_total_vfs(machine):
    lines = ["0x0 0x0 0x0"] * 7 + ["0xc000000000 0xc000ffffff 0x14220c"] + ["0x0 0x0 0x0"] * 5
    data = bytearray(config(4096))
    data[0x100:0x104] = bytes.fromhex("10000100")
    data[0x10E] = 8  # TotalVFs, of which the driver allows 7
    files = {"sriov_totalvfs": "7", "sriov_numvfs": "0", "resource": "\n".join(lines)}
    top = machine.pci("pci0000:00/0000:00:01.0", **files, config=bytes(data))
    assert machine.one().sriov.vf_bars == [Bar(0, 2 << 20, "memory", 64, True)]
    machine.write(f"{top}/config", bytes(data[:256]))
    assert machine.one().sriov.vf_bars == []


def test_a_device_that_does_not_respond_is_still_listed(machine):
    machine.pci("pci0000:00/0000:00:01.0", "30200", config=b"\xff" * 4096)
    function = machine.one()
    assert (function.kind, function.config_bytes, function.port_type) == ("gpu", 0, None)


def test_vf_bars_are_numbered_from_0_and_end_before_the_windows_of_bridges(machine):
    def line(number):
        return f"{number << 20:#x} {(number << 20) + 0xFFF:#x} 0x200"

    data = bytearray(config(4096))
    data[0x100:0x104] = bytes.fromhex("10000100")
    data[0x10E] = 4
    lines = [line(number) for number in range(1, 15)]
    files = {"sriov_totalvfs": "4", "sriov_numvfs": "0", "resource": "\n".join(lines)}
    top = machine.pci("pci0000:00/0000:00:01.0", **files, config=bytes(data))
    function = machine.one()
    assert function.bars == [Bar(index, 4096, "memory", 32, False) for index in range(7)]
    assert function.sriov.vf_bars == [Bar(index, 1024, "memory", 32, False) for index in range(6)]
    data[0x10E] = 0
    machine.write(f"{top}/config", bytes(data))
    assert machine.one().sriov.vf_bars[0].size_bytes == 4096


@pytest.mark.parametrize(
    ("line", "bars"),
    [
        ("0x0 0x0 0x200", []),
        ("0x1000 0x1000 0x200", [Bar(0, 1, "memory", 32, False)]),
        ("0x0 0xfff 0x200", [Bar(0, 4096, "memory", 32, False)]),
        ("0x1000 0x1fff 0x100", [Bar(0, 4096, "io", 32, False)]),
        ("0x1000 0x1fff 0x400", []),
        ("0x1000 0x1fff 0x102200", [Bar(0, 4096, "memory", 64, True)]),
        # Bit 1 marks a shadow only of the ROM.
        ("0x1000 0x1fff 0x202", [Bar(0, 4096, "memory", 32, False)]),
        ("0x1000 0x1fff 0x1201", [Bar(0, 4096, "memory", 32, False)]),
        ("0x1000 0x1fff 0x100200", [Bar(0, 4096, "memory", 64, False)]),
    ],
)
def test_the_flags_of_a_line_tell_whether_it_is_a_bar(machine, line, bars):
    machine.pci("pci0000:00/0000:00:01.0", resource=f"{line}\n")
    assert machine.one().bars == bars


@pytest.mark.parametrize(
    ("size", "config_bytes", "has_link"), [(64, 64, True), (128, 128, True), (256, 256, False), (4096, 4096, False)]
)
def test_the_link_files_are_read_if_config_space_has_less_than_256_bytes(machine, size, config_bytes, has_link):
    machine.pci("pci0000:00/0000:00:01.0", config=config(size), current_link_speed="8.0 GT/s", max_link_width="4")
    function = machine.one()
    assert function.config_bytes == config_bytes
    assert function.link == (Link(8.0, None, None, 4) if has_link else None)


def test_vf_bars_are_known_only_with_extended_config_space(machine):
    lines = ["0x0 0x0 0x0"] * 7 + ["0x1000 0x1fff 0x200"]
    files = {"sriov_totalvfs": "4", "sriov_numvfs": "0", "resource": "\n".join(lines)}
    machine.pci("pci0000:00/0000:00:01.0", **files, config=config(4096))
    # There is no SR-IOV capability: the size is that of the line.
    assert machine.one().sriov.vf_bars == [Bar(0, 4096, "memory", 32, False)]


@pytest.mark.parametrize(
    ("x0e", "buses"), [(0x01, (0x3B, 0x41)), (0x81, (0x3B, 0x41)), (0x00, (None, None)), (0x02, (None, None))]
)
def test_only_a_bridge_has_bus_numbers(machine, x0e, buses):
    machine.pci("pci0000:00/0000:00:01.0", "60400", config=config(64, x0e=x0e, x19=0x3B, x1a=0x41))
    assert (machine.one().secondary_bus, machine.one().subordinate_bus) == buses


def test_a_root_complex_has_the_node_of_its_functions_and_not_of_others(machine):
    machine.node(1, "")
    for number, node in enumerate(("0", "1", "-1")):
        machine.pci(f"pci0000:0{number}/0000:0{number}:01.0", numa_node=node)
    machine.pci("pci0000:00/0000:00:02.0", numa_node="-1")
    assert machine.read().root_complexes == [
        RootComplex("pci0000:00", 0, 0, 0),
        RootComplex("pci0000:01", 0, 1, 1),
        RootComplex("pci0000:02", 0, 2, None),
    ]


def test_root_complexes_are_sorted_by_domain_and_bus(machine):
    for name in ("pci0001:00", "pci0000:ff", "pci10000:00", "pci0000:02"):
        machine.write(f"sys/devices/{name}/uevent", "")
    machine.write("sys/devices/pci-bridge/uevent", "")
    assert [(item.domain, item.bus) for item in machine.read().root_complexes] == [
        (0, 2),
        (0, 0xFF),
        (1, 0),
        (0x10000, 0),
    ]


def test_files_that_a_copy_lacks_are_unknown(machine):
    top = machine.pci("pci0000:00/0000:00:01.0")
    (machine.root / top / "numa_node").unlink()
    machine.write(f"{top}/uevent", "no equal sign\nPCI_CLASS=30200\nPCI_ID=10DE:2330\nDRIVER=a=b\n")
    function = machine.one()
    assert (function.numa_node, function.driver, function.bars, function.sriov) == (None, "a=b", [], None)
    assert (function.iommu_group, function.physical_function, function.link) == (None, None, None)
    assert (function.config_bytes, function.port_type) == (0, None)


def test_a_malformed_line_of_a_resource_is_named(machine):
    top = machine.pci("pci0000:00/0000:00:01.0", resource="0x0 0x0 0x0\n0x2 0x1 0x200\n")
    with raises(TopologyError, f"{machine.root}/{top}/resource", "line 2", "'0x2 0x1 0x200'"):
        machine.read()
    machine.write(f"{top}/resource", "0x0 0x0\n")
    with raises(TopologyError, f"{machine.root}/{top}/resource", "line 1", "'0x0 0x0'"):
        machine.read()


def test_config_space_is_closed_after_it_was_read(machine):
    machine.pci("pci0000:00/0000:00:01.0", config=config(4096))
    machine.pci("pci0000:00/0000:00:02.0", config=config(64))
    before = os.listdir("/proc/self/fd")
    machine.read()
    assert os.listdir("/proc/self/fd") == before


def test_bars_without_an_address_are_named_even_where_the_kernel_keeps_their_size(machine):
    # IORESOURCE_UNSET (bit 29) has the size; older kernels leave the flags alone. An I/O BAR does not matter.
    lines = ["0xa0000000 0xa0ffffff 0x40200", "0x0 0xfffffffff 0x2014220c", "0x0 0x0 0x0", "0x0 0x0 0x14220c"]
    machine.pci("pci0000:00/0000:00:01.0", resource="\n".join([*lines, "0x0 0x0 0x0", "0x0 0x0 0x40101"]))
    function = machine.one()
    assert function.unassigned_bars == [1, 3]
    assert [(item.index, item.size_bytes) for item in function.bars] == [(0, 16 << 20), (1, 64 << 30)]


def vpd(field):
    value = b"MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:" + field
    area = b"VA" + bytes([len(value)]) + value
    return b"\x90" + len(area).to_bytes(2, "little") + area + b"\x78"


def board(machine, gpu="10DE:2901"):
    """Add a GPU, a NIC, a marked function and its unmarked neighbour, and one whose VPD cannot be read."""
    functions = {"01.0": ("30200", gpu, b""), "02.0": ("20700", "15B3:1021", vpd(b"MODL=C7010Z"))}
    functions["03.0"] = ("20700", "15B3:1021", vpd(b"SMDL=SW_MNG"))
    functions["03.1"] = functions["02.0"]
    functions["04.0"] = ("20700", "15B3:1021", b"")
    for place, (class_code, ids, data) in functions.items():
        top = machine.pci(f"pci0000:00/0000:00:{place}", vpd=data)
        machine.write(f"{top}/uevent", f"PCI_CLASS={class_code}\nPCI_ID={ids}\n")
    return {item.address[8:]: (item.kind, item.manages_nvswitches) for item in machine.read().functions}


def test_functions_that_manage_nvswitches_are_known_by_vpd_beside_nvlink5_gpus(machine):
    assert board(machine) == {
        "01.0": ("gpu", None),
        "02.0": ("nic", False),
        "03.0": ("nvswitch_management", True),
        "03.1": ("nvswitch_management", False),
        "04.0": ("nic", None),
    }
    saved = read_saved(machine.read().to_dict())
    assert saved.to_dict() == machine.read().to_dict()


def test_vpd_is_not_read_beside_other_gpus(machine):
    assert {manages for _kind, manages in board(machine, "10DE:2330").values()} == {None}


def test_an_old_recording_does_not_say_what_manages_nvswitches(machine):
    board(machine)
    data = machine.read().to_dict()
    for function in data["functions"]:
        del function["manages_nvswitches"], function["unassigned_bars"]
        function["kind"] = function["kind"].replace("nvswitch_management", "nic")
    read = {(item.kind, item.manages_nvswitches) for item in read_saved(data).functions}
    assert read == {("gpu", None), ("nic", None)}
