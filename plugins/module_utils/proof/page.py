# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write a proof as one self-contained HTML file: no script, no font, no picture from elsewhere. Pure."""

from __future__ import annotations

from html import escape
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, ProofError, show
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof, count, heading


def page(proof: Proof, drawing: str = "", heading_of_drawing: str = "PCIe and NUMA") -> str:
    """Return the whole page. All text of the proof is escaped.

    ``drawing`` is one whole <svg> element from this collection's own code. Raises ProofError if it is not.
    """
    failed = [claim for claim in proof.claims if claim.holds is False]
    not_applicable = [claim for claim in proof.claims if claim.holds is None]
    sections = []
    if failed:
        sections.append(_failures(failed))
    if drawing:
        sections.append(_picture(drawing, heading_of_drawing))
    for layer, claims in proof.by_layer().items():
        claimed = [claim for claim in claims if claim.holds is not None]
        if claimed:
            sections.append(_layer(layer, claimed))
    if not_applicable:
        sections.append(_not_applicable(not_applicable))
    body = "\n".join(sections)
    return f"""{head(proof.title, _STYLE)}<body>
{_header(proof)}
<main>
{body}
</main>
<footer>Written by sailloft.fleet. The same proof for programs: {escape(proof.name)}.json</footer>
</body>
</html>
"""


def head(title: str, style: str, script: str = "") -> str:
    """Return a page until its body. ``script``: the source of the only scripts that may run in it, for its policy."""
    scripts = f"; script-src {script}" if script else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'{scripts}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
"""


def _header(proof: Proof) -> str:
    counts = proof.counts
    if proof.holds:
        verdict = '<p class="verdict held">Holds</p>'
    elif counts.failed:
        verdict = '<p class="verdict failed">Does not hold</p>'
    else:
        verdict = '<p class="verdict failed">Nothing was proved</p>'
    failed = "failed" if counts.failed else "failed zero"
    layers = "".join(
        f'<li><a href="#layer-{escape(layer, quote=True)}"><span class="name">{escape(heading(layer))}</span>'
        f"{_tally(claims)}</a></li>"
        for layer, claims in proof.by_layer().items()
    )
    return f"""<header>
<p class="kicker">Proof &middot; {escape(proof.host)}</p>
<h1>{escape(proof.title)}</h1>
{verdict}
<dl class="counts">
<div class="held"><dd>{counts.held}</dd><dt>{_plural(counts.held, "claim holds", "claims hold")}</dt></div>
<div class="{failed}"><dd>{counts.failed}</dd><dt>{_plural(counts.failed, "fails", "fail")}</dt></div>
<div class="apart"><dd>{counts.not_applicable}</dd><dt>not applicable here</dt></div>
</dl>
<nav><ol class="layers">{layers}</ol></nav>
</header>"""


def _plural(number: int, singular: str, plural: str) -> str:
    return singular if number == 1 else plural


def _tally(claims: list[Claim]) -> str:
    counts = count(claims)
    parts = [f'<b class="held">{counts.held}</b> held'] if counts.held else []
    if counts.failed:
        parts.append(f'<b class="failed">{counts.failed}</b> failed')
    if counts.not_applicable:
        parts.append(f"<b>{counts.not_applicable}</b> n/a")
    return f'<span class="tally">{", ".join(parts)}</span>'


def _value(value: Any) -> str:
    if value is None:
        return '<span class="nothing">nothing</span>'
    if isinstance(value, dict) and value:
        rows = "".join(f"<li>{escape(str(key))}: {escape(show(item))}</li>" for key, item in value.items())
        return f'<ul class="value">{rows}</ul>'
    return escape(show(value))


def _row(claim: Claim) -> str:
    state, mark, word = ("held", "&#10003;", "holds") if claim.holds else ("failed", "&#10007;", "fails")
    reason = f'<p class="reason">{escape(claim.reason)}</p>' if claim.reason else ""
    return (
        f'<tr class="{state}"><td class="mark"><span title="{word}" aria-label="{word}">{mark}</span></td>'
        f'<td class="claim">{escape(claim.claim)}{reason}</td>'
        f'<td class="value">{_value(claim.wanted)}</td><td class="value">{_value(claim.seen)}</td>'
        f'<td class="source">{escape(claim.source)}</td></tr>'
    )


def _claims_table(claims: list[Claim]) -> str:
    rows = "\n".join(_row(claim) for claim in claims)
    return f"""<div class="scroll"><table>
