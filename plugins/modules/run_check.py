#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: run_check
short_description: Refuse a run of a playbook that could only end without its result
version_added: 0.1.0
description:
  - Checks a run before its first task, on the controller and without connecting to a host. Each playbook of the
    collection begins with it, through C(playbooks/run_check.yml).
  - A source of the inventory that Ansible could not read is an error that begins with the cause, also if other sources
    could be read. Ansible itself only warns, and runs the playbook on the hosts that are left.
  - A strategy other than C(linear) or C(mitogen_linear) is an error, unless the playbook's hosts are independent.
  - Facts as variables (C(inject_facts_as_vars), which is Ansible's default) are an error for playbooks of the roles
    P(sailloft.fleet.node_boot#role) and P(sailloft.fleet.node_identity#role). With any result a node could override the
    commands that run for it on the controller, or the key to which its secrets are encrypted.
  - A variable of the command line (C(-e)) whose name no variable has, but that is near to one of the playbook or its
    roles, is an error, and one of the inventory a warning. Names in templates of the inventory are the site's own.
    Files in C(host_vars) are not searched; M(sailloft.fleet.role_variables) compares the names that begin with a role's
    name.
  - A value of the playbook's own variables that has another type, or is none of the choices, is an error.
  - A group of the playbook without hosts is an error if the inventory has a group of a similar name, if it is listed
    there without hosts, or if the playbook needs it.
  - In playbooks that use BMCs, a host of the run whose BMC (C(node_boot_bmc)) another host of the inventory has is an
    error, also if C(--limit) leaves the other one out. Address, port and system name a BMC.
  - Patterns that match no host of the run are an error that says whether the inventory or C(--limit) is the cause.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  playbook:
    description: The name of the playbook in C(meta/run_specs.yml).
    type: str
    required: true
  part:
    description: Whether the playbook is a part of a larger run, which may have no hosts for it.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check the run
  hosts: all:localhost
  gather_facts: false
  tags: always
  tasks:
    - name: Check inventory, variables, strategy and hosts
      sailloft.fleet.run_check:
        playbook: gpu_hosts
      run_once: true

- name: Run a playbook as a part of a larger one
  ansible.builtin.import_playbook: sailloft.fleet.prove
  vars:
    run_part: true
"""

RETURN = r"""
"""
