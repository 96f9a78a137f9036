#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: node_health_proof
short_description: Write what the BMCs of nodes say as a proof
version_added: 0.1.0
description:
  - Writes C(health-bmcs.json), C(health-bmcs.html) and C(health-bmcs.txt), which M(sailloft.fleet.fleet_look) reads.
    A BMC that was not read, and each fault, is a claim that does not hold; notes are only in the reason.
  - The proof has what the BMCs say now; nothing of it is latched.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  path:
    description: Directory of the proofs, created if it is missing.
    type: path
    required: true
  bmcs:
    description: What each BMC says, by node, as RV(sailloft.fleet.node_health_info#module:bmcs).
    type: dict
    required: true
notes:
  - The files contain no time and no random order. The same answers give the same bytes and no change.
"""

EXAMPLES = r"""
- name: Write what the BMCs say
  sailloft.fleet.node_health_proof:
    path: proofs
    bmcs: "{{ asked.bmcs }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
holds:
  description: Whether all BMCs were read and none names a fault.
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
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.bmc_proof import bmc_proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written


def main() -> None:
    """Run as an Ansible module."""
    options = {"path": {"type": "path", "required": True}, "bmcs": {"type": "dict", "required": True}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)

    def work() -> dict[str, Any]:
        proof = bmc_proof(module.params["bmcs"])
        result = written(proof, page(proof), module.params["path"], module.check_mode)
        # The playbook fails by its table, which has the nodes' own faults, too.
        return {name: value for name, value in result.items() if name not in ("failed", "msg")}

    finish(module, work)


if __name__ == "__main__":
    main()
