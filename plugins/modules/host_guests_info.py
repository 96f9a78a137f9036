#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The guests that run on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_guests_info
short_description: List the virtual machines that run on a host
version_added: 0.1.0
description:
  - Lists libvirt's active domains, and the virtual machines that libvirt does not know, which are found by their
    processes. If the host has no libvirt or it does not answer, only the processes are read.
  - The role P(sailloft.fleet.gpu_host#role) reads this just before a reboot.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options: {}
"""

EXAMPLES = r"""
- name: Read which guests run
  sailloft.fleet.host_guests_info:
  register: running
"""

RETURN = r"""
guests:
  description:
    - The guests. C(name) is null if the process does not show it, C(process) is null if a domain of libvirt has none,
      C(known_to_libvirt) is null if libvirt did not answer.
  returned: success
  type: list
  elements: dict
  sample: [{"name": "gpu01", "process": 4711, "program": "qemu-system-x86_64", "known_to_libvirt": true}]
words:
  description: The same as text, one line each.
  returned: success
  type: list
  elements: str
  sample: ["gpu01 (process 4711)"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host import guests
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    finish_on_host(module, lambda: guests.observe(System()), reads=True)


if __name__ == "__main__":
    main()
