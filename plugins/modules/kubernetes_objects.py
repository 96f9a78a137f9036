#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_objects
short_description: Plan, write and apply the objects of a Kubernetes cluster from recordings, RoCE policy and blueprint
version_added: 0.1.0
description:
  - Runs on the controller, once for all nodes. Nodes that are alike, by the PCI addresses of their NICs and GPUs and
    by their CPUs, get one label. Each rail has one name for the virtual functions of its NIC and for the GPUs below the
    same PCIe switch.
  - With O(kubeconfig) the objects are applied by C(kubernetes.core.k8s), which needs the collection C(kubernetes.core)
    and the Python package C(kubernetes). Objects of an earlier plan, by the label C(sailloft.fleet/plan), that this
    one has not are removed, also those of parts that are left out now; none while a node has no recording. Nodes are
    labelled and never created, and the C(ClusterPolicy) is never removed.
  - It reads the nodes' variables C(roce_policy), C(roce_host_class), C(roce_host_nics), C(gpu_host_sriov),
    C(gpu_node_pci) and C(gpu_node_mig_off).
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  settings:
    description: What recordings and inventory leave open.
    type: dict
    suboptions:
      groups:
        description: The groups of the nodes.
        type: list
        elements: str
        default: [gpu_nodes]
      parts:
        description:
          - What is planned. V(labels) are the nodes' places, V(sriov) SriovNetworkNodePolicies and networks, V(kueue) a
            Topology and ResourceFlavors, V(dra) a DeviceClass with the GPUs of each rail, V(kubelet) its configuration
            by hardware, as files. V(multinic) is a MultiNicNetwork, whose project is suspended.
          - V(nic_configuration) are NicConfigurationTemplates with the RoCE policy.
          - The default has all but V(multinic).
        type: list
        elements: str
        choices: [labels, sriov, nic_configuration, kueue, dra, gpu_operator, kubelet, node_problem_detector, multinic]
      vfs:
        description: >-
          Virtual functions of each NIC. A NIC of C(gpu_host_sriov) has the number given there, and its policy leaves
          their creation to the role C(gpu_host).
        type: int
        default: 8
      ipam:
        description: >-
          The IPAM plugin of the rails' networks, with C({rail}) for the name of the rail. Without it no networks are
          planned.
        type: dict
      namespace:
        description: The namespace of the operators.
        type: str
        default: nvidia-network-operator
      jobs_namespace:
        description: The namespace in which pods use the networks.
        type: str
        default: default
      reserved_cores:
        description: Cores of each NUMA node that the system keeps, with all their threads.
        type: int
        default: 2
      reserved_mib:
        description: Memory of each NUMA node that the system keeps, in MiB.
        type: int
        default: 4096
      multinic_subnet:
        description: The network of all pods, for V(multinic).
        type: str
      detector_image:
        description: The image of node-problem-detector.
        type: str
        default: registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.19
  blueprint:
    description: The file of the blueprint, for rails, racks and switches.
    type: path
  recordings:
    description: The directory of the nodes' recordings, C(NAME.json).
    type: path
  path:
    description: Directory for the manifests, created if it is missing. Without it, nothing is written.
    type: path
  kubeconfig:
    description: The file with the address and the credentials of the cluster. Without it, nothing is applied.
    type: path
"""

EXAMPLES = r"""
- name: Compare the cluster with its plan (--check --diff), or bring it there
  sailloft.fleet.kubernetes_objects:
    settings: {vfs: 8, ipam: {type: nv-ipam, poolName: "{rail}"}}
    blueprint: inventories/small/blueprint.yml
    recordings: recordings
    path: plans/kubernetes
    kubeconfig: ~/.kube/config
"""

RETURN = r"""
summary:
  description: Nodes by their hardware, and its rails, as lines of text.
  returned: success
  type: list
  elements: str
notes:
  description: What is not known, or has no place in the objects, as lines.
  returned: success
  type: list
  elements: str
objects:
  description: The objects by part.
  returned: success
  type: dict
kubelets:
  description: The KubeletConfiguration by hardware.
  returned: success
  type: dict
written:
  description: The files that were missing or different.
  returned: success
  type: list
  elements: str
applied:
  description: The objects that were missing or different in the cluster.
  returned: success
  type: list
  elements: str
  sample: ["SriovNetworkNodePolicy rail0-hw-31fed714"]
removed:
  description: The objects of an earlier plan that were removed from the cluster.
  returned: success
  type: list
  elements: str
"""
