# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draw a host, or a host and its guest, as an SVG: NUMA node > root complex > bridges > devices.

Pure: the same input gives the same bytes.

It needs no script, font or file from elsewhere, follows the reader's light or dark colours, and may stand alone
or inside an HTML page (all its style names begin with ``sl-``).
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.blocks import Block, Blocks
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

# All lengths in pixels.
CARD = 420  # width of a root complex
PAD = 10
GAP = 8
MARGIN = 16
PORT = 100  # width of the text beside the devices of a port, with the wire
WIRE = 24
CAPTION = 34
HEADER = {"node": 30, "complex": 26, "bridge": 40}
DEVICE = 42
NOTE = 18
# Mean widths of a character at the font sizes below, rounded up: text is cut before it runs out of its box.
TITLE_CHARACTER = 7.3
DETAIL_CHARACTER = 6.1

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
    (".sl-gpu", "fill:#1d7a4c", "fill:#5cc793"),
    (".sl-nic", "fill:#24527a", "fill:#8fbce6"),
    (".sl-nvme", "fill:#8a5a00", "fill:#e3b341"),
    (".sl-nvswitch", "fill:#6b3fa0", "fill:#c3a6ee"),
    (".sl-other", "fill:#7d8896", "fill:#7d8896"),
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
    drawing, width, height = _drawing(host, caption, pairs or {}, other_side, columns=2)
    return _svg(drawing, width, height, caption)


def side_by_side(host: Host, guest: Host, devices: dict[str, str]) -> str:
    """Return host and guest in one ``<svg>``; ``devices`` maps host addresses to guest addresses."""
    left, left_width, left_height = _drawing(host, "Host", devices, "guest", columns=1)
    backwards = {there: here for here, there in devices.items()}
    right, right_width, right_height = _drawing(guest, "Guest", backwards, "host", columns=1)
    shifted = [f'<g transform="translate({left_width - MARGIN},0)">', *right, "</g>"]
    width = left_width - MARGIN + right_width
    return _svg(left + shifted, width, max(left_height, right_height), "Host and guest")


def _svg(drawing: list[str], width: int, height: int, caption: str) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(_printable(caption))}'
        f' width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="sl-paper" width="{width}" height="{height}"/>',
        *drawing,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _drawing(
    host: Host, caption: str, pairs: dict[str, str], other_side: str, columns: int
) -> tuple[list[str], int, int]:
    """Return lines of SVG, width and height."""
    blocks = Blocks(host, pairs, other_side).build()
    columns = max([1, *(min(columns, len(block.children)) for block in blocks)])
    inner = columns * CARD + (columns - 1) * GAP
    lines = _text(MARGIN, MARGIN + 14, caption, "sl-caption sl-ink", inner, 9.5)
    y = MARGIN + CAPTION
    for block in blocks:
        drawn, height = _node(block, MARGIN, y, inner + 2 * PAD, columns)
        lines += drawn
        y += height + GAP
    return lines, inner + 2 * PAD + 2 * MARGIN, y - GAP + MARGIN


def _node(block: Block, x: int, y: int, width: int, columns: int) -> tuple[list[str], int]:
    """Draw a NUMA node: its root complexes in columns, each in the shortest."""
    heights = [0] * columns
    inside: list[str] = []
    for child in block.children:
        column = heights.index(min(heights))
        left, top = x + PAD + column * (CARD + GAP), y + HEADER["node"] + heights[column]
        drawn, height = _block(child, left, top, CARD)
        inside += drawn
        heights[column] += height + GAP
    height = HEADER["node"] + max(heights) + (PAD - GAP if block.children else 0)
    return [*_box(block, x, y, width, height, 10), *_header(block, x, y, width), *inside], height


def _block(block: Block, x: int, y: int, width: int) -> tuple[list[str], int]:
    if block.style == "device":
        return _device(block, x, y, width), DEVICE
    if block.style == "note":
        return _text(x + 2, y + 13, block.title, "sl-detail sl-soft", width - 2, DETAIL_CHARACTER), NOTE
    if block.style == "port":
        return _port(block, x, y, width)
    top = HEADER[block.style] if block.detail or block.style == "complex" else HEADER["complex"]
    inside, height = _stack(block.children, x + PAD, y + top, width - 2 * PAD)
    height += top + (PAD if block.children else 0)
    return [*_box(block, x, y, width, height, 8), *_header(block, x, y, width), *inside], height


