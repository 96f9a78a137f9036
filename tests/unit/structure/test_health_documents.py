# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The pages about health: the table of checks is that of the rules, and each fault has its runbook."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.outliers import WATCHED
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ACTIONS
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs/reference/runbooks.md"
CHECKS = ROOT / "docs/reference/health.md"


def test_the_table_of_checks_is_that_of_the_rules():
    run = subprocess.run(
        [sys.executable, ROOT / "docs/site/health_checks.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    named = set(re.findall(r"^\| `(\w+)` \|", CHECKS.read_text(encoding="utf-8"), re.M))
    assert set(RULES) <= named


def test_each_fault_and_alert_has_its_runbook_and_no_runbook_is_without_one():
    sections = set(re.findall(r"^## (.*)$", RUNBOOKS.read_text(encoding="utf-8"), re.M))
    assert sections == {each.runbook for each in (*RULES.values(), *ALERTS.values())}


def test_each_action_and_each_compared_value_is_explained():
    text = CHECKS.read_text(encoding="utf-8")
    assert [action for action in ACTIONS if f"| {action.replace('_', ' ')} |" not in text] == []
    assert [check for check in WATCHED if f"`{check}`" not in text] == []
