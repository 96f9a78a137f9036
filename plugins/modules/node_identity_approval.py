#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decide whether secrets may be encrypted to a TPM."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity_approval
short_description: Decide whether secrets may be encrypted to a node's TPM
version_added: 0.1.0
description:
  - A TPM is approved if it is the enrolled one, if the operator has approved its fingerprint, or if its certificate
    verifies against the given certificate authorities. Every other TPM is pending.
  - A certificate proves that the key is in a TPM of that manufacturer, but not in which machine. Therefore it does not
    replace an enrolled key.
  - Runs on the controller. It does not trust the node's own check of its certificate.
requirements:
  - openssl (3.0 or later) on the host that it runs on, if O(tpm_ca) is given
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  node:
    description: The node's name.
    type: str
    required: true
  ek:
    description: The public part of the endorsement key, as M(sailloft.fleet.node_identity_info) returns it.
    type: str
    required: true
  certificate:
    description: Its certificate, as M(sailloft.fleet.node_identity_info) returns it; empty for none.
    type: str
    default: ""
  enrolled:
    description: The node's key in the inventory; empty for none.
    type: str
    default: ""
  approved:
    description: Fingerprints of the keys that the operator approves, each the sha256 of the public part, hexadecimal.
    type: list
    elements: str
    default: []
  tpm_ca:
    description: Files with the certificates of TPM manufacturers in PEM, roots and intermediates.
    type: list
    elements: path
    default: []
seealso:
  - module: sailloft.fleet.node_identity_info
"""

EXAMPLES = r"""
- name: Decide whether secrets may be encrypted to the TPM
  sailloft.fleet.node_identity_approval:
    node: bm01
    ek: "{{ found.ek }}"
    certificate: "{{ found.certificate or '' }}"
    tpm_ca: [/etc/sailloft/tpm-roots.pem]
  delegate_to: localhost
"""

RETURN = r"""
ek:
  description: The endorsement key in base64 without white space, for C(node_identity_ek).
  returned: success
  type: str
checked:
  description: The checks of the key, and those that were not made.
  returned: success
  type: str
approved:
  description: Whether secrets may be encrypted to it.
  returned: success
  type: bool
fingerprint:
  description: The sha256 of the public part of the endorsement key, hexadecimal.
  returned: success
  type: str
why:
  description: The reason for the decision.
  returned: success
  type: str
decision:
  description: The decision as text, with the next step for a pending key.
  returned: success
  type: str
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import approval, identity, tools


def decided(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result, in which no text is the node's own. Raises ImageError."""
    subject = f"node {params['node']}"
    try:
        certificate = base64.b64decode(params["certificate"], validate=True) or None
    except (binascii.Error, ValueError) as error:
        raise ImageError("its certificate is not base64", "read it with node_identity_info", subject=subject) from error
    ek = identity.read_ek(params["ek"], subject)
    decision = approval.decide(
        params["node"],
        ek,
        certificate,
        identity.read_ek(params["enrolled"], f"{subject}: node_identity_ek") if params["enrolled"] else None,
        params["approved"],
        (lambda data: tools.verify(data, params["tpm_ca"])) if params["tpm_ca"] else None,
    )
    return {
        "ek": base64.b64encode(ek).decode(),
        "checked": approval.checks(certificate),
        **asdict(decision),
        "decision": approval.decision(decision),
    }


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "ek": {"type": "str", "required": True},
            "certificate": {"type": "str", "default": ""},
            "enrolled": {"type": "str", "default": ""},
            "approved": {"type": "list", "elements": "str", "default": []},
            "tpm_ca": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: decided(module.params))


if __name__ == "__main__":
    main()
