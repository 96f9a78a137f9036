# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices, memory and CPUs that a domain holds, read from its XML, and the vCPUs that a machine version allows."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Accelerator,
    Holdings,
    Hypervisor,
    ObservedDomain,
    holdings,
    unpinned_guests,
)


def held(xml: str) -> Holdings:
    return holdings(f"<domain>{xml}</domain>")


def test_a_domain_without_resources_holds_nothing():
    assert held("") == Holdings([], [], {}, 0)


def test_devices_are_pci_addresses_of_the_host():
    source = "<source><address {}/></source>"
    first = source.format("domain='0x10000' bus='0xe1' slot='0x1f' function='0x7'")
    second = source.format("bus='0x03'")
    other = f"<hostdev type='usb'>{first}</hostdev>"
    found = held(
        f"<devices><hostdev type='pci'>{first}</hostdev>{other}<hostdev type='pci'>{second}</hostdev></devices>"
    )
    assert found.devices == ["10000:e1:1f.7", "0000:03:00.0"]


ADDRESS = "<address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x1'/>"


@pytest.mark.parametrize(
    "device",
    [
        f"<interface type='hostdev' managed='yes'><source>{ADDRESS}</source></interface>",
        f"<disk type='nvme' device='disk'><source type='pci' namespace='1'>{ADDRESS}</source></disk>",
    ],
)
def test_devices_are_held_by_interfaces_and_disks_too(device):
    assert held(f"<devices>{device}</devices>").devices == ["0000:04:00.1"]


@pytest.mark.parametrize(
    ("argument", "devices"),
    [
        ("vfio-pci,host=0000:04:00.1,id=gpu0", ["0000:04:00.1"]),
        ("vfio-pci-nohotplug,id=a,host=4:0.1", ["0000:04:00.1"]),
        ("vfio-pci,sysfsdev=/sys/bus/pci/devices/0001:e1:1f.7", ["0001:e1:1f.7"]),
        ("vfio-pci,sysfsdev=/sys/devices/pci0000:00/0000:00:01.0/0000:04:00.1,bus=a", ["0000:04:00.1"]),
        ('{"driver": "vfio-pci", "host": "0000:04:00.1", "id": "a"}', ["0000:04:00.1"]),
        ("file=nvme://0000:04:00.1/1,if=none,id=d", ["0000:04:00.1"]),
        ("driver=nvme,device=0000:04:00.1,namespace=1,node-name=d", ["0000:04:00.1"]),
        ('{"driver": "nvme", "device": "0000:04:00.1", "namespace": 1}', ["0000:04:00.1"]),
        ("nvme,drive=d,serial=1", []),
        ("virtio-net-pci,host=0000:04:00.1", []),
        ("vfio-pci,sysfsdev=/sys/bus/mdev/devices/4b20d080-1b54-4048-85b3-a6a62d165c01", []),
        ("vfio-pci,myhost=0000:04:00.1", []),
    ],
)
def test_devices_are_held_by_qemus_own_arguments_too(argument, devices):
    space = "http://libvirt.org/schemas/domain/qemu/1.0"
    value = argument.replace('"', "&quot;")
    assert held(f"<q:commandline xmlns:q='{space}'><q:arg value=\"{value}\"/></q:commandline>").devices == devices


def test_interfaces_of_the_host_are_held_by_name_and_disks_by_path():
    macvtap = "<interface type='direct'><source dev='eno1' mode='passthrough'/></interface>"
    bridged = "<interface type='bridge'><source bridge='br0'/></interface>"
    below = "<backingStore type='block'><source dev='/dev/nvme2n1'/></backingStore>"
    disks = f"<disk type='block'><source dev='/dev/nvme1n1'/></disk><disk type='file'><source file='/a'/>{below}</disk>"
    volume = "<disk type='volume'><source pool='p' volume='v'/></disk>"
    argument = "<q:arg value='file=/dev/ng3n1,if=none'/>"
    found = held(
        f"<devices>{macvtap}{bridged}{disks}{volume}<disk type='block'/></devices>"
        f"<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>{argument}</q:commandline>"
    )
    assert (found.devices, found.interfaces) == ([], ["eno1"])
    assert found.disks == ["/dev/nvme1n1", "/a", "/dev/nvme2n1", "/dev/ng3n1"]


