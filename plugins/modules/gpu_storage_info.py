#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The modes of GPUDirect Storage of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_storage_info
short_description: Tell which modes of GPUDirect Storage a host allows
version_added: 0.1.0
description:
  - Reads the kernel, NVIDIA's driver and nvidia-fs, the IOMMU, ACS between GPUs and NVMe drives, and the mounted file
    systems. For each file system it tells which modes are possible, and why the others are not, each with a remedy.
  - It starts no process and changes nothing. The rules are NVIDIA's documents'; no GPU was used to try them.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
notes:
  - Without root the kernel shows neither its symbols nor ACS; what depends on them is then not known.
"""

EXAMPLES = r"""
- name: Read the modes of GPUDirect Storage
  sailloft.fleet.gpu_storage_info:
  register: storage

- name: Show them
  sailloft.fleet.report:
    lines: "{{ storage.lines }}"
"""

RETURN = r"""
file_systems:
  description:
    - One for each mounted ext4 or XFS on NVMe drives, NFS, Lustre, BeeGFS, WekaFS and Storage Scale. If none is
      mounted, one for the NVMe drives as if they had one.
  returned: success
  type: list
  elements: dict
  contains:
    mount:
      description: The mount point.
      type: str
    kind:
      description: The kernel's name of the file system.
      type: str
    route:
      description: V(nvme), V(raid), V(nvmeof), V(nfs), V(lustre), V(beegfs), V(weka) or V(scale).
      type: str
    possible:
      description: The possible modes, the fastest first, of V(p2pdma), V(nvidia_fs), V(rdma) and V(compat).
      type: list
      elements: str
    hurdles:
      description: >-
        For each mode its hurdles, each with C(what), C(remedy) and C(known), which is false where a fact could not be
        read. Empty if the mode is possible.
      type: dict
    notes:
      description: What makes a possible mode slower.
      type: list
      elements: str
lines:
  description: The same as text.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import facts, modes
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host


def read() -> dict[str, Any]:
    """Return the module's result for this host."""
    routes = modes.routes(read_host(), facts.observe(System()))
    text = [line for route in routes for line in route.lines()]
    return {
        "file_systems": [route.to_dict() for route in routes],
        "lines": text or ["no NVMe drive, and no file system that GPUDirect Storage knows"],
    }


def main() -> None:
    """Run as an Ansible module."""
    finish(AnsibleModule(argument_spec={}, supports_check_mode=True), read)


if __name__ == "__main__":
    main()
