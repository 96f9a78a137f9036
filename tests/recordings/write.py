#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes a recording: a topology (what host_topology_info returned, JSON on standard input) and where it is from.

python tests/recordings/write.py NAME --machine TEXT --source TEXT < topology.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

WIDTH = 118
ALWAYS = ("parent", "port_type")


def render(value: Any, indent: int = 0) -> str:
    """JSON with whatever fits into one line on one line, so that a recording can be read and compared by people."""
    flat = json.dumps(value)
    if len(flat) + indent <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + render(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    rows: list[str] = []
    row = ""
    for key, item in value.items():
        text = f"{json.dumps(key)}: {render(item, indent + 1)}"
        if row and "\n" not in row + text and len(inner) + len(row) + 2 + len(text) + 1 <= WIDTH:
            row += ", " + text
        else:
            rows += [row] if row else []
            row = text
    return "{\n" + ",\n".join(inner + row for row in [*rows, row]) + "\n" + " " * indent + "}"


def slim(topology: dict[str, Any]) -> dict[str, Any]:
    """Without what a function does not have: reading it back gives the same."""
    functions = [
        {key: value for key, value in function.items() if key in ALWAYS or value not in (None, [], {})}
        for function in topology["functions"]
    ]
    return {**topology, "functions": functions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--machine", required=True, help="what the machine is")
    parser.add_argument("--source", required=True, help="who recorded it, where that is, under which licence")
    arguments = parser.parse_args()
    recording = {"machine": arguments.machine, "source": arguments.source, "topology": slim(json.load(sys.stdin))}
    target = Path(__file__).parent / f"{arguments.name}.json"
    target.write_text(render(recording) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
