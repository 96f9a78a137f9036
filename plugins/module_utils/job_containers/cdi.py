# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA devices of a node as devices of CDI, which container engines take by name. Pure.

NVIDIA's tool writes a CDI file for GPUs; for RDMA nobody does. Form: CDI's SPEC.md. Version 0.3.0 has all that is used
here, and an engine refuses a file of a version that it does not know (podman 4.3 knows 0.5.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import PATH_CLASSES, Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.rails import rails

VERSION = "0.3.0"
RDMA, GPU = "sailloft.fleet/rdma", "sailloft.fleet/gpu"
ALL = "all"
# Connections by librdmacm need it beside any NIC; it lets nobody use a NIC.
RDMA_CM = "/dev/infiniband/rdma_cm"
# A part of a GPU with MIG has the GPU's file, too, and those of its capabilities.
_GPU_NODE, _MIG_NODE = re.compile(r"/dev/nvidia\d+"), "/dev/nvidia-caps/"


def rdma_spec(
    host: Host, verbs: Mapping[str, str], minors: Mapping[str, int], nccl_hca: str = "", has_rdma_cm: bool = True
) -> dict[str, Any] | None:
    """Return the CDI file of the node's RDMA devices; None if it has none.

    ``verbs``: the device file of each RDMA device, {"mlx5_0": "/dev/infiniband/uverbs0"}; ``minors``: the number N of
    /dev/nvidiaN by the GPU's address; ``nccl_hca``: NCCL_IB_HCA of /etc/nccl.conf. Each NIC is a device of its name,
    ``gpuN`` are the NICs for that GPU, among those that NCCL may use, and ``all`` is every NIC.
    """
    if not verbs:
        return None
    names_by_device = {name: [name] for name in sorted(verbs)}
    for address, nics in sorted(nics_of_gpus(host, hcas(nccl_hca, sorted(verbs))).items(), key=lambda pair: pair[0]):
        if address in minors and nics:
            names_by_device[f"gpu{minors[address]}"] = nics
    names_by_device[ALL] = sorted(verbs)
    spec: dict[str, Any] = {
        "cdiVersion": VERSION,
        "kind": RDMA,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": verbs[nic]} for nic in nics]}}
            for name, nics in names_by_device.items()
        ],
    }
    if has_rdma_cm:
        spec["containerEdits"] = {"deviceNodes": [{"path": RDMA_CM}]}
    return spec


def nics_of_gpus(host: Host, nics: Sequence[str]) -> dict[str, list[str]]:
    """Return the RDMA devices for each GPU by its address: those of its rail, else the nearest of ``nics``.

    Devices of one NUMA node may be below different switches, so that the PCI tree decides.
    """
    paths = Paths(host)
    names = {
        function.address: name
        for function in host.functions
        for name in function.interfaces.get("rdma", [])
        if name in nics
    }
    gpu_rails, _notes = rails(host, nics) if nics else ([], [])
    chosen: dict[str, list[str]] = {}
    for gpu in host.functions:
        if gpu.kind != "gpu" or gpu.physical_function is not None:
            continue
        nearest_nics = [names[rail.nic.address] for rail in gpu_rails if gpu.address in rail.gpus]
        if not nearest_nics:
            ranks = {name: [*PATH_CLASSES].index(paths.path_class(gpu.address, nic)) for nic, name in names.items()}
            nearest_nics = [name for name, rank in ranks.items() if rank == min(ranks.values())]
        chosen[gpu.address] = sorted(nearest_nics)
    return chosen


def hcas(setting: str, names: Sequence[str]) -> list[str]:
    """Return the RDMA devices that NCCL_IB_HCA allows: names or their beginnings, "=" exact names, "^" all others.

    Source: NCCL's user guide, "Environment Variables"; a name may have a port, which is passed over: "mlx5_0:1".
    """
    excludes, allowed = setting.startswith("^"), setting.lstrip("^")
    is_exact, allowed = allowed.startswith("="), allowed.lstrip("=")
    listed = [item.partition(":")[0] for item in allowed.split(",") if item]
    if not listed:
        return list(names)

    def is_listed(name: str) -> bool:
        return name in listed if is_exact else any(name.startswith(item) for item in listed)

    return [name for name in names if is_listed(name) != excludes]


def gpu_names(spec: Mapping[str, Any], numbers: Sequence[int]) -> list[str]:
    """Return the devices of NVIDIA's CDI file for /dev/nvidiaN; raises KeyError for a GPU that it has not.

    Its own names follow NVML's order. A GPU has one for its number and one for its UUID; the first is returned.
    """
    by_node: dict[frozenset[str], str] = {}
    for device in spec["devices"]:
        nodes = frozenset(node for node in _nodes(device) if _GPU_NODE.fullmatch(node))
        if not any(node.startswith(_MIG_NODE) for node in _nodes(device)):
            by_node.setdefault(nodes, device["name"])
    return [by_node[frozenset({f"/dev/nvidia{number}"})] for number in numbers]


def nics_in(spec: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the NICs that the devices ``names`` of the CDI file of RDMA devices stand for, each once."""
    nodes = {device["name"]: _nodes(device) for device in spec["devices"]}
    by_node = {
        nodes_of_name[0]: name for name, nodes_of_name in reversed(list(nodes.items())) if len(nodes_of_name) == 1
    }
    return sorted({by_node[node] for name in names for node in nodes[name]})


def _nodes(device: Mapping[str, Any]) -> list[str]:
    return [node["path"] for node in device["containerEdits"].get("deviceNodes", [])]
