#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_host
short_description: Bring a host to its InfiniBand state, its HCAs now and at every boot and NCCL's settings
version_added: 0.1.0
description:
  - Sets the link type of HCAs that are Ethernet NICs now (C(LINK_TYPE_P1) or C(P2), with C(mstconfig)). It takes effect
    at the next boot, and until then the HCA is left out of the rest.
  - Sets each HCA's node description, C(HOST DEVICE), by which the subnet's tools and the plan name it. C(rdma-ndd) gets
    the same format, so that it writes no other one.
  - Makes the IPoIB interface of each partition, such as C(ib0.8001); the partition at index 0 has the main interface.
    Addresses are those of the host's own network configuration. An interface of another partition stays.
  - With O(nccl) it writes C(/etc/nccl.conf).
  - For the boot it saves the settings (C(/etc/sailloft/ib_host.json)), its own code
    (C(/usr/lib/sailloft/ib_host.pyz)) and a systemd unit (C(sailloft-ib-host.service)).
  - In check mode it compares all of these. It was never run on an HCA.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  hcas:
    description: By RDMA device, the P_Keys of the partitions that have an interface. The bit of full membership is set.
    type: dict
    required: true
  host:
    description: The name in the node descriptions. Without it, that of the machine, up to its first dot.
    type: str
    default: ""
  nccl:
    description: NCCL's settings by name. The file has these and no others. Without this option it stays as it is.
    type: dict
  now:
    description:
      - Apply the settings now, in addition to every boot.
      - V(false) is for an image. The settings are saved, the unit is enabled, and O(nccl) is written.
    type: bool
    default: true
seealso:
  - module: sailloft.fleet.ib_plan
"""

EXAMPLES = r"""
- name: Configure two HCAs, the second one with an interface for partition 0x0001
  sailloft.fleet.ib_host:
    host: "{{ inventory_hostname }}"
    hcas:
      mlx5_0: []
      mlx5_1: ["0x0001"]
    nccl: {NCCL_IB_HCA: "=mlx5_0,mlx5_1"}
"""

RETURN = r"""
unit:
  description: The systemd unit.
  returned: success
  type: str
settings_file:
  description: The file of the saved settings.
  returned: success
  type: str
pending:
  description: Link types that take effect at the next boot, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.hca.converge import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "hcas": {"type": "dict", "required": True},
            "host": {"type": "str", "default": ""},
            "nccl": {"type": "dict"},
            "now": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    finish_on_host(module, lambda: converge(System(), params, module.check_mode), live=params["now"])


if __name__ == "__main__":
    main()
