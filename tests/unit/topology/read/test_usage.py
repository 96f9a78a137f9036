# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError

ROUTE_HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
SWAP_HEAD = "Filename\tType\tSize\tUsed\tPriority\n"


def route(interface: str, destination: str, mask: str) -> str:
    return f"{interface}\t{destination}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n"


@pytest.fixture
def nic(machine):
    """A machine with one NIC, eno1, which nothing uses."""
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.interface("net", "eno1", top)
    return machine


@pytest.fixture
def disk(machine):
    """A machine with one NVMe disk of two partitions, which nothing uses."""
    top = machine.pci("pci0000:00/0000:00:01.0", "10802")
    namespace = f"{top}/nvme/nvme0/nvme0n1"
    for number, path in ((0, namespace), (1, f"{namespace}/nvme0n1p1"), (2, f"{namespace}/nvme0n1p2")):
        machine.write(f"{path}/dev", f"259:{number}\n")
        machine.link(f"sys/class/block/{path.rsplit('/', 1)[-1]}", path)
        machine.link(f"sys/dev/block/259:{number}", path)
    for number in (1, 2):
        machine.write(f"{namespace}/nvme0n1p{number}/partition", f"{number}\n")
    return machine


def mounts(machine, *lines: str) -> None:
    machine.write("proc/self/mountinfo", "".join(f"{line}\n" for line in lines))


def stack(machine, name: str, numbers: str, *below: str) -> None:
    """Add a virtual block device on top of others."""
    top = f"sys/devices/virtual/block/{name}"
    for slave in below:
        machine.link(f"{top}/slaves/{slave}", f"sys/class/block/{slave}")
    machine.link(f"sys/class/block/{name}", top)
    machine.link(f"sys/dev/block/{numbers}", top)


def test_an_unused_nic_is_not_in_use_by_the_host(nic):
    assert (nic.one().interfaces, nic.one().used_by_host) == ({"net": ["eno1"]}, [])


def test_partitions_are_not_listed_as_interfaces(disk):
    assert (disk.one().interfaces, disk.one().used_by_host) == ({"block": ["nvme0n1"]}, [])


def test_interfaces_of_virtio_and_infiniband_functions_are_found(machine):
    top = machine.pci("pci0000:00/0000:00:03.0")
    machine.interface("net", "ens3", f"{top}/virtio1")
    other = machine.pci("pci0000:00/0000:00:04.0", "20700")
    machine.interface("infiniband", "mlx5_0", other)
    machine.interface("net", "lo", "sys/devices/virtual")
    assert [function.interfaces for function in machine.read().functions] == [{"net": ["ens3"]}, {"rdma": ["mlx5_0"]}]


# -- file systems and swap


def test_a_disk_with_a_mounted_partition_is_in_use(disk):
    mounts(disk, "27 1 259:2 / / rw,noatime shared:1 - ext4 /dev/nvme0n1p2 rw")
    assert disk.one().used_by_host == ["holds the mounted file system /"]


def test_bind_mounts_are_reported_as_one_file_system(disk):
    mounts(
        disk,
        "27 1 259:2 /a /var/lib/containers/1 rw - xfs /dev/nvme0n1p2 rw",
        "28 1 259:2 / /srv rw shared:1 master:2 - xfs /dev/nvme0n1p2 rw",
        "29 1 259:1 / /boot rw - vfat /dev/nvme0n1p1 rw",
    )
    assert disk.one().used_by_host == ["holds the mounted file system /srv", "holds the mounted file system /boot"]


def test_a_disk_below_a_file_system_on_lvm_on_raid_is_in_use(disk):
    stack(disk, "md0", "9:0", "nvme0n1p1")
    stack(disk, "dm-3", "253:3", "md0")
    mounts(disk, "27 1 253:3 / / rw - ext4 /dev/mapper/vg-root rw")
    assert disk.one().used_by_host == ["holds the mounted file system /"]


