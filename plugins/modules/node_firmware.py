#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_firmware
short_description: Compare BIOS settings and firmware versions of many hosts with baselines by Redfish, and set them
version_added: 0.1.0
description:
  - Reads the BIOS attributes and firmware versions of all O(nodes) in one call, a bounded number at once, and compares
    them with the baseline of each one's model. Without O(set) nothing is sent.
  - Before anything is sent to a BMC, its values are checked against the attribute registry of its BIOS.
  - A BIOS attribute takes effect at the next restart. The module restarts nothing, but an update of firmware may
    restart the host or its BMC, so use O(set) on hosts out of service only.
  - A BMC that cannot be read, or has a model without a baseline, is a row with an error, and no failure of the module.
  - M(sailloft.fleet.node_firmware_fleet) calls it for the hosts of an inventory.
extends_documentation_fragment: [sailloft.fleet.attributes]
requirements:
  - sushy >= 5.5
options:
  nodes:
    description: The hosts.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the host.
        type: str
        required: true
      bmc:
        description: Its BMC, as O(sailloft.fleet.node_boot_restart#module:nodes[].bmc).
        type: dict
        suboptions:
          type:
            description: The protocol; IPMI shows no firmware.
            type: str
            choices: [redfish, ipmi]
            default: redfish
          address:
            description: Its address, which may include a port.
            type: str
            required: true
          username:
            description: The user. To read, the role ReadOnly is enough.
            type: str
            required: true
          password:
            description: The password.
            type: str
            required: true
          verify_tls:
            description: Whether to verify its certificate.
            type: bool
            default: true
          ca:
            description: File with the certificates to trust instead of those of the system.
            type: path
          system:
            description: Id of the node's system, if the BMC has several.
            type: str
          timeout_s:
            description: Time limit for an answer in seconds.
            type: int
            default: 30
      baselines:
        description: >-
          The baselines by hardware model, as C(node_bmc_baselines) of the role P(sailloft.fleet.node_bmc#role).
        type: dict
        default: {}
  set:
    description: What to set where it differs.
    type: list
    elements: str
    choices: [bios, firmware]
    default: []
  restarted:
    description: >-
      Whether the hosts were restarted after a run with O(set). Then nothing is sent. The BMCs have two minutes to show
      what was set, and what differs after it is named as accepted and not applied.
    type: bool
    default: false
  host:
    description: Name of the host that accesses the BMCs, for messages.
    type: str
    default: localhost
"""

EXAMPLES = r"""
- name: Compare a server with its baseline
  sailloft.fleet.node_firmware:
    nodes:
      - name: gpu01
        bmc: "{{ node_boot_bmc }}"
        baselines: {"3500": {bios: {ProcTurboMode: Disabled}}}
  delegate_to: localhost
"""

RETURN = r"""
nodes:
  description: What each BMC shows, by host.
  returned: success
  type: dict
  sample:
    gpu01:
      model: "3500"
      error: ""
      refused: []
      notes: []
      settings:
        - {kind: bios, name: ProcTurboMode, wanted: Disabled, seen: Enabled, upcoming: null, reason: ""}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import read
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.nodes import (
    BaselineLimits,
    BaselineNode,
    FirmwareOfNodes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS, BootBmc

BMC_OPTIONS = ("type", "address", "username", "password", "verify_tls", "ca", "system", "timeout_s")
NODE = {
    "name": {"type": "str", "required": True},
    "bmc": {"type": "dict", "options": {name: OPTIONS[name] for name in BMC_OPTIONS}},
    "baselines": {"type": "dict", "default": {}},
}


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "nodes": {"type": "list", "elements": "dict", "required": True, "options": NODE},
        "set": {"type": "list", "elements": "str", "choices": ["bios", "firmware"], "default": []},
        "restarted": {"type": "bool", "default": False},
        "host": {"type": "str", "default": "localhost"},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: run(module.params, module.check_mode))


def run(params: dict[str, Any], is_check: bool) -> dict[str, Any]:
    """Return the module's result. Raises BaselineError."""
    kinds = params["set"]
    nodes = [
        BaselineNode(
            node["name"], BootBmc.of(node["bmc"]) if node["bmc"] else None, read(node["baselines"], node["name"])
        )
        for node in params["nodes"]
    ]
    fleet = FirmwareOfNodes(nodes, params["host"], BaselineLimits())
    if params["restarted"]:
        return {"nodes": {name: node.to_dict() for name, node in fleet.read_back(kinds).items()}}
    before = fleet.read()
    after = fleet.set(before, kinds) if kinds and not is_check else before
    changes = [
        (name, setting) for name, node in before.items() if not after[name].refused for setting in node.to_send(kinds)
    ]
    return {
        "nodes": {name: node.to_dict() for name, node in after.items()},
        "changed": bool(changes),
        "diff": {
            "before": "".join(f"{name} {sent.kind} {sent.name}: {sent.seen}\n" for name, sent in changes),
            "after": "".join(f"{name} {sent.kind} {sent.name}: {sent.wanted}\n" for name, sent in changes),
        },
    }


if __name__ == "__main__":
    main()
