# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interval of checkpoints: the published numbers, and the least loss of all intervals."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.checkpoint import (
    CheckpointedJob,
    advise,
    daly_s,
    loss,
    young_s,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError


def test_youngs_and_dalys_intervals():
    """Five minutes and 66 hours: 199 and 196 minutes."""
    job = CheckpointedJob(66 * 3600, 300, 0)
    assert (round(young_s(job) / 60), round(daly_s(job) / 60)) == (199, 196)
    # A job that fails more often than it writes.
    assert daly_s(CheckpointedJob(100, 300, 0)) == 100


@pytest.mark.parametrize(
    "job", [CheckpointedJob(3600 * hours, seconds, 600) for hours in (2, 38, 400) for seconds in (2, 60, 600)]
)
def test_no_other_interval_loses_noticeably_less(job):
    best = min(loss(job, daly_s(job) * factor / 100) for factor in range(20, 500))
    assert loss(job, daly_s(job)) - best < 0.001


def test_a_spare_and_a_faster_store_save_time():
    slow, fast = advise(96, 300, 1, 6.5), advise(96, 300, 100, 6.5)
    assert slow["interval_s"] > fast["interval_s"]
    assert slow["lost_percent"] > fast["lost_percent"] > 0
    assert slow["spare_saves_percent"] > 1
    assert slow["twice_the_bandwidth_saves_percent"] > fast["twice_the_bandwidth_saves_percent"] > 0
    assert loss(CheckpointedJob(1, 1, 10**6), 1) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 1, 1, 1),
        (1, -1, 1, 1),
        (1, 1, "x", 1),
        (1, 1, 1, 0),
        (True, 1, 1, 1),
        (1, float("nan"), 1, 1),
        (1, 1, float("inf"), 1),
        (1, 1, 1, 1, -5),
        (1, 1, 1, 1, 600, float("nan")),
    ],
)
def test_numbers_that_are_none_are_refused(wrong):
    with raises(SchedulerError, "checkpoint_interval"):
        advise(*wrong)
