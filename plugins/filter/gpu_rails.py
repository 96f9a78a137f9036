# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the rails to measure between two nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_rails
short_description: Choose the NICs of two GPU nodes to measure against each other, each with its nearest GPU
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Pairs the RDMA devices of both nodes by number. If both have planned ports of InfiniBand, these HCAs are paired in
    their planned order; otherwise all RDMA devices in the order of their PCI addresses.
positional: server, ports
options:
  _input:
    description: RV(sailloft.fleet.host_topology_info#module:topology) of the node that sends.
    type: dict
    required: true
  server:
    description: The same for the node that receives.
    type: dict
    required: true
  ports:
    description: The planned ports of both nodes, C(site_ports) of the blueprint; first those of the node that sends.
    type: list
    elements: dict
"""

EXAMPLES = r"""
# [{number: 0, client: {device: mlx5_0, nic: "0000:18:00.0", gpu: "0000:1b:00.0"}, server: {...}}, ...]
rails: "{{ seen.topology | sailloft.fleet.gpu_rails(hostvars['node2'].seen.topology) }}"
"""

RETURN = r"""
_value:
  description: The rails.
  type: list
  elements: dict
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


def gpu_rails(
    client: Any,
    server: Any,
    ports: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the rails. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import rails
    from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved

    try:
        return rails.between(read_saved(client), read_saved(server), ports)
    except SailloftError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_rails": gpu_rails}
