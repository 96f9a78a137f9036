# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The objects of SR-IOV and of NVIDIA's NIC configuration, for each rail of each hardware; MultiNicNetwork. Pure.

Sources: k8snetworkplumbingwg/sriov-network-operator at 249e2001 (api/v1, pkg/webhook/validate.go),
Mellanox/nic-configuration-operator at 8bfbeb3 (api/v1alpha1, README.md, pkg/configuration/configvalidation.go),
foundation-model-stack/multi-nic-cni at dd03940 (README.md), whose development is suspended since its release 1.3.1.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.cluster import HARDWARE, Cluster, HardwareGroup
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.errors import KubernetesError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import compute_fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import MELLANOX
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.rails import Rail

SRIOV = "sriovnetwork.openshift.io/v1"
# Without a map of its own a NIC that trusts DSCP gives a packet the priority DSCP / 8 (Linux, mlx5e_dcbnl_dscp_app;
# NVIDIA's mlnx_qos prints this map).
DSCPS_OF_A_PRIORITY = 8


def policies(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the SriovNetworkNodePolicy of each rail, and its network if the request has an IPAM plugin.

    The resource of a rail has its name on all hardware, so that a pod asks for it and gets it on any node.
    """
    namespace = cluster.request.namespace
    objects = [
        {
            "apiVersion": SRIOV,
            "kind": "SriovNetworkNodePolicy",
            "metadata": {"name": f"{rail.name}-{hardware.name}", "namespace": namespace},
            "spec": _policy(cluster, hardware, rail),
        }
        for hardware in cluster.hardware
        for rail in hardware.rails
    ]
    return objects + _networks(cluster) if cluster.request.ipam else objects


def _policy(cluster: Cluster, hardware: HardwareGroup, rail: Rail) -> dict[str, Any]:
    port = hardware.ports[rail.name]
    spec: dict[str, Any] = {
        "resourceName": rail.name,
        "nodeSelector": {HARDWARE: hardware.name},
        "nicSelector": {"rootDevices": [rail.nic.address]},
        "numVfs": port.vfs,
        "deviceType": "netdevice",
        "isRdma": True,
        "linkType": "IB" if port.infiniband else "ETH",
    }
    if port.externally_managed:
        spec["externallyManaged"] = True
    if not port.infiniband and cluster.policy:
        spec["mtu"] = cluster.policy.ip_mtu_bytes
    return spec


def _networks(cluster: Cluster) -> list[dict[str, Any]]:
    infiniband = {
        rail.name: hardware.ports[rail.name].infiniband for hardware in cluster.hardware for rail in hardware.rails
    }
    return [
        {
            "apiVersion": SRIOV,
            "kind": "SriovIBNetwork" if infiniband[name] else "SriovNetwork",
            "metadata": {"name": name, "namespace": cluster.request.namespace},
            "spec": {
                "resourceName": name,
                "networkNamespace": cluster.request.jobs_namespace,
                "ipam": json.dumps(cluster.request.ipam, sort_keys=True).replace("{rail}", name),
            },
        }
        for name in rail_names(cluster)
    ]


def rail_names(cluster: Cluster) -> list[str]:
    """Return the names of all rails in order."""
    numbers = {rail.number: rail.name for hardware in cluster.hardware for rail in hardware.rails}
    return [numbers[number] for number in sorted(numbers)]


def nic_configurations(cluster: Cluster) -> list[dict[str, Any]]:
    """Return a NicConfigurationTemplate for each of NVIDIA's NICs. Raises KubernetesError for a policy that none holds.

    A NIC has one template, whatever the number of its ports: the operator refuses two.
    """
    templates = []
    for hardware in cluster.hardware:
        cards: dict[str, list[Rail]] = {}
        for rail in hardware.rails:
            if rail.nic.vendor_id == MELLANOX:
                cards.setdefault(rail.nic.address.split(".", maxsplit=1)[0], []).append(rail)
        foreign_nics = [rail.nic.address for rail in hardware.rails if rail.nic.vendor_id != MELLANOX]
        if foreign_nics:
            cluster.note(f"NICs that are not NVIDIA's, so without template: {', '.join(foreign_nics)}", hardware.nodes)
        templates += [_template(cluster, hardware, card) for card in cards.values()]
    if cluster.policy and any("roceOptimized" in template["spec"]["template"] for template in templates):
        cluster.note(
            "NicConfigurationTemplate has no bandwidth shares: NICs keep those of their driver, unlike with roce_host",
            cluster.nodes,
        )
    return templates


def _template(cluster: Cluster, hardware: HardwareGroup, card: list[Rail]) -> dict[str, Any]:
    ports = [hardware.ports[rail.name] for rail in card]
    if len({port[:3] for port in ports}) > 1:
        raise KubernetesError(
            f"the ports of NIC {card[0].nic.address} differ in VFs or link type, but one template is for both",
            "plan the same for both ports, or leave nic_configuration out of parts",
            subject=hardware.nodes[0],
        )
    template: dict[str, Any] = {
        "numVfs": ports[0].vfs,
        "linkType": "Infiniband" if ports[0].infiniband else "Ethernet",
        "pciPerformanceOptimized": {"enabled": True, "maxReadRequest": cluster.max_read_request_bytes},
        "gpuDirectOptimized": {"enabled": True, "env": "Baremetal"},
    }
    if not ports[0].infiniband and cluster.policy and cluster.rdma_class:
        cables = [port.cable_m for port in ports if port.cable_m]
        qos = _qos(cluster.policy, cluster.rdma_class, max(cables, default=None))
        template["roceOptimized"] = {"enabled": True, "roceMode": 2, "qos": qos}
        template["rawNvConfig"] = _firmware(cluster.policy)
    return {
        "apiVersion": "configuration.net.nvidia.com/v1alpha1",
        "kind": "NicConfigurationTemplate",
        "metadata": {"name": f"{card[0].name}-{hardware.name}", "namespace": cluster.request.namespace},
        "spec": {
            "nodeSelector": {HARDWARE: hardware.name},
            "nicSelector": {
                "nicType": f"{card[0].nic.device_id:04x}",
                "pciAddresses": [rail.nic.address for rail in card],
            },
            "template": template,
        },
    }


def _qos(policy: Policy, rdma_class: RdmaClass, cable_m: int | None) -> dict[str, Any]:
    for name, traffic in policy.named:
        dscp = getattr(traffic, "dscp", None)
        if dscp is not None and dscp // DSCPS_OF_A_PRIORITY != traffic.priority:
            raise KubernetesError(
                f"NicConfigurationTemplate cannot give DSCP {dscp} of class {name} the priority {traffic.priority}: "
                f"NICs give it {dscp // DSCPS_OF_A_PRIORITY}",
                "leave nic_configuration out of kubernetes_cluster.parts, and run the role roce_host on the nodes",
                subject="roce_policy",
            )
    if len(policy.classes) > 1:
        raise KubernetesError(
            "NicConfigurationTemplate has ECN for one priority, but the policy has several RoCE classes",
            "leave nic_configuration out of kubernetes_cluster.parts, and run the role roce_host on the nodes",
            subject="roce_policy",
        )
    lossless = {priority_class.priority for priority_class in policy.lossless}
    qos: dict[str, Any] = {
        "trust": "dscp",
        "pfc": ",".join("1" if priority in lossless else "0" for priority in range(CLASSES)),
        "tos": rdma_class.tos,
        "ecn": {"enabled": True, "priority": rdma_class.priority},
        "pauseFrames": {"enabled": False},
    }
    if cable_m:
        qos["cableLen"] = cable_m
    return qos


def _firmware(policy: Policy) -> list[dict[str, str]]:
    """Return the firmware settings that the operator's own for RoCE contradict.

    With roceOptimized it sets ROCE_CC_PRIO_MASK 255, CNP_DSCP 4 and CNP_802P_PRIO 6; rawNvConfig overrides these, and
    parameters of a second port that the NIC lacks are ignored.
    """
    mask = sum(1 << priority_class.priority for priority_class in policy.classes)
    wanted = {"ROCE_CC_PRIO_MASK": mask, "CNP_DSCP": policy.cnp.dscp, "CNP_802P_PRIO": policy.cnp.priority}
    return [{"name": f"{name}_P{port}", "value": str(value)} for name, value in wanted.items() for port in (1, 2)]


def multinic(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the MultiNicNetwork of all rails. Raises KubernetesError if its subnet is too small.

    Its blocks follow from the number of nodes and of rails (2 to the power of hostBlock and of interfaceBlock).
    """
    subnet = cluster.request.multinic_subnet
    if subnet is None:
        return []
    host_bits = max(1, (len(cluster.nodes) - 1).bit_length())
    interface_bits = max(1, (len(rail_names(cluster)) - 1).bit_length())
    # Two addresses of a block are the network's and the broadcast's.
    pod_bits = 32 - subnet.prefixlen - host_bits - interface_bits
    if pod_bits < 2:
        raise KubernetesError(
            f"{subnet} is too small for {len(cluster.nodes)} nodes of {len(rail_names(cluster))} rails",
            f"use a network of at most /{30 - host_bits - interface_bits}",
            subject="kubernetes_cluster.multinic_subnet",
        )
    ipam = {
        "type": "multi-nic-ipam",
        "hostBlock": host_bits,
        "interfaceBlock": interface_bits,
        "vlanMode": "l3",
    }
    return [
        {
            "apiVersion": "multinic.fms.io/v1",
            "kind": "MultiNicNetwork",
            "metadata": {"name": "rails"},
            "spec": {
                "subnet": str(subnet),
                "ipam": json.dumps(ipam),
                "multiNICIPAM": True,
                "plugin": {"cniVersion": "0.3.0", "type": "ipvlan", "args": {"mode": "l3"}},
                "attachPolicy": {"strategy": "none"},
                "masterNets": _networks_of_rails(cluster),
            },
        }
    ]


def _networks_of_rails(cluster: Cluster) -> list[str]:
    """Return the networks of the nodes' ports in the compute fabric, in order; without a blueprint none are known."""
    site = cluster.site
    if site is None:
        return []
    fabric = compute_fabric(site)
    ports = {rule.ports for rule in site.blueprint.links if rule.fabric == fabric}
    names = dict.fromkeys(
        address.network
        for node in cluster.nodes
        if node in site.devices
        for address in site.devices[node].kind.addresses
        if address.ports in ports
    )
    return [str(network) for name in names for network in site.subnets[name]]
