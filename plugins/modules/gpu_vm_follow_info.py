#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_vm_follow_info
short_description: Check whether a virtual machine can follow to this server from one that has crashed
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Runs on the new server, reads where the disks are there, and fails with all reasons why the virtual machine cannot
    follow. M(sailloft.fleet.gpu_domain) then plans it there, M(sailloft.fleet.node_fence) comes before it.
  - It is refused if the crashed server answers or has no BMC, devices are requested by address, it has NVMe drives, a
    disk is missing here or on storage that is not shared, an interface is in a network of libvirt, or the crashed
    server would start it again and write a block device.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  domain:
    description: The virtual machine, as an element of O(sailloft.fleet.gpu_domain#module:domains).
    type: dict
    required: true
  server:
    description: The name of the crashed server.
    type: str
    required: true
  answers:
    description: Whether Ansible reaches it.
    type: bool
    required: true
  bmc:
    description: The address of its BMC, empty for none.
    type: str
    required: true
  shared_paths:
    description: >-
      Files, and directories with all files below them, that are the same ones on both servers. File systems of several
      servers (NFS, GPFS, Ceph, Lustre, BeeGFS, OCFS2, GFS2, GlusterFS) are recognised.
    type: list
    elements: path
    default: []
"""

EXAMPLES = r"""
- name: Check whether train-01 can follow
  sailloft.fleet.gpu_vm_follow_info:
    domain: {name: train-01, gpus: {count: 8}, disks: [{path: /shared/train-01.qcow2}]}
    server: gpu1
    answers: false
    bmc: 10.9.1.1
"""

RETURN = r"""
notes:
  description: What to know before the crashed server boots again, as lines.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import file_places
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import follow
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "domain": {"type": "dict", "required": True},
            "server": {"type": "str", "required": True},
            "answers": {"type": "bool", "required": True},
            "bmc": {"type": "str", "required": True},
            "shared_paths": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params

    def work() -> dict[str, Any]:
        (spec,) = parse_specs([params["domain"]])
        server = follow.CrashedServer(params["server"], params["answers"], params["bmc"])
        places = file_places.observe(follow.needed_paths(spec))
        findings = follow.check(spec, server, places, params["shared_paths"])
        if any(item.severity == REFUSE for item in findings):
            raise RefusedError(findings)
        return {"changed": False, "notes": [str(item) for item in findings]}

    finish(module, work)


if __name__ == "__main__":
    main()
