#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the health of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_health_info
short_description: Read the faults of a node and their age from the state of its health check
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
seealso:
  - module: sailloft.fleet.node_health
"""

EXAMPLES = r"""
- name: Read the health of the node
  sailloft.fleet.node_health_info:
  register: read
"""

RETURN = r"""
health:
  description:
    - RV(health.error) says why the health is not known. RV(health.age_s) is the age of the last round,
      RV(health.faults) the faults that are latched, worst first, RV(health.drain) and RV(health.maintenance) what a
      person said, and RV(health.values) the numbers to compare with like nodes, by check and place.
  returned: success
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
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.node_answer import answer


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "state_dir": {"type": "path", "default": "/var/lib/sailloft-health"},
        "step_time_file": {"type": "path"},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    given = module.params
    finish(module, lambda: {"health": answers.to_dict(answer(given["state_dir"], given["step_time_file"] or ""))})


if __name__ == "__main__":
    main()
