# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wait for a node that was restarted: its phases, its limits and its summary."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_wait import (
    BootAnswer,
    Elapsed,
    Limits,
    check,
    phase,
    summary,
)

LIMITS = Limits("old", restart_s=30, boot_s=300)


def seen(boot_id="new", uptime_s=20.0, state="running"):
    return BootAnswer({"boot_id": boot_id, "uptime_s": uptime_s, "systemd": {"state": state}})


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (seen(), ""),
        (seen(uptime_s=25), ""),
        (seen(state="degraded"), ""),
        (seen(state="starting"), "has booted, systemd is starting"),
        (seen("old", 20), "is still in the previous boot"),
        # The node's previous boot is unknown: a boot that began before the restart is not new.
        (seen(uptime_s=26), "is still in the previous boot"),
        (BootAnswer(why="no route"), "does not answer yet (no route)"),
    ],
)
def test_each_phase_of_a_restart_is_recognized(reading, words):
    elapsed = Elapsed(25, 25)
    assert phase(reading, elapsed, LIMITS) == words
    check("bm01", reading, elapsed, LIMITS)


@pytest.mark.parametrize(
    ("reading", "at_limit_s", "words"),
    [
        (
            seen("old"),
            30,
            "bm01: is still in the previous boot 31 s after the restart, whatever its BMC answered; "
            "check that node_boot_bmc names this node's BMC and system, and read the BMC's event log",
        ),
        (
            BootAnswer(why="no route"),
            300,
            "bm01: is not up 301 s after the restart: it does not answer yet (no route); "
            "read its console, where the first stage reports what it refused or could not reach",
        ),
        (
            seen(state="starting"),
            300,
            "bm01: is not up 301 s after the restart: it has booted, systemd is starting; "
            "read its console, where the first stage reports what it refused or could not reach",
        ),
    ],
)
def test_a_phase_that_exceeds_its_limit_is_refused(reading, at_limit_s, words):
    check("bm01", reading, Elapsed(at_limit_s, at_limit_s), LIMITS)
    with pytest.raises(ImageError) as refused:
        check("bm01", reading, Elapsed(at_limit_s + 1, at_limit_s + 1), LIMITS)
    assert str(refused.value) == words


def test_time_in_the_queue_of_a_large_wave_does_not_count_towards_limits():
    # Requests to the BMCs of the other nodes took an hour after the restart of this node began.
    check("bm01", seen("old"), Elapsed(3600, 5), LIMITS)
    check("bm01", BootAnswer(why="no route"), Elapsed(3600, 200), LIMITS)
    assert phase(seen(uptime_s=3500), Elapsed(3600, 5), LIMITS) == ""


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (
            {
                "phases": [
                    {"name": "network", "start_s": 0.5, "end_s": 1.75},
                    {"name": "layers", "start_s": 2, "end_s": 3},
                ]
            },
            "up 35.2 s after the restart; network 1.2 s, layers 1.0 s, systemd finished 9.0 s after the kernel started",
        ),
        ({}, "up 35.2 s after the restart; systemd finished 9.0 s after the kernel started"),
        (None, "up 35.2 s after the restart; systemd finished 9.0 s after the kernel started"),
    ],
)
def test_a_summary_names_each_phase(report, words):
    assert summary({"report": report, "systemd": {"finished_s": 9.0}}, 35.2) == words
