#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the table of checks in docs/reference/health.md from the tables of rules: health_checks.py [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.health import model
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Rule
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import (
    bandwidth,
    bmc,
    checker,
    gpu,
    host,
    kernel,
    network,
    xid,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

PAGE = ROOT / "docs/reference/health.md"
BEGIN = "<!-- Written by docs/site/health_checks.py from the tables of rules: change these instead. -->\n"
SUBJECTS = {
    "GPUs, NVLinks and NVSwitches": gpu,
    "Bandwidths against the acceptance": bandwidth,
    "Xids": xid,
    "Other lines of the kernel's log": kernel,
    "Host": host,
    "Networks": network,
    "BMC": bmc,
    "The check itself": checker,
}


def limit(rule: Rule) -> str:
    """Return what a rule asks of a value, in words."""
    unit = f" {rule.unit}" if rule.unit else ""
    number = "" if rule.limit is None else f"{rule.limit:g}{unit}"
    value = "as planned" if rule.expected else number
    if rule.expected and number:
        value = f"as planned, else {number}"
    if rule.comparison == model.EVENT:
        return "each event"
    if rule.comparison == model.NOT_TRUE:
        return "not true"
    if not value:
        return "no limit: compared over the fleet"
    if rule.comparison == model.INCREASE_AT_MOST:
        window = f"{rule.window_s} s" if rule.window_s else "a round"
        return f"increase at most {value} in {window}"
    if rule.comparison == model.MEDIAN_AT_LEAST:
        return f"median of {rule.samples} at least {value}"
    return value if rule.comparison == model.EQUAL else f"{rule.comparison} {value}"


def row(rule: Rule) -> str:
    """Return a rule as a row of a table."""
    cells = (
        f"`{rule.check}`",
        rule.title,
        rule.layer,
        limit(rule),
        rule.source,
        rule.action.replace("_", " "),
        f"[{rule.runbook}](runbooks.md#{rule.runbook})",
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def tables() -> str:
    """Return all rules as text, a section for each table."""
    lines = [BEGIN]
    listed = set()
    for subject, module in SUBJECTS.items():
        lines += [f"## {subject}", "", "| check | fault | layer | limit | source | action | runbook |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for rule in sorted(module.RULES, key=lambda rule: rule.check):
            lines.append(row(rule))
            listed.add(rule.check)
        lines.append("")
    if listed != set(RULES):
        raise AssertionError(f"a table of rules is not in SUBJECTS: {sorted(set(RULES) - listed)[:3]}")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the tables, or with --check say whether they are current; the exit status is 1 if not."""
    text = PAGE.read_text(encoding="utf-8")
    head, begin, _old = text.partition(BEGIN)
    new = head + tables()
    if begin and text == new:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"not current: {PAGE.relative_to(ROOT)}; run docs/site/health_checks.py", file=sys.stderr)
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
