#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action report."""

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Print lines as they are
version_added: 0.1.0
description:
  - Prints a table, a tree or sentences without quotes, escapes or folding, in whatever format Ansible shows results
    (C(callback_result_format)). M(ansible.builtin.debug) shows them as JSON or YAML.
  - With a callback that prints JSON the lines go to standard error.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  lines:
    description: The lines.
    type: list
    elements: str
    required: true
  subject:
    description: The text that each line begins with, followed by a colon.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show the plan
  sailloft.fleet.report:
    lines: "{{ planned.tree + planned.files }}"

- name: Show why a reboot is needed
  sailloft.fleet.report:
    lines: "{{ gpu_host_pending }}"
    subject: "{{ inventory_hostname }}"
"""

RETURN = r"""
lines:
  description: The lines.
  returned: success
  type: list
  elements: str
"""
