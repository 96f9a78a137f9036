# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Gather the virtual machines of all ESXi hosts of a play, for one call per cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_vm_vsphere
short_description: Gather the virtual machines of ESXi hosts by cluster
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Returns one item for each login, cluster and request of the hosts, so that the role P(sailloft.fleet.gpu_vm#role)
    plans all of them with one login. The items have no password, which a loop would show.
  - Hosts without the request, those of another backend, are left out.
options:
  _input:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts. C(gpu_vm_vsphere) and C(gpu_vm_domains) of each are read.
    type: dict
    required: true
  request:
    description:
      - Name of the variable in which each host has its other requests, such as its state and the permissions. Hosts
        with different requests are different items.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Gather the virtual machines
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | sailloft.fleet.gpu_vm_vsphere(hostvars, '__gpu_vm_request') }}"
"""

RETURN = r"""
_value:
  description:
    - For each call, C(first), the host whose C(gpu_vm_vsphere) has the login, C(name), for messages, C(request),
      C(inventory_hosts), C(hosts), which are their names in vCenter, and C(domains), each with C(vsphere.host).
    - An empty C(vsphere.host) of a virtual machine stays empty, and the module chooses a host of the cluster.
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def gather(hosts: list[str], hostvars: Mapping[str, Any], request: str) -> list[dict[str, Any]]:
    """Return one item for each login, cluster and request, in the order of the hosts."""
    rows: list[dict[str, Any]] = []
    keys: list[tuple[Any, ...]] = []
    for host in hosts:
        if request not in hostvars[host]:
            continue
        site = hostvars[host].get("gpu_vm_vsphere") or {}
        # The key has the whole login, so that no host is used with another host's account or validate_certs.
        key = ({part: value for part, value in site.items() if part != "host"}, hostvars[host][request])
        if key not in keys:
            keys.append(key)
            parts = [str(site.get(part, "")) for part in ("hostname", "cluster")]
            name = " ".join(part for part in parts if part) or "vSphere"
            lists: dict[str, Any] = {"inventory_hosts": [], "hosts": [], "domains": []}
            rows.append({"first": host, "name": name, "request": hostvars[host][request], **lists})
        item = rows[keys.index(key)]
        item["inventory_hosts"].append(host)
        item["hosts"].append(site.get("host") or host)
        if hostvars[host].get("gpu_vm_whole_host") and not hostvars[host].get("gpu_vm_domains"):
            raise AnsibleFilterError(
                f"{host}: gpu_vm_whole_host is not for VMware vSphere; list the virtual machines in gpu_vm_domains"
            )
        for domain in hostvars[host].get("gpu_vm_domains") or []:
            settings = domain.get("vsphere") or {}
            if not isinstance(settings, Mapping):
                raise AnsibleFilterError(
                    f"{host}: gpu_vm_domains: {domain.get('name')}: vsphere {settings!r} is not a dictionary; write it "
                    "as name: value pairs"
                )
            item["domains"].append({**domain, "vsphere": {"host": site.get("host") or host, **settings}})
    return rows


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """Return the filter."""
        return {"gpu_vm_vsphere": gather}
