#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The proof that a node runs the image that the inventory names."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_proof
short_description: Compare the image that a node booted with the one in the inventory, claim by claim
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.proof]
description:
  - Claims that the node runs the digest of its channel or pin, with the kernel and arguments of the manifest and its
    own arguments, and that every layer has its digest and is verified by dm-verity if the kernel has it.
  - Claims that systemd has started everything, that no unit has failed, and that the health gate holds.
  - Writes the proof as JSON, as one HTML page and as a short table.
  - A claim without an observation does not hold.
  - Runs on the controller with the results of other modules; it contacts no host.
options:
  name:
    description: Name of the node, and of the files.
    type: str
    required: true
  digest:
    description: Digest of the image that the node must run.
    type: str
    required: true
  channel:
    description: The channel that points to O(digest); empty if the inventory pins the digest.
    type: str
    default: ""
  manifest:
    description: The exact text of that image's manifest. A manifest with another digest is refused.
    type: str
    required: true
  kernel_arguments:
    description: The node's own kernel arguments.
    type: list
    elements: str
    default: []
  may_fail:
    description: Units of this node that may fail according to the inventory.
    type: list
    elements: str
    default: []
  state:
    description: The result of M(sailloft.fleet.node_image_info); empty for a node that does not answer.
    type: dict
    default: {}
  health:
    description: The result of the health gate; left out if there is none.
    type: dict
    suboptions:
      what:
        description: The command or task file.
        type: str
        required: true
      held:
        description: Whether it succeeded; left out if it could not run.
        type: bool
      said:
        description: Its output.
        type: str
        default: ""
"""

EXAMPLES = r"""
- name: Prove bm01
  sailloft.fleet.node_image_proof:
    path: proofs
    name: bm01
    channel: stable
    digest: "{{ digest }}"
    manifest: "{{ manifest.content | b64decode }}"
    state: "{{ node }}"
    health: {what: /usr/bin/gpu-selftest, held: "{{ gate.rc == 0 }}", said: "{{ gate.stderr }}"}
  delegate_to: localhost
"""

RETURN = r"""
holds:
  description: Whether every applicable claim holds.
  returned: always
  type: bool
counts:
  description: How many claims hold, fail, and do not apply.
  returned: always
  type: dict
  sample: {"held": 9, "failed": 0, "not_applicable": 1}
table:
  description: The proof as a short table, in lines. If the proof does not hold, the message is this table.
  returned: always
  type: list
  elements: str
files:
  description: The files of the proof.
  returned: always
  type: list
  elements: str
  sample: [proofs/bm01.json, proofs/bm01.html, proofs/bm01.txt]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.given.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import Expected, Gate, Seen, prove
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written


def proof_of(params: Mapping[str, Any]) -> Proof:
    """Return the proof for the module's arguments. Raises ImageError and ProofError."""
    expected = Expected.of_text(
        params["digest"], params["manifest"], params["channel"], params["kernel_arguments"], params["may_fail"]
    )
    gate = Gate(**params["health"]) if params["health"] else None
    return prove(params["name"], expected, Seen(params["state"], gate))


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "digest": {"type": "str", "required": True},
            "channel": {"type": "str", "default": ""},
            "manifest": {"type": "str", "required": True},
            "kernel_arguments": {"type": "list", "elements": "str", "default": []},
            "may_fail": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "dict", "default": {}},
            "health": {
                "type": "dict",
                "options": {
                    "what": {"type": "str", "required": True},
                    "held": {"type": "bool"},
                    "said": {"type": "str", "default": ""},
                },
            },
        },
        supports_check_mode=True,
    )

    def work() -> dict[str, Any]:
        proof = proof_of(module.params)
        return written(proof, page(proof), module.params["path"], module.check_mode)

    finish(module, work, module.params["name"])


if __name__ == "__main__":
    main()
