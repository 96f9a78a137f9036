#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_restart
short_description: Restart many nodes through their BMCs, with a one-time network boot
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Sets the next boot of each node to the network, reads it back, restarts the node or starts it if it is off, and
    reads back that its power is on. Only the node itself can report whether it booted
    (M(sailloft.fleet.node_boot_fleet)).
  - A node whose BMC shows another next boot is not restarted.
  - Runs on the host that the task is delegated to, with a bounded number of BMCs at once. A BMC that fails or never
    answers does not stop the others, and is no failure of the module.
requirements:
  - sushy >= 5.5 (Redfish)
  - pyghmi >= 1.6 (IPMI)
options:
  nodes:
    description: The nodes.
    type: list
    elements: dict
    required: true
    suboptions:
      node:
        description: Name of the node.
        type: str
        required: true
      bmc:
        description: Its BMC.
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
              The next boot that is requested (Redfish). By default V(Pxe), or V(UefiHttp) if the BMC does not offer
              V(Pxe).
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
          C(bmc.boot_target).
        type: bool
        default: true
  host:
    description: Name of the host that accesses the BMCs, for messages.
    type: str
    default: localhost
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: none
"""

EXAMPLES = r"""
- name: Restart nodes through their BMCs
  sailloft.fleet.node_boot_restart:
    nodes:
      - node: bm01
        bmc: {address: 10.9.1.1, username: root, password: "{{ bmc_password }}"}
  delegate_to: localhost
"""

RETURN = r"""
nodes:
  description: The outcome of each node, by its name.
  returned: success
  type: dict
  contains:
    since_s:
      description: Seconds from just before the restart to the end of the module.
      returned: always
      type: float
    msg:
      description: Why the BMC did not restart the node, and the next step; empty if it did.
      returned: always
      type: str
    requested:
      description: >-
        Whether the restart was requested. Then a failure is no proof that the node did not restart: its own boot
        decides.
      returned: always
      type: bool
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.at_once import at_once
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_ipmi, bmc_redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import (
    OPTIONS,
    BmcError,
    BootBmc,
    RequestedError,
)

NODE = {
    "node": {"type": "str", "required": True},
    "bmc": {"type": "dict", "required": True, "options": OPTIONS},
    "http_boot": {"type": "bool", "default": True},
}


def restart_all(rows: list[dict[str, Any]], host: str) -> dict[str, dict[str, Any]]:
    """Return the outcome of each node by its name."""
    bmcs = {row["node"]: BootBmc.of(row["bmc"], row["http_boot"]) for row in rows}
    began: dict[str, float] = {}
    outcomes: dict[str, dict[str, Any]] = {}

    def restart(name: str) -> None:
        began[name] = time.monotonic()
        (bmc_ipmi if bmcs[name].type == "ipmi" else bmc_redfish).restart(bmcs[name])

    def ended(name: str, error: Exception | None) -> None:
        text = ""
        if isinstance(error, TimeoutError):
            error = RequestedError(f"it did not answer all requests in {bmcs[name].limit_s:g} s")
        if isinstance(error, BmcError):
            text = str(bmcs[name].failure(name, host, str(error)))
        elif error:
            text = str(bmcs[name].failure(name, host, f"{type(error).__name__}: {error}"))
        outcomes[name] = {"msg": text, "requested": not error or isinstance(error, RequestedError)}

    at_once(bmcs, restart, ended, lambda name: bmcs[name].limit_s)
    return {name: {**outcome, "since_s": time.monotonic() - began[name]} for name, outcome in outcomes.items()}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        {
            "nodes": {"type": "list", "elements": "dict", "required": True, "options": NODE},
            "host": {"type": "str", "default": "localhost"},
        }
    )
    nodes = restart_all(module.params["nodes"], module.params["host"])
    module.exit_json(changed=any(outcome["requested"] for outcome in nodes.values()), nodes=nodes)


if __name__ == "__main__":
    main()
