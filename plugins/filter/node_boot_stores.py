# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert the results of reading stores to the form of the modules node_image_keep and node_image_rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_stores
short_description: Collect the contents of stores with the names of their hosts
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads the results of a task of M(sailloft.fleet.node_image_store) that has a loop over stores, each with C(host).
options:
  _input:
    description: The results of the task.
    type: list
    elements: dict
    required: true
  keys:
    description: The parts of the contents, each an argument, such as C(images).
    type: str
    required: true
"""

EXAMPLES = r"""
stores: "{{ read.results | sailloft.fleet.node_boot_stores('images', 'missing') }}"
"""

RETURN = r"""
_value:
  description: The stores, each with C(host) and the parts.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any


def node_boot_stores(results: Iterable[Mapping[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Return the stores, in the order of the results."""
    return [{"host": result["item"]["host"], **{key: result[key] for key in keys}} for result in results]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_stores": node_boot_stores}
