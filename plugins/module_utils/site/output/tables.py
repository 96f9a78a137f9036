# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write tables of a site as CSV: its cables with labels and lengths, and the bill of materials."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import cable_label

CABLE_HEAD = (
    *("label", "from", "from_port", "from_rack", "from_unit", "to", "to_port", "to_rack", "to_unit"),
    *("fabric", "medium", "gbit_s", "way_m", "length_m"),
)
# Media whose cables need separate transceivers at their ends.
TRANSCEIVERS = ("mmf", "smf", "ndr-mmf")


def as_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def cable_list(site: Site) -> str:
    """Return all cables."""
    rows = (
        (
            cable_label(cable),
            cable.a.name,
            cable.a_port,
            cable.a.rack.name,
            cable.a.unit,
            cable.b.name,
            cable.b_port,
            cable.b.rack.name,
            cable.b.unit,
            cable.rule.fabric,
            cable.rule.medium.name,
            f"{cable.speed_gbit_s:g}",
            f"{cable.route_m:g}",
            f"{cable.length_m:g}",
        )
        for cable in site.cables
    )
    return as_csv(CABLE_HEAD, rows)


def materials(site: Site) -> Counter[tuple[str, str]]:
    """Return the count of each (category, item)."""
    count: Counter[tuple[str, str]] = Counter()
    for rack in site.racks:
        count["rack", f"{rack.kind}, {rack.rack_spec.units} units"] += 1
    for device in site.devices.values():
        if device.kind.model:
            count["device", device.kind.model.part] += 1
    for cable in site.cables:
        medium, speed = cable.rule.medium.name, f"{cable.speed_gbit_s:g}G"
        count["cable", f"{medium} {speed} {cable.length_m:g} m"] += 1
        if medium in TRANSCEIVERS:
            count["transceiver", f"{medium} {speed}"] += 2
    return count


def bill_of_materials(site: Site) -> str:
    """Return the bill of materials, sorted by category and item."""
    order = ("rack", "device", "transceiver", "cable")
    rows = sorted(materials(site).items(), key=lambda row: (order.index(row[0][0]), row[0][1]))
    return as_csv(("category", "item", "count"), ((*key, count) for key, count in rows))
