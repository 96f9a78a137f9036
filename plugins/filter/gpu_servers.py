# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose the GPU servers of a play by their backend and by the result of their comparison."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_servers
short_description: Choose GPU servers by backend, and by whether a role has something to do on them
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
      - The variables of all hosts, among them C(gpu_vm_backend) and C(__gpu_server_compared), the result of
        M(sailloft.fleet.gpu_server_compare), if a play of this run has it.
      - A host without a result has something to do.
    type: dict
    required: true
  backend:
    description: Only servers that are reached this way.
    type: str
    choices: [libvirt, vsphere]
  role:
    description: The role of O(held).
    type: str
    choices: [gpu_host, gpu_vm]
  held:
    description: Only servers on which the role has nothing to do (true), or something (false).
    type: bool
"""

EXAMPLES = r"""
hosts: "{{ names | sailloft.fleet.gpu_servers(hostvars | default({}), role='gpu_host', held=false) }}"
vars:
  names: "{{ groups.gpu_hosts | default([]) }}"
"""

RETURN = r"""
_value:
  description: Names, or C(all:!all) if there are none.
  type: list
  elements: str
"""

from collections.abc import Mapping
from typing import Any

NOBODY = ["all:!all"]


def gpu_servers(
    names: list[str],
    hostvars: Mapping[str, Any],
    backend: str | None = None,
    role: str | None = None,
    held: bool | None = None,
) -> list[str]:
    """Return the names of the chosen servers."""
    chosen = []
    for name in names:
        of_host = hostvars.get(name, {})
        if backend is not None and of_host.get("gpu_vm_backend", "libvirt") != backend:
            continue
        compared = of_host.get("__gpu_server_compared") or {}
        if role is not None and bool((compared.get("held") or {}).get(role)) != held:
            continue
        chosen.append(name)
    return chosen or NOBODY


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_servers": gpu_servers}