def test_only_cpus_that_are_pinned_one_by_one_are_held():
    pins = "".join(f"<vcpupin vcpu='0' cpuset='{cpus}'/>" for cpus in ("5", "1-2", "", "7"))
    assert held(f"<cputune>{pins}<emulatorpin cpuset='0'/></cputune>").cpus == [5, 7]


@pytest.mark.parametrize(
    ("xml", "shared"),
    [
        ("<vcpu placement='static'>64</vcpu>", [2, 3]),
        ("<vcpu cpuset='0-2'>4</vcpu>", [2]),
        ("<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='3'/></cputune>", [2, 3]),
        ("<vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='3-4'/></cputune>", [3]),
        # Pinned one by one, the planner sees its CPUs.
        ("<vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='3'/></cputune>", None),
        ("<vcpu cpuset='5-6'>2</vcpu>", None),
    ],
)
def test_a_guest_that_is_not_pinned_shares_the_cpus_that_it_may_use(xml, shared):
    domain = ObservedDomain("db", "u", "<domain/>", f"<domain>{xml}</domain>")
    assert unpinned_guests({"db": domain}, {2, 3}) == ({"db": shared} if shared else {})
    domain.live_xml = None
    assert unpinned_guests({"db": domain}, {2, 3}) == {}


@pytest.mark.parametrize(
    ("page", "mib"),
    [
        ("size='2048' unit='KiB'", 2),
        ("size='2048'", 2),
        ("size='1' unit='GiB'", 1024),
        ("size='2' unit='MiB'", 2),
        ("size='2097152' unit='bytes'", 2),
        ("", 0),
    ],
)
def test_the_page_size_is_in_mib(page, mib):
    assert held(f"<memoryBacking><hugepages><page {page}/></hugepages></memoryBacking>").page_mib == mib


def test_memory_counts_for_the_one_node_that_it_is_bound_to():
    nodes = "".join(
        f"<memnode cellid='{cell}' nodeset='{nodeset}'/>"
        for cell, nodeset in (("0", "1"), ("1", "1"), ("2", "0-1"), ("3", "0"))
    )
    cells = "".join(
        f"<cell id='{cell}' memory='{memory}' {unit}/>"
        for cell, memory, unit in (
            ("0", 1048576, "unit='KiB'"),
            ("1", 2, "unit='GiB'"),
            ("2", 4096, "unit='MiB'"),
            ("3", 3072, ""),
            ("4", 4096, "unit='MiB'"),
        )
    )
    found = held(f"<numatune>{nodes}</numatune><cpu><numa>{cells}</numa></cpu>")
    assert found.memory_mib == {1: 1024 + 2048, 0: 3}
    without = held("<numatune><memnode cellid='0' nodeset='1'/></numatune><cpu><numa><cell id='0'/></numa></cpu>")
    assert without.memory_mib == {1: 0}


@pytest.mark.parametrize(
    ("machine", "vcpus"), [("new", 300), ("old", 255), ("unknown", 300), ("quiet", 300), ("wide", 300)]
)
def test_an_old_machine_version_may_allow_fewer_vcpus(machine, vcpus):
    known = {"new": 300, "old": 255, "quiet": 0, "wide": 4096}
    assert Accelerator(300, ["bios"], "new", known).vcpus_of(machine) == vcpus


def test_a_domain_runs_if_it_has_live_xml():
    assert ObservedDomain("a", "u", "<domain/>", "<domain/>").running is True
    assert ObservedDomain("a", "u", "<domain/>").running is False
    assert ObservedDomain("a", "u", "<domain/>").autostart is False


def test_a_hypervisor_of_which_nothing_was_read_has_nothing():
    none = Hypervisor()
    assert (none.libvirt_version, none.qemu_version) == ((0, 0, 0), (0, 0, 0))
    assert [none.accelerators, none.hugetlbfs_mib, none.networks, none.missing_paths, none.domains, none.files] == [
        {}, [], {}, [], {}, {},
    ]  # fmt: skip
    assert (Holdings().page_mib, ObservedDomain("a", "u", "").state) == (0, "shutoff")
