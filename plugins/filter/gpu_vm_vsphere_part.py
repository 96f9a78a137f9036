# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Extract the part of one inventory host from the vsphere modules' results, which are for whole clusters."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_vm_vsphere_part
short_description: Return the virtual machines of one host of the inventory
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - The role P(sailloft.fleet.gpu_vm#role) makes one call for each cluster, over the items of
    P(sailloft.fleet.gpu_vm_vsphere#filter). This filter returns the results for one host's virtual machines.
options:
  _input:
    description: The results of the loop.
    type: list
    elements: dict
    required: true
  host:
    description: The host's name in the inventory.
    type: str
    required: true
  domains:
    description: The host's C(gpu_vm_domains).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the virtual machines of this host
  ansible.builtin.debug:
    msg: "{{ found.results | sailloft.fleet.gpu_vm_vsphere_part(inventory_hostname, gpu_vm_domains) }}"
"""

RETURN = r"""
_value:
  description:
    - C(domains), C(restart_required), and C(hosts), the ESXi hosts of the virtual machines with their topologies, if
      the module returned any.
  type: dict
"""

from typing import Any


def part(results: list[dict[str, Any]], host: str, domains: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the part of the results that belongs to the virtual machines ``domains`` of an inventory host."""
    names = [domain.get("name") for domain in domains]
    mine = [result for result in results if host in result["item"]["inventory_hosts"]]
    rows = [row for result in mine for row in result.get("domains", []) if row["name"] in names]
    on = {row.get("host") for row in rows}
    return {
        "domains": rows,
        "hosts": [row for result in mine for row in result.get("hosts", []) if row["name"] in on],
        "restart_required": any(row.get("restart_required") for row in rows),
    }


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """Return the filter."""
        return {"gpu_vm_vsphere_part": part}
