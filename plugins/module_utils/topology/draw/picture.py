# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draw a host, or a host and its guest, as an SVG: NUMA node > root complex > bridges > devices.

Pure: the same input gives the same bytes.

The picture needs no script, font or other file, and follows the reader's light or dark colours. It works alone or
inside an HTML page (all its style names begin with ``sl-``).
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.blocks import Blocks, Box, devices
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

# All lengths in pixels.
CARD = 420  # width of a root complex
PAD = 10
GAP = 8
MARGIN = 16
PORT = 76  # least width of the text beside the devices of a port
WIRE = 24
CAPTION = 34
HEADER = {"node": 30, "complex": 26, "bridge": 40}
DEVICE = 42
LINE = 14  # height of each further line of details
NOTE = 18
# Mean widths of a character at the font sizes below, rounded up. Details that are wider than their box take several
# lines; one that is too long for a line is cut, with the whole text as its tooltip.
TITLE_CHARACTER = 7.3
DETAIL_CHARACTER = 6.1
SEPARATOR = " · "

# (selector, light, dark)
_COLOURS = (
    (".sl-paper", "fill:#fbfbfa", "fill:#12171d"),
    (".sl-node", "fill:#eef1f4;stroke:#cfd6dd", "fill:#1a222b;stroke:#33404c"),
    (".sl-complex", "fill:#ffffff;stroke:#cfd6dd", "fill:#12171d;stroke:#33404c"),
    (".sl-bridge", "fill:#f4f6f8;stroke:#dfe3e8", "fill:#1c242d;stroke:#2c3641"),
    (".sl-device", "fill:#ffffff;stroke:#dfe3e8", "fill:#161d25;stroke:#2c3641"),
    (".sl-wire", "stroke:#a9b3be", "stroke:#50606f"),
    (".sl-ink", "fill:#1b2430", "fill:#e4e8ed"),
    (".sl-soft", "fill:#5b6675", "fill:#97a3b1"),
    (".sl-used", "fill:#9a4a00", "fill:#f0a35e"),
    *((f".sl-{kind.name}", f"fill:{kind.light}", f"fill:{kind.dark}") for kind in kinds.KINDS if kind.name != "bridge"),
    (".sl-passed", "fill:#fdf6e3;stroke:#b7791f;stroke-width:2", "fill:#2b2415;stroke:#d9a441;stroke-width:2"),
    (".sl-label", "fill:#b7791f", "fill:#d9a441"),
    (".sl-on-label", "fill:#ffffff", "fill:#12171d"),
)
_STYLE = (
    ".sl-text{font-family:'Source Sans 3','Segoe UI',system-ui,'Noto Sans','Liberation Sans',sans-serif}"
    ".sl-title{font-size:13px;font-weight:600}.sl-detail{font-size:11px}.sl-caption{font-size:17px;font-weight:600}"
    ".sl-end{text-anchor:end}.sl-middle{text-anchor:middle}"
    + "".join(f"{selector}{{{light}}}" for selector, light, _dark in _COLOURS)
    + "@media (prefers-color-scheme:dark){"
    + "".join(f"{selector}{{{dark}}}" for selector, _light, dark in _COLOURS)
    + "}"
)


def picture(host: Host, caption: str, pairs: dict[str, str] | None = None, other_side: str = "guest") -> str:
    """Return one host (or guest) as one ``<svg>`` element.

    ``pairs`` maps addresses here to addresses on the other side: those devices are highlighted and labelled with the
    other address. ``other_side`` is the name of the other side in that label.
    """
    blocks = Blocks(host, pairs or {}, other_side).build()
    drawing, width, height = _drawing(blocks, caption, columns=2)
    return _svg(drawing, width, height, caption, blocks)


def side_by_side(host: Host, guest: Host, pairs: dict[str, str]) -> str:
    """Return host and guest in one ``<svg>``; ``pairs`` maps host addresses to guest addresses."""
    of_host = Blocks(host, pairs, "guest").build()
    of_guest = Blocks(
        guest, {guest_address: host_address for host_address, guest_address in pairs.items()}, "host"
    ).build()
    host_shapes, left_width, left_height = _drawing(of_host, "Host", columns=1)
    right, right_width, right_height = _drawing(of_guest, "Guest", columns=1)
    shifted = [f'<g transform="translate({left_width - MARGIN},0)">', *right, "</g>"]
    width = left_width - MARGIN + right_width
    return _svg(host_shapes + shifted, width, max(left_height, right_height), "Host and guest", of_host + of_guest)


