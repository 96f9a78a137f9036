#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action gpu_server_compare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_server_compare
short_description: Find the GPU servers on which the roles gpu_host and gpu_vm have nothing to do
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Takes the variables of both roles, checks them as Ansible does before a role, and compares the host with them by one
    call of M(sailloft.fleet.gpu_host_compare). Nothing is changed.
  - The first difference ends the comparison. What comes after it counts as different.
  - It does not fail because of the host. Where a host is not reached, a variable is refused by the role, or the host
    runs ESXi, the role has something to do; the role then says what is wrong.
  - Playbooks leave out the hosts on which a role has nothing to do (P(sailloft.fleet.gpu_servers#filter)), so that a
    run without changes is one task of each host.
options:
  roles:
    description: The roles to compare with.
    type: list
    elements: str
    choices: [gpu_host, gpu_vm]
    default: [gpu_host, gpu_vm]
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Compare the GPU servers with their settings and virtual machines
  sailloft.fleet.gpu_server_compare:
  register: gpu_server_compared
"""

RETURN = r"""
held:
  description: By role, whether it would change nothing and say nothing.
  returned: always
  type: dict
  sample: {"gpu_host": true, "gpu_vm": false}
differences:
  description: By role why it has to run, a line each, beginning with the module.
  returned: always
  type: dict
  sample: {"gpu_host": [], "gpu_vm": ["gpu_domain: train-001: start"]}
domains:
  description: Of each virtual machine C(name) and C(nccl_topology), as M(sailloft.fleet.gpu_domain) returns them.
  returned: always
  type: list
  elements: dict
"""
