# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that modules of nodes' BMCs share."""

from __future__ import annotations


class ModuleDocFragment:
    """The node's name, its BMC, and the host that accesses it."""

    DOCUMENTATION = r"""
requirements:
  - sushy >= 5.5 (Redfish)
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
  host:
    description: Name of the host that accesses the BMC, for messages.
    type: str
    default: localhost
"""
