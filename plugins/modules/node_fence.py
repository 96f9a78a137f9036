#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_fence
short_description: Power a node off through its BMC, and read back that it is off
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Succeeds only if the BMC says that the power is off, so that what the node ran can be started elsewhere. In check
    mode it reads the power and changes nothing.
  - Its operating system is not asked, so use it only for a node that does not answer.
  - Runs on the host that the task is delegated to.
  - The message of a failure names the node, its BMC, the cause and the next step.
extends_documentation_fragment: [sailloft.fleet.node_bmc]
requirements:
  - pyghmi >= 1.6 (IPMI)
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
"""

EXAMPLES = r"""
- name: Make sure that gpu1 is off
  sailloft.fleet.node_fence:
    node: gpu1
    bmc: {address: 10.9.1.1, username: root, password: "{{ bmc_password }}"}
  delegate_to: localhost
"""

RETURN = r"""
power_before:
  description: The power before, such as V(on) or V(off).
  returned: success
  type: str
msg:
  description: Why the node is not known to be off, and the next step.
  returned: on failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_ipmi, bmc_redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS, BmcError, BootBmc


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        {
            "node": {"type": "str", "required": True},
            "bmc": {"type": "dict", "required": True, "options": OPTIONS},
            "host": {"type": "str", "default": "localhost"},
        },
        supports_check_mode=True,
    )
    bmc = BootBmc.of(module.params["bmc"])
    fence = bmc_ipmi.fence if bmc.type == "ipmi" else bmc_redfish.fence
    try:
        power = fence(bmc, module.check_mode)
    except BmcError as error:
        failure = bmc.failure(module.params["node"], module.params["host"], str(error), "did not power it off")
        module.fail_json(msg=str(failure))
    module.exit_json(changed=power != "off", power_before=power)


if __name__ == "__main__":
    main()
