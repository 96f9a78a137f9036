#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action node_image_proof."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_proof
short_description: Compare the image that a node booted with the one in the inventory, claim by claim
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.proof]
description:
  - Claims that the node runs the digest of its channel or pin, with the kernel and arguments of the manifest and its
    own arguments, and that every layer has its digest and is verified by dm-verity if the kernel has it.
  - Claims that everything that an attacker on the boot network could have changed is as in the inventory - each word of
    the command line, the statement, servers, NICs, host key, warnings and name in the first stage's report.
  - Claims that systemd has started everything, that no unit has failed, and that the health check holds.
  - Writes the proof as JSON, as one HTML page and as a short table.
  - A claim without an observation does not hold.
  - What the inventory says of the node is read from its own variables, as for its script
    (M(sailloft.fleet.node_boot_scripts)) - C(node_boot_mac), C(node_boot_server_urls), C(node_boot_kernel_arguments),
    C(node_boot_nics), C(node_boot_report_url), C(node_boot_secure_boot), and C(node_boot_units_may_fail).
  - Reads the node with M(sailloft.fleet.node_image_info) if O(state) is left out. Everything else is computed in the
    process of the task on the controller, and the files are written there.
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
  prediction:
    description:
      - The text of the image's pcrs.json, from the host that signs. With C(node_boot_secure_boot), the proof compares
        the TPM's registers with it; empty if there is none.
    type: str
    default: ""
  sequence:
    description: The sequence of the boot servers' statement (M(sailloft.fleet.node_boot_statement)); 0 if unknown.
    type: int
    default: 0
  booted:
    description: Whether the node was booted since this statement was written, so that it must have used it.
    type: bool
    default: false
  state:
    description: >-
      The result of M(sailloft.fleet.node_image_info); empty for a node that does not answer. If it is left out, the
      action reads the node.
    type: dict
  only_if_it_runs:
    description: >-
      Prove the node only if it runs O(digest). If it runs another image or none, RV(holds) is false, no proof is
      written, and the task does not fail.
    type: bool
    default: false
  health:
    description: The health check; omit it if there is none.
    type: dict
    suboptions:
      command:
        description: >-
          A command that the action runs on the node, one word per item, also in check mode. The node is healthy if its
          exit status is 0.
        type: list
        elements: str
      what:
        description: The command or task file. Required without O(health.command).
        type: str
      held:
        description: Whether it succeeded; left out if it could not run.
        type: bool
      output:
        description: Its output.
        type: str
        default: ""
"""

EXAMPLES = r"""
- name: Prove the node
  sailloft.fleet.node_image_proof:
    path: proofs
    name: "{{ inventory_hostname }}"
    channel: stable
    digest: "{{ digest }}"
    manifest: "{{ manifest.content | b64decode }}"
    health: {command: [/usr/bin/gpu-selftest]}
"""

RETURN = r"""
state:
  description: The state of the node, as M(sailloft.fleet.node_image_info) returns it.
  returned: if the node answered
  type: dict
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
  description: The proof as a short table, in lines, with the counts by layer and the first claims that fail.
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
