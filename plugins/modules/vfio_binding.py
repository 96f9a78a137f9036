#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Bind devices to vfio-pci, persistently."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vfio_binding
short_description: Bind PCI devices to vfio-pci, now and at every boot
version_added: 0.1.0
description:
  - Binds PCI devices to vfio-pci, so that guests can use them, or releases them. It uses C(driverctl), whose udev rule
    binds them again at every boot.
  - A guest can only get a whole IOMMU group. Before any change, the module refuses a group with a member that is not
    selected, and a device that the host itself uses (its disk, its management NIC).
  - VFs need no binding, because libvirt binds them for each guest.
  - If all NVIDIA GPUs are bound, the NVSwitches of the host are bound as well, unless they are released.
  - A GPU that has virtual functions keeps the driver that made them, unless it is named by address, which is refused.
  - If the IOMMU is off, nothing is bound, and RV(pending) says so. Run the module again after the reboot that turns the
    IOMMU on.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  devices:
    description: >-
      A device is named by its kind (such as V(gpu), V(nic) or V(nvme)), by vendor and device
      (V(10de:2330), or V(15b3:*) for all of a vendor), or by address (V(0000:3b:00.0)). V(nvme:unused) are the NVMe
      drives that the host does not use and that are empty (no partitions, no file system, LVM, RAID or ZFS).
    type: list
    elements: str
    required: true
  release:
    description: Devices to return to the host's own drivers, selected in the same ways.
    type: list
    elements: str
    default: []
  keep_drivers_off:
    description:
      - Whether the drivers of these GPUs must not load on the host. RV(drivers_off) names them;
        M(sailloft.fleet.kernel_arguments) blocks them.
    type: bool
    default: false
    version_added: 0.1.0
"""

EXAMPLES = r"""
- name: Bind all GPUs and NVSwitches for guests
  sailloft.fleet.vfio_binding:
    devices: [gpu, nvswitch]
"""

RETURN = r"""
bound:
  description: The addresses of the devices that are bound (in check mode, that will be).
  returned: success
  type: list
  elements: str
drivers_off:
  description:
    - With O(keep_drivers_off), the kernel modules that must not load, and the reasons why others may.
  returned: success
  type: dict
  contains:
    modules:
      description: Names of modules.
      type: list
      elements: str
    reasons:
      description: Modules that may load, because a device of the vendor stays with the host, one line each.
      type: list
      elements: str
unused_drives:
  description: The addresses that V(nvme:unused) selects.
  returned: success
  type: list
  elements: str
reset_failures:
  description: By address, reset methods of bound devices that are known to fail, and devices without any.
  returned: success
  type: dict
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
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vfio_binding


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "list", "elements": "str", "required": True},
            "release": {"type": "list", "elements": "str", "default": []},
            "keep_drivers_off": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    system = System()
    finish_on_gpu_host(
        module, system, lambda: vfio_binding.ensure(system, read_topology(system), module.params, module.check_mode)
    )


if __name__ == "__main__":
    main()
