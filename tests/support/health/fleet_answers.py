# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers of the nodes of a fleet that is made up, as node_health_info returns them."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import FORMAT

GPUS = [f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x3B, 0x4B, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)]
NAMES = {f"gpu {address}": f"GPU {number}" for number, address in enumerate(GPUS)}


def fault(gpu: int = 4, **changes: Any) -> dict[str, Any]:
    """Return a fault of a GPU."""
    return {
        "check": "gpu_row_remap_pending",
        "kind": "gpu",
        "place": GPUS[gpu],
        "title": "row remap pending",
        "layer": "hardware",
        "action": "reset_gpu",
        "runbook": "gpu-row-remap",
        "part": f"GPU {gpu}, slot 7, serial number: label on the tray",
        **changes,
    }


def values(seed: int, clock: float = 1980.0, power: float = 650.0, step: float = 1.2) -> dict[str, dict[str, float]]:
    """Return the values of a node's eight GPUs at work, a little different on each node."""
    places = [f"gpu {address}" for address in GPUS]
    return {
        "gpu_utilization": dict.fromkeys(places, 98.0),
        "gpu_sm_clock_under_load": {place: clock - (seed * 7 + number) % 4 * 15 for number, place in enumerate(places)},
        "gpu_power_under_load": {place: power + (seed * 13 + number) % 11 for number, place in enumerate(places)},
        "gpu_temperature": {place: 60.0 + number + (seed * 5) % 7 for number, place in enumerate(places)},
        "step_time": {"node": step + (seed * 3) % 5 * 0.004},
    }


def answer(**changes: Any) -> dict[str, Any]:
    """Return the result of node_health_info for a healthy node."""
    return {"changed": False, "health": {"format": FORMAT, "age_s": 20.0, "like": "8 H100", "names": NAMES, **changes}}
