# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that the Makefile calls by their path are executable."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The first word of a recipe's line, after make's own "@" and "-".
CALLED = re.compile(r"^\t[@-]?((?:roles|tests|docs|molecule|benchmarks)/[\w./-]+)", re.MULTILINE)


def test_what_the_makefile_calls_is_executable():
    called = set(CALLED.findall((ROOT / "Makefile").read_text()))
    assert len(called) > 10
    assert [path for path in sorted(called) if not os.access(ROOT / path, os.X_OK)] == []
