#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_host_topology_info
short_description: Read ESXi hosts as topologies, with one request to vCenter
version_added: 0.1.0
description:
  - Reads the PCI devices of ESXi hosts, their bridges, NUMA nodes, passthrough and SR-IOV, processors and memory into
    the structure of M(sailloft.fleet.host_topology_info), and the devices, memory and CPUs of each host's virtual
    machines.
  - vSphere's API does not provide BARs, links, ACS, ATS, MaxReadReq, IOMMU groups, port types and NUMA distances. They
    are unknown.
extends_documentation_fragment:
  - sailloft.fleet.vsphere
  - sailloft.fleet.vsphere.hosts
  - sailloft.fleet.attributes.reads
options:
  record:
    description: Whether to return recordings as well.
    type: bool
    default: false
seealso:
  - module: sailloft.fleet.host_topology_info
"""

EXAMPLES = r"""
- name: Read a host
  sailloft.fleet.vsphere_host_topology_info:
    hostname: vcenter.example.com
    username: "{{ vault_vsphere_user }}"
    password: "{{ vault_vsphere_password }}"
    hosts: [esx01.example.com]
  delegate_to: localhost
  register: seen
"""

RETURN = r"""
topology:
  description: As RV(sailloft.fleet.host_topology_info#module:topology).
  returned: if there is one host
  type: dict
recording:
  description: As RV(sailloft.fleet.host_topology_info#module:recording).
  returned: if there is one host and O(record) is true
  type: str
hosts:
  description: Each host.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name in vCenter.
      type: str
    cluster:
      description: Its cluster; empty for a host in none.
      type: str
    topology:
      description: As RV(topology).
      type: dict
    recording:
      description: As RV(recording).
      returned: when O(record) is true
      type: str
    machines:
      description: Its virtual machines, each with name, state, memory_mib, vcpus and devices (PCI addresses).
      type: list
      elements: dict
"""

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.topology import read
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.options import HOSTS, LOGIN, with_environment


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **with_environment(LOGIN, env_fallback),
            **HOSTS,
            "record": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: read(module.params))


if __name__ == "__main__":
    main()
