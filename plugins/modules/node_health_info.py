#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the health of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_health_info
short_description: Read the faults of a node from the state of its health check, or those of many nodes from their BMCs
version_added: 0.1.0
description:
  - Reads the state that the last round of M(sailloft.fleet.node_health) left, and the time since then by the node's own
    clock. It measures nothing, so that it answers at once, also on a node whose GPU hangs.
  - A state that cannot be read is an answer with RV(health.error), not a failure of the module. The filter
    P(sailloft.fleet.node_health_table#filter) makes one table of many answers.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  state_dir:
    description: The directory of the state.
    type: path
    default: /var/lib/sailloft-health
  step_time_file:
    description:
      - A file in which a job exports the seconds of its last step as one number, to be compared with those of like
        nodes. One that is older than 10 minutes, or that is missing, is passed over.
    type: path
  bmcs:
    description:
      - BMCs to read from the host that the task is delegated to, in one call for all nodes, instead of the state of the
        node. Nothing is changed and no log is cleared. The filter P(sailloft.fleet.node_health_bmcs#filter) makes them
        of C(node_boot_bmc).
      - A BMC that cannot be read is a fault of its node, not a failure of the module.
    type: list
    elements: dict
    suboptions:
      host:
        description: The name of the node.
        type: str
        required: true
      type:
        description: The protocol. V(ipmi) needs C(ipmitool).
        type: str
        choices: [redfish, ipmi]
        default: redfish
      address:
        description: Its address, which may include a port.
        type: str
        required: true
      username:
        description: The user, who needs no more than the role ReadOnly.
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
      timeout_s:
        description: Time limit for all that is read of it, in seconds.
        type: int
        default: 30
      checks:
        description: Limits and checks that are off, as C(node_health_checks).
        type: dict
      unread:
        description: Why the inventory's variables of this BMC cannot be read. Such a BMC is not asked.
        type: str
        default: ""
seealso:
  - module: sailloft.fleet.node_health
"""

EXAMPLES = r"""
- name: Read the health of the node
  sailloft.fleet.node_health_info:
  register: read

- name: Read the BMCs of all nodes
  sailloft.fleet.node_health_info:
    bmcs: "{{ ansible_play_hosts_all | sailloft.fleet.node_health_bmcs(hostvars) }}"
  delegate_to: localhost
  run_once: true
  register: of_bmcs
"""

RETURN = r"""
health:
  description:
    - RV(health.error) says why the health is not known. RV(health.age_s) is the age of the last round,
      RV(health.faults) the faults that are latched, worst first, RV(health.drain) and RV(health.maintenance) what a
      person said, and RV(health.values) the numbers to compare with like nodes, by check and place.
  returned: without O(bmcs)
  type: dict
  contains:
    error:
      description: Why the health is not known; empty if it is.
      type: str
      returned: success
    age_s:
      description: The seconds since the last round.
      type: float
      returned: success
    faults:
      description: The faults, worst first.
      type: list
      elements: dict
      returned: success
    drain:
      description: The reason of a person who took the node out of service; empty if nobody did.
      type: str
      returned: success
    maintenance:
      description: The reason of a planned maintenance; empty if there is none.
      type: str
      returned: success
    values:
      description: Numbers by check and place.
      type: dict
      returned: success
bmcs:
  description: What each BMC says, by node, in the form of RV(health).
  returned: with O(bmcs)
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.node_answer import answer

BMC = {
    "host": {"type": "str", "required": True},
    "type": {"type": "str", "choices": ["redfish", "ipmi"], "default": "redfish"},
    "address": {"type": "str", "required": True},
    "username": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "verify_tls": {"type": "bool", "default": True},
    "ca": {"type": "path"},
    "timeout_s": {"type": "int", "default": 30},
    "checks": {"type": "dict"},
    "unread": {"type": "str", "default": ""},
}
OF_INVENTORY = ("checks", "unread")


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "state_dir": {"type": "path", "default": "/var/lib/sailloft-health"},
        "step_time_file": {"type": "path"},
        "bmcs": {"type": "list", "elements": "dict", "options": BMC},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: of_bmcs(module.params) if module.params["bmcs"] is not None else of_node(module.params))


def of_node(args: dict[str, Any]) -> dict[str, Any]:
    """Return what the state of this node says."""
    return {"health": answers.to_dict(answer(args["state_dir"], args["step_time_file"] or ""))}


def of_bmcs(args: dict[str, Any]) -> dict[str, Any]:
    """Return what the BMCs say, by node. Raises ExpectError."""
    # Only the controller needs the clients of BMCs.
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import bmc_answers
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc

    checks = {bmc["host"]: bmc["checks"] for bmc in args["bmcs"]}
    unread = {bmc["host"]: bmc["unread"] for bmc in args["bmcs"] if bmc["unread"]}
    fields = [{**bmc, "ca": bmc["ca"] or "", "timeout_s": float(bmc["timeout_s"])} for bmc in args["bmcs"]]
    bmcs = [Bmc(**{name: value for name, value in row.items() if name not in OF_INVENTORY}) for row in fields]
    return {"bmcs": {host: answers.to_dict(reply) for host, reply in bmc_answers.ask(bmcs, checks, unread).items()}}


if __name__ == "__main__":
    main()
