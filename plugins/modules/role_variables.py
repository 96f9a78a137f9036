#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: role_variables
short_description: Compare the names and values of variables with those of a role
version_added: 0.1.0
description:
  - Warns about each variable that begins with the name of a role, such as C(roce_switch_headrom), and is not an option
    of the role's entry points. The warning has its hosts and the nearest valid name.
  - It checks the variables of inventory, C(group_vars), C(host_vars), play, roles and command line, but not those that
    tasks set (C(set_fact), C(register)), nor C(vars) of tasks and blocks.
  - With O(role), fails with one sentence if a value that inventory or command line write out has another form than the
    role's argument specification says. Templates are left to Ansible's own check. Variables with C(no_log) are not
    read.
  - It runs on the controller, once for all hosts with C(run_once).
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  role:
    description: The role's name, without the collection. The default is the role of the task.
    type: str
  hosts:
    description: The hosts to check. The default is the hosts of the play, or of its batch with C(serial).
    type: list
    elements: str
  others:
    description: Variables that begin with the role's name and belong to something else, such as a filter.
    type: list
    elements: str
    default: []
  required_by:
    description:
      - Fail if a host lacks a variable that this entry point of the role requires, with one error for all hosts.
      - Use it in C(pre_tasks) of a play. Ansible validates a role's arguments for one host at a time, before the role's
        own tasks, and reports a missing variable that others refer to as undefined at an unknown place.
    type: str
  untrusted_hosts:
    description:
      - Fail if Ansible takes facts as variables (C(inject_facts_as_vars) in C(ansible.cfg), its default). Any result of
        a host may have facts, and they override the inventory. So a host of which it is not known what it runs could
        decide about itself.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check the names of the variables
  sailloft.fleet.role_variables:
  run_once: true
  tags: always

- name: Check the names of the switches' variables, outside of the role
  sailloft.fleet.role_variables:
    role: roce_switch
    hosts: "{{ groups.all }}"
    others: [roce_switch_asic]
  run_once: true

- name: Check that the boot servers have what their role requires
  sailloft.fleet.role_variables:
    role: boot_server
    required_by: main
  run_once: true
"""

RETURN = r"""
"""
