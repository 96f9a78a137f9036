#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trace the path of RoCE traffic through the configuration that was read back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_path_info
short_description: Check every hop of RoCE traffic against the policy, and report the first fault
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Follows a packet from the application's ToS byte through its NIC, every switch that it may pass, and the receiver,
    and the receiver's CNP back to the sender. All of it is judged by what was read back, not by what was configured.
  - Each fault has its consequence. Faults are in the order in which packets meet them, so the first is the first
    broken hop.
  - Where priorities are paused (PFC), links whose pauses can wait for each other in a circle are a fault too.
  - It asks no device and needs none. Run it once, on the controller.
options:
  policy:
    description: The policy, as in the variable C(roce_policy). Settings that it omits have their defaults.
    type: dict
    default: {}
  switches:
    description:
      - All switches by name, as M(sailloft.fleet.roce_switch_config) takes them. The links of the fabric are what their
        ports' C(peer) says.
    type: dict
    required: true
  asics:
    description: ASICs as M(sailloft.fleet.roce_switch_config) takes them.
    type: dict
  running:
    description: Running configurations as text, by switch. Of a switch that is not here, nothing is known.
    type: dict
    required: true
  nics:
    description: By host, and by the names that links use, the NICs as M(sailloft.fleet.roce_nic_info) returns them.
    type: dict
    required: true
  hosts:
    description:
      - By host its C(roce_host_nics), as M(sailloft.fleet.roce_switch_config) takes it. A NIC that has no C(cable_m)
        there keeps its driver's own ingress buffers, and then none is claimed to be RoCE's alone.
    type: dict
  applications:
    description:
      - By host a list of what sends from it, each with C(name), C(tos) (the whole byte, as in C(NCCL_IB_TC)) and, where
        it is known, C(queue_pairs), how many a connection has.
    type: dict
    default: {}
  paths:
    description:
      - The paths to follow, each with C(source) and C(destination), and in each C(host) and C(nic). All ways of equal
        length are followed.
      - Without any, every part of the fabric is looked at once, as if every host sent to every other.
    type: list
    elements: dict
    default: []
  rdma_class:
    description: The class of the policy to follow. All classes by default.
    type: str
  thresholds:
    description: Compare ECN thresholds and headroom with those that are compiled for each port.
    type: bool
    default: true
  name:
    description: The name of the proof.
    type: str
    default: fabric
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
seealso:
  - module: sailloft.fleet.roce_nic_info
  - module: sailloft.fleet.roce_switch_config
"""

EXAMPLES = r"""
- name: Check the path between two GPUs
  sailloft.fleet.roce_path_info:
    policy: "{{ roce_policy | default({}) }}"
    switches: "{{ groups.roce_switches | sailloft.fleet.roce_switches(hostvars) }}"
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
  description: The first broken hop in a sentence, or that there is none.
  returned: success
  type: str
  sample: "leaf1 Ethernet0, in: DSCP 26 is traffic class 3: wanted 3, seen 1: RoCE shares a class with other traffic"
first_fault:
  description: The first broken hop; null where there is none.
  returned: success
  type: dict
  sample:
    where: leaf1 Ethernet0, in
    what: DSCP 26 is traffic class 3
    wanted: 3
    seen: 1
    consequence: RoCE shares a class with other traffic from here on
faults:
  description: All of them, in the order in which packets meet them.
  returned: success
  type: list
  elements: dict
unseen:
  description: Settings that cannot be read on such a device; they neither hold nor fail.
  returned: success
  type: list
  elements: dict
  sample:
    - where: leaf1 Ethernet1/1, in
      what: priority 3 has headroom
      wanted: 38912
      reason: NX-OS sizes the headroom of a no-drop class itself, from its MTU and the port's speed
parts:
  description: How many parts were looked at.
  returned: success
  type: int
table:
  description: The proof as a short table, a line each, with what is wrong.
  returned: success
  type: list
  elements: str
"""

import gc

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.module import FabricModule
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.given.finish import finish


def main() -> None:
    """Run as an Ansible module."""
    module = FabricModule(
        argument_spec={
            "policy": {"type": "dict", "default": {}},
            "switches": {"type": "dict", "required": True},
            "asics": {"type": "dict"},
            "running": {"type": "dict", "required": True},
            "hosts": {"type": "dict"},
            "nics": {"type": "dict", "required": True},
            "applications": {"type": "dict", "default": {}},
            "paths": {"type": "list", "elements": "dict", "default": []},
            "rdma_class": {"type": "str"},
            "thresholds": {"type": "bool", "default": True},
            "name": {"type": "str", "default": "fabric"},
        },
        told=("policy", "asics", "paths", "rdma_class", "thresholds", "name"),
    )
    # The code below makes no cycles, and searching for them takes a third of the time with a large fabric's input.
    gc.disable()
    finish(module, lambda: report.checked(module.params))


if __name__ == "__main__":
    main()