def test_a_disk_below_an_unmounted_block_device_is_in_use(disk):
    stack(disk, "dm-0", "253:0", "nvme0n1p1")
    assert disk.one().used_by_host == ["is part of the block device dm-0"]


def test_all_devices_of_a_btrfs_file_system_are_in_use(disk):
    for name in ("nvme0n1p1", "nvme0n1p2"):
        disk.link(f"sys/fs/btrfs/5f-uuid/devices/{name}", f"sys/class/block/{name}")
    other = disk.pci("pci0000:00/0000:00:02.0", "10802")
    disk.interface("block", "nvme1n1", other)
    disk.link("sys/fs/btrfs/5f-uuid/devices/nvme1n1", "sys/class/block/nvme1n1")
    mounts(disk, "27 1 0:31 /@ / rw - btrfs /dev/nvme0n1p2 rw,subvol=/@")
    assert [function.used_by_host for function in disk.read().functions] == [["holds the mounted file system /"]] * 2


def test_a_mapped_mount_source_without_a_device_number_is_resolved(disk):
    stack(disk, "dm-0", "253:0", "nvme0n1p1")
    disk.link("dev/mapper/vg-data", "dev/dm-0")
    mounts(disk, "27 1 0:31 / /data rw - btrfs /dev/mapper/vg-data rw")
    assert disk.one().used_by_host == ["holds the mounted file system /data"]


def test_mounts_without_a_block_device_are_ignored(disk):
    mounts(disk, "22 27 0:20 / /sys rw shared:7 - sysfs sysfs rw", "23 27 0:44 / /net rw - nfs4 server:/x rw")
    assert disk.one().used_by_host == []


def test_a_controller_is_in_use_if_a_usb_disk_below_it_is_mounted(machine):
    top = machine.pci("pci0000:00/0000:00:14.0", "c0330")
    path = f"{top}/usb1/1-1/1-1:1.0/host0/target0:0:0/0:0:0:0"
    machine.interface("block", "sda", path)
    machine.link("sys/dev/block/8:0", f"{path}/block/sda")
    mounts(machine, "27 1 8:0 / / rw - ext4 /dev/sda rw")
    assert machine.one().used_by_host == ["holds the mounted file system /"]


def test_all_controllers_of_a_multipath_nvme_disk_are_in_use(machine):
    tops = [machine.pci(f"pci0000:00/0000:00:0{number}.0", "10802") for number in (1, 2)]
    subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    for number, top in enumerate(tops):
        machine.write(f"{top}/nvme/nvme{number}/uevent", "")
        machine.link(f"{subsystem}/nvme{number}", f"{top}/nvme/nvme{number}")
    machine.write(f"{subsystem}/nvme0n1/uevent", "")
    machine.link("sys/class/block/nvme0n1", f"{subsystem}/nvme0n1")
    machine.link("sys/dev/block/259:0", f"{subsystem}/nvme0n1")
    mounts(machine, "27 1 259:0 / / rw - ext4 /dev/nvme0n1 rw")
    for function in machine.read().functions:
        assert function.interfaces == {"block": ["nvme0n1"]}
        assert function.used_by_host == ["holds the mounted file system /"]


def test_a_disk_with_swap_space_is_in_use(disk):
    disk.write("proc/swaps", SWAP_HEAD + "/dev/nvme0n1p2\tpartition\t1\t0\t-2\n/nvme0n1\tfile\t1\t0\t-3\n/dev/x\n")
    assert disk.one().used_by_host == ["holds the swap space /dev/nvme0n1p2"]


@pytest.mark.parametrize(
    "line", ["", "27 1 259:2 / / rw ext4 /dev/nvme0n1p2 rw", "27 1 259:2 - ext4", "27 1 9:1 / / -"]
)
def test_malformed_mounts_are_refused(disk, line):
    mounts(disk, "27 1 0:20 / /sys rw - sysfs sysfs rw", line)
    with raises(TopologyError, "proc/self/mountinfo", repr(line)):
        disk.read()


