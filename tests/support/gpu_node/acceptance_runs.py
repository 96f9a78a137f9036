# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up nodes of an acceptance, and runs of its tools."""

from __future__ import annotations

from typing import Any

import gpudirect_servers as servers

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import rails
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance.run import MEASURED
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


def board(purpose: str | None = None) -> Host:
    """Return an HGX board whose NICs have RDMA devices, with the ACS of the plan for ``purpose``."""
    host = servers.hgx()
    for number, nic in enumerate(item for item in host.functions if item.kind == "nic"):
        nic.interfaces = {"rdma": [f"mlx5_{number}"]}
    if purpose:
        servers.apply_plan(host, purpose)
    return host


def gpus(host: Host) -> list[str]:
    """Return the addresses of a host's GPUs."""
    return [item.address for item in host.functions if item.kind == "gpu"]


def ran(output: str, **more: Any) -> dict[str, Any]:
    """Return the run of a tool that printed ``output``."""
    return {"status": MEASURED, "reason": "", "output": output, **more}


def rail(host: Host, number: int = 0) -> dict[str, Any]:
    """Return a rail between the nodes a and b, which are both ``host``."""
    return {**rails.between(host, host)[number], "from": "a", "to": "b"}
