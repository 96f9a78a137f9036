# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of kubelet and of NVIDIA's GPU operator, and a node-problem-detector with sailloft-health. Pure.

Sources: Kubernetes, "Control CPU Management Policies", "Control Topology Management Policies", "Utilizing the
NUMA-aware Memory Manager", kubelet.config.k8s.io/v1beta1; kubernetes/node-problem-detector at 6632ca67
(custom plugin monitor, deployment); NVIDIA/gpu-operator at a22dbf67 (nvidia.com_clusterpolicies).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.cluster import HARDWARE, Cluster, HardwareGroup
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.request import KubernetesRequest

# kubelet's own defaults, which a file with any of them must repeat.
EVICTION_MIB = 100
EVICTION = {
    "memory.available": f"{EVICTION_MIB}Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
# The topology manager's limit of NUMA nodes without max-allowable-numa-nodes.
NUMA_NODES = 8
DETECTOR = "sailloft-health"
DETECTOR_NAMESPACE = "kube-system"
HEALTH = "/usr/bin/sailloft-health"


def kubelet(request: KubernetesRequest, hardware: HardwareGroup) -> dict[str, Any]:
    """Return the KubeletConfiguration of nodes with this hardware.

    ``restricted`` keeps the devices and CPUs of a pod on as few NUMA nodes as they fit on; ``single-numa-node`` would
    refuse a pod with all GPUs of a node that has several. The memory manager needs a reservation on each NUMA node, and
    their sum must be that of kubeReserved, systemReserved and the hard eviction.
    """
    numa_nodes = hardware.host.numa_nodes
    siblings = [threads for node in numa_nodes for threads in node.siblings]
    reserved = sorted(
        cpu for node in numa_nodes for threads in node.siblings[: request.reserved_cores] for cpu in threads
    )
    with_memory = [node.id for node in numa_nodes if node.memory_bytes]
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": format_ranges(reserved),
        "memoryManagerPolicy": "Static",
        "reservedMemory": [
            {"numaNode": node, "limits": {"memory": f"{request.reserved_mib}Mi"}} for node in with_memory
        ],
        "kubeReserved": {"memory": "0"},
        "systemReserved": {"memory": f"{request.reserved_mib * len(with_memory) - EVICTION_MIB}Mi"},
        "evictionHard": dict(EVICTION),
    }
    if any(len(threads) > 1 for threads in siblings):
        config["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true"}
    if len(numa_nodes) > NUMA_NODES:
        config["topologyManagerPolicyOptions"]["max-allowable-numa-nodes"] = str(len(numa_nodes))
    return config


def kubelets(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the KubeletConfiguration by hardware; nodes whose recording has no CPUs get none."""
    configurations = {}
    for item in cluster.hardware:
        cores = [len(node.siblings) for node in item.host.numa_nodes if node.siblings]
        if not cores or min(cores) <= cluster.request.reserved_cores:
            cluster.note(
                f"no settings of kubelet: a NUMA node has no more than {cluster.request.reserved_cores} cores",
                item.nodes,
            )
        else:
            configurations[item.name] = kubelet(cluster.request, item)
    return configurations


def node_problem_detector(request: KubernetesRequest) -> list[dict[str, Any]]:
    """Return a node-problem-detector that asks each node's sailloft-health, on nodes with a hardware label.

    Its condition GPUNodeSick is True, False or Unknown, as the exit code of a custom plugin is 1, 0 or another. The
    program runs in the root of the host, since the detector's image has no Python.
    """
    monitor = {
        "plugin": "custom",
        "pluginConfig": {
            "invoke_interval": "60s",
            "timeout": "10s",
            "max_output_length": 80,
            "concurrency": 1,
            "enable_message_change_based_condition_update": True,
        },
        "source": DETECTOR,
        "metricsReporting": True,
        "conditions": [{"type": "GPUNodeSick", "reason": "Healthy", "message": "healthy"}],
        "rules": [
            {
                "type": "permanent",
                "condition": "GPUNodeSick",
                "reason": "Sick",
                "path": "/usr/sbin/chroot",
                "args": ["/host", HEALTH, "--format", "npd"],
                "timeout": "10s",
            }
        ],
    }
    metadata = {"name": DETECTOR, "namespace": DETECTOR_NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": DETECTOR},
            # Kubernetes has this role by default.
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:node-problem-detector",
            },
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {f"{DETECTOR}.json": json.dumps(monitor, indent=2) + "\n"},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": _daemons(request.detector_image),
        },
    ]


def _daemons(image: str) -> dict[str, Any]:
    app = {"app.kubernetes.io/name": DETECTOR}
    has_hardware = {"matchExpressions": [{"key": HARDWARE, "operator": "Exists"}]}
    container = {
        "name": DETECTOR,
        "image": image,
        "command": [
            "/node-problem-detector",
            "--logtostderr",
            f"--config.custom-plugin-monitor=/config/{DETECTOR}.json",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "80Mi"}, "limits": {"memory": "200Mi"}},
        "securityContext": {"capabilities": {"add": ["SYS_CHROOT"]}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/config", "readOnly": True},
            {"name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"},
        ],
    }
    return {
        "selector": {"matchLabels": app},
        "template": {
            "metadata": {"labels": app},
            "spec": {
                "serviceAccountName": DETECTOR,
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [has_hardware]}
                    }
                },
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
                "volumes": [
                    {"name": "config", "configMap": {"name": DETECTOR}},
                    {"name": "host", "hostPath": {"path": "/"}},
                ],
            },
        },
    }


def gpu_operator(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the ClusterPolicy of NVIDIA's GPU operator: what gpu_node has done on the nodes is off.

    Only values that the inventory decides are in it; applied, all others of the operator's chart stay as they are. With
    device classes the DRA driver gives out the GPUs, so that the device plugin must not.
    """
    off: Mapping[str, Any] = {"enabled": False}
    return [
        {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy"},
            "spec": {
                "operator": {},
                "daemonsets": {},
                "driver": off,
                "toolkit": {"enabled": True},
                "devicePlugin": {"enabled": "dra" not in cluster.request.parts},
                "gfd": {"enabled": True},
                "mig": {"strategy": "none" if cluster.mig_off else "mixed"},
                "migManager": off,
                "dcgm": off,
                "dcgmExporter": {},
                "nodeStatusExporter": {},
            },
        }
    ]
