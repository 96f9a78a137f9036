#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action node_boot_restart."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_restart
short_description: Restart a node through its BMC, with a one-time network boot
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Sets the next boot to the network, restarts the node or starts it if it is off, and reads back that its power is on.
    Only the node itself can report whether it booted (M(sailloft.fleet.node_image_wait)).
  - Runs C(redfish_info) and C(redfish_command), or C(ipmi_boot) and C(ipmi_power), of C(community.general), on the host
    that the task is delegated to, in one task. The modules for IPMI need the Python package pyghmi there.
  - The message of a failure names the node, its BMC, the cause and the next step.
options:
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  bmc:
    description: The BMC, as C(node_boot_bmc) of the role P(sailloft.fleet.node_boot#role) describes it.
    type: dict
    required: true
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
