#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Challenge a node's TPM, and verify its quote."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity_quote
short_description: Challenge a node's TPM, and verify that it has measured the image that the node may run
version_added: 0.1.0
description:
  - Runs on the host that signs, which has the signed statement of what nodes may run and the predictions of its images.
  - Without O(quote), it makes a challenge for a TPM, which the node answers with M(sailloft.fleet.node_identity_info).
  - With O(quote), it verifies that the TPM with the enrolled key has answered this challenge, and that its registers
    are those of a boot of the image that the statement names for the node, predicted when the image was built.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
requirements:
  - tpm2-tools, openssl and minisign on the host that it runs on
options:
  node:
    description: The node's name.
    type: str
    required: true
  store:
    description: The store with statement and images.
    type: path
    required: true
  public_key:
    description: minisign's public key, a file, by which the statement is verified.
    type: path
    required: true
  ek:
    description: The node's enrolled endorsement key.
    type: str
    required: true
  ak:
    description: The attestation key that the node has shown.
    type: str
    required: true
  nonce:
    description: The nonce of the challenge that the node has answered.
    type: str
  quote:
    description: The quote that M(sailloft.fleet.node_identity_info) has returned.
    type: dict
seealso:
  - module: sailloft.fleet.node_identity_info
"""

EXAMPLES = r"""
- name: Make a challenge
  sailloft.fleet.node_identity_quote:
    node: bm01
    store: /srv/sailloft
    public_key: /root/.minisign/sailloft.pub
    ek: "{{ hostvars.bm01.node_identity_ek }}"
    ak: "{{ found.ak }}"
  delegate_to: build01
  register: asked
"""

RETURN = r"""
challenge:
  description: The challenge, base64.
  returned: without quote
  type: str
nonce:
  description: What the TPM finds in it, hexadecimal.
  returned: without quote
  type: str
image:
  description: The digest of the image that the statement names for the node.
  returned: success
  type: str
verified:
  description: Whether the quote was verified; the module fails if it is not right.
  returned: success
  type: bool
"""

import base64
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity, quotes
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "store": {"type": "path", "required": True},
            "public_key": {"type": "path", "required": True},
            "ek": {"type": "str", "required": True},
            "ak": {"type": "str", "required": True},
            "nonce": {"type": "str", "no_log": True},
            "quote": {"type": "dict"},
        },
        required_together=[("nonce", "quote")],
        supports_check_mode=True,
    )
    params = module.params

    def work() -> dict[str, Any]:
        node, subject = params["node"], f"node {params['node']}"
        ak = identity.read_ak(params["ak"], subject)
        prediction = quotes.expected(Store(params["store"]), node, params["public_key"])
        if params["quote"] is None:
            challenge = quotes.challenge(identity.read_ek(params["ek"], subject), ak, subject)
            answer = {"challenge": base64.b64encode(challenge.credential).decode(), "nonce": challenge.nonce.hex()}
            return {"image": prediction.image, "verified": False, **answer}
        quote = quotes.Quote.of_result(params["quote"], subject)
        quotes.check(node, prediction, ak, bytes.fromhex(params["nonce"]), quote)
        return {"image": prediction.image, "verified": True}

    finish(module, work)


if __name__ == "__main__":
    main()
