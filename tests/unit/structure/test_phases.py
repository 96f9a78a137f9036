# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The phases of `make test`: side by side or in turn, a failed one named and counted, on a made-up Makefile."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PHASES = Path(__file__).parents[2] / "phases"
MAKEFILE = """
environments a b c:
\t@echo $@ >> ran; echo did $@
bad:
\t@echo $@ >> ran; exit 7
"""


@pytest.fixture
def phases(tmp_path):
    """A function: the exit status, standard output, standard error and the phases that ran, in their order."""
    (tmp_path / "tests").mkdir()
    shutil.copy(PHASES, tmp_path / "tests/phases")
    (tmp_path / "Makefile").write_text(MAKEFILE)

    def run(*groups):
        done = subprocess.run([tmp_path / "tests/phases", *groups], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr, (tmp_path / "ran").read_text().split()

    return run


def test_groups_run_one_after_the_other(phases):
    status, out, _, ran = phases("a", "b,c")
    assert (status, ran) == (0, ["a", "b", "c"])
    assert [line.split()[0] for line in out.split("phase ")[1].splitlines()[1:]] == ["a", "b", "c", "together"]
    assert "\ndid a\n" in out


def test_lanes_name_the_phase_in_each_line(phases):
    status, out, _, ran = phases("a,b+c")
    assert (status, ran[0], sorted(ran)) == (0, "environments", ["a", "b", "c", "environments"])
    assert ran.index("a") < ran.index("b")
    assert {"a: did a", "b: did b", "c: did c"} <= set(out.splitlines())


def test_a_failed_phase_ends_its_lane_and_its_group_the_run(phases):
    status, out, error, ran = phases("a,bad,b+c", "a")
    assert (status, sorted(ran)) == (1, ["a", "bad", "c", "environments"])
    assert error == "failed: bad \n"
    assert [line.split()[2:] for line in out.splitlines() if line.startswith("bad ")] == [["failed"]]