# -- networks


def test_a_nic_with_the_default_route_and_its_network_is_in_use(nic):
    nic.write(
        "proc/net/route", ROUTE_HEAD + route("eno1", "00000000", "00000000") + route("eno1", "0002000A", "00FFFFFF")
    )
    assert nic.one().used_by_host == ["carries the default route", "carries the route to 10.0.2.0/24"]


def test_a_nic_with_the_ipv6_default_route_is_in_use(nic):
    zeros = "0" * 32
    line = f"{{}} {zeros} 00 fe80{zeros[4:]} 00000400 00000001 00000000 00400003 {{}}\n"
    network = "20010db8" + zeros[8:]
    nic.write("proc/net/ipv6_route", line.format(f"{network} 20", "eno1") + line.format(f"{zeros} 00", "lo"))
    assert nic.one().used_by_host == []
    nic.write("proc/net/ipv6_route", line.format(f"{zeros} 00", "    lo") + line.format(f"{zeros} 00", "  eno1"))
    assert nic.one().used_by_host == ["carries the IPv6 default route"]


def test_global_ipv6_addresses_are_reported_but_link_local_ones_are_not(nic):
    nic.write("proc/net/if_inet6", "fe80000000000000505400fffe123456 02 40 20 80 eno1\n")
    assert nic.one().used_by_host == []
    nic.write("proc/net/if_inet6", "20010db8000000000000000000000007 02 40 00 00 eno1\n")
    assert nic.one().used_by_host == ["has the address 2001:db8::7"]


def test_a_route_of_a_bridge_is_followed_through_vlan_and_bond_to_the_nic(nic):
    for name in ("bond0", "bond0.7", "br0"):
        nic.write(f"sys/devices/virtual/net/{name}/uevent", "")
        nic.link(f"sys/class/net/{name}", f"sys/devices/virtual/net/{name}")
    nic.link("sys/devices/pci0000:00/0000:00:01.0/net/eno1/master", "sys/devices/virtual/net/bond0")
    nic.link("sys/devices/virtual/net/bond0/upper_bond0.7", "sys/devices/virtual/net/bond0.7")
    nic.link("sys/devices/virtual/net/bond0.7/master", "sys/devices/virtual/net/br0")
    nic.write("proc/net/route", ROUTE_HEAD + route("br0", "00000000", "00000000"))
    assert nic.one().used_by_host == [
        "is under the interface bond0",
        "is under the interface bond0.7",
        "carries the default route through br0",
    ]


def test_a_file_among_the_interfaces_is_ignored(nic):
    nic.write("sys/class/net/bonding_masters", "bond0\n")
    assert nic.one().interfaces == {"net": ["eno1"]}


@pytest.mark.parametrize("line", ["eno1", route("eno1", "0002", "x"), route("eno1", "000200000A", "00FFFFFF")])
def test_malformed_routes_are_refused(nic, line):
    nic.write("proc/net/route", ROUTE_HEAD + line)
    with raises(TopologyError, "proc/net/route", repr(line.strip()), "route"):
        nic.read()


@pytest.mark.parametrize("line", ["fe80 02 40", "x 02 40 00 80 eno1"])
def test_malformed_addresses_are_refused(nic, line):
    nic.write("proc/net/if_inet6", f"{line}\n")
    with raises(TopologyError, "proc/net/if_inet6", repr(line)):
        nic.read()


def test_a_header_of_the_list_of_swap_spaces_and_files_are_no_disks(disk):
    disk.write("proc/swaps", "/dev/nvme0n1p1\tpartition\t1\n/dev/nvme0n1p2\tpartition\n")
    assert disk.one().used_by_host == ["holds the swap space /dev/nvme0n1p2"]


