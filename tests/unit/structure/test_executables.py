# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that the Makefile calls are executable, benchmarks begin, and those of planning run at a small size."""

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


BENCHMARKS = [
    str(path.relative_to(ROOT))
    for path in sorted(ROOT.glob("benchmarks/**/*.py"))
    if "__main__" in path.read_text("utf-8")
]
IMPORT = "import runpy, sys; sys.path[0] = sys.argv[2]; runpy.run_path(sys.argv[1], run_name='imported')"


# `make bench` runs all benchmarks at their full size.
@pytest.mark.parametrize("file", BENCHMARKS)
def test_a_benchmark_finds_what_it_imports(file: str) -> None:
    subprocess.run([sys.executable, "-c", IMPORT, file, str(Path(file).parent)], cwd=ROOT, check=True)


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
