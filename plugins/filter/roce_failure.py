# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Report the cause of a failed task."""

from __future__ import annotations

DOCUMENTATION = r"""
name: roce_failure
short_description: Return the error of a failed task
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns the message and the error output of a failed task, or of each failed item of its loop, in one line.
options:
  _input:
    description: The result of the task.
    type: dict
    required: true
"""

EXAMPLES = r"""
msg: "{{ inventory_hostname }}: {{ ansible_failed_result | sailloft.fleet.roce_failure }}"
"""

RETURN = r"""
_value:
  description: The cause.
  type: str
"""

from collections.abc import Mapping
from typing import Any


def roce_failure(result: Mapping[str, Any]) -> str:
    """Return the cause in one line."""
    answers = [answer for answer in result.get("results") or [result] if answer.get("failed")]
    causes = [f"{answer.get('msg') or ''} {answer.get('stderr') or ''}".split() for answer in answers]
    return "; ".join(" ".join(parts) for parts in causes if parts) or "see its output"


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"roce_failure": roce_failure}
