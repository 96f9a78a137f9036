# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports of machines that do not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import MachineReport, ReportedNic

MAC = "52:54:00:00:00:01"


def machine(mac: str = MAC, *neighbours: tuple[str, str], **fields: Any) -> MachineReport:
    """Return a report with a NIC for each neighbour (switch, port)."""
    nics = tuple(
        ReportedNic(f"eth{number}", mac, "mlx5_core", True, switch, (port,))
        for number, (switch, port) in enumerate(neighbours)
    )
    report = MachineReport(
        mac, "Vendor", "Model 8", "S-1", "10.9.1.7", "52:54:00:0b:0c:01", device_counts={"gpu": 8, "nvme": 4}, nics=nics
    )
    return replace(report, **fields)


def row(mac: str = MAC, *neighbours: tuple[str, str], age_s: int = 10, **fields: Any) -> dict[str, Any]:
    """Return a machine as nodes_pending_info returns it."""
    return {**machine(mac, *neighbours, **fields).summary(), "age_s": age_s}
