#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Channels of a store of images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_channel
short_description: Point a channel to an image, or back to the previous one
version_added: 0.1.0
description:
  - A channel is a name, such as C(stable), that nodes follow. It points to one image of a store by its digest. A node
    boots the image to which its channel points at that time.
  - A channel is one file, C(channels/NAME.ipxe) in the store, which iPXE executes. It is replaced atomically, so that a
    node boots the old image or the new one, even if the run is killed.
  - No node is rebooted.
  - It fails while another run holds the channel (M(sailloft.fleet.node_boot_hold)).
extends_documentation_fragment:
  - sailloft.fleet.node_image
options:
  channel:
    description: The channel's name, in lower-case letters, digits, C(.), C(_) and C(-).
    type: str
    required: true
  state:
    description:
      - V(promoted) points the channel to O(digest), and creates the channel if it is missing. The previous digest is
        added to its history, which keeps the last ten.
      - V(rolled_back) points the channel to the previous digest. With O(digest), the image to leave, it does nothing if
        the channel does not point to that image now, so that the task can be repeated. Without O(digest), every run
        goes back by one image.
      - V(absent) removes the channel. It fails while a node's script in C(nodes/) follows it.
    type: str
    choices: [promoted, rolled_back, absent]
    default: promoted
  digest:
    description:
      - The image, by its full digest of 64 hexadecimal digits.
      - With O(state=promoted), which requires it, the new image; the store must have all of its blobs. With
        O(state=rolled_back), the image to leave.
    type: str
  hold:
    description: The name of this run's hold of M(sailloft.fleet.node_boot_hold); empty for none.
    type: str
    default: ""
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Shows how the channel's file changes.
    support: full
seealso:
  - module: sailloft.fleet.node_image_store
"""

EXAMPLES = r"""
- name: Let nodes that follow the channel canary boot this image
  sailloft.fleet.node_image_channel:
    store: /srv/sailloft
    channel: canary
    digest: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

- name: Return to what stable named before that image
  sailloft.fleet.node_image_channel:
    store: /srv/sailloft
    channel: stable
    state: rolled_back
    digest: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

- name: Remove a channel
  sailloft.fleet.node_image_channel:
    store: /srv/sailloft
    channel: canary
    state: absent
"""

RETURN = r"""
digest:
  description: The image to which the channel points; null if the channel is absent.
  returned: success
  type: str
history:
  description: Its earlier digests, the latest first.
  returned: success
  type: list
  elements: str
previous:
  description: Its image before this run; null if the channel did not exist.
  returned: success
  type: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store


def change(
    store: Store, params: Mapping[str, Any], check: bool
) -> tuple[channels.Channel | None, channels.Channel | None]:
    """Return the channel before and after the change; None if there is no channel. Raises ImageError."""
    name, digest, hold = params["channel"], params["digest"], params["hold"]
    if params["state"] == "promoted":
        return channels.promote(store, name, digest, check, hold)
    if params["state"] == "rolled_back":
        return channels.rollback(store, name, digest, check, hold)
    return channels.remove(store, name, check, hold), None


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "channel": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["promoted", "rolled_back", "absent"], "default": "promoted"},
            "digest": {"type": "str"},
            "hold": {"type": "str", "default": ""},
        },
        required_if=[("state", "promoted", ["digest"])],
        supports_check_mode=True,
    )
    store = Store(module.params["store"])

    def work() -> dict[str, Any]:
        old, new = change(store, module.params, module.check_mode)
        path = channels.path_of(store, module.params["channel"])
        return {
            "changed": old != new,
            "digest": new.digest if new else None,
            "history": list(new.history) if new else [],
            "previous": old.digest if old else None,
            "diff": {
                "before_header": path,
                "after_header": path,
                "before": channels.render(old).decode() if old else "",
                "after": channels.render(new).decode() if new else "",
            },
        }

    finish(module, work)


if __name__ == "__main__":
    main()
