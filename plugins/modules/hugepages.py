#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Huge pages by NUMA node and size."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hugepages
short_description: Set the number of huge pages by NUMA node and size, at run time
version_added: 0.1.0
description:
  - Sets the number of huge pages for the given NUMA nodes and sizes, in one call for the whole host, and returns the
    number that the kernel really allocated. Other nodes and sizes are not changed.
  - It refuses, before anything is written, more pages than a node has memory for, a size that the CPU does not support,
    and the removal of pages that a guest uses. If the kernel allocates fewer pages than requested, the error says
    whether the node lacks memory or its memory is fragmented.
  - Mounts a hugetlbfs for every size that is used and not mounted, under C(/dev/hugepages-<size>M), and then restarts
    libvirt if it runs, because libvirt looks for mounts only when it starts. Guests continue to run.
  - The pages last until the next boot. M(sailloft.fleet.gpu_host_boot) sets them at every boot, and
    M(sailloft.fleet.kernel_arguments) reserves pages of 1 GiB before memory is fragmented.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  pages:
    description: The numbers of pages.
    type: list
    elements: dict
    required: true
    suboptions:
      node:
        description: The NUMA node.
        type: int
        required: true
      size_mib:
        description: The size of a page in MiB, V(2) or V(1024) on x86_64.
        type: int
        required: true
      count:
        description: The number of pages.
        type: int
        required: true
"""

EXAMPLES = r"""
- name: Set 200 GiB of huge pages on each node
  sailloft.fleet.hugepages:
    pages:
      - {node: 0, size_mib: 1024, count: 200}
      - {node: 1, size_mib: 1024, count: 200}
"""

RETURN = r"""
hugepages:
  description: The present state of the requested pools.
  returned: success
  type: list
  elements: dict
  sample: [{"node": 0, "size_mib": 1024, "wanted": 200, "total": 200, "free": 200}]
hugetlbfs_mounted:
  description: The directories where this call mounted a hugetlbfs (in check mode, would mount one).
  returned: success
  type: list
  elements: str
pending:
  description: Changes that take effect at the next boot only, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host import hugepages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    page = {
        "node": {"type": "int", "required": True},
        "size_mib": {"type": "int", "required": True},
        "count": {"type": "int", "required": True},
    }
    module = AnsibleModule(
        argument_spec={"pages": {"type": "list", "elements": "dict", "required": True, "options": page}},
        supports_check_mode=True,
    )
    system = System()
    finish_on_gpu_host(module, system, lambda: hugepages.ensure(system, module.params, module.check_mode))


if __name__ == "__main__":
    main()
