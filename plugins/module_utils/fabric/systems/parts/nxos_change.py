# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the lines that change objects and ports of an NX-OS configuration. Sources: systems/nxos.py.

hier_config is not used: it compares texts, and would replace what already means the same under other names. A test
compares the two.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.nxos import (
    INPUT,
    OUTPUT,
    WATCHDOG,
    NxosConfiguration,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import OWN_NAME, CliLine, CliSettings

NOT_HELD = {
    "headroom": "NX-OS sizes the headroom of a no-drop class itself, from its MTU and the port's speed",
    "cable_m": "NX-OS's configuration has no setting for cable lengths",
}
# An object has only one of each of these lines: a new one replaces the old one.
_SINGLE = re.compile(r"(set qos-group|mtu|pause|bandwidth|priority|random-detect)\b")

Tree = dict[str, "Tree"]


def lines_of(tree: Tree, depth: int = 0) -> list[str]:
    return [line for head, subtree in tree.items() for line in (" " * depth + head, *lines_of(subtree, depth + 2))]


def kind_and_name(head: str) -> tuple[str, str]:
    """Return an object's type, which is qos where its first line names none, and its name."""
    words = head.split(" ")
    return words[2] if words[1] == "type" else "qos", words[-1]


def object_changes(model: NxosConfiguration, head: str, tree: Tree) -> list[str]:
    """Return the lines that make the class map or policy map ``head``: all, or the difference where it exists."""
    existing = (model.class_maps if head.startswith("class-map") else model.policy_maps).get(kind_and_name(head))
    if existing is None:
        return lines_of({head: tree})
    changes = _differences(existing.children, tree, 2)
    return [head, *changes] if changes else []


def _differences(existing: list[CliLine], wanted: Tree, depth: int) -> list[str]:
    blank = " " * depth
    existing_by_text = {line.text: line for line in existing}
    missing = [head for head in wanted if head not in existing_by_text]
    replaced = {match[1] for match in map(_SINGLE.match, missing) if match}
    lines = []
    for text in existing_by_text:
        single = _SINGLE.match(text)
        if text not in wanted and not (single and single[1] in replaced):
            lines.append(f"{blank}no {text}")
    for head, subtree in wanted.items():
        if head not in existing_by_text:
            lines += lines_of({head: subtree}, depth)
        else:
            deeper = _differences(existing_by_text[head].children, subtree, depth + 2)
            lines += [f"{blank}{head}", *deeper] if deeper else []
    return lines


def port_changes(existing: CliSettings, wanted: dict[str, str]) -> list[str]:
    lines = [
        f"  no {existing.values[key][1].text}"
        for key in (INPUT, OUTPUT)
        if existing.get(key) not in (None, wanted.get(key))
    ]
    if WATCHDOG in existing.values and existing.get(WATCHDOG) != (WATCHDOG in wanted, False, None):
        lines.append(f"  no {existing.values[WATCHDOG][1].text}")
    for key, value in wanted.items():
        existing_value = existing.get(key)
        if key == WATCHDOG:
            existing_value = "on" if existing_value == (True, False, None) else None
        if str(existing_value) != value:
            lines.append(f"  {key} {value}")
    return lines


def leftovers(model: NxosConfiguration, used: set[tuple[str, str]]) -> list[str]:
    """Return the lines that remove this project's unused objects: policy maps first, because they use class maps."""
    policies = [key for key in model.policy_maps if OWN_NAME.fullmatch(key[1]) and key not in used]
    needed = {
        ("qos", entry.text.split(" ")[-1])
        for key, line in model.policy_maps.items()
        if key not in policies
        for entry in line.children
    }
    return [
        *(f"no policy-map type {kind} {name}" for kind, name in policies),
        *(
            f"no {line.text}"
            for key, line in model.class_maps.items()
            if OWN_NAME.fullmatch(key[1]) and key not in needed and key not in used
        ),
    ]
