# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan all objects of a Kubernetes cluster from settings, groups, recorded hosts, variables and the blueprint. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes import network, node_software, placement
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.cluster import (
    LABEL,
    Cluster,
    folded,
    read_cluster,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.request import read
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

# The label of all objects of a plan, with the site's name. An object that has it and is planned no more is removed.
PLAN = f"{LABEL}/plan"
# The kinds of these objects: (apiVersion, kind). Two kinds are made by others: Nodes by kubelet, ClusterPolicy by the
# chart of the GPU operator.
OWNED = (
    *((network.SRIOV, kind) for kind in ("SriovNetworkNodePolicy", "SriovNetwork", "SriovIBNetwork")),
    ("configuration.net.nvidia.com/v1alpha1", "NicConfigurationTemplate"),
    ("multinic.fms.io/v1", "MultiNicNetwork"),
    *((placement.KUEUE, kind) for kind in ("ResourceFlavor", "Topology")),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("apps/v1", "DaemonSet"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    *(("v1", kind) for kind in ("ConfigMap", "ServiceAccount")),
)


class KubernetesPlan(NamedTuple):
    """The objects by part, in the order in which they are applied; kubelet's settings by hardware.

    ``name``: the value of the label PLAN. ``unrecorded``: nodes whose objects are not known, because nothing says what
    hardware they have. ``notes`` and ``summary`` are lines for people to read.
    """

    name: str
    objects: dict[str, list[dict[str, Any]]]
    kubelets: dict[str, dict[str, Any]]
    unrecorded: list[str]
    notes: list[str]
    summary: list[str]


def plan(
    data: Any,
    groups: Mapping[str, Iterable[str]],
    hosts: Mapping[str, Host | None],
    variables: Mapping[str, Mapping[str, Any]],
    site: Site | None = None,
) -> KubernetesPlan:
    """Return the plan. Raises KubernetesError, and FabricError or HostError for variables of nodes."""
    request = read(data)
    nodes = sorted({node for group in request.groups for node in groups.get(group, ())})
    cluster = read_cluster(request, nodes, hosts, variables, site)
    makers = {
        "labels": placement.nodes,
        "sriov": network.policies,
        "nic_configuration": network.nic_configurations,
        "multinic": network.multinic,
        "kueue": placement.kueue,
        "dra": placement.device_classes,
        "gpu_operator": node_software.gpu_operator,
        "node_problem_detector": lambda cluster: node_software.node_problem_detector(cluster.request),
    }
    objects = {part: make(cluster) for part, make in makers.items() if part in request.parts}
    name = site.blueprint.site if site else "cluster"
    for part, items in objects.items():
        for item in items if part != "labels" else ():
            item["metadata"] = {**item["metadata"], "labels": {PLAN: name}}
    kubelets = node_software.kubelets(cluster) if "kubelet" in request.parts else {}
    unrecorded = [node for node in nodes if hosts.get(node) is None]
    return KubernetesPlan(name, objects, kubelets, unrecorded, folded(cluster.notes), _summary(cluster, objects))


def _summary(cluster: Cluster, objects: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    lines = [f"{len(cluster.nodes)} nodes, {sum(map(len, objects.values()))} objects"]
    for item in cluster.hardware:
        lines.append(f"{item.name}: {fold(item.nodes)}")
        lines += [
            f"  {rail.name}: NIC {rail.nic.address}, {item.ports[rail.name].vfs} VFs; "
            + (f"GPU {', '.join(rail.gpus)}" if rail.gpus else "no GPU below its switch")
            for rail in item.rails
        ]
    return lines
