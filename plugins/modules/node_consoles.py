#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_consoles
short_description: Keep the consoles of nodes in log files, with ConMan
version_added: 0.1.0
description:
  - Writes the configuration of ConMan and a unit of its own, C(sailloft-consoles.service), starts it, and reads back
    that it has all consoles. The configuration of the distribution, C(/etc/conman.conf), is not touched.
  - Clients can connect from the host itself only (C(conman -d 127.0.0.1:PORT NODE)).
  - The configuration has the passwords of BMCs; only root can read it and the logs.
  - An IPMI console was tried with no BMC.
extends_documentation_fragment: [sailloft.fleet.attributes]
requirements:
  - conman
options:
  consoles:
    description: The consoles. The filter P(sailloft.fleet.node_console_list#filter) makes them of the inventory.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      device:
        description: >-
          V(ipmi:ADDRESS) (Serial-over-LAN), V(unix:PATH) (a socket), V(HOST:PORT) (telnet), or a program with its
          arguments.
        type: str
        required: true
      username:
        description: The user (IPMI), of at most 16 characters.
        type: str
        default: ""
      password:
        description: The password (IPMI), of at most 20 bytes.
        type: str
        default: ""
  log_dir:
    description: The directory of the logs, NODE.log each.
    type: path
    default: /var/log/sailloft-consoles
  port:
    description: The TCP port on the loopback address.
    type: int
    default: 7891
"""

EXAMPLES = r"""
- name: Keep the consoles of the nodes
  sailloft.fleet.node_consoles:
    consoles: "{{ groups.nodes | sailloft.fleet.node_console_list(hostvars, inventory_hostname) }}"
  become: true
"""

RETURN = r"""
changes:
  description: What was changed.
  returned: success
  type: list
  elements: str
  sample: [configuration, service]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.conman import Console, config
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.server import CONFIG, converge
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.tail import LOG_DIR
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

CONSOLE = {
    "name": {"type": "str", "required": True},
    "device": {"type": "str", "required": True},
    "username": {"type": "str", "default": ""},
    "password": {"type": "str", "default": "", "no_log": True},
}


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "consoles": {"type": "list", "elements": "dict", "required": True, "options": CONSOLE},
        "log_dir": {"type": "path", "default": LOG_DIR},
        "port": {"type": "int", "default": 7891},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: run(module.params, module.check_mode))


def run(params: dict[str, Any], is_check: bool) -> dict[str, Any]:
    """Return the module's result. Raises ConsoleError and HostError."""
    consoles = [Console(**console) for console in params["consoles"]]
    text = config(consoles, params["log_dir"], params["port"])
    system = System()
    before = (system.read_bytes(CONFIG) or b"").decode(errors="replace")
    names = {console.name for console in consoles}
    changes = converge(system, text, params["log_dir"], names, params["port"], is_check)
    diff = {"before": without_secrets(before), "after": without_secrets(text), "before_header": CONFIG}
    return {"changed": bool(changes), "changes": changes, "diff": diff if changes else {}}


def without_secrets(text: str) -> str:
    """Return a configuration without the options of IPMI."""
    return "".join(f"{line.partition(' ipmiopts=')[0]}\n" for line in text.splitlines())


if __name__ == "__main__":
    main()
