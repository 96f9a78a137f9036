# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import stat

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import (
    arguments_of,
    mapped_bars,
    name_of,
    open_files,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files

GPU = "0000:40:01.0"


def process(machine, number, arguments, *opened):
    machine.write(f"proc/{number}/cmdline", "".join(f"{argument}\0" for argument in arguments))
    for descriptor, target in enumerate(opened):
        place = machine.root / f"proc/{number}/fd/{descriptor}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def found(machine):
    """Return the open files as (path, addresses, words)."""
    opened, unread = open_files(Files(str(machine.root)), machine.read().functions)
    assert unread == 0
    return [(item.path, item.addresses, str(item)) for item in opened]


@pytest.fixture
def gpu(machine):
    """A machine with a GPU; return its directory in /sys."""
    return machine.pci(f"pci0000:40/{GPU}", "30200")


def test_a_group_that_a_guest_has_open_is_all_its_functions_that_vfio_has(machine, gpu):
    audio = machine.pci(f"pci0000:40/{GPU[:-1]}1", "40300")
    for directory, driver in ((gpu, "nvgrace-gpu-vfio-pci"), (audio, "snd_hda_intel")):
        machine.link(f"{directory}/iommu_group", "sys/kernel/iommu_groups/7")
        machine.write(f"{directory}/uevent", f"DRIVER={driver}\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n")
    process(machine, 9, ["/usr/bin/dpdk-app"], "/dev/vfio/7", "/dev/vfio/vfio")
    process(machine, 10, ["/usr/bin/testpmd"], "/dev/vfio/noiommu-7", "/dev/vfio/noiommu-8")
    assert found(machine) == [
        ("/dev/vfio/7", (GPU,), "process 9 (dpdk-app)"),
        ("/dev/vfio/noiommu-7", (GPU,), "process 10 (testpmd)"),
    ]
    machine.write(f"{audio}/uevent", "DRIVER=vfio-pci\nPCI_CLASS=40300\nPCI_ID=10DE:2330\n")
    assert found(machine)[0] == ("/dev/vfio/7", (GPU, f"{GPU[:-1]}1"), "process 9 (dpdk-app)")


def number_of(path):
    """Return the device number of a file of this machine, as the kernel names it in /sys/dev."""
    number = os.stat(path).st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


@pytest.mark.parametrize(
    "directory",
    [
        "vfio-dev/vfio3",
        "drm/renderD128",
        "accel/accel1",
        "infiniband_mad/umad0",
        "uio/uio0",
        "ptp/ptp0",
        "fwctl/fwctl0",
        "nvme/nvme0",
        "nvme/nvme0/ng0n1",
        "vdpa0/vhost-vdpa-0",
    ],
)
def test_a_device_file_belongs_to_the_function_that_its_device_is_below(machine, gpu, directory):
    machine.write(f"{gpu}/{directory}/dev", "")
    machine.link(f"sys/dev/char/{number_of('/dev/zero')}", f"{gpu}/{directory}")
    machine.write("sys/devices/virtual/misc/full/dev", "")
    machine.link(f"sys/dev/char/{number_of('/dev/full')}", "sys/devices/virtual/misc/full")
    process(machine, 4711, ["kvm", "-name", "guest=kata,x=on"], "/dev/null", "/dev/zero", "/dev/zero")
    process(machine, 4712, ["kvm"], "/dev/full", "/dev/random", "/dev/gone", "socket:[1]", "/dev/shm")
    assert found(machine) == [("/dev/zero", (GPU,), "guest kata (process 4711)")]


def test_a_file_of_a_driver_without_devices_in_sys_belongs_to_all_its_nvswitches(machine):
    drivers = {"0000:40:02.0": "nvidia-nvswitch", "0000:40:03.0": "nvidia-nvswitch", "0000:40:04.0": "vfio-pci"}
    for address, driver in drivers.items():
        uevent = f"DRIVER={driver}\nPCI_CLASS=68000\nPCI_ID=10DE:22A3\nPCI_SUBSYS_ID=10DE:1796\n"
        machine.write(f"{machine.pci(f'pci0000:40/{address}')}/uevent", uevent)
    process(machine, 77, ["/usr/bin/nv-fabricmanager"], "/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch1")
    assert found(machine) == [
        ("/dev/nvidia-nvswitch1", ("0000:40:02.0", "0000:40:03.0"), "process 77 (nv-fabricmanager)")
    ]


def test_a_bar_is_found_open_and_mapped_with_its_file_closed(machine, gpu):
    window = f"/{gpu}/resource0"
    process(machine, 20, ["mstflint"], f"{window}_wc", f"/{gpu}/config")
    process(machine, 21, ["rshim"])
    machine.write(
        "proc/21/maps",
        "7f0000000000-7f0000100000 rw-s 00000000 00:15 2201    /usr/lib/x/resource0\n"
        f"7f0000200000-7f0000300000 rw-s 00000000 00:15 2202                       {window}\n"
        "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0       [stack]\n",
    )
    assert found(machine) == [(f"{window}_wc", (GPU,), "process 20 (mstflint)")]
    functions = machine.read().functions
    mapped = mapped_bars(Files(str(machine.root)), functions)
    assert [(item.path, item.addresses, str(item)) for item in mapped] == [(window, (GPU,), "process 21 (rshim)")]
    assert mapped_bars(Files(str(machine.root)), []) == []


def test_a_process_that_uses_a_gpu_through_nvidias_driver_is_found(machine, gpu):
    machine.write(f"proc/driver/nvidia/gpus/{GPU}/information", "Model: \t\t H100\nDevice Minor: \t 5\n")
    process(machine, 12, ["/usr/bin/nvidia-persistenced"], "/dev/nvidiactl", "/dev/nvidia5", "/dev/nvidia5")
    process(machine, 13, ["python3"], "/dev/nvidia0")
    assert found(machine) == [("/dev/nvidia5", (GPU,), "process 12 (nvidia-persistenced)")]


@pytest.mark.parametrize("part", ["", "/nvme0n1p1"])
@pytest.mark.parametrize("multipath", [False, True])
def test_a_disk_that_is_open_is_found_by_its_partitions_and_its_paths_too(machine, monkeypatch, part, multipath):
    top = machine.pci("pci0000:00/0000:00:01.0", "10802")
    below = f"{top}/nvme/nvme0"
    if multipath:
        below = "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
        machine.link(f"{below}/nvme0", f"{top}/nvme/nvme0")
    machine.link(f"sys/dev/block/{number_of('/dev/zero')}", f"{below}/nvme0n1{part}")
    process(machine, 3, ["spdk"], "/dev/zero")
    # Not every machine with these tests has a block device.
    monkeypatch.setattr(stat, "S_ISCHR", lambda mode: False)
    monkeypatch.setattr(stat, "S_ISBLK", lambda mode: True)
    assert found(machine) == [("/dev/zero", ("0000:00:01.0",), "process 3 (spdk)")]


@pytest.mark.parametrize(("error", "unread"), [(PermissionError, 1), (ProcessLookupError, 0)])
def test_a_process_whose_files_cannot_be_read_is_counted_unless_it_has_ended(machine, gpu, monkeypatch, error, unread):
    process(machine, 3, ["app"], "/dev/null")
    functions, listdir = machine.read().functions, os.listdir

    def names(path):
        if str(path).endswith("/fd"):
            raise error
        return listdir(path)

    monkeypatch.setattr(os, "listdir", names)
    assert open_files(Files(str(machine.root)), functions) == ([], unread)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["kvm", "-name", "db1"], "db1"),
        (["kvm", "-name", "guest=db1,debug-threads=on"], "db1"),
        (["kvm", "-name", "db1,process=x"], "db1"),
        (["kvm", "-name"], None),
        (["kvm", "--name", "db1"], None),
        (["kvm", "-m", "1", "-name", "db1", "-S"], "db1"),
        ([], None),
    ],
)
def test_the_name_is_read_from_the_command_line(arguments, name):
    assert name_of(arguments) == name


def test_a_process_that_ended_has_no_arguments(machine):
    files = Files(str(machine.root))
    assert arguments_of(files, "7") == []
    process(machine, 7, ["kvm", "", "-S"])
    assert arguments_of(files, "7") == ["kvm", "", "-S"]
    (machine.root / "proc/7/cmdline").unlink()
    os.mkfifo(machine.root / "proc/7/cmdline")
    assert arguments_of(files, "7") == []
