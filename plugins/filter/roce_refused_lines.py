# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the lines of a change to a switch that the switch refused."""

from __future__ import annotations

DOCUMENTATION = r"""
name: roce_refused_lines
short_description: Find the lines of a change that a switch refused
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - EOS and Junos report the word that they refuse, not the line. This filter returns the lines with that word.
options:
  _input:
    description: The lines of the change.
    type: list
    elements: str
    required: true
  message:
    description: The switch's message.
    type: str
    required: true
"""

EXAMPLES = r"""
msg: "{{ lines | sailloft.fleet.roce_refused_lines(ansible_failed_result.msg) }}"
"""

RETURN = r"""
_value:
  description: A sentence with the lines; empty if the message names no word.
  type: str
"""

import re
from collections.abc import Iterable
from typing import Any

# EOS's eAPI: "Invalid input (at token 3: 'no-drop')". NETCONF (RFC 6241, appendix A): bad-element.
REFUSED_WORD = re.compile(r"at token \d+: '([^']+)'|<bad-element>\s*([^<]*?)\s*</bad-element>")


def roce_refused_lines(lines: Iterable[str], message: str) -> str:
    """Return the sentence."""
    match = REFUSED_WORD.search(message)
    word = match and (match[1] or match[2])
    return f"Lines that contain it: {'; '.join(line for line in lines if word in line)}." if word else ""


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"roce_refused_lines": roce_refused_lines}
