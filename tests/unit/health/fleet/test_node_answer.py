# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's answer from its files: never healthy without a state that can be read."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
import rounds

from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.node_answer import answer, step_time_s
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, Fault, Word
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State


@pytest.fixture
def node(tmp_path):
    """Return a function that stores a state and what the node must have, and returns the answer of the node."""

    def asked(*faults, before_s=20.0, boot_id=None, **changes):
        now = state.moment()
        ended = replace(now, boot_s=now.boot_s - before_s, boot_id=boot_id or now.boot_id)
        saved = State("gpu01", Round(7, ended, 0.4, 60.0), Condition(faults, **changes), values={"step": {"node": 1.0}})
        state.save(saved, str(tmp_path))
        (tmp_path / "expected.json").write_text(stored.text(rounds.EXPECTED))
        return answer(str(tmp_path), "", str(tmp_path / "expected.json"))

    return asked


def fault(**changes):
    now = state.moment()
    terms = {"title": "row remap pending", "layer": "hardware", "action": "reset_gpu", "runbook": "gpu-row-remap"}
    return Fault("gpu_row_remap_pending", rounds.GPU, since=now, last=now, **{**terms, **changes})


def test_a_faults_of_the_state_is_in_the_fleets_table(node):
    made = node(fault(part="GPU 4, slot 7"))
    assert 19 < made.age_s < 25
    assert made.names[str(rounds.GPU)] == "GPU 4"
    assert made.like.startswith("2 x gpu")
    found = table([("gpu01", {"health": answers.to_dict(made)})])
    assert found.lines[0] == "1 node: GPU 4: row remap pending: gpu01"
    assert answers.read({"health": answers.to_dict(made)}) == made


def test_what_a_person_said_is_in_the_answer(node):
    word = Word("bad fan", "ann", state.moment())
    made = node(drain=word)
    assert made.drain == "bad fan (ann)"


def test_a_state_of_before_the_boot_is_not_known(node):
    assert "boot" in node(boot_id="another").error


def test_an_old_state_is_not_known(node):
    found = table([("gpu01", {"health": answers.to_dict(node(before_s=1000.0))})])
    assert found.unknown == ["gpu01"]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"format": "sailloft-health/9"}'])
def test_a_state_that_is_missing_or_damaged_is_not_known(tmp_path, content):
    if content is not None:
        (tmp_path / state.FILE).write_text(content)
    made = answer(str(tmp_path))
    assert made.error
    assert table([("gpu01", {"health": answers.to_dict(made)})]).unknown == ["gpu01"]


@pytest.mark.parametrize(
    ("content", "seconds"),
    [
        ("1.25\n", 1.25),
        ("", None),
        ("fast", None),
        ("nan", None),
        ("-1", None),
        ("0", None),
        ("\x00", None),
    ],
)
def test_a_step_time_is_a_positive_number(tmp_path, content, seconds):
    path = tmp_path / "step"
    path.write_text(content)
    assert step_time_s(str(path)) == seconds


def test_an_old_or_missing_step_time_is_passed_over(tmp_path):
    path = tmp_path / "step"
    assert step_time_s(str(path)) is None
    assert step_time_s("") is None
    path.write_text("1.25")
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    assert step_time_s(str(path)) is None
