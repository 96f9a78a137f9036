# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose the GPU servers whose virtual machines must be compared, with or without an earlier run of gpu_hosts.yml."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_servers_to_compare
short_description: Choose GPU servers whose virtual machines were not compared, or were compared too long ago
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - For C(hosts) of a play, in the order of the inventory. An empty result is the pattern that matches no host.
  - If an earlier play of the run had something to do on a server, which may have taken hours, the others are
    compared again. That server itself is not, since its virtual machines are converged in any case.
options:
  _input:
    description: The names of the servers.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, among them C(gpu_vm_backend) and C(__gpu_server_compared), the result of
        M(sailloft.fleet.gpu_server_compare), if an earlier play of this run has it.
    type: dict
    required: true
"""

EXAMPLES = r"""
hosts: "{{ groups.gpu_hosts | default([]) | sailloft.fleet.gpu_servers_to_compare(hostvars | default({})) }}"
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


def to_compare(names: list[str], hostvars: Mapping[str, Any]) -> list[str]:
    """Return the names of the chosen servers."""
    held: dict[str, bool | None] = {}  # None: the server was not compared
    for name in names:
        of_host = hostvars.get(name, {})
        of_roles = (of_host.get("__gpu_server_compared") or {}).get("held") or {}
        held[name] = of_roles.get("gpu_host")
        if held[name] is False and of_host.get("gpu_vm_backend", "libvirt") != "libvirt":
            held[name] = True  # the roles change only hosts with libvirt
    touched = False in held.values()
    chosen = [name for name in names if held[name] is None or (held[name] and touched)]
    return chosen or NOBODY


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_servers_to_compare": to_compare}
