#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_console_info
short_description: Read the last lines of the consoles of nodes
version_added: 0.1.0
description:
  - Reads the logs that M(sailloft.fleet.node_consoles) keeps. Escape sequences are left out.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  nodes:
    description: The nodes.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      since_s:
        description: >-
          Lines are returned only if the console wrote within this number of seconds. By default always.
        type: float
  lines:
    description: How many lines of each.
    type: int
    default: 20
  log_dir:
    description: The directory of the logs.
    type: path
    default: /var/log/sailloft-consoles
"""

EXAMPLES = r"""
- name: Read what the node wrote on its console
  sailloft.fleet.node_console_info:
    nodes: [{name: "{{ inventory_hostname }}"}]
  delegate_to: "{{ node_bmc_console_server }}"
"""

RETURN = r"""
nodes:
  description: The C(lines) of each node that have text, by its name, and in C(msg) why there are none.
  returned: success
  type: dict
  sample: {node07: {lines: ["Kernel panic - not syncing"], msg: ""}}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.conman import ConsoleError
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.tail import LOG_DIR, tail

NODE = {"name": {"type": "str", "required": True}, "since_s": {"type": "float"}}


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "nodes": {"type": "list", "elements": "dict", "required": True, "options": NODE},
        "lines": {"type": "int", "default": 20},
        "log_dir": {"type": "path", "default": LOG_DIR},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: run(module.params))


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    nodes = {}
    for node in params["nodes"]:
        try:
            lines = tail(f"{params['log_dir']}/{node['name']}.log", params["lines"], node["since_s"])
            nodes[node["name"]] = {"lines": lines, "msg": ""}
        except ConsoleError as error:
            nodes[node["name"]] = {"lines": [], "msg": str(error)}
    return {"nodes": nodes}


if __name__ == "__main__":
    main()
