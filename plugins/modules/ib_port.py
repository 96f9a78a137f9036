#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_port
short_description: Disable or enable a port of an InfiniBand switch
version_added: 0.1.0
description:
  - Isolates a bad link by its switch's port, with C(ibportstate) of infiniband-diags, or brings it back. It reads the
    port's state before and after.
  - M(sailloft.fleet.ib_fabric_health) says which link may be isolated; this module does not check it.
  - A switch forgets it when it restarts. Where UFM runs, mark the port as unhealthy there instead.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  guid:
    description: The switch's GUID.
    type: str
    required: true
  port:
    description: The number of its port.
    type: int
    required: true
  state:
    description: V(disabled) ends the link; V(enabled) lets it train again.
    type: str
    choices: [disabled, enabled]
    required: true
  device:
    description: The RDMA device in the fabric, such as C(mlx5_0). The default is the first one with a link.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Isolate a link
  sailloft.fleet.ib_port:
    guid: "0xa088c20300aabbcc"
    port: 33
    state: disabled
"""

RETURN = r"""
pending:
  description: Always empty, because nothing waits for a boot.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.ports import DISABLED, ENABLED, set_port


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "guid": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            "state": {"type": "str", "choices": [DISABLED, ENABLED], "required": True},
            "device": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    finish_on_host(
        module,
        lambda: set_port(Diags(params["device"]), params["guid"], params["port"], params["state"], module.check_mode),
    )


if __name__ == "__main__":
    main()
