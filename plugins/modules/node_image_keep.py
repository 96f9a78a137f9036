#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""List the images to keep when the others are removed from a site's stores."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_keep
short_description: Decide which images are kept when unused images are removed
version_added: 0.1.0
description:
  - Returns the images that a site still needs - those that its nodes run, that the inventory pins, and that channels
    with their history, nodes' scripts and last builds refer to in any of its stores. The result is the value of
    O(sailloft.fleet.node_image_store#module:keep).
  - A node that did not report its image could run any image. Therefore the module fails unless O(without) contains it.
  - Runs on the controller with the results of other modules; it contacts no host.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  nodes:
    description:
      - All nodes of the site. A list of names stands for what the role P(sailloft.fleet.node_boot#role) has read from
        each.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      running:
        description: Digest of the image that it runs; empty for none.
        type: str
        default: ""
      silence:
        description: Why it did not report its image; empty if it did.
        type: str
        default: ""
      pinned:
        description: Digest of its image in the inventory; empty for none.
        type: str
        default: ""
  stores:
    description:
      - All stores of the site. The results of a loop of M(sailloft.fleet.node_image_store) over stores, each with
        C(host), are stores too.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: The host that has it.
        type: str
        required: true
      images:
        description: Its images, as M(sailloft.fleet.node_image_store) returns them.
        type: list
        elements: dict
        required: true
      missing:
        description: The missing images, as M(sailloft.fleet.node_image_store) returns them.
        type: list
        elements: dict
        default: []
  planned:
    description: Digests of images that will be rolled out. They are kept.
    type: list
    elements: str
    default: []
  without:
    description: Names of nodes that need not report their image. The images that the inventory pins for them are kept.
    type: list
    elements: str
    default: []
seealso:
  - module: sailloft.fleet.node_image_store
"""

EXAMPLES = r"""
- name: Decide which images stay
  sailloft.fleet.node_image_keep:
    nodes:
      - {name: bm01, running: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae}
      - {name: bm02, silence: "connection timed out"}
    stores:
      - {host: boot01, images: "{{ store.images }}", missing: "{{ store.missing }}"}
    without: [bm02]
  delegate_to: localhost
"""

RETURN = r"""
keep:
  description: Digests of the images to keep, sorted.
  returned: success
  type: list
  elements: str
table:
  description: The images to keep with the reasons, one line each.
  returned: success
  type: list
  elements: str
  sample: ["stays 2c26b46b68ff gpu-node: channel stable (boot01), it runs on bm01"]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import retained


def result(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result for its arguments. Raises ImageError."""
    nodes = [retained.NodeAnswer(**node) for node in params["nodes"]]
    images = [
        retained.Named(store["host"], image["digest"], image.get("name") or "", tuple(image["kept_for"]))
        for store in params["stores"]
        for image in [*store["images"], *store["missing"]]
    ]
    images += [
        retained.Named("the inventory", digest, "", ("node_boot_rollout_image",)) for digest in params["planned"]
    ]
    reasons = retained.kept(nodes, images, params["without"])
    return {"keep": list(reasons), "table": retained.table(reasons, images)}


def main() -> None:
    """Run as an Ansible module."""
    node = {name: {"type": "str", "default": ""} for name in ("running", "silence", "pinned")}
    store = {
        "host": {"type": "str", "required": True},
        "images": {"type": "list", "elements": "dict", "required": True},
        "missing": {"type": "list", "elements": "dict", "default": []},
    }
    module = AnsibleModule(
        argument_spec={
            "nodes": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {"name": {"type": "str", "required": True}, **node},
            },
            "stores": {"type": "list", "elements": "dict", "required": True, "options": store},
            "planned": {"type": "list", "elements": "str", "default": []},
            "without": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: result(module.params))


if __name__ == "__main__":
    main()