<colgroup><col class="mark"><col class="claim"><col class="value"><col class="value"><col class="source"></colgroup>
<thead><tr><th class="mark"></th><th>Claim</th><th>Wanted</th><th>Seen</th><th>Source</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>"""


def _failures(claims: list[Claim]) -> str:
    return f'<section class="failures"><h2>What does not hold</h2>\n{_claims_table(claims)}\n</section>'


def _layer(layer: str, claims: list[Claim]) -> str:
    anchor = escape(layer, quote=True)
    return (
        f'<section id="layer-{anchor}"><h2>{escape(heading(layer))} {_tally(claims)}</h2>\n'
        f"{_claims_table(claims)}\n</section>"
    )


def _not_applicable(claims: list[Claim]) -> str:
    by_reason: dict[str, list[Claim]] = {}
    for claim in claims:
        by_reason.setdefault(claim.reason, []).append(claim)
    groups = "\n".join(
        f'<div class="group"><h3>{escape(reason)}</h3><div class="scroll"><table>'
        '<colgroup><col class="claim"><col class="layer"><col class="value"><col class="value">'
        '<col class="source"></colgroup>'
        "<thead><tr><th>Claim</th><th>Layer</th><th>Wanted</th><th>Seen</th><th>Source</th></tr></thead><tbody>"
        + "\n".join(
            f'<tr><td class="claim">{escape(claim.claim)}</td><td>{escape(heading(claim.layer))}</td>'
            f'<td class="value">{_value(claim.wanted)}</td><td class="value">{_value(claim.seen)}</td>'
            f'<td class="source">{escape(claim.source)}</td></tr>'
            for claim in members
        )
        + "</tbody></table></div></div>"
        for reason, members in by_reason.items()
    )
    return f"""<section class="apart" id="not-applicable"><h2>Not applicable here</h2>
<p class="lead">These were not shown on this machine, and none of them counts as passed.</p>
{groups}
</section>"""


def _picture(drawing: str, title: str) -> str:
    svg = drawing.strip()
    if not svg.startswith("<svg") or not svg.endswith("</svg>") or "<script" in svg.lower():
        raise ProofError("the picture of the proof is not one plain <svg> element")
    return f'<section class="picture">\n<h2>{escape(title)}</h2>\n<figure class="scroll">{svg}</figure>\n</section>'


# The colours of all pages of the collection.
PALETTE = """\
:root {
  --ink: #1b2430; --soft: #5b6675; --line: #dfe3e8; --paper: #fbfbfa; --card: #ffffff;
  --held: #1d7a4c; --failed: #b3261e; --failed-wash: #fdf0ee; --accent: #24527a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e4e8ed; --soft: #97a3b1; --line: #2c3641; --paper: #12171d; --card: #19202a;
    --held: #5cc793; --failed: #ff8a80; --failed-wash: #2d1a1c; --accent: #8fbce6;
  }
}
"""
_STYLE = (
    PALETTE
    + """\
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 84rem; padding: 3rem clamp(1rem, 4vw, 3.5rem) 4rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 "Source Sans 3", "Source Sans Pro", "Segoe UI", system-ui, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
h1, h2, h3 { line-height: 1.2; font-weight: 600; text-wrap: balance; }
h1 { font-size: clamp(1.7rem, 1.2rem + 2vw, 2.5rem); letter-spacing: -0.015em; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; margin: 0 0 0.8rem; display: flex; align-items: baseline; gap: 0.8rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.4rem 0 0.4rem; max-width: 60rem; }
.kicker { margin: 0 0 0.4rem; color: var(--soft); letter-spacing: 0.02em; }
.verdict {
  display: inline-block; margin: 0 0 1.6rem; padding: 0.2rem 0.9rem; border-radius: 999px;
  border: 1.5px solid currentColor; font-weight: 600;
}
.held > dd, b.held, .verdict.held, tr.held .mark { color: var(--held); }
.failed > dd, b.failed, .verdict.failed, tr.failed .mark { color: var(--failed); }
.counts { display: flex; flex-wrap: wrap; gap: 0.5rem 3rem; margin: 0 0 1.8rem; }
.counts div { display: flex; flex-direction: column; }
.counts dd { margin: 0; font-size: 2.6rem; line-height: 1.05; font-weight: 600; letter-spacing: -0.02em; }
.counts dt { color: var(--soft); }
.counts .zero dd, .counts .apart dd { color: var(--soft); }
.layers { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); margin: 0; padding: 0;
  list-style: none; border: 1px solid var(--line); border-radius: 8px; background: var(--card); overflow: hidden; }
