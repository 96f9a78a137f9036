#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Install the crash kernel of a node in an image."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_crash_dump
short_description: Install the kernel that sends a dump when a node without a disk crashes
version_added: 0.1.0
description:
  - Installs a copy of the image's kernel and an initramfs in C(/usr/lib/sailloft/crash), C(/usr/lib/sailloft/crash.pyz)
    and C(sailloft-crash.service), which loads both at each boot into the memory that C(crashkernel=) reserves. It is
    refused on a host that runs.
  - When the node's kernel crashes, the crash kernel brings up the NIC that booted, sends the kernel's last lines, its
    messages and its memory without free and user pages (makedumpfile) to a boot server, and reboots. All but the last
    lines is encrypted with age.
  - The image needs busybox-static, makedumpfile and age.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  key:
    description: The public key of age to which dumps are encrypted, as C(age-keygen) shows it.
    type: str
    required: true
  init:
    description: The text of the first stage's init.
    type: str
    required: true
  drivers:
    description: Modules of NICs in the initramfs beside the usual ones; their dependencies come along.
    type: list
    elements: str
    default: []
seealso:
  - module: sailloft.fleet.crash_dumps_info
"""

EXAMPLES = r"""
- name: Install the crash kernel
  sailloft.fleet.node_crash_dump:
    key: "{{ node_crash_dump_key }}"
    init: "{{ lookup('ansible.builtin.file', 'init') }}"
"""

RETURN = r"""
service:
  description: The service that loads it.
  returned: success
  type: str
kernel:
  description: The version of the kernel.
  returned: success
  type: str
initramfs_bytes:
  description: The size of the initramfs, which the reserved memory holds beside the kernel, packed and unpacked.
  returned: success
  type: int
pending:
  description: Always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import install
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "key": {"type": "str", "required": True, "no_log": False},
            "init": {"type": "str", "required": True},
            "drivers": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    request = module.params
    finish_on_host(
        module,
        lambda: install.ensure(
            System(), request["key"], request["init"], request["drivers"], in_chroot(), module.check_mode
        ),
        live=False,
    )


if __name__ == "__main__":
    main()
