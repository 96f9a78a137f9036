#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action node_boot_fleet."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_fleet
short_description: Read, drain, restart, wait for, prove and return many nodes, each step in one task
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Takes one step with all named nodes, a bounded number at once. It runs once, in a process of the controller, and
    reaches each node by its own connection and variables, as a task on it would.
  - A node that fails, or never answers, has the reason in its row. It neither fails the task nor stops the others.
  - The time limits of a boot count by a clock that no change of the controller's time moves. Whether a node has booted
    is what it reports itself - another boot id, and an uptime that is shorter than the time since the restart.
  - A BMC that fails after it was asked for the restart decides nothing; the node's own boot does.
  - The proof compares the image, kernel, arguments, layers, services and health of a node with the inventory, claim by
    claim. It is written as NAME.json, NAME.html and NAME.txt.
options:
  step:
    description:
      - V(look) reads what the nodes run, and proves those that run their image. V(drain) runs C(node_boot_drain) for
        the nodes that have to boot, which V(boot) restarts through their BMCs (M(sailloft.fleet.node_boot_restart)),
        waits for and proves. V(return) runs C(node_boot_return) for those that are proven.
      - Hooks that are files of tasks are left to the play, on the nodes in RV(due). V(drained), V(prove) and
        V(returned) take note of their results, which each node has in C(__node_boot_ran).
      - V(spares) returns the nodes to service, although they are spares.
    type: str
    choices: [look, drain, drained, boot, prove, return, returned, spares]
    required: true
  names:
    description: The nodes.
    type: list
    elements: str
    required: true
  rows:
    description: The rows of the nodes, from an earlier step or P(sailloft.fleet.node_boot_images#filter).
    type: dict
    default: {}
  channel:
    description: The channel that names the image of all nodes, instead of that in their rows; empty for a pin.
    type: str
  manifests:
    description: The manifests of the images, as results of a loop of M(ansible.builtin.slurp) over digests.
    type: list
    elements: dict
    default: []
  predictions:
    description:
      - The pcrs.json of the images, in the same form, from the host that signs. With C(node_boot_secure_boot), the
        proof compares the TPM's registers with it.
    type: list
    elements: dict
    default: []
  sequence:
    description: The sequence of the boot servers' statement (M(sailloft.fleet.node_boot_statement)); 0 if unknown.
    type: int
    default: 0
  path:
    description: The directory of the proofs.
    type: path
    default: proofs
  http_boot:
    description: Whether the boot servers answer firmware that boots by HTTP.
    type: bool
    default: true
  read_s:
    description: Time limit for a node's report of what it runs, in seconds; a node that hangs never answers.
    type: int
    default: 120
  title:
    description: What begins the lines of progress, such as C(wave 2/5).
    type: str
    default: ""
attributes:
  check_mode:
    description: Reads, and shows which nodes would boot. No proof is written.
    support: full
  diff_mode:
    description: Shows the proofs that change.
    support: full
requirements:
  - sushy >= 5.5 (Redfish) or pyghmi >= 1.6 (IPMI), on the host that accesses the BMCs
"""

EXAMPLES = r"""
- name: Read what the nodes run
  sailloft.fleet.node_boot_fleet:
    step: look
    names: "{{ groups.nodes }}"
  run_once: true
  register: nodes
"""

RETURN = r"""
rows:
  description: What is known of each node, by its name.
  returned: success
  type: dict
  sample: {bm01: {running: 2c26b46b68ff, boot_id: 1c4f..., answers: true, holds: true, why: ""}}
due:
  description: The nodes whose hook, a file of tasks, is to run next.
  returned: success
  type: list
  elements: str
booting:
  description: The nodes that are being booted.
  returned: success
  type: list
  elements: str
"""
