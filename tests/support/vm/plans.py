# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans whose complete XML is in a file each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from machines import lab, plan, recording

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan


def threaded() -> Host:
    """Return the lab with two hardware threads per core."""
    host = lab()
    for at, node in enumerate(host.numa_nodes):
        node.siblings = [[at * 4 + core, 16 + at * 4 + core] for core in range(4)]
    return host


def whole_server() -> DomainPlan:
    host = recording("supermicro-4029gp-ve")
    gpus = [item.address for item in host.functions if item.kind == "gpu"]
    return plan(host, gpus={"addresses": gpus}, nics={}, vcpus=None, memory_mib=32768)


def fast() -> DomainPlan:
    """Return a plan with all settings for speed, on AMD processors with two threads per core."""
    host = threaded()
    host.cpu.vendor = "AuthenticAMD"
    return plan(
        host,
        vcpus=8,
        memory_threads=8,
        iothreads=2,
        hpet=False,
        kvm_dedicated=True,
        rom_bar=False,
        rng=True,
        interrupt_remapping=True,
        console_log="/var/log/console.log",
        disks=[
            {"path": "/seed.iso", "format": "raw", "read_only": True},
            {"path": "/images/a.qcow2", "cache": "none", "io": "native"},
            {"path": "/dev/vg/b", "format": "raw", "io": "threads"},
        ],
        interfaces=[{"source": "default", "queues": 4}, {"type": "bridge", "source": "br0"}],
    )


def one_node() -> DomainPlan:
    """Return a plan on one node, with a NIC of two functions and a guest IOMMU, and no memory in huge pages."""
    host = lab()
    second = replace(host.function("0000:14:00.0"), address="0000:14:00.1", iommu_group=40)
    host.functions.append(second)
    host.functions.sort(key=lambda function: function.address)
    return plan(
        host,
        gpus={"addresses": ["0000:13:00.0"]},
        nics={"addresses": ["0000:14:00.0", "0000:14:00.1"]},
        vcpus=3,
        memory_mib=1000,
        huge_page_mib=0,
        host_cores_per_socket=0,
        firmware="bios",
        guest_iommu=True,
        ats=False,
        boot={"kernel": "/boot/vmlinuz"},
        disks=[{"path": "/a.qcow2"}],
        interfaces=[],
    )


PLANS: dict[str, Any] = {
    "lab": lambda: plan(firmware="bios"),
    "guest-iommu-efi": lambda: plan(threaded(), guest_iommu=True, vcpus=8, huge_page_mib=2),
    "emulated": lambda: plan(accelerator="qemu", firmware="bios", physical_address_bits="39"),
    "plain-flat": lambda: plan(
        gpus={"count": 1},
        nics={},
        vcpus=2,
        mirror_topology=False,
        huge_page_mib=0,
        lock_memory=False,
        strict_memory=False,
        pin_cpus=False,
        iothreads=0,
        physical_address_bits="off",
        disks=[{"path": "/dev/vg/root", "format": "raw"}, {"path": "/seed.iso", "format": "raw", "read_only": True}],
        interfaces=[{"type": "bridge", "source": "br0", "mac": "52:54:00:00:00:01"}, {"type": "user"}],
        boot={"kernel": "/boot/vmlinuz", "initrd": "/boot/initrd.img", "arguments": "console=ttyS0"},
    ),
    "whole-server": whole_server,
    "fast": fast,
    "one-node": one_node,
}
