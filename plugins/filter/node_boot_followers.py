# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the nodes that follow a channel."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_followers
short_description: List the nodes that follow a channel
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - Reads C(node_boot_image) of each node.
options:
  channel:
    description: The name of the channel.
    type: str
    required: true
"""

EXAMPLES = r"""
nodes: "{{ groups.nodes | sailloft.fleet.node_boot_followers(hostvars, 'stable') }}"
"""

RETURN = r"""
_value:
  description: The names of the nodes that follow the channel, in the order of the input.
  type: list
  elements: str
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.action.node_boot_scripts import DEFAULT_IMAGE


def node_boot_followers(names: Iterable[str], hostvars: Mapping[str, Any], channel: str) -> list[str]:
    """Return the nodes that follow the channel. Raises AnsibleFilterError if there is none."""
    channels = {}
    for name in names:
        image = hostvars[name].get("node_boot_image", DEFAULT_IMAGE)
        if isinstance(image, Mapping) and image.get("channel"):
            channels[name] = str(image["channel"])
    followers = [name for name in channels if channels[name] == channel]
    if not followers:
        followed = ", ".join(sorted(set(channels.values()))) or "no channel"
        raise AnsibleFilterError(
            f"channel {channel!r}: no node of the inventory follows it, they follow {followed}; correct "
            "node_boot_rollout_channel, or the nodes' node_boot_image"
        )
    return followers


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_followers": node_boot_followers}
