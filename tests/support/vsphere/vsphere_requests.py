# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for the simulated vCenter, and the hosts for which they are made."""

from __future__ import annotations

from typing import Any

from machines import GIB, lab
from simulated_vcenter import VCenter

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.converge import converge

NETWORK = "DC0_DVPG0"


def server() -> Host:
    """Return the emulated GPU server with a real server's memory, and with GPUs that the table of BARs contains."""
    host = lab()
    for node in host.numa_nodes:
        node.memory_bytes, node.huge_pages = 512 * GIB, []
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id, function.device_id, function.class_code = 0x10DE, 0x2330, 0x030200
    return host


def vm(name: str = "train", **more: Any) -> dict[str, Any]:
    """Return a virtual machine with both GPUs, and a virtual function beside each."""
    spec: dict[str, Any] = {
        "name": name,
        "memory_mib": 65536,
        "huge_page_mib": 1024,
        "vcpus": 4,
        "gpus": {"count": 2},
        "nics": {"per_gpu": 1},
        "disks": [{"path": f"/images/{name}.qcow2", "size_mib": 20480}],
        "interfaces": [{"source": NETWORK}],
        "vsphere": {"host": "esx01", "sriov_network": NETWORK},
    }
    vsphere = {**spec["vsphere"], **more.pop("vsphere", {})}
    return {**spec, **more, "vsphere": vsphere}


def params(vcenter: VCenter, *domains: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the options of vsphere_gpu_vm."""
    return {
        **vcenter.login,
        "validate_certs": True,
        "cluster": "",
        "domains": list(domains),
        "state": "present",
        "gpu_module_ids": {},
        "accelerators": {},
        "allow_restart": False,
        "shutdown_timeout_s": 0,
        "task_timeout_s": 60,
        **more,
    }


def run(vcenter: VCenter, *domains: dict[str, Any], check: bool = False, **more: Any) -> dict[str, Any]:
    """Return the result of vsphere_gpu_vm."""
    return converge(params(vcenter, *domains, **more), check)
