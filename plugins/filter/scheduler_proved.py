# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the nodes of a cluster that a run has proved."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scheduler_proved
short_description: List the nodes of a Slurm cluster that this run has proved
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Those that tasks_from C(read) of the role C(scheduler) has judged fit for jobs (C(scheduler_node_proved)). A node
    that the run has left out is none.
options:
  _input:
    description: The planned nodes by name, RV(sailloft.fleet.slurm_plan#module:nodes).
    type: dict
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
"""

EXAMPLES = r"""
proved: "{{ scheduler_planned.nodes | sailloft.fleet.scheduler_proved(hostvars) }}"
"""

RETURN = r"""
_value:
  description: Names.
  type: list
  elements: str
"""

from collections.abc import Iterable, Mapping
from typing import Any


def scheduler_proved(nodes: Iterable[str], hostvars: Mapping[str, Any]) -> list[str]:
    """Return the names of the proved nodes."""
    return [name for name in nodes if name in hostvars and hostvars[name].get("scheduler_node_proved") is True]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"scheduler_proved": scheduler_proved}
