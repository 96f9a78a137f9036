# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draw a picture of a site as SVG: its racks, and its fabrics by kinds of devices.

Racks with the same contents are drawn once, with their count: a site of thousands of nodes has a few kinds of racks.
"""

from __future__ import annotations

from colorsys import hls_to_rgb
from xml.sax.saxutils import escape

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import LinkRule

UNIT, WIDTH, GAP, LEFT = 11, 190, 30, 20
# A picture of more racks than this draws racks with the same contents once.
RACKS_MAX = 12
# A box of a fabric, the distance of two columns of boxes, and of two rows.
BOX, COLUMN, ROW = 140, 340, 46


def picture(site: Site) -> str:
    """Return the SVG. The same site always produces the same text."""
    colours = {kind: _colour(index) for index, kind in enumerate(site.blueprint.kinds)}
    racks = _groups(site)
    height = max(rack.rack_spec.units for rack, _names in racks) * UNIT + 50
    fabrics = sorted({rule.fabric for rule in site.blueprint.links})
    parts = [
        _rack(rack, names, LEFT + index * (WIDTH + GAP), height, colours) for index, (rack, names) in enumerate(racks)
    ]
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
    equal_racks: dict[tuple[object, ...], tuple[Block, list[str]]] = {}
    for rack in site.racks:
        key = (rack.spec, *sorted((device.kind.name, device.unit) for device in rack.devices))
        equal_racks.setdefault(key, (rack, []))[1].append(rack.name)
    return list(equal_racks.values())


def _text(x: float, y: float, text: str, longest: int, weight: str = "normal") -> str:
    shown = text if len(text) <= longest else f"{text[: longest - 1]}\u2026"
    return f'<text x="{x:g}" y="{y:g}" font-weight="{weight}">{escape(shown)}<title>{escape(text)}</title></text>\n'


def _rack(rack: Block, names: list[str], x: int, bottom: int, colours: dict[str, str]) -> str:
    units = rack.rack_spec.units
    count_text = f"{len(names)} \u00d7 " if len(names) > 1 else ""
    parts = [_text(x, bottom - units * UNIT - 6, count_text + fold(names), 36, "bold")]
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
    """Return the SVG of a fabric, its right edge and its height: rows of kinds, and links with their counts.

    A rule continues the row whose last kind it begins with; otherwise it begins a row. The kinds of a rule that has
    several are one below the other and joined by a vertical line, so that no line crosses a text.
    """
    rows: list[list[LinkRule]] = []
    for rule in (rule for rule in site.blueprint.links if rule.fabric == fabric):
        row = next((row for row in rows if tuple(rule.froms) == (row[-1].to,)), None)
        if row is None:
            rows.append([rule])
        else:
            row.append(rule)
    parts = [_text(LEFT, top, fabric, 40, "bold")]
    y = top + 20
    for row in rows:
        first = row[0].froms
        for index, name in enumerate(first):
            parts.append(_box(site, name, LEFT, y + index * ROW, colours))
            parts.append(_line(LEFT + BOX, y + index * ROW + 14, LEFT + BOX + 10, y + index * ROW + 14))
        if len(first) > 1:
            parts.append(_line(LEFT + BOX + 10, y + 14, LEFT + BOX + 10, y + (len(first) - 1) * ROW + 14))
        for index, rule in enumerate(row):
            x = LEFT + index * COLUMN + BOX
            cables = [cable for cable in site.cables if cable.rule is rule]
            speed = f"{cables[0].speed_gbit_s:g}" if cables else "0"
            parts.append(_line(x, y + 14, x - BOX + COLUMN, y + 14))
            label = f"{rule.name}: {len(cables)} \u00d7 {speed}G {rule.medium.name}"
            parts.append(_text(x + 16, y + 10, label, 36))
            parts.append(_box(site, rule.to, x - BOX + COLUMN, y, colours))
        y += len(first) * ROW
    return "".join(parts), LEFT + max(map(len, rows)) * COLUMN + BOX + GAP, y - top + 20


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#555"/>\n'


def _box(site: Site, name: str, x: int, y: int, colours: dict[str, str]) -> str:
    box = f'<rect x="{x}" y="{y}" width="{BOX}" height="28" fill="{colours[name]}" stroke="#333"/>\n'
    return box + _text(x + 6, y + 17, f"{len(site.by_kind[name])} \u00d7 {name}", 26)


def _colour(index: int) -> str:
    """Return the colour of a kind by its place in the blueprint; the golden angle keeps any number of hues apart."""
    red, green, blue = hls_to_rgb((210 + index * 137.508) / 360 % 1, (0.84, 0.72, 0.78)[index % 3], 0.6)
    return "#" + "".join(f"{round(part * 255):02x}" for part in (red, green, blue))
