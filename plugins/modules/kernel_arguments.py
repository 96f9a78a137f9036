#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Kernel arguments in GRUB."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_arguments
short_description: Set kernel arguments in GRUB, and report whether a reboot is needed
version_added: 0.1.0
description:
  - Sets the arguments with which the kernel starts at the next boot, on Debian and Ubuntu (a drop-in in
    C(/etc/default/grub.d) and C(update-grub)) and on RHEL and its relatives (Boot Loader Specification entries).
  - Arguments replace others of the same key, wherever they are configured, and keep their order, so that several sizes
    of huge pages and counts by node are possible. C(default_hugepagesz), C(hugepagesz) and C(hugepages) belong
    together; one of them replaces all.
  - The generated configuration of GRUB is read as well. Therefore the next run completes one that was killed before
    C(update-grub).
  - Existing modules do not fit. The C(bootloader) role of linux-system-roles is for RHEL and its derivatives and uses
    C(grubby), which replaces all arguments of one name by the last, so that C(hugepages=) cannot be given twice.
    C(lineinfile) on C(/etc/default/grub) conflicts with every other program that manages that line.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  iommu:
    description:
      - The mode of the IOMMU. V(passthrough) is C(iommu=pt); host devices are mapped one to one, and only
        guests' devices are translated. V(translated) is C(iommu=nopt). Intel's IOMMU is turned on with
        C(intel_iommu=on).
    type: str
    choices: [passthrough, translated]
  pages:
    description:
      - Huge pages to reserve at boot, as in M(sailloft.fleet.hugepages). The largest size becomes the default size.
      - Counts by node need Linux 5.16, or a kernel with a backport.
    type: list
    elements: dict
    default: []
    suboptions:
      node:
        description: The NUMA node.
        type: int
        required: true
      size_mib:
        description: The size of a page in MiB.
        type: int
        required: true
      count:
        description: The number of pages.
        type: int
        required: true
  arguments:
    description: Additional arguments, in order, V(name) or V(name=value).
    type: list
    elements: str
    default: []
  remove:
    description:
      - Names of arguments to remove. On RHEL and its relatives, an argument of an earlier run stays until it is named
        here. Those by which a host boots or is reached are refused.
    type: list
    elements: str
    default: []
  avic:
    description:
      - Let KVM use the virtual interrupt controller of AMD's CPUs (C(kvm_amd.avic=)). By default the kernel
        decides.
      - Not set on hosts without one, and where it is known to fail (see
        O(sailloft.fleet.gpu_host_boot#module:kernel_settings.avic)).
    type: bool
    version_added: 0.1.0
  acs_by_port:
    description:
      - ACS by port as C(pci=config_acs=), as O(sailloft.fleet.pci_tuning#module:acs_by_port). The kernel sets it before
        it creates IOMMU groups, and under lockdown as well.
      - Not set if the running kernel does not support it (before 6.11; several ports before 6.15 and 6.12.23).
    type: dict
    suboptions:
      devices:
        description: The GPUs and NICs below the ports.
        type: list
        elements: str
        required: true
      purpose:
        description: The purpose, which determines the bits.
        type: str
        choices: [virtual_machines, bare_metal]
        required: true
  vfio_binding:
    description:
      - The arguments of M(sailloft.fleet.vfio_binding). With O(sailloft.fleet.vfio_binding#module:keep_drivers_off),
        the kernel does not load the drivers of these GPUs (C(module_blacklist=)), not even in the initramfs.
      - If one of the devices is the display of the firmware, and the kernel is older than 6.0, the framebuffer console
        does not use it (C(initcall_blacklist=sysfb_init)).
    type: dict
    version_added: 0.1.0
  nic_firmware:
    description:
      - The settings of M(sailloft.fleet.nic_firmware). If one of them turns ATS on (C(ATS_ENABLED)), C(pci=noats) is
        refused.
    type: list
    elements: dict
    default: []
    version_added: 0.1.0
"""

EXAMPLES = r"""
- name: Enable the IOMMU for guests, and reserve 1 GiB pages by node
  sailloft.fleet.kernel_arguments:
    iommu: passthrough
    pages:
      - {node: 0, size_mib: 1024, count: 200}
      - {node: 1, size_mib: 1024, count: 200}
    arguments: [pci=realloc]
  register: arguments
"""

RETURN = r"""
boot_loader:
  description: V(grub) (as on Debian) or V(bls) (as on RHEL); null if it is neither and no argument is requested.
  returned: success
  type: str
arguments:
  description: The arguments of the next boot, for the keys that are set.
  returned: success
  type: list
  elements: str
running:
  description: The arguments of the running kernel.
  returned: success
  type: list
  elements: str
reboot_required:
  description: Whether the running kernel was started with other arguments.
  returned: success
  type: bool
acs:
  description:
    - RV(ignore:argument) for the ports that need other bits than the kernel's defaults, or RV(ignore:reason) if there
      is none; RV(ignore:not_taken), ports that the kernel should have set and did not.
  returned: success
  type: dict
drivers_off:
  description: As RV(sailloft.fleet.vfio_binding#module:drivers_off).
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
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo.record import Remembering


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=kernel_arguments.options(), supports_check_mode=True)
    system = Remembering(System())
    finish_on_gpu_host(module, system, lambda: kernel_arguments.ensure(system, module.params, module.check_mode))


if __name__ == "__main__":
    main()
