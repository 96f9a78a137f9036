# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The style of the fleet's page. Each state has a letter and a pattern besides its colour."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import PALETTE

STYLE = (
    PALETTE
    + """\
:root { --unit: 16px; --rack: 11rem; --differs: #8a4b00; --noted: #f1dc8c; --noted-ink: #3d3200; --ok: #cfe9da;
  --ok-ink: #14432c; }
@media (prefers-color-scheme: dark) {
  :root { --differs: #ffb45e; --noted: #6b5a14; --noted-ink: #fff3c4; --ok: #1d4a36; --ok-ink: #bdf0d4; }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(0.8rem, 3vw, 2.5rem) 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 "Source Sans 3", "Source Sans Pro", "Segoe UI", system-ui, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
h1 { font-size: clamp(1.5rem, 1.2rem + 1.5vw, 2.1rem); line-height: 1.2; margin: 0 0 0.8rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.6rem; } h3 { font-size: 0.95rem; margin: 1rem 0 0.4rem; color: var(--soft); }
.kicker, .soft { color: var(--soft); margin: 0 0 0.5rem; }
button, input, select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; }
button { cursor: pointer; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; z-index: 3; }
.bar { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; margin: 0 0 0.7rem; }
.bar input[type=search] { flex: 1 1 14rem; min-width: 0; padding: 0.45rem 0.7rem; }
.bar select { padding: 0.45rem 0.5rem; max-width: 100%; }
.chip { display: inline-flex; align-items: center; gap: 0.45rem; padding: 0.25rem 0.7rem 0.25rem 0.3rem;
  border-radius: 999px; }
.chip[aria-pressed=true] { border-color: var(--ink); box-shadow: inset 0 0 0 1px var(--ink); }
.mark { display: inline-grid; place-items: center; width: 1.5rem; height: 1.5rem; border-radius: 4px; font-weight: 700;
  font-size: 0.9rem; flex: none; line-height: 1; }
.fault { background: var(--failed); color: var(--card); }
.differs { color: var(--card);
  background: repeating-linear-gradient(90deg, var(--differs) 0 10px,
    color-mix(in srgb, var(--differs) 80%, var(--card)) 10px 13px); }
.unknown { color: var(--ink); background: repeating-linear-gradient(45deg, var(--card) 0 4px, var(--line) 4px 8px);
  box-shadow: inset 0 0 0 1px var(--soft); }
.noted { background: var(--noted); color: var(--noted-ink); }
.ok { background: var(--ok); color: var(--ok-ink); }
.none { background: var(--card); color: var(--soft); box-shadow: inset 0 0 0 1px var(--line); }
.racks { display: flex; flex-wrap: wrap; gap: 1rem 0.8rem; align-items: flex-end; }
.rack { width: var(--rack); contain: content; }
.rack h4 { margin: 0 0 2px; font-size: 0.78rem; font-weight: 600; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.frame { position: relative; border: 1px solid var(--soft); border-radius: 3px; background:
  repeating-linear-gradient(0deg, transparent 0 calc(var(--unit) - 1px),
    var(--line) calc(var(--unit) - 1px) var(--unit)); }
.slot { position: absolute; left: 1px; right: 1px; display: flex; gap: 1px; padding: 0.5px 0; }
.tile { flex: 1 1 0; min-width: 0; border: 0; border-radius: 2px; padding: 0 4px;
  font-size: min(0.78rem, calc(var(--unit) * 0.85));
  line-height: 1; text-align: left; overflow: hidden; white-space: nowrap; position: relative; display: flex;
    gap: 5px; align-items: center; }
.tile b { font-size: 1.1em; flex: none; min-width: 0.8em; text-align: center; } .tile span { overflow: hidden;
  text-overflow: ellipsis; }
.tile.switch { border-left: 5px solid var(--accent); border-radius: 0 8px 8px 0; }
.tile.spare { outline: 2px dashed var(--soft); outline-offset: -2px; }
.tile.person { border-right: 5px double currentColor; }
.tile.linked { outline: 3px solid var(--accent); outline-offset: -2px; z-index: 2; }
.tile[aria-current=true] { outline: 3px solid var(--ink); outline-offset: -1px; z-index: 2; }
.tile.dim { opacity: 0.15; }
.loose { display: grid; grid-template-columns: repeat(auto-fill, minmax(var(--rack), 1fr)); gap: 3px; }
.loose .tile { height: calc(var(--unit) * 1.6 + 2px); }
.small { --unit: 4px; --rack: 2.6rem; } .small .tile { padding: 0 2px; font-size: 0.72rem; justify-content: center; }
  .small .tile span { display: none; }
.small .rack h4 { font-size: 0.6rem; direction: rtl; text-align: left; } .small .racks { gap: 0.7rem 0.3rem; }
  .small .low b { display: none; }
.small .loose .tile { height: 1.3rem; }
.middle { --unit: 9px; --rack: 6rem; } .middle .low { font-size: 7px; } .middle .low b { font-size: 8px; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th { text-align: left; padding: 0; white-space: nowrap; border-bottom: 1px solid var(--line); }
th button { border: 0; background: none; padding: 0.5rem 0.7rem; font-weight: 600; color: var(--soft); width: 100%;
  text-align: left; }
th[aria-sort=ascending] button::after { content: " \\25B2"; } th[aria-sort=descending] button::after {
  content: " \\25BC"; }
td { padding: 0.35rem 0.7rem; border-top: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
td:nth-child(2), td:nth-child(3), td:nth-child(4), td:nth-child(7), td:nth-child(8) { white-space: nowrap;
  overflow-wrap: normal; }
td .open { border: 0; background: none; padding: 0; color: var(--accent); text-decoration: underline;
  text-align: left; }
.more { margin: 0.7rem 0; padding: 0.4rem 0.9rem; }
#panel { position: fixed; right: 0; top: 0; bottom: 0; width: min(30rem, 100vw); overflow: auto;
  padding: 1.2rem 1.4rem 2rem;
  background: var(--card); border-left: 1px solid var(--line); box-shadow: 0 0 2rem #0004; z-index: 5; }
#panel h2 { margin: 0 2.5rem 0.2rem 0; overflow-wrap: anywhere; } #panel .close { position: absolute; right: 1rem;
  top: 1rem; width: 2.2rem; height: 2.2rem; }
#panel section { border-top: 1px solid var(--line); padding: 0.7rem 0; } #panel h3 { margin: 0; display: flex;
  gap: 0.5rem; align-items: center; color: var(--ink); }
#panel p, #panel ul { margin: 0.3rem 0; overflow-wrap: anywhere; } #panel ul { padding-left: 1.2rem;
  font-size: 0.87rem; }
#panel .links { display: flex; flex-wrap: wrap; gap: 0.3rem; padding: 0; list-style: none; }
#panel .links button.sick { border: 2px solid var(--differs); } #panel .links b { color: var(--differs); }
#panel .links button { display: inline-flex; gap: 0.35rem; align-items: center; padding: 0.1rem 0.5rem 0.1rem 0.1rem; }
a { color: var(--accent); }
main { display: flex; flex-direction: column; } main > .more { align-self: flex-start; }
@media (min-width: 64rem) { body:has(#panel:not([hidden])) { padding-right: 32rem; } }
[hidden] { display: none !important; }
@media screen and (max-width: 48rem) {
  :root { --rack: calc(50vw - 1.4rem); }
  #list { order: -1; }
  #panel { top: auto; width: 100vw; max-height: 75vh; border-left: 0; border-top: 1px solid var(--line);
    border-radius: 12px 12px 0 0; }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { padding: 0.5rem 0; border-top: 1px solid var(--line); } tbody > tr:first-child { border-top: 0; }
  td { border-top: 0; padding: 0.1rem 0.8rem; }
  td:nth-child(1) { float: left; } td[data-name] { display: inline-block; } td:empty { display: none; }
  td[data-name]::before { content: attr(data-name) ": "; color: var(--soft); }
}
@media print {
  :root { --ink: #000; --soft: #444; --line: #ccc; --paper: #fff; --card: #fff; --failed: #b3261e; --differs: #8a4b00;
    --noted: #f1dc8c; --noted-ink: #3d3200; --ok: #cfe9da; --ok-ink: #14432c; --accent: #24527a; }
  body { padding: 0; font-size: 11px; } .bar.controls, .more, #panel { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } .rack, tr { break-inside: avoid; }
  table { font-size: 10px; } td, th button { padding: 2px 6px; } .racks { display: block; } .rack {
    display: inline-block; vertical-align: bottom; margin: 0 6px 10px 0; }
}
"""
)
