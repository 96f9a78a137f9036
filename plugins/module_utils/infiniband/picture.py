# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draw a fabric as SVG: of each two layers of switches a matrix, lower switches as rows, upper ones as columns. Pure.

A cell is the bundle of links between two switches, and has the state of its worst link; the leaves have a further
column for their HCAs. Cells as planned are one path, so a fabric of 100,000 links is a small file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import (
    AS_PLANNED,
    NOT_READ,
    STATES,
    Mark,
    Marks,
    worst,
)

COLOURS = {
    "no route": "#7a0019",
    "missing": "#d62728",
    "wrong": "#9467bd",
    "slow": "#ff9800",
    "misrouted": "#1f77b4",
    NOT_READ: "#d5d9de",
    AS_PLANNED: "#8fc9a3",
}
# Of a row or column of a matrix; small fabrics have large cells.
CELL_LEAST, CELL_MOST, MATRIX = 5, 24, 760
LEFT, TOP, LABEL, LINE = 110, 30, 10, 15
# The column of the legend and of the list beside the matrices, and how many lines the list has.
SIDE, LIST_MOST, TEXT_MOST = 520, 40, 90


class _Matrix(NamedTuple):
    """The rows and columns of two layers, and the worst mark of each bundle with its number of links."""

    title: str
    rows: list[str]
    columns: list[str]
    bundles: Mapping[tuple[str, str], tuple[Mark, int]]


def picture(fabric: Fabric, marks: Marks | None = None) -> str:
    """Return the SVG. Without ``marks`` it is that of the plan."""
    shown = marks or Marks()
    parts: list[str] = []
    y, right = TOP, 0
    for matrix in _matrices(fabric, shown):
        part, width, height = _draw(matrix, y)
        parts.append(part)
        y, right = y + height, max(right, width)
    side = _side(fabric, shown, right + 30, planned=marks is None)
    parts.append(side[0])
    width, height = right + 30 + SIDE, max(y, side[1])
    title = (
        f"{fabric.name}: {len(fabric.hcas)} HCAs, {len(fabric.switches)} switches, {len(fabric.uplinks)} links between"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="10">\n<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="white"/>\n'
        + "".join(parts)
        + "</svg>\n"
    )


def _matrices(fabric: Fabric, marks: Marks) -> list[_Matrix]:
    """Return the matrix of the HCAs and each layer of switches with the one above it, the leaves first."""
    ranks = fabric.ranks()
    of_bundle: dict[int, dict[tuple[str, str], list[Mark]]] = {}
    for low, up in fabric.uplinks:
        of_bundle.setdefault(ranks[low.switch], {}).setdefault((low.switch, up.switch), []).append(
            marks.of_link(low, up)
        )
    for hca, port in fabric.hcas.items():
        of_bundle.setdefault(ranks[port.switch], {}).setdefault((port.switch, "HCAs"), []).append(
            marks.of_link(hca, port)
        )
    matrices = []
    for rank in sorted(of_bundle, reverse=True):
        bundles = {pair: (worst(link_marks), len(link_marks)) for pair, link_marks in of_bundle[rank].items()}
        lowers, uppers = ({pair[index] for pair in bundles} for index in (0, 1))
        rows = [switch for switch in fabric.switches if switch in lowers]
        columns = ["HCAs"] if "HCAs" in uppers else []
        columns += [switch for switch in fabric.switches if switch in uppers]
        links = sum(number for _mark, number in bundles.values())
        matrices.append(_Matrix(f"{len(rows)} switches of rank {rank}, {links} links", rows, columns, bundles))
    return matrices


