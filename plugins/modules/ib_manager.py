#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_manager
short_description: Run the subnet manager of an InfiniBand fabric with the planned files
version_added: 0.1.0
description:
  - Writes the files that M(sailloft.fleet.ib_plan) returned, each as a whole, and runs opensm with them as the systemd
    unit C(sailloft-opensm-FABRIC.service). The package of opensm must be installed.
  - It stops and masks the distribution's C(opensm.service), which Debian starts on all ports of a host.
  - A running opensm reads its files again (C(HUP)), without an interruption. What opensm takes only when it starts is
    in RV(needs_restart), and waits for a run with O(restart). Restart the standbys first; while the master restarts, a
    standby takes over.
  - It waits until the manager has swept the subnet, or is a standby if it is not the first one of the plan, and fails
    if opensm refuses C(partitions.conf).
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  fabric:
    description: The name of the fabric.
    type: str
    required: true
  files:
    description: The texts by name, as RV(sailloft.fleet.ib_plan#module:files) has them.
    type: dict
    required: true
  config:
    description: Which of the O(files) is this host's C(opensm.conf), such as C(opensm-node-0001.conf).
    type: str
    required: true
  directory:
    description: The directory of the files, as O(sailloft.fleet.ib_plan#module:directory).
    type: path
    default: /etc/opensm
  restart:
    description: Whether opensm may be restarted where it must be.
    type: bool
    default: false
  limit_s:
    description: How long opensm may take to sweep the subnet, in seconds.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Run the subnet manager
  sailloft.fleet.ib_manager:
    fabric: compute
    files: "{{ planned.files }}"
    config: opensm-{{ inventory_hostname }}.conf
"""

RETURN = r"""
needs_restart:
  description: The options and files of which opensm has other values until it is restarted.
  returned: success
  type: list
  elements: str
  sample: [routing_engine]
manager:
  description: What opensm is by its log, C(master) or C(standby); "" in check mode.
  returned: success
  type: str
pending:
  description: Always empty, because nothing waits for a boot.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.converge import converge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "fabric": {"type": "str", "required": True},
            "files": {"type": "dict", "required": True},
            "config": {"type": "str", "required": True},
            "directory": {"type": "path", "default": "/etc/opensm"},
            "restart": {"type": "bool", "default": False},
            "limit_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    finish_on_host(module, lambda: converge(System(), module.params, module.check_mode))


if __name__ == "__main__":
    main()
