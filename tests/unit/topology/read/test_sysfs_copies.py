# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Copies of /sys that differ from the kernel's tree."""

from __future__ import annotations

import shutil

import pytest
from messages import raises
from sysfs_samples import config

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Link, TopologyError

# -- copies that differ from the kernel's tree


def followed(machine):
    """Replace each link to a function with a copy of its target, as ``scp -r`` and ``cp -rL`` do."""
    for link in (machine.root / "sys/bus/pci/devices").iterdir():
        target = link.resolve()
        link.unlink()
        shutil.copytree(target, link, symlinks=True)


@pytest.fixture
def two_switches(machine):
    """A root port with a switch below it, which has a GPU and an SR-IOV NIC; another GPU is on another root bus."""
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
def test_directories_copied_instead_of_links_give_the_same_host(two_switches, tree):
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
            "bus 0000:3a is not below any copied bridge, and is treated as a root bus of its own: the distances of "
            "its devices from others are uncertain; copy /sys with its links (tar)"
        ]
        # Bus 0 is known to be a root bus even without its directory.
        (machine.root / "sys/devices/pci0000:00").rmdir()
        assert len(machine.read().notes) == 1


def test_copied_bridges_in_a_loop_are_refused(machine):
    machine.pci("pci0000:01/0000:01:00.0", "60400", config=config(64, x0e=0x01, x19=2, x1a=2))
    machine.pci("pci0000:02/0000:02:00.0", "60400", config=config(64, x0e=0x01, x19=1, x1a=1))
    followed(machine)
    for name in ("pci0000:01", "pci0000:02"):
        shutil.rmtree(machine.root / "sys/devices" / name)
    with raises(TopologyError, "config", "bridge above itself"):
        machine.read()


def test_a_partly_copied_function_is_read_from_the_files_that_exist(machine):
    top = machine.pci("pci0000:00/0000:00:01.0", class_="")
    for name in ("uevent", "numa_node", "class_"):
        (machine.root / top / name).unlink()
    machine.write(f"{top}/class", "0x030200\n")
    function = machine.one()
    assert (function.class_code, function.vendor_id, function.device_id) == (0x030200, 0, 0)
    assert (function.subsystem_vendor_id, function.numa_node) == (None, None)
    assert machine.read().notes == ["vendor and device of 0000:00:01.0 were not copied, so its kind is not known"]
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


def test_an_iommu_group_copied_as_a_directory_is_unknown(machine):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/iommu_group/type", "DMA\n")
    assert machine.one().iommu_group is None


def test_a_link_without_width_and_maximum_files_is_read(machine):
    machine.pci("pci0000:00/0000:00:01.0", current_link_speed="8 GT/s")
    assert machine.one().link == Link(8.0, None, None, None)


def test_vfs_are_counted_if_sriov_numvfs_is_missing(machine):
    pf = machine.pci("pci0000:00/0000:00:01.0", sriov_totalvfs="4")
    machine.link(f"{pf}/virtfn0", machine.pci("pci0000:00/0000:00:02.0"))
    assert (machine.read().functions[0].sriov.now, machine.read().functions[0].sriov.total) == (1, 4)


def test_a_nul_after_a_value_is_ignored(machine):
    machine.write("sys/devices/system/node/node0/cpulist", b"0-1\n\0")
    machine.pci("pci0000:00/0000:00:01.0", numa_node=b"0\n\0")
    assert machine.read().numa_nodes[0].cpus == [0, 1]
    assert machine.one().numa_node == 0


def test_cpus_are_read_from_cpumap_if_cpulist_is_missing(machine):
    (machine.root / "sys/devices/system/node/node0/cpulist").unlink()
    machine.write("sys/devices/system/node/node0/cpumap", "2,00000003\n")
    assert machine.read().numa_nodes[0].cpus == [0, 1, 33]
    machine.write("sys/devices/system/node/node0/cpumap", "x\n")
    with raises(TopologyError, "node0/cpumap", "'x'", "8"):
        machine.read()


def test_cpus_are_found_without_numa_nodes_and_without_the_online_list(machine):
    shutil.rmtree(machine.root / "sys/devices/system/node")
    (machine.root / "sys/devices/system/cpu/online").unlink()
    machine.write("proc/meminfo", "MemTotal: 4 kB\n")
    for cpu in (0, 10):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", "0\n")
    assert machine.read().numa_nodes[0].cpus == [0, 10]


