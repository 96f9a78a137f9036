#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the proof of a RoCE fabric."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_fabric_proof
short_description: Write the proof that switches and NICs have one RoCE policy
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.proof, sailloft.fleet.fabric]
description:
  - Compares the settings that were read back from all switches and NICs with the policy, as
    M(sailloft.fleet.roce_switch_config) does with C(state=compared) and M(sailloft.fleet.roce_path_info) for the whole
    fabric, and writes the result.
  - There are no claims about a device that was not read, and the proof says so. A switch in O(running) whose
    configuration cannot be understood fails.
  - It contacts no device. Run it once, on the controller.
options:
  name:
    description: The name of the proof.
    type: str
    default: fabric
  running:
    description: Running configurations as text by switch, or names, as M(sailloft.fleet.roce_switch_config) takes them.
    type: dict
    required: true
  nics:
    description: >-
      The NICs as M(sailloft.fleet.roce_nic_info) returns them, by host and by their names in links, or names of hosts.
    type: dict
    default: {}
  running_before:
    description: The running configurations before the run that is proved, as O(running), for RV(worse).
    type: dict
  nics_before:
    description: The NICs before the run that is proved, as O(nics).
    type: dict
    default: {}
  applications:
    description: >-
      The applications that send from each host, in the form of M(sailloft.fleet.roce_path_info), or names of hosts.
    type: dict
    default: {}
seealso:
  - module: sailloft.fleet.roce_path_info
  - module: sailloft.fleet.roce_switch_config
"""

EXAMPLES = r"""
- name: Write the proof of the fabric
  sailloft.fleet.roce_fabric_proof:
    path: proofs
    policy: "{{ roce_policy | default({}) }}"
    switches: "{{ groups.roce_switches }}"
    running:
      leaf1: "{{ lookup('ansible.builtin.file', 'config_db.json') }}"
    nics:
      gpu01: "{{ hostvars.gpu01.roce_host_read.nics }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
holds:
  description: V(true) if all claims hold.
  returned: always, unless what was given cannot be read
  type: bool
first:
  description: The first fault as a sentence; "" if there is none.
  returned: as RV(holds)
  type: str
worse:
  description: >-
    The claims that do not hold and did hold, or failed with another value, before the run; all that do not hold without
    O(running_before).
  returned: as RV(holds)
  type: list
  elements: str
counts:
  description: How many claims held, failed and did not apply.
  returned: as RV(holds)
  type: dict
table:
  description: The proof as a short table.
  returned: as RV(holds)
  type: list
  elements: str
files:
  description: The proof's files.
  returned: as RV(holds)
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.module import FabricModule, fabric_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove, worse
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written


def main() -> None:
    """Run as an Ansible module."""
    module = FabricModule(
        argument_spec=fabric_arguments(
            path={"type": "path", "required": True},
            name={"type": "str", "default": "fabric"},
            running_before={"type": "dict"},
            nics_before={"type": "dict", "default": {}},
            applications={"type": "dict", "default": {}},
        ),
        returned=("path", "name", "policy", "asics"),
    )
    params = module.params

    def work() -> dict[str, Any]:
        proof, first = prove(params)
        result = {**written(proof, page(proof), params["path"], module.check_mode), "first": first}
        result["worse"] = worse(proof, params)
        return result if proof.holds else {**result, "msg": f"{first}; see {result['files'][1]}"}

    finish(module, work)


if __name__ == "__main__":
    main()
