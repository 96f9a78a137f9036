# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the server of a virtual machine in the inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_vm_server
short_description: Find the server of a virtual machine in the inventory
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - The server whose C(gpu_vm_domains) has the virtual machine, for C(hosts) of a play.
options:
  _input:
    description: The names of the servers.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts. Without any, the result is the pattern that matches no host.
    type: dict
    required: true
  vm:
    description: The name of the virtual machine.
    type: str
    required: true
  to:
    description: The server to which it is to follow.
    type: str
    required: true
"""

EXAMPLES = r"""
hosts: "{{ groups.gpu_hosts | sailloft.fleet.gpu_vm_server(hostvars | default({}), vm='train-01', to='gpu5') }}"
"""

RETURN = r"""
_value:
  description: The name of its server.
  type: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def gpu_vm_server(names: list[str], hostvars: Mapping[str, Any], vm: str, to: str) -> str:
    """Return the name of the server. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import nearest

    if not hostvars:
        return "all:!all"
    if not vm or not to:
        raise AnsibleFilterError("no virtual machine and no server are named; add -e vm=NAME -e to=SERVER")
    servers: dict[str, list[str]] = {}
    for name in names:
        for domain in hostvars[name].get("gpu_vm_domains") or []:
            servers.setdefault(domain.get("name", ""), []).append(name)
    if vm not in servers:
        match = nearest(vm, servers)
        remedy = (
            f"did you mean {match}?" if match else "a virtual machine with a whole server (gpu_vm_whole_host) stays"
        )
        raise AnsibleFilterError(f"{vm}: no server has it in gpu_vm_domains; {remedy}")
    if len(servers[vm]) > 1:
        raise AnsibleFilterError(f"{vm}: {' and '.join(servers[vm])} have it in gpu_vm_domains; leave it at one")
    (server,) = servers[vm]
    if to not in names:
        raise AnsibleFilterError(f"{to}: it is not in the group gpu_hosts; name a server of it")
    if to == server:
        raise AnsibleFilterError(f"{vm}: {to} is its server; name another one, or start it with gpu_vms.yml")
    backends = {name: hostvars[name].get("gpu_vm_backend") or "libvirt" for name in (server, to)}
    for name, backend in backends.items():
        if backend != "libvirt":
            raise AnsibleFilterError(f"{name}: its backend is {backend}, whose own high availability restarts it")
    return server


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_vm_server": gpu_vm_server}
