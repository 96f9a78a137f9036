# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's settings of a Kubernetes cluster, each checked. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.errors import KubernetesError

PARTS = (
    *("labels", "sriov", "nic_configuration", "kueue", "dra", "gpu_operator", "kubelet", "node_problem_detector"),
    "multinic",
)
# RFC 1123 label, the form of a namespace.
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# A name in braces in a string; JSON has quotes after a brace of its own.
_PLACEHOLDER = re.compile(r"\{\w+\}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}")
# The operator's limit for NVIDIA's NICs (sriov-network-operator, pkg/webhook/validate.go, MlxMaxVFs).
VFS_MAX = 128


@dataclass(frozen=True)
class KubernetesRequest:
    """All settings. ``ipam``: the plugin that gives the pods' virtual functions their addresses; None: no networks.

    ``reserved_cores`` and ``reserved_mib`` are what the system keeps of each NUMA node.
    """

    groups: tuple[str, ...] = ("gpu_nodes",)
    parts: tuple[str, ...] = tuple(part for part in PARTS if part != "multinic")
    vfs: int = 8
    ipam: Mapping[str, Any] | None = None
    namespace: str = "nvidia-network-operator"
    jobs_namespace: str = "default"
    reserved_cores: int = 2
    reserved_mib: int = 4096
    multinic_subnet: ipaddress.IPv4Network | None = None
    detector_image: str = "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.19"


def read(data: Any) -> KubernetesRequest:
    """Return the request. Raises KubernetesError."""
    settings = Settings(KubernetesError, "kubernetes_cluster", data or {})
    namespace = values.matching(_NAMESPACE, "use at most 63 lower-case letters, digits and '-'")
    request: KubernetesRequest = settings.load(
        KubernetesRequest,
        {
            "groups": lambda value: tuple(values.distinct(values.text)(value)),
            "parts": lambda value: tuple(values.distinct(values.among(*PARTS))(value)),
            "vfs": values.within(1, VFS_MAX),
            "ipam": values.by_name,
            "namespace": namespace,
            "jobs_namespace": namespace,
            "reserved_cores": values.within(1, 64),
            "reserved_mib": values.within(512, 1 << 20),
            "multinic_subnet": _network,
            "detector_image": values.matching(_IMAGE, "use the name of an image, such as registry.example/npd:v1"),
        },
    )
    if not request.parts or not request.groups:
        raise settings.refuse("no parts or no groups", "list at least one, or leave the setting out")
    if request.ipam is not None and not isinstance(request.ipam.get("type"), str):
        raise settings.refuse("ipam has no type", "name the plugin, such as type: nv-ipam")
    if unknown := _PLACEHOLDER.search(json.dumps(request.ipam).replace("{rail}", "")):
        raise settings.refuse(f"ipam: {unknown[0]} stands for nothing", "write {rail} for the name of the rail")
    if "multinic" in request.parts and request.multinic_subnet is None:
        raise settings.refuse("the part multinic needs multinic_subnet", "give the network of all pods")
    return request


def _network(value: Any) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(value)
    except ValueError as error:
        raise values.InvalidValueError(f"{value!r} is no IPv4 network: {error}", "write it as 10.200.0.0/16") from None
