#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""List a store of images and collect garbage in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_store
short_description: List the contents of a store of images, and remove what nothing names
version_added: 0.1.0
description:
  - Returns all images of a store with their sizes and why they stay, and its channels.
  - With O(collected), removes the images that no channel, no node's script, no last build and no digest of O(keep)
    names, and the layers, kernels and other blobs that no remaining image has. A blob that two images share stays as
    long as one of them.
  - A run that is killed is completed by the next one; in between no image is without its blobs.
  - Do not run it while images are copied into the store by other means than the builder, such as C(rsync). Their
    blobs come first, and nothing names these yet.
extends_documentation_fragment:
  - sailloft.fleet.node_image
options:
  collected:
    description:
      - Remove what nothing names. Refused where a channel, or the manifest of an image that stays, cannot be read.
      - Refused too while another run holds anything in the store (M(sailloft.fleet.node_boot_hold)).
    type: bool
    default: false
  history:
    description:
      - How many of the images that each channel named before stay beside the one that it names, which is how often it
        can be rolled back.
    type: int
    default: 3
  keep:
    description:
      - Digests of images that stay whatever names them, such as those that nodes report to run. The store does not know
        what nodes run; a node that follows a channel runs what this named when the node booted.
    type: list
    elements: str
    default: []
  hold:
    description: The hold of this run, as M(sailloft.fleet.node_boot_hold) took it; empty for none.
    type: str
    default: ""
attributes:
  check_mode:
    description: Can run in check mode and return just what would be removed.
    support: full
  diff_mode:
    description: Shows the images and blobs before and after.
    support: full
seealso:
  - module: sailloft.fleet.node_image_channel
"""

EXAMPLES = r"""
- name: Read the images and channels of the store
  sailloft.fleet.node_image_store:
    store: /srv/sailloft
  register: store

- name: Remove what no channel names and no node runs
  sailloft.fleet.node_image_store:
    store: /srv/sailloft
    collected: true
    history: 1
    keep: "{{ running_digests }}"
"""

RETURN = r"""
images:
  description: The images, by digest; in check mode those that would be left.
  returned: success
  type: list
  elements: dict
  contains:
    digest:
      description: Its digest.
      type: str
    name:
      description: Its name; null where its manifest cannot be read.
      type: str
    layers:
      description: Names of its layers, the lowest first.
      type: list
      elements: str
    kernel:
      description: The version of its kernel.
      type: str
    size_bytes:
      description: The bytes of all its blobs, with those that it shares.
      type: int
    kept_for:
      description: What names it; nothing does where this is empty, and O(collected) removes it.
      type: list
      elements: str
      sample: [channel stable, history of channel canary, node 52-54-00-12-34-56, last build of gpu-node, keep]
    problem:
      description: What is damaged and what to do; null where all is there.
      type: str
channels:
  description: The channels, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    digest:
      description: The image that it names.
      type: str
    history:
      description: What it named before, the latest first.
      type: list
      elements: str
missing:
  description: Images that something names and the store has not, each with digest and kept_for.
  returned: success
  type: list
  elements: dict
blobs:
  description: How many blobs there are.
  returned: success
  type: int
size_bytes:
  description: The bytes of all blobs.
  returned: success
  type: int
removed:
  description: Paths in the store of what was removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [blobs/0b7bb05f0d2a2f3bd2d6a1a0f2b66ea07a4f4d1e7b6a9c2cf6ad1f1f1b5c9f10]
freed_bytes:
  description: The bytes of what was removed.
  returned: success
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.given.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import garbage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.contents import inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "collected": {"type": "bool", "default": False},
            "history": {"type": "int", "default": 3},
            "keep": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    store = Store(params["store"])

    def work() -> dict[str, Any]:
        store.require()
        before = garbage.paths(store)
        reasons = garbage.reasons(store, params["keep"], params["history"])
        found = garbage.Garbage((), 0)
        if params["collected"]:
            found = (
                garbage.garbage(store, params["keep"], params["history"])
                if module.check_mode
                else garbage.collect(store, params["keep"], params["history"], params["hold"])
            )
        after = [path for path in before if path not in found.paths]
        return {
            "changed": bool(found.paths),
            "removed": list(found.paths),
            "freed_bytes": found.size_bytes,
            "diff": {
                "before_header": store.path,
                "after_header": store.path,
                "before": "".join(f"{path}\n" for path in before),
                "after": "".join(f"{path}\n" for path in after),
            },
            **inventory(store, reasons, found),
        }

    finish(module, work)


if __name__ == "__main__":
    main()
