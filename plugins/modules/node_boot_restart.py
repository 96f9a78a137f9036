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
requirements:
  - sushy >= 5.5 (Redfish)
  - pyghmi >= 1.6 (IPMI)
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  bmc:
    description: The BMC.
    type: dict
    required: true
    suboptions:
      type:
        description: The protocol.
        type: str
        choices: [redfish, ipmi]
        default: redfish
      address:
        description: Its address; with Redfish it may include a port (V(10.9.1.1:8000)).
        type: str
        required: true
      port:
        description: Its UDP port (IPMI).
        type: int
        default: 623
      username:
        description: The user.
        type: str
        required: true
      password:
        description: The password.
        type: str
        required: true
      verify_tls:
        description: Whether to verify its certificate (Redfish).
        type: bool
        default: true
      ca:
        description: File with the certificates to trust instead of those of the system (Redfish).
        type: path
      system:
        description: Id of the node's system, if the BMC has several (Redfish).
        type: str
      boot_mode:
        description: The firmware with which the node boots.
        type: str
        choices: [UEFI, Legacy]
        default: UEFI
      boot_target:
        description: >-
          The next boot that is requested (Redfish). By default V(Pxe), or V(UefiHttp) if the BMC does not offer V(Pxe).
        type: str
        choices: [Pxe, UefiHttp]
      timeout_s:
        description: Time limit for an answer of the BMC in seconds (Redfish).
        type: int
        default: 30
      power_timeout_s:
        description: Time limit for the power to be as each command requests, in seconds.
        type: int
        default: 60
  http_boot:
    description: >-
      Whether the boot servers answer firmware that boots by HTTP. If not, V(UefiHttp) is requested only by
      O(bmc.boot_target).
    type: bool
    default: true
  host:
    description: Name of the host that accesses the BMC, for messages.
    type: str
    default: localhost
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
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc

BMC = {
    "type": {"type": "str", "choices": ["redfish", "ipmi"], "default": "redfish"},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "default": 623},
    "username": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "verify_tls": {"type": "bool", "default": True},
    "ca": {"type": "path"},
    "system": {"type": "str"},
    "boot_mode": {"type": "str", "choices": ["UEFI", "Legacy"], "default": "UEFI"},
    "boot_target": {"type": "str", "choices": ["Pxe", "UefiHttp"]},
    "timeout_s": {"type": "int", "default": 30},
    "power_timeout_s": {"type": "int", "default": 60},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        {
            "node": {"type": "str", "required": True},
            "bmc": {"type": "dict", "required": True, "options": BMC},
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
