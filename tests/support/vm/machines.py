# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines and requests that the tests of vm/ share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Function, Host, HugePages
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Accelerator,
    Hypervisor,
    ObservedDomain,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

RECORDINGS = Path(__file__).parents[2] / "recordings"
MIB = 1024**2
GIB = 1024**3


def recording(name: str) -> Host:
    """Return a machine of tests/recordings as x86_64: a plan for POWER is refused, but its PCI tree is of interest."""
    host = as_recorded(name)
    host.cpu.architecture = "x86_64"
    return host


def as_recorded(name: str) -> Host:
    """Return a machine of tests/recordings unchanged."""
    return read_saved(json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))["topology"])


def lab() -> Host:
    """Return the emulated GPU server, prepared: two VFs behind each ACS root port, a 1-GiB huge page on each node."""
    host = recording("emulated-gpu-server")
    # The recording is older than this field.
    host.iommu.address_bits = 48
    known = host.by_address()
    for pf, twin in (("0000:15:00.0", "0000:15:10.0"), ("0000:85:00.0", "0000:85:10.0")):
        sriov = known[pf].sriov
        assert sriov is not None
        if not sriov.vfs:
            sriov.now = 2
            sriov.vfs = [twin, twin[:-1] + "2"]
            for number, address in enumerate(sriov.vfs):
                vf = replace(known["0000:15:10.0"], address=address, physical_function=pf, parent=known[pf].parent)
                vf = replace(vf, root_complex=known[pf].root_complex, numa_node=1, iommu_group=30 + number)
                host.functions.append(vf)
    for node in host.numa_nodes:
        node.huge_pages = [HugePages(2 * MIB, 0, 0), HugePages(GIB, 1, 1)]
    host.functions.sort(key=lambda function: function.address)
    return host


def request(**changes: Any) -> dict[str, Any]:
    """Return a request for the lab's virtual machine: two GPUs, and beside each a NIC and a VF."""
    spec: dict[str, Any] = {
        "name": "gpu-vm",
        "memory_mib": 2048,
        "huge_page_mib": 1024,
        "vcpus": 4,
        "gpus": {"count": 2},
        "nics": {"per_gpu": 1, "functions": "vf", "addresses": ["0000:14:00.0", "0000:84:00.0"]},
        "disks": [{"path": f"/var/lib/libvirt/images/{changes.get('name', 'gpu-vm')}.qcow2"}],
        "interfaces": [{"source": "default"}],
    }
    spec.update(changes)
    return spec


def plan(host: Host | None = None, hypervisor: Hypervisor | None = None, **changes: Any) -> DomainPlan:
    """Return the plan of one request."""
    return plan_domains(host or lab(), parse_specs([request(**changes)]), hypervisor)[0]


def hypervisor(**changes: Any) -> Hypervisor:
    """Return a libvirt that supports everything and has no domain."""
    one = Accelerator(max_vcpus=288, firmwares=["bios", "efi"], machine="pc-q35-7.2", machines={"pc-q35-7.2": 288})
    values: dict[str, Any] = {
        "accelerators": {"kvm": one, "qemu": one},
        "libvirt_version": (9, 0, 0),
        "qemu_version": (7, 2, 22),
        "hugetlbfs_mib": [2, 1024],
        "networks": {"default": True},
    }
    return Hypervisor(**{**values, **changes})


def observed(of: DomainPlan, running: bool = False, **changes: Any) -> ObservedDomain:
    """Return a domain that libvirt has as it was planned."""
    xml = render(of)
    values: dict[str, Any] = {
        "name": of.name,
        "uuid": of.spec.uuid,
        "inactive_xml": xml,
        "live_xml": xml if running else None,
        "autostart": True,
        "state": "running" if running else "shutoff",
    }
    return ObservedDomain(**{**values, **changes})


def endpoint(address: str, parent: str | None, root_complex: str, kind: str = "gpu", **more: Any) -> Function:
    """Return a function with one BAR that can be passed through."""
    codes = {"gpu": 0x030200, "nic": 0x020000, "nvme": 0x010802}
    values: dict[str, Any] = {
        "class_code": codes[kind],
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "port_type": "endpoint",
        "bars": [Bar(0, 64 * MIB, "memory", 64, True)],
        "iommu_group": int(address.replace(":", "").replace(".", ""), 16),
    }
    return Function(address=address, parent=parent, root_complex=root_complex, kind=kind, **{**values, **more})


def bridge(address: str, parent: str | None, root_complex: str, port_type: str | None) -> Function:
    """Return a port of a switch or root complex."""
    return Function(
        address=address,
        parent=parent,
        root_complex=root_complex,
        class_code=0x060400,
        vendor_id=0x1000,
        device_id=0xC010,
        kind="bridge",
        port_type=port_type,
        driver="pcieport",
    )
