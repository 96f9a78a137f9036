# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mutation testing of a synthetic library: which mutants its tests kill, and that none uses up the machine's memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
LIBRARY = "plugins/module_utils/hold/space.py"
TEST = f"""
import runpy

def test_space():
    assert len(runpy.run_path("{LIBRARY}")["space"]()) % 5 == 0
"""


@pytest.fixture
def drawn(tmp_path):
    """A function that tests the mutants of a one-file library in a separate checkout; it returns {mistake: result}."""
    for path in ("tests/unit/hold", "tests/mutation", Path(LIBRARY).parent):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "tests/unit/hold/test_space.py").write_text(TEST)
    for path in ("mutation/run.py", "conftest.py"):
        shutil.copy(TESTS / path, tmp_path / "tests" / path)

    def draw(library):
        (tmp_path / LIBRARY).write_text(library)
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
        run = [sys.executable, "tests/mutation/run.py", "plugins"]
        out = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
        lines = [line for line in out.splitlines() if " -> " in line]
        return {line.split(" -> ")[1]: line.split()[1] for line in lines}

    return draw


@pytest.mark.long
def test_a_mutant_is_killed_if_a_test_fails(drawn):
    assert drawn("def space():\n    return bytes(0 * 4) + bytes(5)\n") == {
        "'1'": "killed",
        "'5'": "SURVIVED",
        "'6'": "killed",
        "' - '": "killed",
    }


@pytest.mark.long
def test_a_mutant_that_exceeds_the_memory_limit_is_killed(drawn):
    # The 5 GiB are allocated, but no page is touched: without a limit the allocation would succeed and the test would
    # pass.
    assert drawn("def space():\n    return bytes(0 * (5 << 30))\n")["'1'"] == "killed"
