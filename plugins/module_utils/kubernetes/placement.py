# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Places of nodes: their labels, Kueue's topology and flavors, and the device classes of the rails. Pure.

Sources: kubernetes-sigs/kueue at ff69552e (v1beta2; topology-aware scheduling is on since 0.14),
kubernetes-sigs/dra-driver-nvidia-gpu at 95932046 (deviceinfo.go; resource.k8s.io/v1 is served since Kubernetes 1.34).
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.cluster import HARDWARE, LABEL, Cluster
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.errors import KubernetesError
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.network import rail_names
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import compute_fabric, tree

# Kubernetes, "Labels and Selectors": the form of a label's value.
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_HOSTNAME = "kubernetes.io/hostname"
KUEUE = "kueue.x-k8s.io/v1beta2"


def node_labels(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return the labels by node: hardware, blocks (rack, pod ...), switches by layer. Raises KubernetesError.

    A label ``layer1`` names the group of leaves of the compute fabric that the node is connected to, ``layer2`` the
    switches above these, as in Slurm's topology.
    """
    labels: dict[str, dict[str, str]] = {node: {} for node in cluster.nodes}
    for item in cluster.hardware:
        for node in item.nodes:
            labels[node][HARDWARE] = item.name
    for node, layers in _layers(cluster).items():
        labels[node].update({f"{LABEL}/layer{number}": switch for number, switch in enumerate(layers, 1)})
    for node in cluster.nodes:
        device = cluster.site.devices.get(node) if cluster.site else None
        if cluster.site and device is None:
            cluster.note("the blueprint has no such device, so it has no place", [node])
        block = device.block if device else None
        while block is not None and block.spec is not None:
            labels[node][f"{LABEL}/{block.kind}"] = block.name
            block = block.parent
        for label, value in labels[node].items():
            if not _LABEL_VALUE.fullmatch(value):
                raise KubernetesError(
                    f"{value!r} cannot be the value of label {label}",
                    "name the block in the blueprint with letters, digits, '.', '_' and '-', at most 63",
                    subject=node,
                )
    return labels


def _layers(cluster: Cluster) -> dict[str, list[str]]:
    """Return the names of the switches above each node, from its leaves up."""
    if cluster.site is None:
        return {}
    switches = tree(cluster.site, compute_fabric(cluster.site), cluster.nodes)
    parent = {member: switch.name for switch in switches for member in switch.members}
    layers: dict[str, list[str]] = {}
    for node in cluster.nodes:
        name = parent.get(node)
        while name is not None:
            layers.setdefault(node, []).append(name)
            name = parent.get(name)
    return layers


def nodes(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the nodes with their labels; those without any are left out."""
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
        for node, labels in node_labels(cluster).items()
        if labels
    ]


def kueue(cluster: Cluster) -> list[dict[str, Any]]:
    """Return Kueue's Topology of the site and a ResourceFlavor of each hardware; none without a compute fabric."""
    depth = max(map(len, _layers(cluster).values()), default=0)
    if cluster.site is None or not depth:
        cluster.note("there is no blueprint with a compute fabric, so Kueue gets no topology", cluster.nodes)
        return []
    site = cluster.site.blueprint.site.replace("_", "-").lower()
    levels = [*(f"{LABEL}/layer{number}" for number in range(depth, 0, -1)), _HOSTNAME]
    topology = {
        "apiVersion": KUEUE,
        "kind": "Topology",
        "metadata": {"name": site},
        "spec": {"levels": [{"nodeLabel": level} for level in levels]},
    }
    flavors = [
        {
            "apiVersion": KUEUE,
            "kind": "ResourceFlavor",
            "metadata": {"name": item.name},
            "spec": {"nodeLabels": {HARDWARE: item.name}, "topologyName": site},
        }
        for item in cluster.hardware
    ]
    return [topology, *flavors]


def device_classes(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the DeviceClass of each rail, with the GPUs of its switch by their addresses. Raises KubernetesError.

    A class cannot tell nodes apart, so that an address must belong to the same rails on all of them.
    """
    rails_of: dict[str, tuple[set[str], str]] = {}
    addresses: dict[str, set[str]] = {}
    for item in cluster.hardware:
        by_gpu: dict[str, set[str]] = {}
        for rail in item.rails:
            for gpu in rail.gpus:
                by_gpu.setdefault(gpu, set()).add(rail.name)
                addresses.setdefault(rail.name, set()).add(gpu)
        for gpu, names in by_gpu.items():
            rails, node = rails_of.setdefault(gpu, (names, item.nodes[0]))
            if rails != names:
                raise KubernetesError(
                    f"GPU {gpu} is of {', '.join(sorted(rails))} on {node} and of {', '.join(sorted(names))} on "
                    f"{item.nodes[0]}, but a DeviceClass cannot tell nodes apart",
                    "leave dra out of kubernetes_cluster.parts, or plan a cluster for each hardware",
                )
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": _expression(addresses[name])}}]},
        }
        for name in rail_names(cluster)
        if name in addresses
    ]


def _expression(addresses: set[str]) -> str:
    texts = ", ".join(f'"{address}"' for address in sorted(addresses))
    return (
        'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu" && '
        f'device.attributes["resource.kubernetes.io"].pciBusID in [{texts}]'
    )
