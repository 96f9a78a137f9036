# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_nodes import Node

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import facts
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.facts import (
    MountedFileSystem,
    StorageFacts,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

VERSION = "NVRM version: NVIDIA UNIX {}Kernel Module for x86_64  595.91.07  Release Build  (x@y)\n"


def drive(node: Node, name: str, transport: str = "pcie") -> None:
    node.write(f"/sys/class/nvme/{name[:5]}/transport", f"{transport}\n")
    node.write(f"/sys/class/block/{name}/size", "1\n")


def test_a_bare_host_has_no_facts(tmp_path):
    assert facts.observe(System(str(tmp_path))) == StorageFacts()


def test_all_facts_of_a_ready_host_are_read(tmp_path):
    node = Node(tmp_path)
    node.write("/proc/driver/nvidia/version", VERSION.format("Open "))
    node.write("/proc/driver/nvidia/params", 'EnableMSI: 1\nRegistryDwords: "RMForceStaticBar1=1;"\nRmMsg: ""\n')
    node.write("/proc/kallsyms", "0000000000000000 d p2pdma_pgmap_ops\n0000000000000000 t x\n")
    node.write("/sys/module/nvme_core/parameters/multipath", "N\n")
    node.write("/sys/module/nvidia_fs/version", "2.29.4\n")
    node.write("/proc/driver/nvidia-fs/modules", "rpcrdma: 1\nnvme: 2\n")
    node.write("/sys/module/nvidia_peermem/version", "1\n")
    node.write("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisor vme\n")
    node.write("/proc/mounts", "/dev/nvme0n1p1 /a\\040b ext4 rw,data=ordered 0 0\nproc /proc proc rw 0 0\n")
    drive(node, "nvme0n1p1")
    assert facts.observe(node) == StorageFacts(
        driver="595.91.07",
        open_driver=True,
        p2pdma_symbol=True,
        nvme_multipath=False,
        registry="RMForceStaticBar1=1;",
        nvidia_fs=True,
        registered=("nvme", "rpcrdma"),
        peermem=True,
        virtual_machine=True,
        file_systems=(MountedFileSystem("/a b", "ext4", "nvme", ("rw", "data=ordered"), ("nvme0n1",)),),
    )


@pytest.mark.parametrize(("symbols", "there"), [("0 d xp2pdma_pgmap_ops\n0 d p2pdma_pgmap_ops_x\n", False), ("", None)])
def test_another_symbol_does_not_count_and_an_empty_table_is_not_known(tmp_path, symbols, there):
    node = Node(tmp_path)
    node.write("/proc/kallsyms", symbols)
    assert facts.observe(node).p2pdma_symbol is there


def test_the_proprietary_driver_is_told_from_the_open_one(tmp_path):
    node = Node(tmp_path)
    node.write("/proc/driver/nvidia/version", VERSION.format(""))
    assert facts.observe(node).open_driver is False


@pytest.mark.parametrize(
    ("files", "value"), [({}, None), ({"version": "1"}, False), ({"parameters/multipath": "Y\n"}, True)]
)
def test_multipath_is_off_in_a_kernel_without_it(tmp_path, files, value):
    node = Node(tmp_path)
    for name, text in files.items():
        node.write(f"/sys/module/nvme_core/{name}", text)
    assert facts.multipath(node) is value


def test_stripes_fabrics_and_links_are_followed_to_their_drives(tmp_path):
    node = Node(tmp_path)
    for name, transport in (("nvme0n1", "pcie"), ("nvme1n1", "pcie"), ("nvme2n1", "rdma"), ("nvme3n1", "pcie")):
        drive(node, name, transport)
    for member in ("nvme0n1", "nvme1n1p2"):
        node.write(f"/sys/class/block/md0/slaves/{member}/size", "1\n")
    node.write("/sys/class/block/md0/md/level", "raid0\n")
    node.write("/sys/class/block/dm-0/slaves/md0/size", "1\n")
    node.write("/sys/class/block/dm-1/slaves/nvme3n1/size", "1\n")
    node.write("/sys/class/block/dm-1/slaves/sda/size", "1\n")
    mapper = Path(node.path("/dev/mapper"))
    mapper.mkdir(parents=True)
    for name, target in (("data", "../dm-0"), ("mixed", "../dm-1")):
        (mapper / name).symlink_to(target)
    node.write(
        "/proc/mounts",
        "/dev/mapper/data /stripe xfs rw 0 0\n/dev/nvme2n1 /far xfs rw 0 0\n/dev/mapper/mixed /mixed xfs rw 0 0\n"
        "/dev/sda1 / ext4 rw 0 0\n/dev/nvme2n1 /bind xfs rw 0 0\nscale0 /gpfs gpfs rw 0 0\n"
        "10.0.0.1:/x /nfs nfs4 rw,proto=rdma 0 0\n",
    )
    assert [(item.mount, item.route, item.drives, item.raid_level) for item in facts.observe(node).file_systems] == [
        ("/stripe", "raid", ("nvme0n1", "nvme1n1"), "raid0"),
        ("/far", "nvmeof", ("nvme2n1",), ""),
        ("/gpfs", "scale", (), ""),
        ("/nfs", "nfs", (), ""),
    ]


def test_the_addresses_of_rails_are_in_the_order_of_their_pci_addresses(tmp_path):
    node = Node(tmp_path)
    for name, place, interface in (
        ("mlx5_0", "0000:b0:00.0", "eth1"),
        ("mlx5_1", "0000:10:00.0", "eth0"),
        ("mlx5_2", "0000:20:00.0", "eth2"),
    ):
        node.write(f"/sys/bus/pci/devices/{place}/net/{interface}/mtu", "9000\n")
        directory = Path(node.path(f"/sys/class/infiniband/{name}"))
        directory.mkdir(parents=True)
        (directory / "device").symlink_to(node.path(f"/sys/bus/pci/devices/{place}"))
    shown = [
        {"ifname": name, "addr_info": [{"local": address}]}
        for name, address in (("eth0", "10.0.0.1"), ("eth1", "10.0.1.1"))
    ]
    node.answers = {("ip", "-j", "-4", "address", "show"): json.dumps(shown)}
    assert facts.rail_addresses(node) == ("10.0.0.1", "10.0.1.1")
    assert facts.rail_addresses(System(str(tmp_path / "empty"))) == ()
