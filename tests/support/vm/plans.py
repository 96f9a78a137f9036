# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans whose complete XML is in a file each."""

from __future__ import annotations

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
}
