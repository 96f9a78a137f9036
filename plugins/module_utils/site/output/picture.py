# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draw a picture of a site as SVG: its racks, and its fabrics by kinds of devices.

Racks with the same contents are drawn once, with their count: a site of thousands of nodes has a few kinds of racks.
"""

from __future__ import annotations

from collections import Counter
from xml.sax.saxutils import escape

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.fold import fold

UNIT, WIDTH, GAP, LEFT = 11, 190, 30, 20
# A picture of more racks than this draws racks with the same contents once.
RACKS_MAX = 12
COLOURS = ("#9ec5e8", "#f3c98b", "#b5d99c", "#e3a6b4", "#c7b8e0", "#f0e39b", "#a5d8d1", "#d0d0d0")


def picture(site: Site) -> str:
    """Return the SVG. The same site always produces the same text."""
    colours = {kind: COLOURS[at % len(COLOURS)] for at, kind in enumerate(site.blueprint.kinds)}
    racks = _groups(site)
    height = max(rack.rack_spec.units for rack, _names in racks) * UNIT + 50
    fabrics = sorted({rule.fabric for rule in site.blueprint.links})
    parts = [_rack(rack, names, LEFT + at * (WIDTH + GAP), height, colours) for at, (rack, names) in enumerate(racks)]
    top = height + 40
    widest = len(racks) * (WIDTH + GAP) + LEFT
    for fabric in fabrics:
        part, width, used = _fabric(site, fabric, top, colours)
        parts.append(part)
        widest, top = max(widest, width), top + used
    title = f"{site.blueprint.site}: {len(site.racks)} racks, {len(site.devices)} devices, {len(site.cables)} cables"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest} {top}" '
        'font-family="sans-serif" font-size="9">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{widest}" height="{top}" fill="white"/>\n' + "".join(parts) + "</svg>\n"
    )


def _groups(site: Site) -> list[tuple[Block, list[str]]]:
    """Return the racks to draw, each with the names of all racks that look the same."""
    if len(site.racks) <= RACKS_MAX:
        return [(rack, [rack.name]) for rack in site.racks]
    alike: dict[tuple[object, ...], tuple[Block, list[str]]] = {}
    for rack in site.racks:
        key = (rack.spec, *sorted((device.kind.name, device.unit) for device in rack.devices))
        alike.setdefault(key, (rack, []))[1].append(rack.name)
    return list(alike.values())


def _text(x: float, y: float, text: str, longest: int, weight: str = "normal") -> str:
    shown = text if len(text) <= longest else f"{text[: longest - 1]}\u2026"
    return f'<text x="{x:g}" y="{y:g}" font-weight="{weight}">{escape(shown)}<title>{escape(text)}</title></text>\n'


def _rack(rack: Block, names: list[str], x: int, bottom: int, colours: dict[str, str]) -> str:
    units = rack.rack_spec.units
    many = f"{len(names)} \u00d7 " if len(names) > 1 else ""
    parts = [_text(x, bottom - units * UNIT - 6, many + fold(names), 36, "bold")]
    parts.append(
        f'<rect x="{x}" y="{bottom - units * UNIT}" width="{WIDTH}" height="{units * UNIT}" '
        'fill="none" stroke="#333"/>\n'
    )
    for device in sorted(rack.devices, key=lambda device: device.unit):
        height = device.model.units * UNIT
        y = bottom - (device.unit - 1) * UNIT - height
        parts.append(
            f'<rect x="{x + 2}" y="{y + 1}" width="{WIDTH - 4}" height="{height - 2}" '
            f'fill="{colours[device.kind.name]}"/>\n'
        )
        name = device.kind.name if len(names) > 1 else device.name
        parts.append(_text(x + 6, y + height / 2 + 3, f"{device.unit}: {name}, {device.model.name}", 34))
    return "".join(parts)


def _fabric(site: Site, fabric: str, top: int, colours: dict[str, str]) -> tuple[str, int, int]:
    """Return the SVG of a fabric, its right edge and its height; kinds are drawn from left to right, with counts."""
    rules = [rule for rule in site.blueprint.links if rule.fabric == fabric]
    counts = Counter(cable.rule.name for cable in site.cables)
    layer: dict[str, int] = {}
    # The number of rounds is limited to the number of rules, because links among kinds may form a ring.
    for _round in rules:
        for rule in rules:
            for name in rule.froms:
                layer.setdefault(name, 0)
                if name != rule.to:
                    layer[rule.to] = min(max(layer.get(rule.to, 0), layer[name] + 1), len(rules))
    columns: dict[int, list[str]] = {}
    for name, column in layer.items():
        columns.setdefault(column, []).append(name)
    places = {}
    parts = [_text(LEFT, top, f"{fabric}", 40, "bold")]
    for at, column in enumerate(sorted(columns)):
        for row, name in enumerate(columns[column]):
            places[name] = (LEFT + at * 320, top + 20 + row * 46)
    labels: Counter[str] = Counter()
    for rule in rules:
        for name in rule.froms:
            (x1, y1), (x2, y2) = places[name], places[rule.to]
            parts.append(f'<line x1="{x1 + 140}" y1="{y1 + 14}" x2="{x2}" y2="{y2 + 14}" stroke="#555"/>\n')
        x, y = places[rule.froms[0]]
        # The first label is above the line; the labels of other rules from the same kind are below it.
        above = labels[rule.froms[0]]
        labels[rule.froms[0]] += 1
        y += 13 + 11 * above if above else 10
        speed = next((f"{cable.speed_gbit_s:g}" for cable in site.cables if cable.rule is rule), "0")
        parts.append(_text(x + 146, y, f"{rule.name}: {counts[rule.name]} \u00d7 {speed}G {rule.medium.name}", 36))
    for name, (x, y) in places.items():
        parts.append(f'<rect x="{x}" y="{y}" width="140" height="28" fill="{colours[name]}" stroke="#333"/>\n')
        parts.append(_text(x + 6, y + 17, f"{len(site.by_kind[name])} \u00d7 {name}", 26))
    width = LEFT + len(columns) * 320
    return "".join(parts), width, 40 + 46 * max(len(names) for names in columns.values())