def test_distances_to_offline_nodes_are_ignored(machine):
    machine.write("sys/devices/system/node/possible", "0-1\n")
    machine.write("sys/devices/system/node/node0/distance", "10 21\n")
    assert machine.read().numa_nodes[0].distances == {"0": 10}


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [("1", [0]), ("80000000", [31]), ("1,00000000", [32]), ("1,0", [32]), ("0", []), (",".join("1" * 2048), None)],
)
def test_a_mask_of_cpus_has_words_of_32_bits(machine, mask, cpus):
    (machine.root / "sys/devices/system/node/node0/cpulist").unlink()
    machine.write("sys/devices/system/node/node0/cpumap", f"{mask}\n")
    assert machine.read().numa_nodes[0].cpus == ([32 * at for at in range(2048)] if cpus is None else cpus)


@pytest.mark.parametrize("mask", [",".join("1" * 2049), "123456789", "1,,1", "G"])
def test_a_malformed_mask_of_cpus_is_refused(machine, mask):
    (machine.root / "sys/devices/system/node/node0/cpulist").unlink()
    machine.write("sys/devices/system/node/node0/cpumap", f"{mask}\n")
    with raises(TopologyError, f"{machine.root}/sys/devices/system/node/node0/cpumap", f"{mask!r:.60}", "8"):
        machine.read()


def test_a_node_without_cpulist_and_cpumap_is_refused(machine):
    (machine.root / "sys/devices/system/node/node0/cpulist").unlink()
    with raises(TopologyError, f"{machine.root}/sys/devices/system/node/node0/cpulist", "missing"):
        machine.read()


def test_the_list_of_cpus_has_precedence_over_the_mask(machine):
    machine.write("sys/devices/system/node/node0/cpumap", "ff\n")
    assert machine.read().numa_nodes[0].cpus == [0, 1]


def test_a_vf_without_a_bridge_of_its_own_bus_is_below_that_of_its_physical_function(two_switches):
    machine = two_switches
    followed(machine)
    for name in ("pci0000:3a", "pci0000:00"):
        shutil.rmtree(machine.root / "sys/devices" / name)
    top = machine.root / "sys/bus/pci/devices"
    for place in ("0000:3c:00.0/config", "0000:3b:00.0/config"):
        (top / place).unlink()
    host = machine.read()
    assert [(function.address, function.parent, function.root_complex) for function in host.functions] == [
        ("0000:00:01.0", None, "pci0000:00"),
        ("0000:3a:00.0", None, "pci0000:3a"),
        ("0000:3b:00.0", "0000:3a:00.0", "pci0000:3a"),
        ("0000:3c:00.0", None, "pci0000:3c"),
        ("0000:3d:00.0", None, "pci0000:3d"),
        ("0000:3e:00.0", None, "pci0000:3e"),
    ]
    assert [note.split()[1] for note in host.notes] == ["0000:3a", "0000:3c", "0000:3d", "0000:3e"]


def test_the_copied_tree_gives_the_bridges_without_their_config_space(machine):
    machine.pci("pci0000:3a/0000:3a:00.0", "60400")
    machine.pci("pci0000:3a/0000:3a:00.0/0000:3b:00.0", "30200")
    # A link in the tree is not followed.
    machine.link("sys/devices/pci0000:3a/0000:3a:01.0", "sys/devices/pci0000:3a")
    host = machine.read()
    followed(machine)
    assert machine.read() == host
    assert [function.parent for function in host.functions] == [None, "0000:3a:00.0"]


def test_a_loop_above_a_function_that_is_not_in_it_is_refused(machine):
    machine.pci("pci0000:02/0000:02:00.0", "30200")
    machine.pci("pci0000:02/0000:02:05.0", "60400", config=config(64, x0e=0x01, x19=3, x1a=3))
    machine.pci("pci0000:03/0000:03:00.0", "60400", config=config(64, x0e=0x01, x19=2, x1a=2))
    followed(machine)
    for name in ("pci0000:02", "pci0000:03"):
        shutil.rmtree(machine.root / "sys/devices" / name)
    with raises(TopologyError, f"{machine.root}/sys/bus/pci/devices/0000:03:00.0/config", "bridge"):
        machine.read()
