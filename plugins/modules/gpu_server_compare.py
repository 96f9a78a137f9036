#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action gpu_server_compare."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_server_compare
short_description: Find the GPU servers on which the roles gpu_host and gpu_vm have nothing to do
version_added: 0.1.0
description:
  - Takes the variables of both roles, validates them as Ansible does before a role, and compares them with the host in
    one call of M(sailloft.fleet.gpu_host_compare). Nothing is changed.
  - The first difference ends the comparison. All settings after it count as different.
  - It does not fail because of the host. If a host is not reachable, a variable is invalid, or the host runs ESXi, the
    role has to run, and then reports the error.
  - Playbooks leave out the hosts on which a role has nothing to do (P(sailloft.fleet.gpu_servers#filter)), so that a
    run without changes is one task per host.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  roles:
    description: The roles to compare with.
    type: list
    elements: str
    choices: [gpu_host, gpu_vm]
    default: [gpu_host, gpu_vm]
"""

EXAMPLES = r"""
- name: Compare the GPU servers with their settings and virtual machines
  sailloft.fleet.gpu_server_compare:
  register: __gpu_server_compared
"""

RETURN = r"""
held:
  description: By role, whether it would neither change nor report anything.
  returned: always
  type: dict
  sample: {"gpu_host": true, "gpu_vm": false}
differences:
  description: By role, the reasons why it has to run, one line each, which begins with the module.
  returned: always
  type: dict
  sample: {"gpu_host": [], "gpu_vm": ["gpu_domain: train-001: start"]}
domains:
  description: C(name) and C(nccl_topology) of each virtual machine, as M(sailloft.fleet.gpu_domain) returns them.
  returned: always
  type: list
  elements: dict
"""