def _draw(matrix: _Matrix, top: int) -> tuple[str, int, int]:
    """Return the SVG of a matrix, its right edge and its height."""
    size = max(CELL_LEAST, min(CELL_MOST, MATRIX // max(len(matrix.rows), len(matrix.columns))))
    y0 = top + LINE + LEFT
    right, bottom = LEFT + size * len(matrix.columns), y0 + size * len(matrix.rows)
    parts = [_text(LEFT, top, matrix.title, bold=True)]
    step = -(-LABEL // size)
    for index, name in list(enumerate(matrix.rows))[::step]:
        y = y0 + index * size + min(size, LABEL) - 1
        parts.append(f'<text x="{LEFT - 4}" y="{y}" text-anchor="end">{escape(name)}</text>\n')
    for index, name in list(enumerate(matrix.columns))[::step]:
        x = LEFT + index * size + min(size, LABEL) - 1
        parts.append(f'<text transform="translate({x},{y0 - 4}) rotate(-90)">{escape(name)}</text>\n')
    column_of = {name: index for index, name in enumerate(matrix.columns)}
    row_of = {name: index for index, name in enumerate(matrix.rows)}
    places_by_state: dict[str, list[tuple[int, int]]] = {}
    for (low, up), (mark, number) in matrix.bundles.items():
        x, y = LEFT + column_of[up] * size, y0 + row_of[low] * size
        if mark.state in (AS_PLANNED, NOT_READ):
            places_by_state.setdefault(mark.state, []).append((x, y))
        else:
            label = escape(f"{low} - {up}, {number} links: {mark.state}. {mark.reason}")
            parts.append(
                f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="{COLOURS[mark.state]}">'
                f"<title>{label}</title></rect>\n"
            )
    for state, places in places_by_state.items():
        parts.append(
            f'<path d="{_dashes(places, size)}" transform="translate(0,{(size - 1) / 2:g})" '
            f'stroke="{COLOURS[state]}" stroke-width="{size - 1}"/>\n'
        )
    parts.append(
        f'<rect x="{LEFT}" y="{y0}" width="{right - LEFT}" height="{bottom - y0}" fill="none" stroke="#888"/>\n'
    )
    return "".join(parts), right, bottom - top + 2 * LINE + TOP


def _dashes(places: list[tuple[int, int]], size: int) -> str:
    """Return the path of some cells, one dash each. A line of one pixel shows the cells apart."""
    parts: list[str] = []
    end = (0, -1)
    for y, x in sorted((y, x) for x, y in places):
        parts.append(f"m{x - end[0]} 0" if y == end[1] else f"M{x} {y}")
        parts.append(f"h{size - 1}")
        end = (x + size - 1, y)
    return "".join(parts)


def _side(fabric: Fabric, marks: Marks, x: int, planned: bool) -> tuple[str, int]:
    """Return the SVG of the legend and of the list of the worst, and its bottom."""
    states = [AS_PLANNED] if planned else STATES
    parts: list[str] = []
    y = TOP
    for state in states:
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[state]}"/>\n')
        parts.append(_text(x + 16, y, "planned" if planned else state))
        y += LINE
    if planned:
        return "".join(parts), y
    lines = marks.worst_first(fabric)
    texts = [
        f"{line.device}: {line.links} {_links(line.links)} {line.state}. {line.reason}" for line in lines[:LIST_MOST]
    ]
    if lines[LIST_MOST:]:
        texts.append(f"and {len(lines) - LIST_MOST} devices more")
    parts.append(_text(x, y + LINE, "Worst first", bold=True))
    none_text = "none" if marks.read else "the cables were not read"
    parts += _column(x, y + 2 * LINE, texts or [none_text])
    return "".join(parts), y + (len(texts) + 3) * LINE


def _links(number: int) -> str:
    return "link" if number == 1 else "links"


def _column(x: int, y: int, texts: Iterable[str]) -> list[str]:
    return [_text(x, y + index * LINE, text) for index, text in enumerate(texts)]


def _text(x: int, y: int, text: str, bold: bool = False) -> str:
    shown = text if len(text) <= TEXT_MOST else f"{text[: TEXT_MOST - 1]}\u2026"
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight}>{escape(shown)}<title>{escape(text)}</title></text>\n'
