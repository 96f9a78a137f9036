# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the fleet as one self-contained HTML file: compact data, and a script that draws it. Pure.

The page has no time of its own, so that the same look gives the same bytes: it shows ages at the time when it is seen.
Only this collection's script runs in it, by its digest in the page's policy; data cannot end the element that holds it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import quote

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import AHEAD_S, LIMITS_S, STATES, Datum
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.floor import FleetFloor, Spot
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import WORDS, HostLook, Look
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.script import SCRIPT
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.style import STYLE
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import head

NOWHERE = Spot(-1, 0, 1)
SPARE, SWITCH = 1, 2
# What would end the script element, or begin another one or a comment in it.
MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class _Texts:
    """The texts of the page, each once; a row has their numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def fleet_page(look: Look, floor: FleetFloor, title: str, proofs: str) -> str:
    """Return the whole page. ``proofs``: the path from the page's directory to that of the proofs' pages."""
    data = json.dumps(_data(look, floor, proofs), ensure_ascii=True, separators=(",", ":")).translate(MARKUP)
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    top = head(f"{title}: the fleet", STYLE, f"'sha256-{digest}'")
    return f"""{top}<body>
<header>
<p class="kicker">Fleet</p>
<h1>{escape(title)}</h1>
<noscript><p>This page is drawn by its own script; allow scripts for this file.</p></noscript>
<div class="bar" id="states" role="group" aria-label="Show only hosts in these states"></div>
<div class="bar controls">
<input type="search" id="search" placeholder="Search host, rack, fault, person" aria-label="Search">
<select id="group" aria-label="Group"><option value="">All groups</option></select>
<select id="size" aria-label="Size"><option value="small">small</option><option value="middle">middle</option>
<option value="large">large</option></select>
</div>
<p class="soft" id="count" role="status"></p>
</header>
<main>
<section>
<h2 id="floor-title">Racks</h2>
<p class="soft">Blue edge: switch. Dashed: spare. Double line: drained or in maintenance.</p>
<div id="floor"></div>
</section>
<section>
<h2 id="proofs-title">Proofs of fabrics</h2>
<ul id="proofs" style="list-style: none; padding: 0"></ul>
</section>
<section id="list">
<h2>Hosts</h2>
<div class="scroll"><table><thead><tr id="heads"></tr></thead><tbody id="rows"></tbody></table></div>
<button type="button" class="more" id="all" hidden></button>
</section>
</main>
<aside id="panel" aria-label="Host" hidden></aside>
<script type="application/json" id="data">{data}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _data(look: Look, floor: FleetFloor, proofs: str) -> dict[str, Any]:
    numbers = {host_look.host.name: index for index, host_look in enumerate(look.hosts)}
    every = [*(entry for host in look.hosts for entry in host.data), *look.fabrics.values()]
    times = [*(entry.at_s for entry in every), *(host.reading.seen_s for host in look.hosts)]
    base = round(min((time for time in times if time is not None), default=0.0))
    texts = _Texts()
    texts.number("")
    return {
        "states": STATES,
        "words": WORDS,
        "limits": LIMITS_S,
        "ahead": AHEAD_S,
        "base": base,
        "pages": f"{quote(proofs)}/",
        "racks": [[rack.name, rack.units, rack.block] for rack in floor.racks],
        "hosts": [_host(host_look, floor, numbers, texts, base) for host_look in look.hosts],
        "links": list(_links(floor, numbers)),
        "sick": [
            [numbers[near_host], numbers[far_host], texts.number(text)]
            for (near_host, far_host), text in sorted(look.links.items())
        ],
        "proofs": [[name, _row(fabric, texts, base)] for name, fabric in look.fabrics.items()],
        "texts": list(texts.numbers),
    }


def _host(look: HostLook, floor: FleetFloor, numbers: dict[str, int], texts: _Texts, base: int) -> list[Any]:
    host, reading = look.host, look.reading
    spot = floor.spots.get(host.name, NOWHERE)
    return [
        host.name,
        texts.number(host.group),
        spot.rack,
        spot.unit,
        spot.units,
        numbers.get(host.on, -1),
        SPARE * host.spare + SWITCH * host.switch,
        _since(reading.seen_s, base),
        texts.number(reading.drain),
        texts.number(reading.maintenance),
        [_row(entry, texts, base) for entry in look.data],
    ]


def _row(entry: Datum, texts: _Texts, base: int) -> list[Any]:
    return [
        texts.number(entry.kind),
        STATES.index(entry.state),
        texts.number(entry.text),
        _since(entry.at_s, base),
        [texts.number(line) for line in entry.details],
        texts.number(entry.page),
    ]


def _since(at_s: float | None, base: int) -> int:
    return -1 if at_s is None else round(at_s) - base


def _links(floor: FleetFloor, numbers: dict[str, int]) -> Iterable[list[int]]:
    """Yield a row for each host that cables begin at: its number, then number and cables of each far end."""
    rows: dict[int, list[int]] = {}
    for (near_host, far_host), count in floor.links.items():
        if near_host in numbers and far_host in numbers:
            rows.setdefault(numbers[near_host], [numbers[near_host]]).extend((numbers[far_host], count))
    return rows.values()
