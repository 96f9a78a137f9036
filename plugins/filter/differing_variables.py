# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find variables that must be the same for all hosts and are not."""

from __future__ import annotations

DOCUMENTATION = r"""
name: differing_variables
short_description: Return a sentence about variables that differ between hosts
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - For variables that a task takes from one host and applies to all hosts, such as C(roce_policy).
  - A host without the variable differs from one that has it.
options:
  _input:
    description: The names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
  variables:
    description: The names of the variables.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
# "leaf3, leaf4: roce_policy differs from that of leaf1; ..."
msg: "{{ groups.roce_switches | sailloft.fleet.differing_variables(hostvars, ['roce_policy', 'roce_asics']) }}"
"""

RETURN = r"""
_value:
  description: The sentence about the first variable that differs; empty if none does.
  type: str
"""

from typing import Any


def differing_variables(names: Any, hostvars: Any, variables: list[str]) -> str:
    """Return the sentence about the first of ``variables`` that differs; empty if none does."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt

    of_hosts = [hostvars[name] for name in names]  # once, because Ansible collects a host's variables at each access
    for variable in variables:
        values = {name: of_host.get(variable) for name, of_host in zip(names, of_hosts)}
        first = next((name for name, value in values.items() if value is not None), None)
        differing = [name for name, value in values.items() if first is not None and value != values[first]]
        if differing:
            return (
                f"{excerpt(differing)}: {variable} differs from that of {first}; define it once for all of them, for "
                "example in group_vars/all.yml"
            )
    return ""


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"differing_variables": differing_variables}
