#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Reports of unknown machines to a boot server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodes_pending_info
short_description: Show the machines on the boot network that are no nodes yet
version_added: 0.1.0
description:
  - Reads on a boot server what unknown machines have reported, in one call. They boot the inspection stage if
    C(boot_server_discovery) of the role P(sailloft.fleet.boot_server#role) is set.
  - Nothing in a report is verified, as anybody on the boot network can send one. Reports are bounded in size and
    number, and their texts have only characters that neither a terminal nor a template interprets. Others are refused.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  path:
    description: The directory of the reports.
    type: path
    default: /var/lib/sailloft-pending
  topologies:
    description: The MAC addresses of the machines whose PCIe topology is returned too.
    type: list
    elements: str
    default: []
seealso:
  - module: sailloft.fleet.node_accept
"""

EXAMPLES = r"""
- name: Read what unknown machines have reported
  sailloft.fleet.nodes_pending_info:
  register: pending

- name: Read the topology of one of them
  sailloft.fleet.nodes_pending_info:
    topologies: ["52:54:00:12:34:56"]
"""

RETURN = r"""
machines:
  description: The machines, sorted by the MAC address that they boot from.
  returned: success
  type: list
  elements: dict
  contains:
    mac:
      description: The MAC address that it boots from.
      type: str
    age_s:
      description: The seconds since its last report; a machine that waits reports every two minutes.
      type: int
    vendor:
      description: The vendor that its firmware names; empty if none.
      type: str
    product:
      description: The model that its firmware names; empty if none.
      type: str
    serial:
      description: The serial number that its firmware names; empty if none.
      type: str
    bmc_address:
      description: The address of its BMC on the network; empty if ipmitool did not find it.
      type: str
    bmc_mac:
      description: The MAC address of its BMC.
      type: str
    memory_mib:
      description: Its memory, in MiB.
      type: int
    cpus:
      description: The number of its hardware threads.
      type: int
    device_counts:
      description: The number of its PCI functions by kind.
      type: dict
      sample: {gpu: 8, nic: 10, nvme: 4}
    nics:
      description: >-
        Its Ethernet interfaces, each with C(name), C(mac), C(driver), C(link), and by LLDP C(neighbour), the switch,
        and C(ports), all names that the switch has for its port.
      type: list
      elements: dict
    problems:
      description: What it could not read.
      type: list
      elements: str
    topology:
      description: The host, as M(sailloft.fleet.host_topology_info) returns it, for those in O(topologies).
      type: dict
refused:
  description: Reports that are none, each with C(mac) and C(cause).
  returned: success
  type: list
  elements: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import pending


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": pending.FOLDER},
            "topologies": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    options = module.params
    finish(module, lambda: pending.read(options["path"], time.time(), options["topologies"]))


if __name__ == "__main__":
    main()
