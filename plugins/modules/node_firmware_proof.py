#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: node_firmware_proof
short_description: Write the firmware and BIOS settings of nodes as a proof
version_added: 0.1.0
description:
  - Writes C(bmc-baseline.json), C(bmc-baseline.html) and C(bmc-baseline.txt). Each setting of each node's baseline is a
    claim; a node whose BMC was not read is a claim that does not hold.
options:
  path:
    description: Directory of the proofs, created if it is missing.
    type: path
    required: true
  nodes:
    description: What the BMCs show, as RV(sailloft.fleet.node_firmware#module:nodes).
    type: dict
    required: true
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
author:
  - The Sailloft maintainers (@sailloft)
notes:
  - The files contain no time and no random order. The same answers give the same bytes and no change.
"""

EXAMPLES = r"""
- name: Write what the BMCs show
  sailloft.fleet.node_firmware_proof:
    path: proofs
    nodes: "{{ compared.nodes }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
holds:
  description: Whether all nodes are known and have what their baselines want.
  returned: always
  type: bool
counts:
  description: How many claims hold, fail, and do not apply.
  returned: always
  type: dict
table:
  description: The short table.
  returned: always
  type: list
  elements: str
files:
  description: The files.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written


def main() -> None:
    """Run as an Ansible module."""
    options = {"path": {"type": "path", "required": True}, "nodes": {"type": "dict", "required": True}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)

    def work() -> dict[str, Any]:
        claims = proof(module.params["nodes"])
        made = written(claims, page(claims), module.params["path"], module.check_mode)
        # The playbook fails by what it compared, after it has written this.
        return {name: value for name, value in made.items() if name not in ("failed", "msg")}

    finish(module, work)


if __name__ == "__main__":
    main()