def test_the_shortest_mount_point_is_reported_and_of_equal_ones_the_first_by_name(disk):
    mounts(
        disk,
        "27 1 259:2 / /bb rw - xfs /dev/nvme0n1p2 rw",
        "28 1 259:2 / /ab rw - xfs /dev/nvme0n1p2 rw",
        "29 1 259:2 / /a/c rw - xfs /dev/nvme0n1p2 rw",
    )
    assert disk.one().used_by_host == ["holds the mounted file system /ab"]


def test_a_mount_with_five_words_is_the_shortest_line(disk):
    mounts(disk, "27 1 259:2 / /a - ext4 /dev/nvme0n1p2")
    assert disk.one().used_by_host == ["holds the mounted file system /a"]


def test_a_source_that_is_no_device_file_is_ignored(disk):
    mounts(disk, "27 1 0:31 / /a rw - btrfs nvme0n1 rw")
    assert disk.one().used_by_host == []


def test_only_the_devices_of_the_own_btrfs_file_system_are_in_use(disk):
    for name, device in (("5f", "nvme9n1"), ("6f", "nvme0n1p1")):
        disk.link(f"sys/fs/btrfs/{name}/devices/{device}", f"sys/class/block/{device}")
    mounts(disk, "27 1 0:31 / /a rw - btrfs /dev/nvme0n1p1 rw")
    assert disk.one().used_by_host == ["holds the mounted file system /a"]
    mounts(disk, "27 1 0:31 / /a rw - btrfs /dev/nvme9n1 rw")
    assert disk.one().used_by_host == []


def test_a_disk_below_two_stacked_devices_has_each_reason_once(disk):
    stack(disk, "dm-0", "253:0", "nvme0n1p1", "nvme0n1p2")
    stack(disk, "dm-1", "253:1", "dm-0", "nvme0n1p1")
    mounts(disk, "27 1 253:1 / /a rw - ext4 /dev/dm-1 rw")
    assert disk.one().used_by_host == ["holds the mounted file system /a"]
    stack(disk, "dm-2", "253:2", "nvme0n1p2")
    assert disk.one().used_by_host == ["holds the mounted file system /a"]


def test_each_route_and_address_is_reported_once(nic):
    line = route("eno1", "0002000A", "00FFFFFF")
    nic.write("proc/net/route", ROUTE_HEAD + line + line + route("lo", "0000007F", "000000FF"))
    nic.write(
        "proc/net/if_inet6",
        "20010db8000000000000000000000007 02 40 00 00 eno1\n20010db8000000000000000000000008 02 40 40 00 eno1\n",
    )
    assert nic.one().used_by_host == [
        "carries the route to 10.0.2.0/24",
        "has the address 2001:db8::7",
        "has the address 2001:db8::8",
    ]


def test_a_route_to_one_host_or_with_bits_beyond_its_mask_is_reported_as_its_network(nic):
    nic.write(
        "proc/net/route",
        ROUTE_HEAD + route("eno1", "0102000A", "FFFFFFFF") + route("eno1", "01020A0A", "0000FFFF"),
    )
    assert nic.one().used_by_host == ["carries the route to 10.0.2.1/32", "carries the route to 10.10.0.0/16"]


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("proc/self/mountinfo", "27 1 9:1 / /", "is not a line of mountinfo"),
        ("proc/net/route", "eno1", "is not a route: list index out of range"),
        (
            "proc/net/if_inet6",
            "x 02 40 00 80 eno1",
            "is not an address: invalid literal for int() with base 16: 'x'",
        ),
    ],
)
def test_a_malformed_line_is_named_with_its_file(nic, path, line, words):
    nic.write(path, (ROUTE_HEAD if "route" in path else "") + line + "\n")
    with raises(TopologyError, f"{nic.root}/{path}", repr(line), words):
        nic.read()


