# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the filters of nodes share."""

from __future__ import annotations


class ModuleDocFragment:
    """The input: names of nodes, and the variables of all hosts."""

    DOCUMENTATION = r"""
author:
  - The Sailloft maintainers (@sailloft)
options:
  _input:
    description: The names of the nodes.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
"""
