#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_repair
short_description: Decide what is done next to repair each node, in one call for the fleet
version_added: 0.1.0
description:
  - Reads what the nodes of the inventory have answered in this run (M(sailloft.fleet.node_health_info), registered as
    C(node_health_read)), what their scheduler lists, their proofs, and the log of repairs, C(repair-log.jsonl). It runs
    on the controller, and contacts no host.
  - Appends each decision to the log before it is carried out. In check mode it writes nothing.
  - A node outside of C(--limit) was not asked. It counts as serving only if the scheduler says so.
  - Without O(listed), and with a scheduler, it only returns RV(listing).
options:
  path:
    description: Directory of the log, created if it is missing.
    type: path
    required: true
  proofs:
    description: Directory of the proofs, of which those of a node (NODE.json, acceptance-NODE.json) must hold.
    type: path
    required: true
  nodes:
    description: All nodes of the fleet.
    type: list
    elements: str
    required: true
  only:
    description: The nodes that may be touched; all if it is left out.
    type: list
    elements: str
  scheduler:
    description: Where nodes are drained.
    type: str
    choices: [slurm, kubernetes, lsf, none, command]
    required: true
  commands:
    description: The commands C(list), C(drain) and C(return) of V(command), each a list of arguments.
    type: dict
    default: {}
  listed:
    description: What the scheduler's command RV(listing) printed.
    type: str
  settings:
    description: C(wait_s), C(kill_jobs), C(most_out), C(domain_most_out) and C(together), as the role's variables.
    type: dict
    default: {}
  repaired:
    description: The nodes of which a person says that they are repaired.
    type: list
    elements: str
    default: []
  can_swap:
    description: Whether there is a command that puts a spare in the place of a node.
    type: bool
    default: false
  ends_only:
    description: Whether only proofs and returns are begun, no drain and no repair.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Not supported; RV(lines) has what is decided.
    support: none
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Decide
  sailloft.fleet.node_repair:
    path: repair
    proofs: proofs
    nodes: "{{ groups.gpu_nodes }}"
    scheduler: slurm
    listed: "{{ listed.stdout }}"
  run_once: true
"""

RETURN = r"""
listing:
  description: The command that lists the scheduler's nodes; empty without a scheduler.
  returned: success
  type: list
  elements: str
lines:
  description: The decisions, in words.
  returned: with O(listed)
  type: list
  elements: str
decisions:
  description: >-
    What is to be carried out, by node, with C(step), C(fault), its C(kind) and C(place), C(reason), and for a drain
    or a return the scheduler's C(command).
  returned: with O(listed)
  type: dict
open:
  description: The nodes with a repair that has not ended.
  returned: with O(listed)
  type: list
  elements: str
waiting:
  description: The nodes with which nothing is done now, by a new decision.
  returned: with O(listed)
  type: list
  elements: str
"""
