# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose the GPU servers of a play by the result of their comparison."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_servers
short_description: Choose GPU servers on which a role has something to do, or that are to be compared
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - For C(hosts) of a play, in the order of the inventory. An empty result is the pattern that matches no host.
options:
  _input:
    description: The names of the servers.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, among them C(__gpu_server_compared), the result of M(sailloft.fleet.gpu_host) with
        O(sailloft.fleet.gpu_host#module:compare), if a play of this run has it.
      - On a host without a result, the role has something to do.
    type: dict
    required: true
  role:
    description: The role.
    type: str
    choices: [gpu_host, gpu_vm]
    required: true
  to_compare:
    description: >-
      Choose instead the servers without a result, and those without a difference whose result is older than ten
      minutes, because other servers were changed or rebooted meanwhile.
    type: bool
    default: false
"""

EXAMPLES = r"""
hosts: "{{ groups.gpu_hosts | default([]) | sailloft.fleet.gpu_servers(hostvars | default({}), role='gpu_host') }}"
"""

RETURN = r"""
_value:
  description: Names, or C(all:!all) if there are none.
  type: list
  elements: str
"""

import time
from collections.abc import Mapping
from typing import Any

NOBODY = ["all:!all"]
FRESH_S = 600


def gpu_servers(names: list[str], hostvars: Mapping[str, Any], role: str, to_compare: bool = False) -> list[str]:
    """Return the names of the chosen servers."""
    results = {name: hostvars.get(name, {}).get("__gpu_server_compared") or {} for name in names}
    held_by_name = {name: (result.get("held") or {}).get(role) for name, result in results.items()}
    oldest = time.time() - FRESH_S
    if to_compare:
        chosen = [
            name
            for name in names
            if held_by_name[name] is None or (held_by_name[name] and results[name].get("time", 0) < oldest)
        ]
    else:
        chosen = [name for name in names if not held_by_name[name]]
    return chosen or NOBODY


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_servers": gpu_servers}
