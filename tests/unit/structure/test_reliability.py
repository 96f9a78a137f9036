# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tests that the documentation names exist, and the table of failures names tests, not files."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The pattern excludes the placeholder test_NAME.py.
NAMED = re.compile(r"`(tests/[\w/]+(?<!_NAME)\.py)(?:::(\w+))?`")


def test_every_test_that_the_documentation_names_exists():
    missing, seen = [], 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        for path, name in NAMED.findall(page.read_text()):
            if "NAME" in path:  # a placeholder in a recipe
                continue
            seen += 1
            file = ROOT / path
            if not file.exists() or (name and not re.search(rf"^(def|class) {name}\b", file.read_text(), re.MULTILINE)):
                missing.append(f"{page.name}: {path}::{name}")
    assert seen > 80
    assert missing == []


def test_each_row_of_the_table_of_failures_names_tests():
    page = (ROOT / "docs/reliability.md").read_text()
    assert [path for path, name in NAMED.findall(page) if not name] == []
