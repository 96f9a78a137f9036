# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wait for one of many nodes, its progress, and what is said of many nodes at once."""

from __future__ import annotations

import socket

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_fleet import (
    BootProgress,
    BootRow,
    BootWait,
    would_boot,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_wait import BootAnswer, Limits

LIMITS = Limits("old", restart_s=120, boot_s=1800)


def up(boot_id="new", uptime_s=20.0):
    return BootAnswer({"boot_id": boot_id, "uptime_s": uptime_s, "systemd": {"state": "running"}})


def wait(port=None, doubt=""):
    """Return a wait that began at the second 1,000, for a restart at the second 990."""
    return BootWait("bm01", LIMITS, 990.0, 1000.0, port, doubt)


def test_a_node_is_up_when_it_runs_a_later_boot():
    assert wait().judge(up("old"), 1010.0) is None
    assert wait().judge(BootAnswer(why="no route"), 1010.0) is None
    assert wait().judge(None, 1010.0) is None
    assert wait().judge(up(uptime_s=21), 1010.0) is None
    assert wait().judge(up(), 1010.0) == up().state


def test_a_node_that_does_not_boot_fails_at_its_limit_with_what_its_bmc_said():
    with pytest.raises(ImageError, match="previous boot"):
        wait().judge(up("old"), 1121.0)
    with pytest.raises(ImageError, match="is busy"):
        wait(doubt="bm01: its BMC 10.9.9.1 is busy").judge(up("old"), 1121.0)
    assert wait().judge(None, 2799.0) is None
    with pytest.raises(ImageError, match="does not listen"):
        wait().judge(None, 2801.0)


def test_a_node_that_does_not_listen_is_asked_only_now_and_then():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()
        closed = wait(port)
        assert not closed.worth_asking()
        asked = 0
        for second in range(1000, 2000, 5):
            asked += closed.worth_asking()
            closed.judge(BootAnswer(why="no route") if closed.worth_asking() else None, float(second))
        assert 3 <= asked <= 20
        listening.listen()
        assert wait(port).worth_asking()
    assert wait().worth_asking()


def test_without_a_port_attempts_become_fewer():
    assert wait().pause_s(1000.0) == 5.0
    assert wait().pause_s(1600.0) == 60.0
    assert wait(("127.0.0.1", 22)).pause_s(1600.0) == 5.0


def test_the_progress_folds_the_names_that_are_waited_for():
    lines = []
    progress = BootProgress("wave 2/5", 4, lines.extend)
    names = ["gpu-017", "gpu-018", "gpu-019", "gpu-203"]
    progress.begin(names)
    progress.ended("gpu-018", True, 1000.0)
    assert lines == ["wave 2/5: 1 of 4 booted, waiting: gpu-[017,019,203]"]
    progress.ended("gpu-019", False, 1010.0)
    assert len(lines) == 1
    late = wait()
    late.judge(BootAnswer(why="no route"), 1040.0)
    progress.tell(late, 1040.0)
    progress.tell(late, 1050.0)
    assert len(lines) == 2
    assert all(part in lines[1] for part in ("1 of 4", "gpu-[017,203]", "no route"))
    for name in ("gpu-017", "gpu-203"):
        progress.ended(name, True, 1051.0)
    assert lines[2:] == ["wave 2/5: 3 of 4 booted"]


def test_nodes_that_would_boot_the_same_are_one_line():
    rows = {f"n{number}": BootRow(image="b" * 64, running="a" * 64 if number else "") for number in range(4)}
    assert would_boot(rows) == [f"n0: runs ?, would boot {'b' * 64}", f"n[1-3]: runs {'a' * 64}, would boot {'b' * 64}"]
    assert would_boot({}) == []
