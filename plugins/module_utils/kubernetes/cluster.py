# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes of a cluster by their hardware, with what the inventory plans for their NICs. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import class_of, read_nics
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import (
    Policy,
    RdmaClass,
    read_policy,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import pci_tuning, vf_request
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.errors import KubernetesError
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.request import VFS_MAX, KubernetesRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import compute_fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.rails import Rail, rails

# The prefix of all labels. The label of a node's hardware is what policies select nodes by.
LABEL = "sailloft.fleet"
HARDWARE = f"{LABEL}/hardware"
# The variables of nodes that the plan reads.
VARIABLES = ("roce_policy", "roce_host_class", "roce_host_nics", "gpu_host_sriov", "gpu_node_pci", "gpu_node_mig_off")
# RFC 1123 subdomain (Kubernetes, "Object Names and IDs").
_NODE = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
INFINIBAND_CLASS = 0x0207  # PCI_CLASS_NETWORK_INFINIBAND


class PortOfRail(NamedTuple):
    """The plan of a rail's NIC: VFs, whether others make these, InfiniBand or not, its longest cable."""

    vfs: int
    externally_managed: bool
    infiniband: bool
    cable_m: int | None


@dataclass
class HardwareGroup:
    """Nodes that are alike. ``name`` follows from their PCI addresses, device ids and CPUs, and from nothing else.

    A policy whose nodes got other hardware therefore selects no node any more.
    """

    name: str
    host: Host
    rails: list[Rail]
    nodes: list[str]
    ports: dict[str, PortOfRail]  # by name of the rail


@dataclass
class Cluster:
    """All nodes. ``policy`` is None if no rail is Ethernet. ``notes``: reasons with the nodes to which they apply."""

    request: KubernetesRequest
    site: Site | None
    nodes: list[str]
    hardware: list[HardwareGroup]
    policy: Policy | None
    rdma_class: RdmaClass | None
    max_read_request_bytes: int
    mig_off: bool
    notes: dict[str, list[str]]

    def note(self, reason: str, nodes: Iterable[str]) -> None:
        """Add a reason and its nodes."""
        self.notes.setdefault(reason, []).extend(nodes)


def read_cluster(
    request: KubernetesRequest,
    nodes: Iterable[str],
    hosts: Mapping[str, Host | None],
    variables: Mapping[str, Mapping[str, Any]],
    site: Site | None,
) -> Cluster:
    """Return the cluster. Raises KubernetesError, and FabricError or HostError for variables of nodes.

    ``hosts``: the recorded topology by node; ``variables``: those of VARIABLES that a node has.
    """
    names = list(nodes)
    if not names:
        raise KubernetesError(
            f"the groups {', '.join(request.groups)} have no hosts", "name those of the nodes in groups"
        )
    for name in names:
        if not _NODE.fullmatch(name):
            raise KubernetesError(
                "a node of Kubernetes cannot have this name",
                "use lower-case letters, digits, '-' and '.', at most 253",
                subject=name,
            )
    common = _common(names, variables)
    reads = common["max_read_request_bytes"]
    cluster = Cluster(request, site, names, [], None, None, reads, common["mig_off"], {})
    by_name: dict[str, HardwareGroup] = {}
    seen: dict[tuple[int, tuple[str, ...]], tuple[str, list[Rail], list[str]]] = {}
    for node in names:
        host = hosts.get(node)
        if host is None:
            cluster.note("there is no recording of it, so it gets only the labels of its place", [node])
            continue
        ports = _planned_ports(site, node)
        key = id(host), tuple(ports)
        if key not in seen:
            rails_of_node, reasons = rails(host, tuple(ports))
            seen[key] = _hardware_name(host, rails_of_node), rails_of_node, reasons
        name, rails_of_node, reasons = seen[key]
        for reason in reasons:
            cluster.note(reason, [node])
        if name not in by_name:
            by_name[name] = HardwareGroup(name, host, rails_of_node, [], {})
        _add(cluster, by_name[name], node, host, variables.get(node, {}), ports)
    cluster.hardware = [by_name[name] for name in sorted(by_name)]
    if any(not port.infiniband for item in cluster.hardware for port in item.ports.values()):
        cluster.policy = read_policy(common["roce_policy"])
        cluster.rdma_class = class_of(cluster.policy, common["roce_host_class"])
    return cluster


def _common(nodes: list[str], variables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the variables that must be equal on all nodes, because one object has the value for all of them."""
    common: dict[str, Any] = {}
    for name in ("roce_policy", "roce_host_class", "gpu_node_pci", "gpu_node_mig_off"):
        texts: dict[str, str] = {}
        for node in nodes:
            value = variables.get(node, {}).get(name)
            texts.setdefault(json.dumps(value, sort_keys=True, default=str), node)
            common[name] = value
        if len(texts) > 1:
            first, second = list(texts.values())[:2]
            raise KubernetesError(
                f"{name} differs between {first} and {second}", "give all nodes of the cluster one value"
            )
    pci = Settings(KubernetesError, "gpu_node_pci", common.pop("gpu_node_pci") or {})
    # 0, which leaves a node as it is, says nothing.
    if pci.data.get("max_read_request_bytes") == 0:
        del pci.data["max_read_request_bytes"]
    size = pci.value("max_read_request_bytes", pci_tuning.SETTINGS["max_read_request_bytes"], 4096)
    common["max_read_request_bytes"] = size
    mig_off = Settings(KubernetesError, "nodes", {"gpu_node_mig_off": common.pop("gpu_node_mig_off")})
    common["mig_off"] = mig_off.value("gpu_node_mig_off", values.flag, True)
    return common


def _planned_ports(site: Site | None, node: str) -> dict[str, bool]:
    """Return a node's ports of the compute fabric in the order of the rails, each with True for InfiniBand."""
    device = site.devices.get(node) if site else None
    if site is None or device is None:
        return {}
    fabric = compute_fabric(site)
    return {port: cable.rule.infiniband for port, cable in device.cables.items() if cable.rule.fabric == fabric}


def _hardware_name(host: Host, rails_of_node: list[Rail]) -> str:
    content = [
        [[rail.number, rail.nic.address, rail.nic.vendor_id, rail.nic.device_id, *rail.gpus] for rail in rails_of_node],
        [[node.id, node.siblings, bool(node.memory_bytes)] for node in host.numa_nodes],
    ]
    return "hw-" + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]


def _add(
    cluster: Cluster,
    hardware: HardwareGroup,
    node: str,
    host: Host,
    variables: Mapping[str, Any],
    planned: Mapping[str, bool],
) -> None:
    """Add a node to its hardware, with what its variables plan for its NICs."""
    nics = read_nics(variables["roce_host_nics"]) if variables.get("roce_host_nics") else {}
    requests = variables.get("gpu_host_sriov")
    counts = vf_request.wanted({"functions": requests}, host) if requests else {}
    for rail in hardware.rails:
        nic = host.function(rail.nic.address)
        names = [*nic.interfaces.get("rdma", []), *nic.interfaces.get("net", [])]
        cables = [nics[name].cable_m for name in names if name in nics]
        request = counts.get(nic.address)
        port = PortOfRail(
            request.count if request else cluster.request.vfs,
            request is not None,
            # A NIC that can be either is what the blueprint says, whatever it is now.
            next((planned[name] for name in names if name in planned), nic.class_code >> 8 == INFINIBAND_CLASS),
            max((cable for cable in cables if cable), default=None),
        )
        _check_vfs(node, nic, port)
        first = hardware.ports.get(rail.name, port)
        if first[:3] != port[:3]:
            raise KubernetesError(
                f"{rail.name} has other VFs or another link type than on {hardware.nodes[0]}, which is alike",
                "plan the same for both: one policy is for all of them",
                subject=node,
            )
        # The longest cable of the rail: its headroom is enough for the others.
        longest = max((cable for cable in (first.cable_m, port.cable_m) if cable), default=None)
        hardware.ports[rail.name] = port._replace(cable_m=longest)
    hardware.nodes.append(node)
    off = [rail.nic.address for rail in hardware.rails if host.source == "sysfs" and not rail.nic.sriov]
    if off:
        cluster.note(f"NICs without SR-IOV when they were recorded, turn it on: {', '.join(off)}", [node])


def _check_vfs(node: str, nic: Function, port: PortOfRail) -> None:
    vfs_max = min(nic.sriov.total, VFS_MAX) if nic.sriov else VFS_MAX
    if not 1 <= port.vfs <= vfs_max:
        raise KubernetesError(
            f"NIC {nic.address} can have 1 to {vfs_max} VFs, but {port.vfs} are planned",
            "change vfs, or gpu_host_sriov of the node; its firmware's NUM_OF_VFS limits them",
            subject=node,
        )


def folded(notes: Mapping[str, list[str]]) -> list[str]:
    """Return the notes as lines."""
    return [f"{fold(nodes)}: {reason}" for reason, nodes in notes.items()]
