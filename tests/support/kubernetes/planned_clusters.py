# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Clusters that are planned from recordings of real machines."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.plan import KubernetesPlan, plan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site

ROOT = Path(__file__).parents[3]
RECORDINGS = ROOT / "tests/recordings"
SMALL = ROOT / "inventories/small/blueprint.yml"
# Servers whose NICs are below the PCIe switches of GPUs.
WITH_RAILS = (
    *("supermicro-4029gp-ve", "nccl/aws-p4d-24xl", "nccl/azure-nd-a100-v4", "rccl/mi300x-8"),
    *("threads/nccl-2171", "threads/nccl-949", "threads/nccl-tests-380"),
)


def recorded(name: str) -> Host:
    """Return a recorded host."""
    return read_recording(str(RECORDINGS / f"{name}.json"))


def server(vendor: int = 0x15B3) -> Host:
    """Return the server of 8 GPUs and 8 NICs of nccl#2171; mlx5_0 is the NIC with the last address.

    Names that follow the addresses would hide an order by addresses where that of the plan is meant.
    """
    host = copy.deepcopy(recorded("threads/nccl-2171"))
    nics = sorted((one for one in host.functions if one.kind == "nic"), key=lambda one: one.address, reverse=True)
    for number, nic in enumerate(nics):
        nic.interfaces, nic.vendor_id, nic.device_id = {"rdma": [f"mlx5_{number}"]}, vendor, 0x1021
        nic.class_code = 0x020000
    return host


def small(
    settings: dict[str, Any] | None = None, variables: dict[str, Any] | None = None, host: Host | None = None
) -> KubernetesPlan:
    """Return the plan of inventories/small, whose four nodes are all alike; ``variables`` are of each node."""
    nodes = [f"gpu0{number}" for number in range(1, 5)]
    one = host or server()
    return plan(
        {"groups": ["nodes"], **(settings or {})},
        {"nodes": nodes},
        dict.fromkeys(nodes, one),
        dict.fromkeys(nodes, variables or {}),
        read_site(str(SMALL)),
    )


def of_kind(planned: KubernetesPlan, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by name."""
    return {
        item["metadata"]["name"]: item for items in planned.objects.values() for item in items if item["kind"] == kind
    }
