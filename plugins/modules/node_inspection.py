#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Install the inspection stage in an image."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_inspection
short_description: Install the stage that reports a machine that is no node
version_added: 0.1.0
description:
  - Installs C(/usr/lib/sailloft/inspection.pyz), the code of this collection, which needs only Python's standard
    library, and C(sailloft-inspection.service) in an image. It is refused on a host that runs.
  - The service only starts on a machine that boots as an unknown one. It reports MAC address, serial number, PCIe
    topology, BMC (by C(ipmitool)) and the switch ports (by LLDP) to the boot servers, every two minutes, and reboots
    when one of them has the machine as a node.
extends_documentation_fragment: [sailloft.fleet.attributes]
seealso:
  - module: sailloft.fleet.nodes_pending_info
"""

EXAMPLES = r"""
- name: Install the inspection stage
  sailloft.fleet.node_inspection:
"""

RETURN = r"""
service:
  description: The service.
  returned: success
  type: str
pending:
  description: Always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import install
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    finish_on_host(module, lambda: install.ensure(System(), in_chroot(), module.check_mode), live=False)


if __name__ == "__main__":
    main()
