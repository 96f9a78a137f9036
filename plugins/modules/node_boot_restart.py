#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_restart
short_description: Restart a node through its BMC, with a one-time network boot
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Sets the next boot to the network, reads it back, restarts the node or starts it if it is off, and reads back that
    its power is on. Only the node itself can report whether it booted (M(sailloft.fleet.node_image_wait)).
  - A node whose BMC shows another next boot is not restarted.
  - Runs on the host that the task is delegated to.
  - The message of a failure names the node, its BMC, the cause and the next step.
extends_documentation_fragment: [sailloft.fleet.node_bmc]
requirements:
  - pyghmi >= 1.6 (IPMI)
options:
  http_boot:
    description: >-
      Whether the boot servers answer firmware that boots by HTTP. If not, V(UefiHttp) is requested only by
      O(bmc.boot_target).
    type: bool
    default: true
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: none
"""

EXAMPLES = r"""
- name: Restart the node through its BMC
  sailloft.fleet.node_boot_restart:
    node: "{{ inventory_hostname }}"
    bmc: {address: 10.9.1.1, username: root, password: "{{ bmc_password }}"}
  delegate_to: localhost
"""

RETURN = r"""
since:
  description: >-
    The time just before the restart, in seconds since 1970 by the controller's clock, for
    M(sailloft.fleet.node_image_wait).
  returned: success
  type: float
msg:
  description: Why the BMC did not restart the node, and the next step.
  returned: on failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_ipmi, bmc_redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS, BmcError, BootBmc


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        {
            "node": {"type": "str", "required": True},
            "bmc": {"type": "dict", "required": True, "options": OPTIONS},
            "http_boot": {"type": "bool", "default": True},
            "host": {"type": "str", "default": "localhost"},
        }
    )
    bmc = BootBmc.of(module.params["bmc"], module.params["http_boot"])
    restart = bmc_ipmi.restart if bmc.type == "ipmi" else bmc_redfish.restart
    try:
        restart(bmc)
    except BmcError as error:
        module.fail_json(msg=str(bmc.failure(module.params["node"], module.params["host"], str(error))))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
