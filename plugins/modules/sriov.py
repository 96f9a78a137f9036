#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Virtual functions and their settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sriov
short_description: Set the number of virtual functions, their addresses, link state, rates and other settings
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Brings all physical functions of a host to their number of VFs and these to their settings, in one call.
  - The count and O(functions[].eswitch_mode) change only where no VF is in use, since all have to go for it. Else the
    failure says who uses which (a guest, or the host by a network interface).
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
      eswitch_mode:
        description: >-
          The mode of the NIC's embedded switch: V(switchdev) gives each VF a representor, an interface of the host for
          bridges, C(tc) and Open vSwitch. Left as it is by default. With V(switchdev), O(functions[].trust),
          O(functions[].spoof_check), O(functions[].vlan) and O(functions[].link_state) are refused, as the drivers do.
          Refused for a NIC that the host uses itself.
        type: str
        choices: [legacy, switchdev]
        version_added: 0.1.0
      derive_addresses:
        description: >-
          Whether each VF without an address of its own in O(functions[].vfs) gets one that is derived from the physical
          function's and the VF's index, and so the same at every boot: a MAC on Ethernet, node and port GUID (the same)
          on InfiniBand. It is the beginning of C(sha256("ADDRESS/INDEX")), with the lower half of the first byte
          replaced by 2 (locally administered). ADDRESS is the permanent MAC, or the last 8 bytes of an InfiniBand
          interface's address.
        type: bool
        default: false
        version_added: 0.1.0
      trust:
        description: Whether a guest may change what is safe only in trusted hands (promiscuous mode, MAC), for all VFs.
        type: bool
      spoof_check:
        description: Whether packets with another MAC than the VF's are dropped, for all VFs.
        type: bool
      vlan:
        description: The VLAN of all VFs; V(0) is none.
        type: int
      link_state:
        description: >-
          The link of all VFs: V(auto) is that of the port, V(enable) always up (VFs of one port reach each other
          without it), V(disable) always down.
        type: str
        choices: [auto, enable, disable]
        version_added: 0.1.0
      min_tx_mbps:
        description: The rate in Mbit/s that each VF can send at least; V(0) guarantees none.
        type: int
        version_added: 0.1.0
      max_tx_mbps:
        description: The rate in Mbit/s that each VF can send at most; V(0) is no limit.
        type: int
        version_added: 0.1.0
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
          link_state:
            description: As above.
            type: str
            choices: [auto, enable, disable]
            version_added: 0.1.0
          min_tx_mbps:
            description: As above.
            type: int
            version_added: 0.1.0
          max_tx_mbps:
            description: As above.
            type: int
            version_added: 0.1.0
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Create eight VFs on every ConnectX-7 port, free for guests
  sailloft.fleet.sriov:
    functions:
      - devices: ["15b3:1021"]
        count: 8
        drivers_autoprobe: false
        derive_addresses: true
        trust: true
        spoof_check: false

- name: Create VFs on InfiniBand with GUIDs of their own, whose link is the port's
  sailloft.fleet.sriov:
    functions:
      - devices: ["15b3:101b"]
        count: 4
        drivers_autoprobe: false
        derive_addresses: true
        link_state: auto

- name: Create VFs of at most 50 Gbit/s, with representors for Open vSwitch
  sailloft.fleet.sriov:
    functions:
      - devices: ["0000:3b:00.0"]
        count: 8
        drivers_autoprobe: false
        derive_addresses: true
        eswitch_mode: switchdev
        max_tx_mbps: 50000

- name: Create a VF with a MAC and a VLAN
  sailloft.fleet.sriov:
    functions:
      - devices: ["0000:3b:00.0"]
        count: 1
        vfs:
          - {index: 0, mac: "02:00:00:00:01:00", vlan: 100}
"""

RETURN = r"""
functions:
  description:
    - By address of the physical function, how many VFs it has and their addresses (none in check mode, if they are to
      be made).
    - C(settings) lists each setting of a VF that is asked for, with what C(ip) reports; null is not reported.
    - C(eswitch_mode) is there if it is asked for.
  returned: success
  type: dict
  sample:
    "0000:3b:00.0":
      count: 1
      vfs: ["0000:3b:00.1"]
      eswitch_mode: {wanted: switchdev, seen: switchdev}
      settings:
        - {vf: 0, name: mac, wanted: "b2:4d:a3:3d:57:fb", seen: "b2:4d:a3:3d:57:fb"}
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
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov, vf_request
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "functions": {"type": "list", "elements": "dict", "required": True, "options": vf_request.options()}
        },
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
