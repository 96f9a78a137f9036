# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Malformed files in /sys: each error names its path."""

from __future__ import annotations

import os
import socket

import pytest
from messages import raises
from sysfs_samples import config

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("node/node0/cpulist", "0-x", "node0/cpulist: '0-x' is not a list of numbers"),
        ("node/node0/meminfo", "Node 0 MemFree: 1 kB", "node0/meminfo has no line MemTotal"),
        ("node/node0/distance", "10 21", r"node0/distance: .*one number for each node of \[0\]"),
        ("node/node0/distance", "ten", "node0/distance"),
        ("node/node0/distance", "²", "node0/distance"),
        ("cpu/cpu1/topology/thread_siblings_list", "0", r"thread_siblings_list: \[0\] does not include CPU 1"),
    ],
)
def test_malformed_numa_node_files_are_refused(machine, path, text, message):
    machine.write(f"sys/devices/system/{path}", text)
    with pytest.raises(TopologyError, match=message):
        machine.read()


# -- bad input: each error names the path


def test_fewer_vfs_than_sriov_numvfs_are_refused(machine):
    machine.pci("pci0000:00/0000:00:01.0", sriov_totalvfs="4", sriov_numvfs="2")
    with raises(TopologyError, "0000:00:01.0/sriov_numvfs", "2", "0"):
        machine.read()


@pytest.mark.parametrize("length", [0, 1, 63, 100, 255, 300, 4095])
def test_truncated_config_space_is_refused(machine, length):
    machine.pci("pci0000:00/0000:00:01.0", config=bytes(length))
    with raises(TopologyError, "0000:00:01.0/config", "truncated"):
        machine.read()


def test_a_loop_in_the_capability_list_is_refused(machine):
    machine.pci("pci0000:00/0000:00:01.0", config=config(256, x06=0x10, x34=0x40, x40=0x01, x41=0x40))
    with raises(TopologyError, "0000:00:01.0/config", "capability", "0x40"):
        machine.read()


@pytest.mark.parametrize(
    "uevent",
    [
        "",
        "PCI_CLASS=30200\n",
        "PCI_CLASS=x\nPCI_ID=10DE:2330\n",
        "PCI_CLASS=1\nPCI_ID=1\n",
        "PCI_CLASS=1\nPCI_ID=10DE:2330\nPCI_SUBSYS_ID=10DE\n",
    ],
)
def test_a_uevent_without_a_usable_class_and_id_is_refused(machine, uevent):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.write(f"{top}/uevent", uevent)
    with raises(TopologyError, "0000:00:01.0/uevent", "PCI_CLASS"):
        machine.read()


def test_a_function_without_a_uevent_is_refused(machine):
    machine.pci("pci0000:00/0000:00:01.0")
    (machine.root / "sys/devices/pci0000:00/0000:00:01.0/uevent").unlink()
    with raises(TopologyError, "0000:00:01.0/uevent", "missing"):
        machine.read()


def test_a_malformed_numa_node_of_a_function_is_refused(machine):
    machine.pci("pci0000:00/0000:00:01.0", numa_node="one")
    with raises(TopologyError, "0000:00:01.0/numa_node", "'one'"):
        machine.read()


def test_a_device_entry_that_is_not_a_pci_function_is_refused(machine):
    machine.link("sys/bus/pci/devices/0000:00:01.0", "sys/devices/platform/0000:00:01.0")
    with raises(TopologyError, "sys/devices/platform/0000:00:01.0", "pciDDDD:BB"):
        machine.read()
    (machine.root / "sys/bus/pci/devices/0000:00:01.0").unlink()
    machine.write("sys/bus/pci/devices/0000:00:02.0", "")
    with pytest.raises(TopologyError, match=r"0000:00:02\.0"):
        machine.read()


def test_numa_nodes_with_a_shared_cpu_are_refused_with_the_path(machine):
    machine.node(1, "1-2")
    with raises(TopologyError, f"{machine.root}/sys", "CPU 1", "node 1", "node 0"):
        machine.read()


def test_a_pipe_instead_of_a_file_is_refused_without_blocking(machine):
    path = machine.root / "proc/cmdline"
    path.unlink()
    os.mkfifo(path)
    with raises(TopologyError, path, "regular file"):
        machine.read()


def test_a_socket_instead_of_a_file_is_refused(machine, monkeypatch):
    path = machine.root / "proc/cmdline"
    path.unlink()
    monkeypatch.chdir(path.parent)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("cmdline")
    with raises(TopologyError, path, "No such device or address"):
        machine.read()


@pytest.mark.parametrize("group", ["none", "²"])
def test_an_iommu_group_that_is_not_a_number_is_refused(machine, group):
    top = machine.pci("pci0000:00/0000:00:01.0")
    machine.link(f"{top}/iommu_group", f"sys/kernel/iommu_groups/{group}")
    with raises(TopologyError, "iommu_group", repr(group)):
        machine.read()