.layers a { display: flex; flex-direction: column; padding: 0.7rem 1rem; color: inherit; text-decoration: none;
  height: 100%; box-shadow: 1px 1px 0 var(--line); }
.layers a:hover .name, .layers a:focus-visible .name { text-decoration: underline; }
.layers .name { font-weight: 600; }
.tally { color: var(--soft); font-size: 0.9rem; font-weight: 400; }
.tally b { font-weight: 600; }
section { margin: 3rem 0 0; scroll-margin-top: 1rem; }
.scroll { overflow-x: auto; }
/* The same columns in every table of the page. */
table {
  width: 100%; min-width: 54rem; table-layout: fixed; border-collapse: collapse; font-size: 0.925rem;
  background: var(--card);
}
col.mark { width: 2.6rem; } col.layer { width: 7.5rem; } col.claim { width: 34%; } col.value { width: 17%; }
section > .scroll, .group > .scroll { border: 1px solid var(--line); border-radius: 8px; }
th {
  text-align: left; font-weight: 600; color: var(--soft); font-size: 0.82rem; padding: 0.5rem 0.8rem;
  white-space: nowrap;
}
td { padding: 0.5rem 0.8rem; border-top: 1px solid var(--line); vertical-align: top; }
td.claim::first-letter { text-transform: uppercase; }
td.value, td.source {
  font-family: ui-monospace, "SFMono-Regular", "Cascadia Mono", "DejaVu Sans Mono", "Liberation Mono", monospace;
  font-size: 0.8rem; line-height: 1.55; overflow-wrap: anywhere;
}
td.source { color: var(--soft); }
ul.value { margin: 0; padding: 0; list-style: none; }
.mark { padding-right: 0; font-weight: 700; }
tr.failed td { background: var(--failed-wash); }
.reason { margin: 0.2rem 0 0; color: var(--soft); font-size: 0.875rem; }
.nothing { font-style: italic; color: var(--soft); }
.failures h2 { color: var(--failed); }
.apart .lead { color: var(--soft); margin: 0; }
section.apart { border-top: 1px solid var(--line); padding-top: 2.4rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; }
figure svg { display: block; width: 100%; min-width: 54rem; height: auto; }
footer { margin: 4rem 0 0; color: var(--soft); font-size: 0.875rem; }
/* On a phone each claim is a block, and each value has its name. */
@media (max-width: 48rem) {
  table, tbody, tr, td { display: block; min-width: 0; width: 100%; }
  thead { display: none; }
  tr { padding: 0.5rem 0; border-top: 1px solid var(--line); }
  tbody > tr:first-child { border-top: 0; }
  td { padding: 0.1rem 0.8rem; border-top: 0; }
  td.mark { float: left; width: auto; padding: 0.1rem 0 0 0.8rem; }
  td:nth-child(3)::before { content: "Wanted: "; }
  td:nth-child(4)::before { content: "Seen: "; }
  td:nth-child(5)::before { content: "Source: "; }
  td:nth-child(n + 3)::before { color: var(--soft); font-family: system-ui, sans-serif; }
  ul.value { display: inline-block; vertical-align: top; }
}
@media print { body { max-width: none; padding: 0; font-size: 11px; } tr { break-inside: avoid; } }
"""
)
