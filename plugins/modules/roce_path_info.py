#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trace the path of RoCE traffic through the configuration that was read back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_path_info
short_description: Check every hop of RoCE traffic against the policy, and report the first fault
version_added: 0.1.0
description:
  - Follows a packet from the application's ToS byte through its NIC, every switch that it may pass, and the receiver,
    and the receiver's CNP back to the sender. All settings are those that were read back, not those that were
    configured.
  - A NIC whose settings for RoCE are right is compared with the whole plan of M(sailloft.fleet.roce_host).
  - Each fault has its consequence. Faults are in the order in which packets pass them, so the first fault is the first
    broken hop.
  - With PFC, a cycle of links that can wait for each other's pauses is also a fault; without O(paths), so is a NIC
    that is the end of no link.
  - It contacts no device. Run it once, on the controller.
extends_documentation_fragment: [sailloft.fleet.attributes.reads, sailloft.fleet.fabric]
options:
  running:
    description: >-
      Running configurations as text by switch, or names, as M(sailloft.fleet.roce_switch_config) takes them. Nothing is
      known about a switch that is missing here; one whose configuration cannot be understood is a fault.
    type: dict
    required: true
  nics:
    description: >-
      The NICs as M(sailloft.fleet.roce_nic_info) returns them, by host and by their names in links, or names of hosts.
      A host with other data is a fault.
    type: dict
    required: true
  applications:
    description:
      - By host, a list of the applications that send from it, each with C(name), C(tos) (the whole byte, as in
        C(NCCL_IB_TC)) and, if known, C(queue_pairs), the number per connection, and C(gid_index), which is checked
        against the GIDs of the host's NICs. Names of hosts stand for C(roce_host_applications) of each.
      - With C(environment), the variables with which NCCL, RCCL, NVSHMEM, DeepEP or UCX is started, the one of the
        traffic class is compared with C(tos), and those for several paths are listed where they are not set.
      - A host without any is a fault, unless it is the hypervisor of O(guests).
    type: dict
    default: {}
  paths:
    description:
      - The paths to follow, each with C(source) and C(destination), which have C(host) and C(nic). All paths of equal
        length are followed.
      - Without any, every part of the fabric is checked once, as if every host sent to every other.
    type: list
    elements: dict
    default: []
  rdma_class:
    description: The class of the policy to follow. All classes by default.
    type: str
  thresholds:
    description: >-
      Whether to compare ECN thresholds, headroom and the buffers of NICs with those that are computed for each port.
    type: bool
    default: true
  name:
    description: The name of the proof.
    type: str
    default: fabric
seealso:
  - module: sailloft.fleet.roce_nic_info
  - module: sailloft.fleet.roce_switch_config
"""

EXAMPLES = r"""
- name: Check the path between two GPUs
  sailloft.fleet.roce_path_info:
    policy: "{{ roce_policy | default({}) }}"
    switches: "{{ groups.roce_switches }}"
    running:
      leaf1: "{{ lookup('ansible.builtin.file', 'backup/leaf1.json') }}"
    nics:
      gpu01: "{{ hostvars.gpu01.roce_nics.nics }}"
      gpu02: "{{ hostvars.gpu02.roce_nics.nics }}"
    applications:
      gpu01: [{name: NCCL, tos: 106, queue_pairs: 4}]
    paths:
      - source: {host: gpu01, nic: mlx5_0}
        destination: {host: gpu02, nic: mlx5_0}
  delegate_to: localhost
  register: path
  failed_when: not path.holds
"""

RETURN = r"""
holds:
  description: V(true) if every part is as the policy says.
  returned: success
  type: bool
message:
  description: The first broken hop as a sentence, or that there is none.
  returned: success
  type: str
  sample: "leaf1 Ethernet0, in: DSCP 26 is traffic class 3: wanted 3, seen 1: RoCE shares a class with other traffic"
first_fault:
  description: >-
    The first broken hop; null if there is none. C(rail) is its rail, or its plane with all NICs that its switches
    serve; "" where each switch serves all NICs.
  returned: success
  type: dict
  sample:
    where: leaf1 Ethernet0, in
    rail: rail mlx5_0
    what: DSCP 26 is traffic class 3
    wanted: 3
    seen: 1
    consequence: RoCE shares a class with other traffic from here on
faults:
  description: All faults, in the order in which packets pass them.
  returned: success
  type: list
  elements: dict
unseen:
  description: Settings that cannot be read on such a device. They neither hold nor fail.
  returned: success
  type: list
  elements: dict
  sample:
    - where: leaf1 Ethernet1/1, in
      rail: ""
      what: priority 3 has headroom
      wanted: 38912
      reason: NX-OS sizes the headroom of a no-drop class itself, from its MTU and the port's speed
parts:
  description: The number of parts that were checked.
  returned: success
  type: int
table:
  description: The proof as a short table with the faults, in lines.
  returned: success
  type: list
  elements: str
"""

import gc

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.module import FabricModule, fabric_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report


def main() -> None:
    """Run as an Ansible module."""
    module = FabricModule(
        argument_spec=fabric_arguments(
            nics={"type": "dict", "required": True},
            applications={"type": "dict", "default": {}},
            paths={"type": "list", "elements": "dict", "default": []},
            rdma_class={"type": "str"},
            thresholds={"type": "bool", "default": True},
            name={"type": "str", "default": "fabric"},
        ),
        returned=("policy", "asics", "paths", "rdma_class", "thresholds", "name"),
    )
    # The code below makes no reference cycles, and the search for them takes a third of the time for a large fabric.
    gc.disable()
    finish(module, lambda: report.checked(module.params))


if __name__ == "__main__":
    main()
