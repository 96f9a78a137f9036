#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""List a store of images and collect garbage in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_store
short_description: List the contents of a store of images, and remove unused images
version_added: 0.1.0
description:
  - Returns all images of a store with their sizes and the references to them, and its channels.
  - With O(collected), removes the images to which no channel, no node's script, no last build and no digest of O(keep)
    refers, and the layers, kernels and other blobs that no remaining image has. A blob that two images share is
    kept as long as one of them.
  - If a run is killed, the next one completes it; until then, no image lacks a blob.
  - Do not run it while images are copied into the store by other programs than the builder, such as C(rsync). They copy
    blobs first, before anything refers to these.
extends_documentation_fragment:
  - sailloft.fleet.node_image
options:
  collected:
    description:
      - Remove unused images. This fails if a channel, or the manifest of an image that stays, cannot be read.
      - It also fails while another run holds anything in the store (M(sailloft.fleet.node_boot_hold)).
    type: bool
    default: false
  history:
    description:
      - The number of earlier images of each channel to keep. A channel can be rolled back as many times.
    type: int
    default: 3
  keep:
    description:
      - Digests of images that are always kept, such as those that nodes report. The store does not know the images of
        the nodes; a node that follows a channel runs the image to which the channel pointed when the node booted.
    type: list
    elements: str
    default: []
  hold:
    description: The name of this run's hold of M(sailloft.fleet.node_boot_hold); empty for none.
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
  description: The images, by digest; in check mode, those that would remain.
  returned: success
  type: list
  elements: dict
  contains:
    digest:
      description: Its digest.
      type: str
    name:
      description: Its name; null if its manifest cannot be read.
      type: str
    layers:
      description: Names of its layers, the lowest first.
      type: list
      elements: str
    kernel:
      description: The version of its kernel.
      type: str
    size_bytes:
      description: The size of all its blobs in bytes, including shared ones.
      type: int
    knows:
      description: The formats by which its first stage boots, beside manifests.
      type: list
      elements: str
    signed_kernel:
      description: Whether it has a program that firmware with Secure Boot starts.
      type: bool
    kept_for:
      description: The references to it. If this is empty, O(collected) removes the image.
      type: list
      elements: str
      sample: [channel stable, history of channel canary, node 52-54-00-12-34-56, last build of gpu-node, keep]
    problem:
      description: The damage and the remedy; null if the image is complete.
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
      description: The image to which it points.
      type: str
    history:
      description: Its earlier images, the latest first.
      type: list
      elements: str
statement:
  description: The sequence of the store's statement (M(sailloft.fleet.node_boot_statement)); 0 if it has none.
  returned: success
  type: int
files:
  description: The digests of the nodes' own files (C(node_boot_files)) that it has.
  returned: success
  type: list
  elements: str
now_s:
  description: The host's clock, in seconds since 1970.
  returned: success
  type: int
missing:
  description: Images that something refers to and the store does not have, each with digest and kept_for.
  returned: success
  type: list
  elements: dict
blobs:
  description: The number of blobs.
  returned: success
  type: int
size_bytes:
  description: The size of all blobs in bytes.
  returned: success
  type: int
removed:
  description: The paths that were removed from the store, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [blobs/0b7bb05f0d2a2f3bd2d6a1a0f2b66ea07a4f4d1e7b6a9c2cf6ad1f1f1b5c9f10]
freed_bytes:
  description: The size of the removed files in bytes.
  returned: success
  type: int
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import garbage, node_files, statement
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
        old_paths = garbage.paths(store)
        reasons = garbage.reasons(store, params["keep"], params["history"])
        unused = garbage.Garbage((), 0)
        if params["collected"]:
            unused = (
                garbage.garbage(store, params["keep"], params["history"])
                if module.check_mode
                else garbage.collect(store, params["keep"], params["history"], params["hold"])
            )
        new_paths = [path for path in old_paths if path not in unused.paths]
        return {
            "changed": bool(unused.paths),
            "removed": list(unused.paths),
            "freed_bytes": unused.size_bytes,
            "diff": {
                "before_header": store.path,
                "after_header": store.path,
                "before": "".join(f"{path}\n" for path in old_paths),
                "after": "".join(f"{path}\n" for path in new_paths),
            },
            **inventory(store, reasons, unused),
            "statement": statement.sequence_in(store),
            "files": node_files.present(store),
            "now_s": int(time.time()),
        }

    finish(module, work)


if __name__ == "__main__":
    main()
