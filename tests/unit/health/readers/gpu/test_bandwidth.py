# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Copies that the site measures are judged by their median against the acceptance, each measurement once."""

from __future__ import annotations

import os

import pytest
import tool_outputs as printed
from gpu_readings import FIRST, SECOND, expected, write
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RESET_COUNT, RoundMemory, judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Measurement,
    Moment,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.bandwidth import FILE, read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import rules_of

ACCEPTED = {f"{test} {FIRST}": 24.0 for test in ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")}
PLAN = expected(FIRST, SECOND, accepted=ACCEPTED)
CHECKS = ("pcie_bandwidth_to_gpu", "pcie_bandwidth_from_gpu")


class Hours:
    """A node whose site measures now and then."""

    def __init__(self, root):
        self.root, self.kept, self.memory, self.hour = root, {}, RoundMemory(), 0

    def measure(self, rate, resets=0):
        """Return the verdicts on the first GPU after another hour; without a rate nothing is measured anew."""
        if rate is not None:
            write(self.root, FILE, printed.nvbandwidth([FIRST, SECOND], [rate, 1.0]))
            os.utime(self.root / FILE.lstrip("/"), (self.hour, self.hour))
        reading = read(Node(PLAN, str(self.root), self.kept))
        self.kept = reading.kept
        self.hour += 1
        counts = Reading("smi", (Measurement(RESET_COUNT, Place("gpu", FIRST), resets, "smi"),))
        now = Moment(0, "boot", self.hour * 3600)
        judged = judge([reading, counts], rules_of(PLAN), PLAN, self.memory, now)
        self.memory = judged.memory
        assert {result.place for result in judged.results} <= {Place("gpu", FIRST)}
        return [result.verdict for result in judged.results if result.check in CHECKS]


def test_the_papers_link_fails_when_half_of_twelve_measurements_are_slow(tmp_path):
    node = Hours(tmp_path)
    verdicts = [node.measure(rate) for rate in (*[23.5] * 12, *[3.4] * 6)]
    assert verdicts[6:17] == [[PASS, PASS]] * 11
    assert verdicts[17] == [FAIL, FAIL]


def test_a_reset_begins_the_window_anew(tmp_path):
    node = Hours(tmp_path)
    for _round in range(7):
        before = node.measure(3.4, resets=1)
    assert before == [FAIL, FAIL]
    after = [node.measure(23.5, resets=2) for _round in range(7)]
    assert after == [[NOT_MEASURED] * 2] * 6 + [[PASS, PASS]]


def test_one_measurement_counts_once(tmp_path):
    node = Hours(tmp_path)
    node.measure(3.4)
    assert [node.measure(None) for _round in range(20)] == [[]] * 20


def test_a_node_whose_site_measures_nothing_has_nothing_to_say(tmp_path):
    assert read(Node(PLAN, str(tmp_path))).measurements == ()


@pytest.mark.parametrize("text", ["", "{}", '{"nvbandwidth": {"error": "no CUDA"}}'])
def test_a_file_that_is_no_report_is_named(tmp_path, text):
    write(tmp_path, FILE, text)
    with raises(NotMeasuredError, FILE):
        read(Node(PLAN, str(tmp_path)))
