#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_firmware
short_description: Compare BIOS settings and firmware versions of many nodes with a baseline by Redfish, and set them
version_added: 0.1.0
description:
  - Reads the BIOS attributes and firmware versions of all O(nodes) in one call, and compares them with the baseline of
    each node's model. Without O(set) nothing is sent.
  - Before anything is sent to any node, all values are checked against the attribute registries of their BIOS. One that
    it cannot have fails the module.
  - A BIOS attribute takes effect at the node's next restart. The module restarts nothing, but an update of firmware may
    restart the node or its BMC, so use O(set) on drained nodes only.
  - A BMC that cannot be read, or has a model without a baseline, is a node of the result with an error, and no failure
    of the module.
  - Tried with the emulator of sushy-tools and with DMTF's mockup server, and with no BMC. Updates were tried with a
    server of the project's tests only.
extends_documentation_fragment: [sailloft.fleet.attributes]
requirements:
  - sushy >= 5.5
options:
  nodes:
    description: The nodes. The filter P(sailloft.fleet.node_firmware_nodes#filter) makes them of the inventory.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      bmc:
        description: Its BMC, as O(sailloft.fleet.node_boot_restart#module:bmc).
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
          The baselines by hardware model, as C(node_boot_baselines) of the role P(sailloft.fleet.node_boot#role).
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
      Whether the nodes were restarted after a run with O(set). The BMCs then have O(read_back_s) to show what was set,
      and what differs after it is named as accepted and not applied.
    type: bool
    default: false
  update_s:
    description: Time limit for an update of one firmware, in seconds.
    type: int
    default: 1800
  read_back_s:
    description: Time limit for values to be shown after a restart, in seconds.
    type: int
    default: 120
  host:
    description: Name of the host that accesses the BMCs, for messages.
    type: str
    default: localhost
seealso:
  - module: sailloft.fleet.node_firmware_proof
"""

EXAMPLES = r"""
- name: Compare the firmware of all nodes with their baselines
  sailloft.fleet.node_firmware:
    nodes: "{{ ansible_play_hosts_all | sailloft.fleet.node_firmware_nodes(hostvars) }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
nodes:
  description: What each BMC shows, by node.
  returned: success
  type: dict
  sample:
    gpu01:
      model: "3500"
      error: ""
      holds: false
      refused: []
      notes: []
      settings:
        - {kind: bios, name: ProcTurboMode, wanted: Disabled, seen: Enabled, upcoming: null, holds: false, reason: ""}
holds:
  description: Whether all nodes are known and have what their baselines want.
  returned: success
  type: bool
differing:
  description: The nodes that are known, and have something else.
  returned: success
  type: list
  elements: str
lines:
  description: What differs, one line for each difference with all its nodes, and the sum.
  returned: success
  type: list
  elements: str
"""

from collections import Counter
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware import state
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import BaselineError, read
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.nodes import (
    BaselineLimits,
    BaselineNode,
    FirmwareOfNodes,
    refuse,
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
        "update_s": {"type": "int", "default": 1800},
        "read_back_s": {"type": "int", "default": 120},
        "host": {"type": "str", "default": "localhost"},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True, mutually_exclusive=[("set", "restarted")])
    finish(module, lambda: run(module.params, module.check_mode))


def run(given: dict[str, Any], is_check: bool) -> dict[str, Any]:
    """Return the module's result. Raises BaselineError."""
    repeated = [name for name, count in Counter(node["name"] for node in given["nodes"]).items() if count > 1]
    if repeated:
        raise BaselineError("it is there more than once in nodes", "name each node once", subject=repeated[0])
    nodes = [
        BaselineNode(
            node["name"], BootBmc.of(node["bmc"]) if node["bmc"] else None, read(node["baselines"], node["name"])
        )
        for node in given["nodes"]
    ]
    fleet = FirmwareOfNodes(nodes, given["host"], BaselineLimits(given["update_s"], given["read_back_s"]))
    before = fleet.read_back() if given["restarted"] else fleet.read()
    if not given["set"]:
        return _result(before)
    to_set = {
        name: [setting for setting in node.differing if setting.kind in given["set"] and not setting.is_pending]
        for name, node in before.items()
    }
    refuse(before)
    after = before if is_check else fleet.set(before, given["set"])
    return {
        **_result(after),
        "changed": any(to_set.values()),
        "diff": {
            "before": _text({name: {_name(one): one.seen for one in settings} for name, settings in to_set.items()}),
            "after": _text({name: {_name(one): one.wanted for one in settings} for name, settings in to_set.items()}),
        },
    }


def _result(nodes: dict[str, state.NodeFirmware]) -> dict[str, Any]:
    return {
        "nodes": {name: state.result(node) for name, node in nodes.items()},
        "holds": all(node.holds for node in nodes.values()),
        "differing": [name for name, node in nodes.items() if node.differing],
        "lines": state.lines(nodes),
    }


def _name(setting: state.ShownSetting) -> str:
    return f"{setting.kind} {setting.name}"


def _text(values: dict[str, dict[str, Any]]) -> str:
    return "".join(
        f"{node} {name}: {value}\n" for node, settings in sorted(values.items()) for name, value in settings.items()
    )


if __name__ == "__main__":
    main()
