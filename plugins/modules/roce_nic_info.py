#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The QoS of a host's RoCE NICs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_nic_info
short_description: Read the QoS of the RoCE NICs of a host
version_added: 0.1.0
description:
  - Reads all settings of M(sailloft.fleet.roce_host) from all RDMA devices with an Ethernet link, or from the named
    ones.
  - Changes nothing.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  nics:
    description: The RDMA devices. The default is all with an Ethernet link.
    type: list
    elements: str
seealso:
  - module: sailloft.fleet.roce_host
"""

EXAMPLES = r"""
- name: Read the settings of the NICs
  sailloft.fleet.roce_nic_info:
  register: roce
"""

RETURN = r"""
nics:
  description:
    - The QoS by RDMA device. C(dscp_to_priority) has 64 entries, C(priority_to_class), C(queues), C(priority_to_buffer)
      and C(buffer_bytes) eight; null means not set or not visible.
    - C(cm_tos) is the ToS byte of RDMA-CM's connections, C(forced_tos) the one that the device sets for all packets.
    - C(may_mark) is true if the DSCP that a function sets determines the priority of its packets.
    - C(cannot) gives, by setting, the reason why the function does not have or show it.
    - C(gids) has, by index, the version of RoCE and the kind of address of each GID, such as V(RoCE v2, IPv4).
    - C(vfs) are the virtual functions of a physical function with C(mac), C(vlan) and its priority C(qos), the
      C(mode) of the NIC's embedded switch and the VF's C(representor) in it; C(vfs_unread) says why they cannot be
      read.
    - C(uncovered) are other ports of the same card with an active Ethernet link, whose RDMA devices were not named.
  returned: success
  type: dict
cannot:
  description: By RDMA device and setting, why it has no such setting.
  returned: success
  type: dict
saved:
  description: The settings that M(sailloft.fleet.roce_host) has saved for the boot; null if there are none.
  returned: success
  type: dict
left_out:
  description: >-
    RDMA devices that were not named and cannot be read, with the reason (for example, a container has the network
    interface).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import context, ensure, persistence, read


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={"nics": {"type": "list", "elements": "str"}}, supports_check_mode=True)
    system = System()

    def look() -> Outcome:
        names = module.params["nics"]
        devices, left_out = read.names(system) if names is None else (names, {})
        seen = context.read(system, devices)
        return Outcome(
            facts={
                "nics": {name: ensure.shown(nic) for name, nic in seen.items()},
                "cannot": {name: nic.cannot for name, nic in seen.items() if nic.cannot},
                "left_out": left_out,
                "saved": unit.saved(system, persistence.SERVICE),
            }
        )

    finish_on_host(module, look, reads=True)


if __name__ == "__main__":
    main()
