#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Encrypt nodes' secrets to their TPMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Encrypt nodes' secrets to their TPMs, as files that a boot server may serve to anyone
version_added: 0.1.0
description:
  - Writes a bundle C(identity/NODE) in a store for each of O(nodes), and removes those of O(removed). Bundles of other
    nodes are not touched. A bundle contains the node's own files, such as SSH host keys and join tokens. They are
    encrypted with a key that only the node's TPM 2.0 can release, and the bundle is signed. Nodes accept only bundles
    that the pair of O(public_key) has signed.
  - Runs on the host with the secrets and the signing key, the controller or the build host, and needs no TPM there. One
    call handles all nodes.
  - Although encryption is random, an unchanged secret causes no change. A bundle has an HMAC of its content, and the
    key of the HMAC is derived from the signing key, so O(signing_command) must print the same for the same data.
extends_documentation_fragment:
  - sailloft.fleet.node_image
  - sailloft.fleet.signer
requirements:
  - tpm2-tools, openssl and minisign on the host that it runs on
options:
  removed:
    description: Names of nodes that have left the site. Their bundles are removed.
    type: list
    elements: str
    default: []
  nodes:
    description:
      - The nodes whose bundles are written. A list of names stands for C(node_identity_ek) and C(node_identity_secrets)
        of each node.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The node's name, as the kernel argument C(sailloft.node) gives it.
        type: str
        required: true
      ek:
        description: The public part of the node's endorsement key, as M(sailloft.fleet.node_identity_info) returns it.
        type: str
        required: true
      secrets:
        description: The files.
        type: list
        elements: dict
        required: true
        suboptions:
          path:
            description: The path of the file on the node. It is absolute and has no spaces.
            type: str
            required: true
          content:
            description: The content in UTF-8.
            type: str
            required: true
          mode:
            description: Its mode, three or four octal digits.
            type: str
            default: "0600"
          owner:
            description: The owner, by name or number on the node.
            type: str
            default: root
          group:
            description: The group, by name or number on the node.
            type: str
            default: root
      proven:
        description: >-
          Whether the node's TPM has proven what it runs (M(sailloft.fleet.node_identity_quote)), or need not. Otherwise
          its bundle is not written, and one that is there stays.
        type: bool
        default: true
      measured:
        description: Whether its firmware measures what it boots, so that its bundle is bound to O(boot_certificate).
        type: bool
        default: false
  boot_certificate:
    description: >-
      The certificate of the site's Secure Boot key, a file. Bundles of nodes that are measured are bound to policies
      that this key has signed, so that they open only after a boot of an image that was built with it.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Shows each bundle's node, endorsement key and digest. No secret is in it.
    support: full
seealso:
  - module: sailloft.fleet.node_identity_info
"""

EXAMPLES = r"""
- name: Encrypt nodes' secrets to their TPMs, and keep them in the store
  sailloft.fleet.node_identity:
    store: /srv/sailloft
    signing_key: /root/.minisign/sailloft.key
    public_key: /root/.minisign/sailloft.pub
    nodes:
      - name: bm01
        ek: "{{ hostvars.bm01.node_identity_ek }}"
        secrets:
          - path: /etc/ssh/ssh_host_ed25519_key
            content: "{{ hostvars.bm01.vault_host_key }}"
  delegate_to: localhost
"""

RETURN = r"""
written:
  description: The nodes with a new or changed bundle.
  returned: success
  type: list
  elements: str
removed:
  description: The nodes whose bundles were removed.
  returned: success
  type: list
  elements: str
withheld:
  description: The nodes whose bundles would be new or changed, and are not written, because they are not proven.
  returned: success
  type: list
  elements: str
others:
  description: The nodes with a bundle in the store that are not in O(nodes).
  returned: success
  type: list
  elements: str
bundles:
  description: The header of each bundle, by node.
  returned: success
  type: dict
  sample: {bm01: {node: bm01, ek: 5d0c..., digest: 9a31...}}
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identities
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import IDENTITY, Store
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.policy import public_key, secrets_policy

SECRET = {
    "path": {"type": "str", "required": True},
    "content": {"type": "str", "required": True, "no_log": True},
    "mode": {"type": "str", "default": "0600"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
NODE = {
    "name": {"type": "str", "required": True},
    "ek": {"type": "str", "required": True},
    # The existence of secrets need not be hidden; their contents have no_log.
    "secrets": {"type": "list", "elements": "dict", "required": True, "no_log": False, "options": SECRET},
    "proven": {"type": "bool", "default": True},
    "measured": {"type": "bool", "default": False},
}


def text(bundles: Mapping[str, Mapping[str, str] | str | None]) -> str:
    """Return the lines of a diff."""
    return "".join(f"{name}: {json.dumps(bundle)}\n" for name, bundle in sorted(bundles.items()))


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "nodes": {"type": "list", "elements": "dict", "required": True, "options": NODE},
            "removed": {"type": "list", "elements": "str", "default": []},
            "boot_certificate": {"type": "path"},
            **sign.OPTIONS,
        },
        supports_check_mode=True,
    )
    params = module.params
    store = Store(params["store"])

    def work() -> dict[str, Any]:
        certificate = params["boot_certificate"]
        policy = secrets_policy(public_key(Path(certificate))) if certificate else b""
        nodes = identities.read_nodes(params["nodes"], policy)
        signer = sign.Signer.of_options(params)
        change = identities.ensure(store, nodes, signer, module.check_mode, params["removed"])
        folder = store.place(IDENTITY)
        # A bundle with the right digest and a wrong signature, or without its public host key, shows no difference.
        forged = [name for name in change.written if change.before.get(name) == change.after[name]]
        before = {**change.before, **dict.fromkeys(forged, "not signed by this key, or without the public host key")}
        untouched = [name for name in (*change.others, *change.withheld) if name in before]
        after = {**{name: before[name] for name in untouched}, **change.after}
        return {
            "changed": bool(change.written or change.removed),
            "written": list(change.written),
            "removed": list(change.removed),
            "others": list(change.others),
            "withheld": list(change.withheld),
            "bundles": change.after,
            "diff": {"before_header": folder, "after_header": folder, "before": text(before), "after": text(after)},
        }

    finish(module, work)


if __name__ == "__main__":
    main()
