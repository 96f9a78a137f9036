#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The signed statement of what nodes may run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_statement
short_description: Sign the statement of the images that nodes may run
version_added: 0.1.0
description:
  - Writes C(nodes/statement) in the store of the host that signs, and returns it for the boot servers
    (M(sailloft.fleet.node_boot_scripts)). It is one file for all nodes with one signature, a sequence that grows with
    each change, and an expiry. It has each node's name, image, NICs, servers, URL for reports, and the digest of its
    own files.
  - A first stage boots only what a valid statement says, and with a TPM none that is older than one it has seen.
  - The lines of nodes that are not in O(nodes) stay. Nothing changes if all lines are the same and two thirds of the
    validity are left; after that, a run renews the statement.
  - It refuses to sign if this host's clock is before the last statement or agrees with that of no boot server, if a
    boot server has a later statement than this host or lacks an image, if another key signed the last one, and if the
    boot servers' channels differ.
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.booted_nodes, sailloft.fleet.signer]
options:
  store:
    description: The store of the host that signs, which keeps the last statement. It may be a boot server's.
    type: path
    required: true
  stores:
    description: The boot servers' stores, the results of M(sailloft.fleet.node_image_store) in a loop over their hosts.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: The boot server.
        type: str
        required: true
      channels:
        description: Its channels.
        type: list
        elements: dict
        required: true
      images:
        description: Its images, each with its digest.
        type: list
        elements: dict
        required: true
      files:
        description: The digests of the nodes' files that it has.
        type: list
        elements: str
        required: true
      statement:
        description: The sequence of its statement, 0 for none.
        type: int
        required: true
      now_s:
        description: Its clock, in seconds since 1970.
        type: int
        required: true
  files:
    description:
      - The nodes' own files, by node. With names in O(nodes), those of their C(node_boot_files).
      - A text has one line for each file, with mode, owner, group, path, and base64 of the content (V(-) if empty).
    type: dict
    default: {}
  promoted:
    description:
      - The digests that channels will name, by channel. The statement is signed, and given to all boot servers, before
        they are promoted, and then nodes' scripts change.
      - For an hour, a node whose image changes may also boot the one before, of which it may have the kernel already.
    type: dict
    default: {}
  days:
    description: The validity of a new statement in days.
    type: int
    default: 90
  reissue:
    description:
      - Sign a new statement in any case, though the last one has a later time, was signed with another key or is not on
        this host. Its sequence follows the highest that this host and the boot servers have. Without a last statement
        of this key, only O(nodes) are in it.
    type: bool
    default: false
requirements: [minisign]
"""

EXAMPLES = r"""
- name: State what the nodes may run
  sailloft.fleet.node_boot_statement:
    store: /srv/sailloft
    signing_key: /etc/sailloft/image.key
    public_key: /etc/sailloft/image.pub
    stores: "{{ stores.results }}" # of node_image_store, delegated to each boot server in a loop
    nodes:
      - {name: node01, mac: "52:54:00:aa:bb:01", channel: stable, servers: [http://10.9.0.1]}
  delegate_to: build01
"""

RETURN = r"""
text:
  description: The file, with its signature; empty in check mode if it would change.
  returned: success
  type: str
sequence:
  description: The statement's sequence.
  returned: success
  type: int
files:
  description: The nodes' own files that a boot server lacks.
  returned: success
  type: list
  elements: str
issued:
  description: When it was issued, in UTC.
  returned: success
  type: str
  sample: "2026-11-28T01:00:00Z"
expires:
  description: When it expires, in UTC.
  returned: success
  type: str
nodes:
  description: The number of nodes in it.
  returned: success
  type: int
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue, node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store


def main() -> None:
    """Run as an Ansible module."""
    served = {
        "host": {"type": "str", "required": True},
        "channels": {"type": "list", "elements": "dict", "required": True},
        "images": {"type": "list", "elements": "dict", "required": True},
        "files": {"type": "list", "elements": "str", "required": True},
        "statement": {"type": "int", "required": True},
        "now_s": {"type": "int", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "stores": {"type": "list", "elements": "dict", "required": True, "options": served},
            **sign.OPTIONS,
            "days": {"type": "int", "default": 90},
            "reissue": {"type": "bool", "default": False},
            "promoted": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            **node_scripts.OPTIONS,
        },
        supports_check_mode=True,
    )
    params = module.params
    store = Store(params["store"])

    def work() -> dict[str, Any]:
        signer = sign.Signer.of_options(params)
        names = ("nodes", "removed", "channels_to_come", "promoted", "files")
        terms = issue.Terms(params["days"], int(time.time()), params["reissue"])
        request = issue.StatementRequest(**{name: params[name] for name in names})
        change = issue.ensure(store, request, params["stores"], signer, terms, module.check_mode)
        before, after = (statement.split(data)[0].decode() if data else "" for data in (change.before, change.after))
        path = statement.path_of(store)
        return {
            "changed": change.changed,
            "text": "" if change.changed and module.check_mode else change.after.decode(),
            "sequence": change.statement.sequence,
            "issued": change.statement.issued,
            "expires": change.statement.expires,
            "files": list(change.files),
            "nodes": len(change.statement.nodes),
            "diff": [
                {"before_header": path, "after_header": path, "before": before, "after": after},
                *change.diffs,
            ],
        }

    finish(module, work)


if __name__ == "__main__":
    main()