def _stack(blocks: list[Block], x: int, y: int, width: int) -> tuple[list[str], int]:
    lines: list[str] = []
    height = 0
    for block in blocks:
        drawn, used = _block(block, x, y + height, width)
        lines += drawn
        height += used + GAP
    return lines, max(height - GAP, 0)


def _port(block: Block, x: int, y: int, width: int) -> tuple[list[str], int]:
    """Draw a port beside its devices, with a line to each."""
    inside, height = _stack(block.children, x + PORT, y, width - PORT)
    height = max(height, DEVICE)
    lines = [f"<g><title>{_escaped(block.tooltip)}</title>"]
    lines += _text(x, y + 14, block.title, "sl-title sl-ink", PORT - WIRE, TITLE_CHARACTER)
    lines += _text(x, y + 27, block.detail, "sl-detail sl-soft", PORT - WIRE, DETAIL_CHARACTER)
    lines += _text(x, y + 40, block.side, "sl-detail sl-soft", PORT - WIRE, DETAIL_CHARACTER)
    lines.append("</g>")
    first = y + (NOTE if block.children[0].style == "note" else DEVICE) // 2
    lines.append(f'<path class="sl-wire" d="M{x + PORT - WIRE},{first}H{x + PORT}"/>')
    top = y
    for child in block.children:
        used = NOTE if child.style == "note" else DEVICE
        middle = top + used // 2
        if middle != first:
            lines.append(f'<path class="sl-wire" fill="none" d="M{x + PORT - WIRE // 2},{first}V{middle}H{x + PORT}"/>')
        top += used + GAP
    return lines + inside, height


def _device(block: Block, x: int, y: int, width: int) -> list[str]:
    lines = [f"<g><title>{_escaped(block.tooltip)}</title>"]
    shape = f'x="{x}" y="{y}" width="{width}" height="{DEVICE}" rx="5"'
    lines.append(f'<rect class="{"sl-passed" if block.label else "sl-device"}" {shape}/>')
    lines.append(f'<rect class="sl-{block.kind}" x="{x + 5}" y="{y + 7}" width="4" height="{DEVICE - 14}" rx="2"/>')
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
        taken = round(len(block.title) * TITLE_CHARACTER) + 10
        lines += _text(right, y + 17, block.side, f"sl-detail {style} sl-end", room - taken, DETAIL_CHARACTER)
    lines += _text(x + 16, y + 17, block.title, "sl-title sl-ink", room, TITLE_CHARACTER)
    lines += _text(x + 16, y + 33, block.detail, "sl-detail sl-soft", width - 24, DETAIL_CHARACTER)
    return [*lines, "</g>"]


def _box(block: Block, x: int, y: int, width: int, height: int, radius: int) -> list[str]:
    return [f'<rect class="sl-{block.style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>']


def _header(block: Block, x: int, y: int, width: int) -> list[str]:
    """Draw title and detail: on one line if the box is wide or the detail short, else below each other."""
    title = _text(x + PAD, y + 18, block.title, "sl-title sl-ink", width - 2 * PAD, TITLE_CHARACTER)
    if block.style == "bridge":
        detail = _text(x + PAD, y + 33, block.detail, "sl-detail sl-soft", width - 2 * PAD, DETAIL_CHARACTER)
        return [f"<g><title>{_escaped(block.tooltip)}</title>", *title, *detail, "</g>"]
    room = width - 2 * PAD - len(block.title) * TITLE_CHARACTER - 12
    return [*title, *_text(x + width - PAD, y + 18, block.detail, "sl-detail sl-soft sl-end", room, DETAIL_CHARACTER)]


def _text(x: int, y: int, text: str, style: str, room: float, character: float) -> list[str]:
    """Draw one line of text, cut with an ellipsis if it does not fit into ``room`` pixels."""
    most = max(int(room / character), 1)
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return [f'<text class="sl-text {style}" x="{x}" y="{y}">{_escaped(shown)}</text>'] if text else []


def _escaped(text: str) -> str:
    return escape(_printable(text))


def _printable(text: str) -> str:
    """Return the text without characters that XML 1.0 does not allow, which no name on a host should have."""
    return "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in text)
