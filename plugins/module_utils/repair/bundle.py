# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All that is known of a node that needs a person, in one file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import RepairLine

FORMAT = "sailloft-repair-bundle/1"
# The end of a long text is what came last.
MOST_CHARACTERS = 100_000


def bundle_of(lines: Sequence[RepairLine], line: RepairLine, readings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON-ready bundle: why a person is asked, what was tried, and readings by their names."""
    return {
        "format": FORMAT,
        "node": line.node,
        "time": line.time,
        "fault": line.fault,
        "reason": line.reason,
        "log": [asdict(log_line) for log_line in lines if log_line.node == line.node],
        "readings": {name: str(text)[-MOST_CHARACTERS:] for name, text in readings.items()},
    }
