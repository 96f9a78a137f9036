#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_repair_ended
short_description: Write to the log of repairs how a step has ended
version_added: 0.1.0
description:
  - Appends to C(repair-log.jsonl), on the controller. It fails for a step that was not begun
    (M(sailloft.fleet.node_repair)).
  - A step without an end is one whose outcome is not known; it is not repeated.
options:
  path:
    description: Directory of the log.
    type: path
    required: true
  node:
    description: The node.
    type: str
    required: true
  step:
    description: The step that was begun.
    type: str
    required: true
  failed:
    description: Whether it failed.
    type: bool
    required: true
  reason:
    description: Why.
    type: str
    default: ""
  readings:
    description: Texts by name, for a person. They are written to NODE.json beside the log.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Write that the node was rebooted
  sailloft.fleet.node_repair_ended:
    path: repair
    node: gpu-017
    step: reboot
    failed: false
"""

RETURN = r"""
files:
  description: The files that were written besides the log.
  returned: success
  type: list
  elements: str
"""
