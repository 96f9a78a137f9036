#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Kernel arguments in GRUB."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_arguments
short_description: Kernel arguments in GRUB, and whether a reboot is needed
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Makes the kernel of the next boot start with the given arguments, on Debian and Ubuntu (a drop-in in
    C(/etc/default/grub.d) and C(update-grub)) and on RHEL and its relatives (Boot Loader Specification entries).
  - Arguments replace others of the same key, wherever these stand, and keep their order, so that several sizes
    of huge pages and counts by node can be given. C(default_hugepagesz), C(hugepagesz) and C(hugepages) belong
    together, one of them replaces all.
  - The generated configuration of GRUB is read too, so that a run that was killed before C(update-grub) is completed.
  - Why not an existing module. The C(bootloader) role of linux-system-roles is for RHEL-likes and works through
    C(grubby), which replaces all arguments of one name by the last, so that C(hugepages=) cannot be given twice;
    C(lineinfile) on C(/etc/default/grub) fights with every other owner of that line.
options:
  arguments:
    description: The arguments, in order, V(name) or V(name=value).
    type: list
    elements: str
    required: true
  remove:
    description:
      - Names of arguments to be without. On RHEL-likes, an argument that was given to an earlier run and is
        not given any more stays until it is named here.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: IOMMU for guests, and 1 GiB pages by node
  sailloft.fleet.kernel_arguments:
    arguments:
      - intel_iommu=on
      - iommu=pt
      - default_hugepagesz=1G
      - hugepagesz=1G
      - hugepages=0:200,1:200
  register: arguments
"""

RETURN = r"""
boot_loader:
  description: V(grub) (Debian's way) or V(bls) (RHEL's way).
  returned: success
  type: str
running:
  description: The arguments of the running kernel.
  returned: success
  type: list
  elements: str
reboot_required:
  description: Whether the running kernel was started with other arguments.
  returned: success
  type: bool
pending:
  description: What cannot take effect before the next boot, a line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host import kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.host.edge import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.host.system import System


def main() -> None:
    """The module."""
    module = AnsibleModule(
        argument_spec={
            "arguments": {"type": "list", "elements": "str", "required": True},
            "remove": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: kernel_arguments.ensure(System(), module.params, module.check_mode))


if __name__ == "__main__":
    main()
