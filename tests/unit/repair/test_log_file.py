# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The log is only appended to, and one that cannot be read stops all repairs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import astuple

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import FORMAT, RepairLine, dump
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log_file import NAME, opened

LINES = [
    RepairLine(
        "2026-11-28T22:33:49Z", "gpu-1", "xid_79@gpu:0000:4b:00.0", "lost\x1b[2J", "xid_79: reboot", "drain", "begun"
    ),
    RepairLine("2026-11-28T22:34:00Z", step="watch", nodes=3),
]


def test_lines_are_appended_and_read_again(tmp_path):
    folder = tmp_path / "new"
    with opened(str(folder)) as log:
        assert log.lines == []
        log.append(LINES[:1])
        log.append(LINES[1:])
        assert log.lines == LINES
    rows = [json.loads(row) for row in (folder / NAME).read_text().splitlines()]
    assert [row["format"] for row in rows] == [FORMAT] * 2
    assert "\x1b" not in rows[0]["reading"]
    with opened(str(folder)) as log:
        assert [line.step for line in log.lines] == ["drain", "watch"]
        log.append(LINES[1:])
    assert (folder / NAME).read_text().startswith(dump(LINES))


def test_a_part_of_a_line_is_dropped_and_nothing_else(tmp_path):
    (tmp_path / NAME).write_text(dump(LINES) + dump(LINES)[:40])
    with opened(str(tmp_path)) as log:
        assert len(log.lines) == 2
        log.append(LINES[:1])
    assert (tmp_path / NAME).read_text() == dump([*LINES, LINES[0]])


def test_in_check_mode_nothing_is_made(tmp_path):
    with opened(str(tmp_path / "none"), write=False) as log:
        log.append(LINES)
        assert log.lines == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "row",
    [
        "{}",
        "nonsense",
        '{"format": "sailloft-repair-log/2"}',
        f'{{"format": "{FORMAT}", "time": "yesterday"}}',
        f'{{"format": "{FORMAT}", "time": "2026-11-28T22:33:49Z", "step": "reboot", "result": "begum"}}',
        f'{{"format": "{FORMAT}", "time": "2026-11-28T22:33:49Z", "step": "rebood", "result": "begun"}}',
        "\0" * 8,
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, row):
    (tmp_path / NAME).write_text(f"{dump(LINES)}{row}\n")
    with raises(RepairError, NAME, "line 3"), opened(str(tmp_path)):
        pass


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()
    with raises(RepairError, "file"), opened(str(tmp_path / "file")):
        pass


def test_lines_that_do_not_fit_on_the_disk_are_none(tmp_path):
    limit = len(dump(LINES[:1])) + len(dump(LINES)) - 10
    script = (
        "import resource, signal, sys; sys.path[:0] = eval(sys.argv[1]); "
        f"from {opened.__module__} import opened; from {RepairLine.__module__} import RepairLine; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))\n"
        "with opened(sys.argv[2]) as log: log.append([RepairLine(*fields) for fields in eval(sys.argv[4])])"
    )
    path = repr([each for each in sys.path if each])

    def append(lines):
        fields = repr([astuple(line) for line in lines])
        argv = [sys.executable, "-c", script, path, str(tmp_path), str(limit), fields]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert append(LINES[:1]).returncode == 0
    done = append(LINES)
    assert (done.returncode, "RepairError" in done.stderr, NAME in done.stderr) == (1, True, True)
    assert (tmp_path / NAME).read_text() == dump(LINES[:1])
