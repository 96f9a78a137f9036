#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_vm_place
short_description: Check that no other server runs a virtual machine, or write which one does
version_added: 0.1.0
description:
  - Reads or writes C(VM.json) on the controller. The playbook C(restart_vm.yml) writes it before it starts a virtual
    machine on another server; the role C(gpu_vm) checks it before it defines one.
  - A virtual machine without a file was never restarted elsewhere. The message of a failure says where it runs, and
    how to bring it back.
options:
  path:
    description: Directory of the files.
    type: path
    required: true
  vms:
    description: Names of virtual machines.
    type: list
    elements: str
    required: true
  server:
    description: The server that is to run them.
    type: str
    required: true
  state:
    description: Whether the files are checked or written.
    type: str
    choices: [checked, written]
    default: checked
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Check that no other server runs train-01
  sailloft.fleet.gpu_vm_place:
    path: vms
    vms: [train-01]
    server: gpu1
"""

RETURN = r"""
"""
