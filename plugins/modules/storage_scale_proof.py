#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The proof of IBM Storage Scale's clients."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_scale_proof
short_description: Write the proof that the clients of IBM Storage Scale are as planned
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.storage_scale, sailloft.fleet.proof]
description:
  - Compares the request of M(sailloft.fleet.storage_scale_plan) with what M(sailloft.fleet.storage_scale_info) has read
    on each node, C(proofs/storage-scale.json). It runs on the controller and contacts no host.
  - Each node is a member of the cluster with an active daemon, whose running settings have the planned RDMA ports; it
    and its ports are healthy; each file system is mounted, and is the one of the remote cluster; each fileset is
    linked, with its mode and bucket. What was not read fails.
  - It was never run with a real Storage Scale cluster.
"""

EXAMPLES = r"""
- name: Prove the clients
  sailloft.fleet.storage_scale_proof:
    path: proofs
    cluster: vela.example
    file_systems:
      - {name: fs1, mount: /gpfs/fs1, remote_name: gpfs01, remote_cluster: storage.example}
    readings: "{{ readings }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
holds:
  description: Whether there are claims that hold and none that fails.
  returned: always
  type: bool
counts:
  description: How many claims hold, fail, and do not apply.
  returned: always
  type: dict
table:
  description: The short table.
  returned: always
  type: list
  elements: str
files:
  description: The files.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import claims, readings, request


def proof(params: dict[str, Any]) -> Proof:
    """Return the proof for the module's arguments. Raises ScaleError."""
    wanted = request.read(params)
    judged = claims.claims(wanted, readings.read(params["readings"]))
    return Proof("storage-scale", f"Storage Scale of {wanted.cluster}", wanted.cluster, judged)


def main() -> None:
    """Run as an Ansible module."""
    options = {"path": {"type": "path", "required": True}, **request.options()}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)

    def work() -> dict[str, Any]:
        result = proof(module.params)
        return written(result, page(result), module.params["path"], module.check_mode)

    finish(module, work)


if __name__ == "__main__":
    main()
