#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_console_info
short_description: Read the last lines of a node's console
version_added: 0.1.0
description:
  - Reads the log that M(sailloft.fleet.node_consoles) keeps. Escape sequences are left out.
  - Values of O(secrets) are masked wherever they are in the lines.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  node:
    description: Name of the node.
    type: str
    required: true
  lines:
    description: How many lines.
    type: int
    default: 20
  since_s:
    description: Lines are returned only if the console wrote within this number of seconds. By default always.
    type: float
  secrets:
    description: Texts that are masked, such as the password of the node's BMC.
    type: list
    elements: str
    default: []
  log_dir:
    description: The directory of the logs.
    type: path
    default: /var/log/sailloft-consoles
"""

EXAMPLES = r"""
- name: Read what the node wrote on its console
  sailloft.fleet.node_console_info:
    node: "{{ inventory_hostname }}"
    secrets: ["{{ node_boot_bmc.password }}"]
  delegate_to: "{{ node_boot_console_server }}"
"""

RETURN = r"""
lines:
  description: The last lines that have text.
  returned: success
  type: list
  elements: str
summary:
  description: The last line, or that the console was silent, as the end of a message.
  returned: success
  type: str
  sample: "; the last line of its console: Kernel panic - not syncing"
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.tail import tail


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "node": {"type": "str", "required": True},
        "lines": {"type": "int", "default": 20},
        "since_s": {"type": "float"},
        "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
        "log_dir": {"type": "path", "default": "/var/log/sailloft-consoles"},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: run(module.params), module.params["node"])


def run(given: dict[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises ConsoleError."""
    read = tail(f"{given['log_dir']}/{given['node'].replace('/', '_')}.log", given["lines"])
    since_s = given["since_s"]
    if since_s is not None and read.silent_s > since_s:
        return {"lines": [], "summary": f"; its console wrote nothing in the last {since_s:.0f} s"}
    last = read.lines[-1] if read.lines else "none"
    return {"lines": list(read.lines), "summary": f"; the last line of its console: {last}"}


if __name__ == "__main__":
    main()
