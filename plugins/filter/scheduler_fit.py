# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge by the health of nodes which of them may take jobs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scheduler_fit
short_description: Judge by its health whether a node may take jobs
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - True only if the health is known, and without a fault, a person's drain or a maintenance.
options:
  _input:
    description: The result of M(sailloft.fleet.node_health_info), or an empty dictionary.
    type: dict
    required: true
"""

EXAMPLES = r"""
scheduler_proved: "{{ (node_health_read | default({})) | sailloft.fleet.scheduler_fit }}"
"""

RETURN = r"""
_value:
  description: Whether the node may take jobs.
  type: bool
"""

from collections.abc import Mapping
from typing import Any

# Each must be there and empty: what was not read does not hold.
REASONS = ("error", "faults", "drain", "maintenance")


def scheduler_fit(read: Mapping[str, Any]) -> bool:
    """Return True if the node may take jobs."""
    health = read.get("health") or {}
    return all(name in health and not health[name] for name in REASONS)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"scheduler_fit": scheduler_fit}
