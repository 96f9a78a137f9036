#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_release
short_description: Take proved nodes into service in Slurm, and keep spares in reserve
version_added: 0.1.0
description:
  - Runs on a controller. It ends the drain of O(proved) nodes whose reason begins with C(sailloft-gate).
  - As many O(spares) are in service as other nodes are out of service; the others are drained with the reason
    C(sailloft-spare). A spare whose node is back finishes its jobs.
  - Drains with any other reason stay, those of people and those of C(sailloft-health).
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  proved:
    description: The nodes that may take jobs.
    type: list
    elements: str
    required: true
  spares:
    description: The spares, as RV(sailloft.fleet.slurm_plan#module:spares).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Take two nodes into service
  sailloft.fleet.slurm_release:
    proved: [gpu01, gpu02]
"""

RETURN = r"""
out:
  description: The nodes that stay out of service, with state and reason, as lines.
  returned: success
  type: list
  elements: str
pending:
  description: Always empty, because nothing waits for a boot.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service.release import release


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "proved": {"type": "list", "elements": "str", "required": True},
            "spares": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    finish_on_host(module, lambda: release(System(), module.params, module.check_mode))


if __name__ == "__main__":
    main()
