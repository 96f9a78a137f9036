#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Virtual functions and their settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sriov
short_description: Set the number of virtual functions, their addresses, link state, rates and other settings
version_added: 0.1.0
description:
  - Sets the number of VFs of all physical functions of a host, and the settings of the VFs, in one call.
  - The count and O(functions[].eswitch_mode) change only if no VF is in use, because all VFs must be removed for the
    change. Otherwise the error names the users of the VFs (a guest, or the host through a network interface).
  - A smaller count is refused if a definition of libvirt (a domain, running or not, or a network) names a VF that would
    disappear. The definitions are read from C(/etc/libvirt/qemu), whether libvirt runs or not.
  - The settings last until the next boot; M(sailloft.fleet.gpu_host_boot) makes them at every boot.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  functions:
    description: The settings of physical functions; a later entry overrides an earlier one.
    type: list
    elements: dict
    required: true
    suboptions:
      devices:
        description: >-
          A device is named by its kind (such as V(gpu), V(nic) or V(nvme)), by vendor and device
          (V(10de:2330), or V(15b3:*) for all of a vendor), or by address (V(0000:3b:00.0)).
          Devices of a kind or vendor that have no SR-IOV are left out.
        type: list
        elements: str
        required: true
      count:
        description: The number of VFs of each.
        type: int
        required: true
      drivers_autoprobe:
        description: Whether the host's own driver binds new VFs; V(false) leaves them free for guests.
        type: bool
      eswitch_mode:
        description: >-
          The mode of the NIC's embedded switch: V(switchdev) gives each VF a representor, an interface of the host for
          bridges, C(tc) and Open vSwitch. By default the mode is not changed. With V(switchdev), O(functions[].trust),
          O(functions[].spoof_check), O(functions[].vlan) and O(functions[].link_state) are refused, as by the drivers.
          The mode of a NIC that the host uses itself cannot be changed.
        type: str
        choices: [legacy, switchdev]
        version_added: 0.1.0
      derive_addresses:
        description: >-
          Whether each VF without an address in O(functions[].vfs) gets one that is derived from the address of the
          physical function and the index of the VF, and is therefore the same at every boot: a MAC on Ethernet, node
          and port GUID (both the same) on InfiniBand. It is the beginning of C(sha256("ADDRESS/INDEX")), with the lower
          half of the first byte replaced by 2 (locally administered). ADDRESS is the permanent MAC, or the last 8 bytes
          of an InfiniBand interface's address.
        type: bool
        default: false
        version_added: 0.1.0
      trust:
        description: Whether guests may change settings that need trust (promiscuous mode, MAC address), for all VFs.
        type: bool
      spoof_check:
        description: Whether packets with another MAC address than the VF's are dropped, for all VFs.
        type: bool
      vlan:
        description: The VLAN of all VFs; V(0) is none.
        type: int
      link_state:
        description: >-
          The link of all VFs: V(auto) follows the port, V(enable) is always up (VFs of one port reach each other
          without the port's link), V(disable) is always down.
        type: str
        choices: [auto, enable, disable]
        version_added: 0.1.0
      min_tx_mbps:
        description: The guaranteed transmit rate of each VF in Mbit/s; V(0) guarantees none.
        type: int
        version_added: 0.1.0
      max_tx_mbps:
        description: The highest transmit rate of each VF in Mbit/s; V(0) is no limit.
        type: int
        version_added: 0.1.0
      vfs:
        description: Settings of single VFs, which override those for all.
        type: list
        elements: dict
        suboptions:
          index:
            description: The index of the VF, from 0.
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
            description: The same setting for this VF only.
            type: bool
          spoof_check:
            description: The same setting for this VF only.
            type: bool
          vlan:
            description: The same setting for this VF only.
            type: int
          link_state:
            description: The same setting for this VF only.
            type: str
            choices: [auto, enable, disable]
            version_added: 0.1.0
          min_tx_mbps:
            description: The same setting for this VF only.
            type: int
            version_added: 0.1.0
          max_tx_mbps:
            description: The same setting for this VF only.
            type: int
            version_added: 0.1.0
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

- name: Create VFs on InfiniBand with GUIDs of their own, whose link follows the port
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
    - By address of the physical function, the number of its VFs and their addresses (none in check mode if they will be
      created).
    - C(settings) lists each requested setting of a VF with the value that C(ip) reports; null means not reported.
    - C(eswitch_mode) is present if it is requested.
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
  description: Changes that take effect at the next boot only, one line each.
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
