# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Collect one variable of several hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: roce_by_host
short_description: Collect one variable of several hosts by host
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns a variable of each host, or a part of it. A host without it is an error unless a default is given.
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
  path:
    description: The name of the variable, and the keys that lead to the part, separated by dots.
    type: str
    required: true
  default:
    description: The value for hosts without it.
    type: raw
"""

EXAMPLES = r"""
running: "{{ groups.roce_switches | sailloft.fleet.roce_by_host(hostvars, 'roce_switch_running') }}"
nics: "{{ groups.roce_hosts | sailloft.fleet.roce_by_host(hostvars, 'roce_host_read.nics') }}"
"""

RETURN = r"""
_value:
  description: The values by host, in the order of the names.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

REQUIRED: Any = object()


def roce_by_host(names: Any, hostvars: Any, path: str, default: Any = REQUIRED) -> dict[str, Any]:
    """Return the value at ``path`` of each host. Raises AnsibleFilterError for a host without it or a default."""
    return {name: _value(name, hostvars, path, default) for name in names}


def _value(name: str, hostvars: Any, path: str, default: Any) -> Any:
    if name not in hostvars:
        raise AnsibleFilterError(f"{name}: not in the inventory; correct the group")
    value = hostvars[name]
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            if default is REQUIRED:
                raise AnsibleFilterError(f"{name}: {path} is not set, because the host was not read; run again")
            return default
        value = value[key]
    return value


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"roce_by_host": roce_by_host}
