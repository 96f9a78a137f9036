# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The look at a fleet, and what its boot servers serve, as metrics. Pure.

Labels name the hosts ``device``: node_exporter's target has ``host`` and ``instance`` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DIFFERS,
    FAULT,
    NOTED,
    OK,
    UNKNOWN,
    state_at,
    worst,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import Look
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import Metric

NUMBERS = {OK: 0, NOTED: 1, UNKNOWN: 2, DIFFERS: 3, FAULT: 4}
MEANING = "0: as planned, 1: notes only, 2: not known, 3: it differs from the inventory, 4: a fault."


def fleet_metrics(look: Look) -> list[Metric]:
    """Return the state of each concern of each host, and of each proof of a fabric."""
    states: dict[tuple[str, str], list[str]] = {}
    for entry in look.hosts:
        for datum in entry.data:
            states.setdefault((entry.host.name, datum.kind), []).append(state_at(datum, look.now_s))
    return [
        Metric(
            "sailloft_fleet_state",
            f"State of a host by kind of reading. {MEANING}",
            [({"device": host, "kind": kind}, NUMBERS[worst(of_kind)]) for (host, kind), of_kind in states.items()],
        ),
        Metric(
            "sailloft_fleet_proof_state",
            f"State of a proof of a fabric. {MEANING}",
            [({"proof": name}, NUMBERS[state_at(entry, look.now_s)]) for name, entry in look.fabrics.items()],
        ),
    ]


def boot_server_metrics(results: Mapping[str, Any]) -> list[Metric]:
    """Return what boot servers serve. ``results``: those of node_image_store by server."""
    read = {
        server: result for server, result in results.items() if isinstance(result, Mapping) and "channels" in result
    }
    return [
        Metric(
            "sailloft_boot_server_read",
            "Whether the store of the boot server was read (1) or not (0).",
            [({"device": server}, int(server in read)) for server in results],
        ),
        Metric(
            "sailloft_boot_server_channel",
            "1 for the image that a channel names.",
            [
                ({"device": server, "channel": str(channel["name"]), "digest": str(channel["digest"])}, 1)
                for server, result in read.items()
                for channel in result["channels"]
            ],
        ),
        Metric(
            "sailloft_boot_server_statement",
            "Sequence of the statement of what nodes boot, 0 without one.",
            [({"device": server}, int(result.get("statement") or 0)) for server, result in read.items()],
        ),
        Metric(
            "sailloft_boot_server_faulty_images",
            "Images that are damaged, or missing although something refers to them.",
            [({"device": server}, _faulty(result)) for server, result in read.items()],
        ),
    ]


def _faulty(result: Mapping[str, Any]) -> int:
    damaged = [image for image in result.get("images") or () if image.get("problem")]
    return len(damaged) + len(result.get("missing") or ())
