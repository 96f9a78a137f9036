#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Virtual functions and their settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sriov
short_description: Virtual functions, their count, MAC, GUIDs, trust, spoof check and VLAN
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Brings all physical functions of a host to their number of VFs and these to their settings, in one call.
  - The count changes only where no VF is in use, since all have to go for it. Else the failure says who uses which
    (a guest, or the host by a network interface).
  - What it does lasts until the next boot; M(sailloft.fleet.gpu_host_boot) brings it back.
options:
  functions:
    description: What which physical functions are to have; a later entry wins over an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      devices:
        description: >-
          A device is named by its kind (V(gpu), V(nic), V(nvme), V(nvswitch), V(bridge)), by vendor and device
          (V(10de:2330), or V(15b3:*) for all of a vendor), or by address (V(0000:3b:00.0)).
          Devices of a kind or vendor that have no SR-IOV are left out.
        type: list
        elements: str
        required: true
      count:
        description: How many VFs each has.
        type: int
        required: true
      drivers_autoprobe:
        description: Whether the host's own driver takes the VFs when they appear; V(false) leaves them free for guests.
        type: bool
      trust:
        description: Whether a guest may change what is safe only in trusted hands (promiscuous mode, MAC), for all VFs.
        type: bool
      spoof_check:
        description: Whether packets with another MAC than the VF's are dropped, for all VFs.
        type: bool
      vlan:
        description: The VLAN of all VFs; V(0) is none.
        type: int
      vfs:
        description: Settings of single VFs, over those for all.
        type: list
        elements: dict
        suboptions:
          index:
            description: Which VF, from 0.
            type: int
            required: true
          mac:
            description: The MAC address.
            type: str
          node_guid:
            description: The node GUID (InfiniBand), eight bytes with colons.
            type: str
          port_guid:
            description: The port GUID (InfiniBand), eight bytes with colons.
            type: str
          trust:
            description: As above.
            type: bool
          spoof_check:
            description: As above.
            type: bool
          vlan:
            description: As above.
            type: int
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Eight VFs on every ConnectX-7 port, free for guests
  sailloft.fleet.sriov:
    functions:
      - devices: ["15b3:1021"]
        count: 8
        drivers_autoprobe: false
        trust: true
        spoof_check: false

- name: A VF with a MAC and a VLAN
  sailloft.fleet.sriov:
    functions:
      - devices: ["0000:3b:00.0"]
        count: 1
        vfs:
          - {index: 0, mac: "02:00:00:00:01:00", vlan: 100}
"""

RETURN = r"""
functions:
  description: By address of the physical function, how many VFs it has and their addresses.
  returned: success
  type: dict
  sample: {"0000:3b:00.0": {"count": 1, "vfs": ["0000:3b:00.1"]}}
pending:
  description: What cannot take effect before the next boot, a line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


def main() -> None:
    """Run as an Ansible module."""
    every = {name: {"type": kind.__name__} for name, (kind, _word) in sriov.OF_EVERY_VF.items()}
    one = {name: {"type": kind.__name__} for name, (kind, _word) in sriov.OF_ONE_VF.items()}
    function = {
        "devices": {"type": "list", "elements": "str", "required": True},
        "count": {"type": "int", "required": True},
        "drivers_autoprobe": {"type": "bool"},
        "vfs": {
            "type": "list",
            "elements": "dict",
            "options": {"index": {"type": "int", "required": True}, **one, **every},
        },
        **every,
    }
    module = AnsibleModule(
        argument_spec={"functions": {"type": "list", "elements": "dict", "required": True, "options": function}},
        supports_check_mode=True,
    )
    system = System()

    def read_again() -> Host:
        return read_topology(system)

    finish_on_gpu_host(
        module, system, lambda: sriov.ensure(system, read_again(), module.params, module.check_mode, read_again)
    )


if __name__ == "__main__":
    main()
