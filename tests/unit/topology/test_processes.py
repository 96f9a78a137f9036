# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import (
    arguments_of,
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
    assert found(machine) == [("/dev/vfio/7", (GPU,), "process 9 (dpdk-app)")]
    machine.write(f"{audio}/uevent", "DRIVER=vfio-pci\nPCI_CLASS=40300\nPCI_ID=10DE:2330\n")
    assert found(machine) == [("/dev/vfio/7", (GPU, f"{GPU[:-1]}1"), "process 9 (dpdk-app)")]


@pytest.mark.parametrize(
    ("directory", "path"),
    [
        ("vfio-dev/vfio3", "/dev/vfio/devices/vfio3"),
        ("drm/renderD128", "/dev/dri/renderD128"),
        ("infiniband_verbs/uverbs0", "/dev/infiniband/uverbs0"),
        ("accel/accel1", "/dev/accel/accel1"),
    ],
)
def test_a_device_file_of_a_class_is_its_functions(machine, gpu, directory, path):
    machine.write(f"{gpu}/{directory}/dev", "511:0\n")
    process(machine, 4711, ["kvm", "-name", "guest=kata,x=on"], "/dev/null", path)
    process(machine, 4712, ["kvm"], f"{path}0")
    assert found(machine) == [(path, (GPU,), "guest kata (process 4711)")]


def test_a_process_that_uses_a_gpu_through_nvidias_driver_is_found(machine, gpu):
    machine.write(f"proc/driver/nvidia/gpus/{GPU}/information", "Model: \t\t H100\nDevice Minor: \t 5\n")
    process(machine, 12, ["/usr/bin/nvidia-persistenced"], "/dev/nvidiactl", "/dev/nvidia5", "/dev/nvidia5")
    process(machine, 13, ["python3"], "/dev/nvidia0")
    assert found(machine) == [("/dev/nvidia5", (GPU,), "process 12 (nvidia-persistenced)")]


@pytest.mark.parametrize("path", ["/dev/nvme0n1", "/dev/nvme0n1p1"])
def test_a_disk_that_is_open_is_found_by_its_partitions_too(machine, path):
    top = machine.pci("pci0000:00/0000:00:01.0", "10802")
    machine.interface("block", "nvme0n1", f"{top}/nvme/nvme0")
    machine.write("sys/class/block/nvme0n1/nvme0n1p1/partition", "1\n")
    process(machine, 3, ["spdk"], path)
    assert found(machine) == [(path, ("0000:00:01.0",), "process 3 (spdk)")]


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
