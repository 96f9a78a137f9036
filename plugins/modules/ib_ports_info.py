#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_ports_info
short_description: Read links and error counters of all ports of an InfiniBand subnet
version_added: 0.1.0
description:
  - Reads what M(sailloft.fleet.ib_fabric_health) judges. It runs C(ibnetdiscover), C(ibqueryerrors) and C(iblinkinfo)
    of infiniband-diags as root. A subnet manager must run in the subnet.
  - No counter is cleared, and nothing is changed.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  directory:
    description: The directory with the C(node_names) of M(sailloft.fleet.ib_plan), for switches without names.
    type: path
    default: /etc/opensm
  device:
    description: The RDMA device in the fabric, such as C(mlx5_0). The default is the first one with a link.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read the counters of the compute fabric
  sailloft.fleet.ib_ports_info:
    device: mlx5_0
  register: read
"""

RETURN = r"""
found:
  description: The lines of C(ibnetdiscover -p).
  returned: success
  type: str
counters:
  description: What C(ibqueryerrors) printed with thresholds of 0, errors of unread ports included.
  returned: success
  type: str
read_at_s:
  description: When the counters were read, in seconds of Unix time.
  returned: success
  type: float
disabled:
  description: The lines of C(iblinkinfo -l) with disabled ports.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.ports import read_ports


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "default": "/etc/opensm"},
            "device": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: read_ports(Diags(module.params["device"]), Path(module.params["directory"])))


if __name__ == "__main__":
    main()
