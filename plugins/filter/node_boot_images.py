# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Name the image that each node is to run."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_images
short_description: Name the image that each node is to run
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - Reads C(node_boot_image) of each node, and what its channel names in the stores. Fails if they do not agree.
options:
  stores:
    description: The stores of the boot servers, as results of M(sailloft.fleet.node_image_store).
    type: list
    elements: dict
    required: true
  digest:
    description: The image of all nodes, instead.
    type: str
    default: ""
"""

EXAMPLES = r"""
rows: "{{ groups.nodes | sailloft.fleet.node_boot_images(hostvars, stores.results) }}"
"""

RETURN = r"""
_value:
  description: >-
    The C(image) of each node by its name, the C(channel) that names it, and whether its boots are C(measured); for
    M(sailloft.fleet.node_boot_fleet).
  type: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.action.node_boot_scripts import image_of


def node_boot_images(
    names: Iterable[str], hostvars: Mapping[str, Any], stores: Iterable[Mapping[str, Any]], digest: str = ""
) -> dict[str, dict[str, Any]]:
    """Return the image of each node. Raises AnsibleFilterError if the stores do not name one for a channel."""
    digests_by_channel: dict[str, list[str]] = {}
    for store in stores:
        for row in store["channels"]:
            digests_by_channel.setdefault(row["name"], []).append(row["digest"])
    rows = {}
    for name in names:
        variables = hostvars[name]
        image = {"digest": digest} if digest else image_of(variables)
        channel = str(image.get("channel") or "")
        digests = sorted(set(digests_by_channel.get(channel, []))) if channel else [str(image["digest"])]
        if len(digests) != 1:
            raise AnsibleFilterError(
                f"{name}: the channel {channel} names {' and '.join(digests) or 'nothing'} on the boot servers; "
                "promote one image on all of them (playbooks/node_images.yml)"
            )
        measured = bool(variables.get("node_boot_secure_boot"))
        rows[name] = {"image": digests[0], "channel": channel, "measured": measured}
    return rows


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_images": node_boot_images}
