#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read what the fleet's page shows of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_node_info
short_description: Read a node's health and the image that it runs, in one call
version_added: 0.1.0
description:
  - Reads the state that the last round of the node's health check left, as M(sailloft.fleet.node_health_info), and the
    digest of the image that it booted, as M(sailloft.fleet.node_image_info). It measures nothing.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  state_dir:
    description: The directory of the health check's state.
    type: path
    default: /var/lib/sailloft-health
"""

EXAMPLES = r"""
- name: Read the node
  sailloft.fleet.fleet_node_info:
  register: node
"""

RETURN = r"""
health:
  description: As RV(sailloft.fleet.node_health_info#module:health), without its numbers.
  returned: success
  type: dict
image:
  description: Digest of the booted image; null if it is not one of Sailloft.
  returned: if the first stage's report can be used, or there is none
  type: str
reason:
  description: Why there is no RV(image); empty if there is one.
  returned: success
  type: str
"""

import platform
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.node_answer import answer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import node_state


def main() -> None:
    """Run as an Ansible module."""
    options = {"state_dir": {"type": "path", "default": "/var/lib/sailloft-health"}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: read(module.params["state_dir"]))


def read(state_dir: str) -> dict[str, Any]:
    """Return health and image."""
    health = {"health": answers.to_dict(replace(answer(state_dir), values={}, names={}))}
    try:
        report, reason = node_state.read_report(platform.node())
    except SailloftError as error:  # the health is known all the same
        return {**health, "reason": str(error)}
    return {**health, "image": report["image"] if report else None, "reason": reason}


if __name__ == "__main__":
    main()