def _svg(drawing: list[str], width: int, height: int, caption: str, blocks: list[Box]) -> str:
    """Return the drawing as one ``<svg>``, with the legend of ``blocks`` below it."""
    legend, legend_height = _legend(blocks, MARGIN, height, width - 2 * MARGIN)
    height += legend_height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(_printable(caption))}'
        f' width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="sl-paper" width="{width}" height="{height}"/>',
        *drawing,
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend(blocks: list[Box], x: int, y: int, width: int) -> tuple[list[str], int]:
    """Return the legend of the colours and outlines of ``blocks``, in rows of at most ``width``, and its height."""
    shown = list(devices(blocks))
    names = {kind.name: kind.short for kind in kinds.KINDS}
    present = {device.kind for device in shown}
    keys = [(f"sl-{kind}", name) for kind, name in names.items() if kind in present]
    if any(device.label for device in shown):
        keys.append(("sl-passed", "passed through, with its address on the other side"))
    if any(device.side == "in use" for device in shown):
        keys.append(("", "in use: by the host itself"))
    lines: list[str] = []
    item_x, top = x, y
    for style, name in keys:
        sample = {"": 0, "sl-passed": 16}.get(style, 4)
        indent = sample and sample + 6
        wide = indent + round(len(name) * DETAIL_CHARACTER) + 18
        if item_x > x and item_x + wide > x + width:
            item_x, top = x, top + LINE + 4
        if sample:
            lines.append(f'<rect class="{style}" x="{item_x}" y="{top - 10}" width="{sample}" height="12" rx="2"/>')
        lines += _text(item_x + indent, top, name, "sl-detail sl-soft", width, DETAIL_CHARACTER)
        item_x += wide
    return lines, top - y + MARGIN if keys else 0


def _drawing(blocks: list[Box], caption: str, columns: int) -> tuple[list[str], int, int]:
    """Return lines of SVG, width and height."""
    columns = max([1, *(min(columns, len(block.children)) for block in blocks)])
    inner = columns * CARD + (columns - 1) * GAP
    lines = _text(MARGIN, MARGIN + 14, caption, "sl-caption sl-ink", inner, 9.5)
    y = MARGIN + CAPTION
    for block in blocks:
        drawn, height = _node(block, MARGIN, y, inner + 2 * PAD, columns)
        lines += drawn
        y += height + GAP
    return lines, inner + 2 * PAD + 2 * MARGIN, y - GAP + MARGIN


def _node(block: Box, x: int, y: int, width: int, columns: int) -> tuple[list[str], int]:
    """Draw a NUMA node: its root complexes in columns, each in the column that is shortest so far."""
    heights = [0] * columns
    inner_shapes: list[str] = []
    header = _header_height(block, width)
    for child in block.children:
        column = heights.index(min(heights))
        child_x, top = x + PAD + column * (CARD + GAP), y + header + heights[column]
        drawn, height = draw_block(child, child_x, top, CARD)
        inner_shapes += drawn
        heights[column] += height + GAP
    height = header + max(heights) + (PAD - GAP if block.children else 0)
    return [*_box(block, x, y, width, height, 10), *_header(block, x, y, width), *inner_shapes], height


def draw_block(block: Box, x: int, y: int, width: int) -> tuple[list[str], int]:
    """Return the shapes of a block at a place, and its height."""
    if block.style == "device":
        return _device(block, x, y, width), _device_height(block, width)
    if block.style == "note":
        return _text(x + 2, y + 13, block.title, "sl-detail sl-soft", width - 2, DETAIL_CHARACTER), NOTE
    if block.style == "port":
        return _port(block, x, y, width)
    top = _header_height(block, width)
    inner_shapes, height = draw_stack(block.children, x + PAD, y + top, width - 2 * PAD)
    height += top + (PAD if block.children else 0)
    return [*_box(block, x, y, width, height, 8), *_header(block, x, y, width), *inner_shapes], height


def draw_stack(blocks: list[Box], x: int, y: int, width: int) -> tuple[list[str], int]:
    """Return the shapes of blocks below each other, and their height with the gaps."""
    lines: list[str] = []
    height = 0
    for block in blocks:
        drawn, used = draw_block(block, x, y + height, width)
        lines += drawn
        height += used + GAP
    return lines, max(height - GAP, 0)


def _port(block: Box, x: int, y: int, width: int) -> tuple[list[str], int]:
    """Draw a port beside its devices, with a line to each."""
    text = max(PORT, round(len(block.title) * TITLE_CHARACTER))
    devices_x = x + text + WIRE
    inner_shapes, height = draw_stack(block.children, devices_x, y, x + width - devices_x)
    height = max(height, DEVICE)
    lines = [f"<g><title>{_escaped(block.tooltip)}</title>"]
    lines += _text(x, y + 14, block.title, "sl-title sl-ink", text, TITLE_CHARACTER)
    lines += _text(x, y + 27, block.detail, "sl-detail sl-soft", text, DETAIL_CHARACTER)
    lines += _text(x, y + 40, block.side, "sl-detail sl-soft", text, DETAIL_CHARACTER)
    lines.append("</g>")
    first = y + (NOTE if block.children[0].style == "note" else DEVICE) // 2
    lines.append(f'<path class="sl-wire" d="M{devices_x - WIRE},{first}H{devices_x}"/>')
    top = y
    for child in block.children:
        used = NOTE if child.style == "note" else _device_height(child, x + width - devices_x)
        middle = top + (used if child.style == "note" else DEVICE) // 2
        if middle != first:
            lines.append(
                f'<path class="sl-wire" fill="none" d="M{devices_x - WIRE // 2},{first}V{middle}H{devices_x}"/>'
            )
        top += used + GAP
    return lines + inner_shapes, height


