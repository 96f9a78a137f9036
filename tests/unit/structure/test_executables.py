# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that the Makefile calls by path are executable, and the planning benchmarks run at a small size."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The first word of a recipe's line, after make's own "@" and "-".
CALLED = re.compile(r"^\t[@-]?((?:roles|tests|docs|molecule|benchmarks)/[\w./-]+)", re.MULTILINE)


def test_programs_that_the_makefile_calls_are_executable():
    called = set(CALLED.findall((ROOT / "Makefile").read_text()))
    assert len(called) > 10
    assert [path for path in sorted(called) if not os.access(ROOT / path, os.X_OK)] == []


# `make bench` runs all benchmarks at their full size.
@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "counted"),
    [
        (["planning.py", "--hosts", "2"], {"hosts": 2}),
        (["blueprint.py", "--plan", "100"], {"nodes": 100}),
        (["fabric.py", "--groups", "1"], {"switches": 64, "hosts": 512}),
    ],
)
def test_a_benchmark_measures_the_requested_size(arguments: list[str], counted: dict[str, int]) -> None:
    name, *options = arguments
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert {each: found[each] for each in counted} == counted
