# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The clock is judged by chrony, or by the kernel where chrony does not answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import failed, node, results

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import PASS
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host import clock
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, Ran

TRACKING = "A29FC87B,time.example.org,3,1795731765.123,{},0.000003,0.00002,-12.3,0.001,0.02,0.01,0.0005,64.2,{}"
ALL = {"clock_not_synchronised", "clock_offset"}


def reading(root, answer):
    """Return a reading where chronyc gives this answer."""
    return clock.read(node(root, programs={"chronyc -c tracking": answer}))


def test_a_clock_that_follows_its_source_passes(tmp_path):
    for leap in ("Normal", "Insert second"):
        judged = results(reading(tmp_path, TRACKING.format("-0.000012", leap)))
        assert ({each.verdict for each in judged}, {each.check for each in judged}) == ({PASS}, ALL)


def test_a_clock_without_a_source_and_one_that_is_off(tmp_path):
    lost = reading(tmp_path, TRACKING.format("3.5", "Not synchronised"))
    assert failed(lost) == {"clock_not_synchronised": [""]}
    for offset in ("0.2", "-0.2"):
        assert failed(reading(tmp_path, TRACKING.format(offset, "Normal"))) == {"clock_offset": [""]}


@pytest.mark.parametrize(
    "answer", [NotMeasuredError("chronyc: no such program"), Ran(1, "506 Cannot talk to daemon", ""), "", "a,b", "Ja"]
)
@pytest.mark.parametrize(
    ("kernel", "expected"),
    [((True, 0.001), set()), ((False, 0.0), {"clock_not_synchronised"}), ((True, 1.5), {"clock_offset"})],
)
def test_the_kernel_is_asked_where_chrony_does_not_answer(tmp_path, monkeypatch, answer, kernel, expected):
    monkeypatch.setattr(clock, "kernel_clock", lambda: kernel)
    assert set(failed(reading(tmp_path, answer))) == expected


def test_the_real_kernel_answers():
    is_synchronised, offset = clock.kernel_clock()
    assert isinstance(is_synchronised, bool)
    assert abs(offset) < 10


@given(st.text() | st.lists(st.text(), min_size=14, max_size=14).map(",".join))
def test_no_text_is_an_error(text):
    measured = clock.parse_tracking(text)
    assert measured is None or math.isfinite(measured[1])