def test_interfaces_on_two_levels_are_followed_once(nic):
    for name in ("bond0", "br0"):
        nic.link(f"sys/class/net/{name}", f"sys/devices/virtual/net/{name}")
    nic.link("sys/devices/pci0000:00/0000:00:01.0/net/eno1/master", "sys/devices/virtual/net/bond0")
    nic.link("sys/devices/pci0000:00/0000:00:01.0/net/eno1/upper_bond0", "sys/devices/virtual/net/bond0")
    nic.link("sys/devices/virtual/net/bond0/master", "sys/devices/virtual/net/br0")
    nic.link("sys/devices/virtual/net/br0/upper_bond0", "sys/devices/virtual/net/bond0")
    assert nic.one().used_by_host == ["is under the interface bond0", "is under the interface br0"]


def test_an_interface_with_a_route_of_its_own_and_one_above_has_both_reasons(nic):
    nic.link("sys/class/net/br0", "sys/devices/virtual/net/br0")
    nic.link("sys/devices/pci0000:00/0000:00:01.0/net/eno1/master", "sys/devices/virtual/net/br0")
    nic.write(
        "proc/net/route",
        ROUTE_HEAD + route("eno1", "0002000A", "00FFFFFF") + route("br0", "00000000", "00000000"),
    )
    assert nic.one().used_by_host == ["carries the route to 10.0.2.0/24", "carries the default route through br0"]


def test_controllers_of_another_subsystem_are_not_in_use(machine):
    tops = [machine.pci(f"pci0000:00/0000:00:0{number}.0", "10802") for number in (1, 2)]
    for number, top in enumerate(tops):
        machine.write(f"{top}/nvme/nvme{number}/uevent", "")
        machine.link(f"sys/devices/virtual/nvme-subsystem/nvme-subsys{number}/nvme{number}", f"{top}/nvme/nvme{number}")
        path = f"sys/devices/virtual/nvme-subsystem/nvme-subsys{number}/nvme{number}n1"
        machine.write(f"{path}/uevent", "")
        machine.link(f"sys/class/block/nvme{number}n1", path)
        machine.link(f"sys/dev/block/259:{number}", path)
    mounts(machine, "27 1 259:1 / / rw - ext4 /dev/nvme1n1 rw")
    assert [(function.interfaces, function.used_by_host) for function in machine.read().functions] == [
        ({"block": ["nvme0n1"]}, []),
        ({"block": ["nvme1n1"]}, ["holds the mounted file system /"]),
    ]


def test_the_bridge_above_a_nic_does_not_have_its_interface(machine):
    machine.pci("pci0000:00/0000:00:01.0", "60400")
    machine.interface("net", "eno1", machine.pci("pci0000:00/0000:00:01.0/0000:01:00.0"))
    machine.write("proc/net/route", ROUTE_HEAD + route("eno1", "00000000", "00000000"))
    assert [(function.interfaces, function.used_by_host) for function in machine.read().functions] == [
        ({}, []),
        ({"net": ["eno1"]}, ["carries the default route"]),
    ]


# -- devices that a function's driver has made for guests


@pytest.mark.parametrize(("bus", "words"), [("mdev", "mediated"), ("vdpa", "vDPA")])
def test_a_function_with_a_part_for_guests_is_in_use(nic, bus, words):
    nic.link(f"sys/bus/{bus}/devices/one", "sys/devices/pci0000:00/0000:00:01.0/one")
    nic.link(f"sys/bus/{bus}/devices/other", "sys/devices/virtual/other")
    assert nic.one().used_by_host == [f"is the parent of the {words} device one"]


def test_the_parent_of_a_mediated_device_is_in_use_before_the_device_exists(nic):
    nic.write("etc/mdevctl.d/0000:00:01.0/c10f", "{}")
    nic.write("etc/mdevctl.d/scripts.d/callouts", "")
    assert nic.one().used_by_host == ["is the parent of the mediated device c10f"]
    nic.link("sys/bus/mdev/devices/c10f", "sys/devices/pci0000:00/0000:00:01.0/c10f")
    assert nic.one().used_by_host == ["is the parent of the mediated device c10f"]
