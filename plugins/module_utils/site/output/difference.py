# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the difference between two blueprints: the items to buy, to move and to rename."""

from __future__ import annotations

from collections import Counter

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.tables import materials


def watts(site: Site) -> float:
    """Return the greatest power of all devices."""
    return sum(device.kind.model.watts for device in site.devices.values() if device.kind.model)


def difference(before: Site, after: Site) -> list[str]:
    """Return the differences as lines; an empty list where nothing differs."""
    lines = _devices(before, after) + _cables(before, after)
    old, new = materials(before), materials(after)
    change = Counter({key: new[key] - old[key] for key in {*old, *new}})
    for (category, item), count in sorted(change.items()):
        if count:
            lines.append(f"{'buy' if count > 0 else 'spare'} {abs(count)} {category} {item}")
    power = watts(after) - watts(before)
    if power:
        lines.append(f"power {power / 1000:+g} kW, {watts(after) / 1000:g} kW in total")
    return lines


def _devices(before: Site, after: Site) -> list[str]:
    lines = []
    by_kind: dict[tuple[str, str], list[str]] = {}
    for name in [*before.devices, *(name for name in after.devices if name not in before.devices)]:
        old, new = before.devices.get(name), after.devices.get(name)
        if not old:
            by_kind.setdefault(("add", after.devices[name].kind.name), []).append(name)
        elif not new:
            by_kind.setdefault(("remove", old.kind.name), []).append(name)
        else:
            if (old.rack.name, old.unit) != (new.rack.name, new.unit):
                by_kind.setdefault(("move to another place", new.kind.name), []).append(name)
            if old.addresses != new.addresses:
                by_kind.setdefault(("change the addresses of", new.kind.name), []).append(name)
    for (verb, kind), names in by_kind.items():
        lines.append(f"{verb} {len(names)} {kind}: {fold(names)}")
    return lines


def _cables(before: Site, after: Site) -> list[str]:
    def ends(site: Site) -> dict[tuple[str, str, str, str], tuple[str, str, float]]:
        return {
            (cable.a.name, cable.a_port, cable.b.name, cable.b_port): (
                cable.rule.name,
                cable.rule.medium.name,
                cable.length_m,
            )
            for cable in site.cables
        }

    old, new = ends(before), ends(after)
    lines = []
    for verb, keys, of in (
        ("lay", [key for key in new if key not in old], new),
        ("remove", [key for key in old if key not in new], old),
        ("replace", [key for key in new if key in old and new[key][1:] != old[key][1:]], new),
    ):
        for rule, count in Counter(of[key][0] for key in keys).items():
            lines.append(f"{verb} {count} cables of {rule}")
    return lines
