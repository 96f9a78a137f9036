# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd's units: those that failed, and those that must be active."""

from __future__ import annotations

import json
import re

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import names
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

FAILED = ["systemctl", "list-units", "--failed", "--all", "--plain", "--no-legend", "--no-pager", "--full"]
SHOW = ["systemctl", "show", "--no-pager", "--property=Id,Names,LoadState,ActiveState,SubState", "--"]
ANSWER_S = 10.0
UNIT = re.compile(r"[^\s/]{1,255}\.[a-z]{3,10}")
GOOD, BUSY = ("active", "reloading", "refreshing"), ("activating", "deactivating", "maintenance")
# A node with more failed units has one cause for all.
MOST = 50


def read(node: Node) -> Reading:
    """Measure the failed units and the required ones. Raises NotMeasuredError."""
    required = node.expected.units
    # A required unit that failed is not active, which is one fault.
    failed = sorted({*parse_failed(_answer(node, FAILED))} - {_full(name) for name in required})[:MOST]
    # A unit that no longer fails, or is required now, is reported once as good, so that its fault ends.
    previous = names(node.kept.get("failed", "[]"))
    measurements = [
        Measurement("unit_failed", Place("unit", name), name in failed, " ".join(FAILED[:3]))
        for name in sorted({*failed, *previous})
    ]
    if required:
        states = parse_show(_answer(node, [*SHOW, *(_full(name) for name in required)]))
        measurements += [_required(name, states.get(_full(name))) for name in required]
    return Reading("units", tuple(measurements), kept={"failed": json.dumps(failed)})


def _answer(node: Node, argv: list[str]) -> str:
    ran = node.run(argv, ANSWER_S)
    if ran.rc:
        raise NotMeasuredError(f"systemctl ended with {ran.rc}: {ran.stderr.strip():.200}")
    return ran.stdout


def _full(name: str) -> str:
    return name if UNIT.fullmatch(name) else f"{name}.service"


def _required(name: str, state: dict[str, str] | None) -> Measurement:
    place, source = Place("unit", _full(name)), "systemctl show"
    if state is None:
        return Measurement("unit_inactive", place, None, source, "systemctl did not speak of it")
    active, load = state.get("ActiveState", ""), state.get("LoadState", "")
    text = "not installed" if load == "not-found" else f"{active} ({state.get('SubState', '')})"
    if active in BUSY or not active:
        return Measurement("unit_inactive", place, None, source, text if active else "it has no state")
    return Measurement("unit_inactive", place, active not in GOOD, source, text)


def parse_failed(text: str) -> list[str]:
    """Return the units in the answer to FAILED. Raises NotMeasuredError for other text."""
    names = []
    for line in text.splitlines():
        columns = line.replace("●", " ").replace("*", " ").split()
        if not columns:
            continue
        if len(columns) < 4 or not UNIT.fullmatch(columns[0]):
            raise NotMeasuredError(f"systemctl wrote no list of units: {line.strip()!r:.80}")
        if columns[2] == "failed":
            names.append(columns[0])
    return names


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """Return the properties in `systemctl show` by each name of a unit: those of an alias too."""
    units: dict[str, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", text):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for name in {properties.get("Id", ""), *properties.get("Names", "").split()} - {""}:
            units[name] = properties
    return units
