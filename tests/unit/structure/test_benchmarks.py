# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Benchmarks of planning run at a small size; `make bench` runs all, at full size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize(
    ("arguments", "counted"),
    [
        (["planning.py", "--hosts", "2"], {"hosts": 2}),
        (["blueprint.py", "--plan", "100"], {"nodes": 100}),
        (["fabric.py", "--groups", "1"], {"switches": 64, "hosts": 512}),
    ],
)
def test_a_benchmark_measures_what_it_says(arguments: list[str], counted: dict[str, int]) -> None:
    name, *options = arguments
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *options], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert {each: found[each] for each in counted} == counted