def _device(block: Box, x: int, y: int, width: int) -> list[str]:
    lines = [f"<g><title>{_escaped(block.tooltip)}</title>"]
    height = _device_height(block, width)
    shape = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="5"'
    lines.append(f'<rect class="{"sl-passed" if block.label else "sl-device"}" {shape}/>')
    lines.append(f'<rect class="sl-{block.kind}" x="{x + 5}" y="{y + 7}" width="4" height="{height - 14}" rx="2"/>')
    right = x + width - 8
    room = width - 16 - 8
    if block.label:
        label = round(len(block.label) * DETAIL_CHARACTER) + 12
        lines.append(f'<rect class="sl-label" x="{right - label}" y="{y + 5}" width="{label}" height="17" rx="8"/>')
        lines += _text(
            right - label // 2, y + 17, block.label, "sl-detail sl-on-label sl-middle", label, DETAIL_CHARACTER
        )
        room -= label + 6
    elif block.side:
        style = "sl-used" if block.side == "in use" else "sl-soft"
        title_width = round(len(block.title) * TITLE_CHARACTER) + 10
        lines += _text(right, y + 17, block.side, f"sl-detail {style} sl-end", room - title_width, DETAIL_CHARACTER)
    lines += _text(x + 16, y + 17, block.title, "sl-title sl-ink", room, TITLE_CHARACTER)
    return [*lines, *_details(block, x + 16, y + 33, width - 24), "</g>"]


def _device_height(block: Box, width: int) -> int:
    return DEVICE + LINE * (len(wrapped_lines(block.detail, width - 24)) - 1)


def _box(block: Box, x: int, y: int, width: int, height: int, radius: int) -> list[str]:
    return [f'<rect class="sl-{block.style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>']


def _header(block: Box, x: int, y: int, width: int) -> list[str]:
    """Draw title and detail: on one line if they fit, otherwise the detail below the title."""
    title = _text(x + PAD, y + 18, block.title, "sl-title sl-ink", width - 2 * PAD, TITLE_CHARACTER)
    if fits_beside(block, width):
        return [
            *title,
            *_text(x + width - PAD, y + 18, block.detail, "sl-detail sl-soft sl-end", width, DETAIL_CHARACTER),
        ]
    details = _details(block, x + PAD, y + 33, width - 2 * PAD)
    if block.style == "bridge":
        return [f"<g><title>{_escaped(block.tooltip)}</title>", *title, *details, "</g>"]
    return [*title, *details]


def _header_height(block: Box, width: int) -> int:
    if fits_beside(block, width):
        return HEADER["complex"] if block.style == "bridge" else HEADER[block.style]
    return HEADER["bridge"] + LINE * (len(wrapped_lines(block.detail, width - 2 * PAD)) - 1)


def fits_beside(block: Box, width: int) -> bool:
    """Return True if the detail fits beside the title, or there is none."""
    room = width - 2 * PAD - len(block.title) * TITLE_CHARACTER - 12
    return not block.detail or (block.style != "bridge" and len(block.detail) * DETAIL_CHARACTER <= room)


def _details(block: Box, x: int, y: int, room: int) -> list[str]:
    """Draw the details of a box on as many lines as they need."""
    lines = [
        _text(x, y + LINE * index, text, "sl-detail sl-soft", room, DETAIL_CHARACTER)
        for index, text in enumerate(wrapped_lines(block.detail, room))
    ]
    return [part for line in lines for part in line]


def wrapped_lines(detail: str, room: int) -> list[str]:
    """Return details ("one · two · three") in lines of at most ``room`` pixels, split at the dots."""
    lines = [""]
    for part in detail.split(SEPARATOR):
        longer = f"{lines[-1]}{SEPARATOR}{part}" if lines[-1] else part
        if lines[-1] and len(longer) * DETAIL_CHARACTER > room:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines


def _text(x: int, y: int, text: str, style: str, room: float, character: float) -> list[str]:
    """Draw one line of text. Text that does not fit into ``room`` pixels is cut and has the whole text as tooltip."""
    if not text:
        return []
    max_characters = max(int(room / character), 1)
    content = _escaped(text)
    if len(text) > max_characters:
        content = f"{_escaped(text[: max_characters - 1])}…<title>{content}</title>"
    return [f'<text class="sl-text {style}" x="{x}" y="{y}">{content}</text>']


def _escaped(text: str) -> str:
    return escape(_printable(text))


def _printable(text: str) -> str:
    """Replace the characters that XML 1.0 does not allow; names on a host should have none."""
    return "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in text)
