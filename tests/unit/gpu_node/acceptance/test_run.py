# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import run


def tool(folder, text):
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_tool_is_found_in_the_given_folders_first(tmp_path):
    path = tool(tmp_path, "true")
    assert run.find("tool", [str(tmp_path)]) == path
    assert run.find("tool", []) is None


def test_the_output_has_only_the_standard_output_of_the_tool(tmp_path):
    done = run.run("tool", [tool(tmp_path, "echo result; echo noise >&2"), "x"], 10)
    assert (done.status, done.reason, done.output) == (run.MEASURED, "", "result\n")


def test_a_failure_reports_the_last_lines_of_the_tool(tmp_path):
    done = run.run("tool", [tool(tmp_path, "echo a; echo 'no device' >&2; exit 3")], 10)
    assert done.status == run.NOT_MEASURED
    assert done.reason == "it failed (3): a; no device"


def test_a_tool_is_stopped_with_all_its_processes_at_the_time_limit(tmp_path):
    note = tmp_path / "pid"
    done = run.run("tool", [tool(tmp_path, f"sleep 60 & echo $! > {note}; wait")], 0.3)
    assert done.status == run.NOT_MEASURED
    assert done.reason == Mentions("0.3")
    # timeout(1) has signalled the process group; the orphan disappears once it is reaped.
    child = int(note.read_text())
    for _attempt in range(50):
        try:
            state = Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    pytest.fail(f"process {child} is left")


def test_a_client_is_retried_until_its_server_accepts(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PAUSE_S", 0.01)
    count = tmp_path / "count"
    refused = 'echo "Couldn\'t connect to b:1" >&2; exit 1'
    script = f"echo x >> {count}; [ $(wc -l < {count}) -ge 3 ] || {{ {refused}; }}; echo ok"
    assert run.run("tool", [tool(tmp_path, script)], 10, retry_s=5).output == "ok\n"
    count.unlink()
    once = run.run("tool", [tool(tmp_path, script)], 10)
    assert "Couldn't connect to b:1" in once.reason
    assert count.read_text() == "x\n"


def test_help_output_is_read_even_if_the_tool_fails(tmp_path):
    assert run.answer(tool(tmp_path, "echo --use_cuda_bus_id; exit 1"), "--help") == "--use_cuda_bus_id\n"
    assert run.answer(os.fspath(tmp_path / "none"), "--help") == ""


def test_a_failure_reports_at_most_three_lines_or_that_there_are_none(tmp_path):
    done = run.run("tool", [tool(tmp_path, "printf 'a\\nb\\n\\nc\\n d \\n'; exit 3")], 10)
    assert done.reason == "it failed (3): b; c; d"
    assert done.output == "a\nb\n\nc\n d \n"
    assert run.run("tool", [tool(tmp_path, "exit 4")], 10).reason == "it failed (4): no output"


def test_a_killed_tool_did_not_finish(tmp_path):
    """timeout(1) exits with 137 if it had to kill the tool, because the tool ignores SIGTERM."""
    done = run.run("tool", [tool(tmp_path, "exit 137")], 10)
    assert (done.status, done.reason) == (run.NOT_MEASURED, Mentions("10", "finish"))


def test_a_tool_runs_below_timeout_without_input(tmp_path):
    argv = [tool(tmp_path, "tr '\\0' ' ' < /proc/$PPID/cmdline; cat"), "x"]
    done = run.run("tool", argv, 2.5)
    assert done.output == f"timeout --kill-after=5 2.5 {argv[0]} x "
    assert (done.tool, done.argv) == ("tool", argv)
    assert set(done.to_dict()) == {"tool", "status", "reason", "argv", "output", "seconds"}


@pytest.mark.parametrize(
    ("exit_status", "message", "waits"),
    [
        (1, "Failed to connect", [1.0]),
        (1, "unable to connect", [1.0]),
        (1, "no device", []),
        (0, "Couldn't connect to b, used c", []),
    ],
)
def test_only_a_failure_to_connect_is_retried_until_the_time_is_up(tmp_path, monkeypatch, exit_status, message, waits):
    class Clock:
        """A clock that shows 100.0 s, then 5 s after the first run, then 5.26 s."""

        times, waits = iter([100.0, 105.0, 105.26]), []

        def monotonic(self):
            return next(self.times)

        def sleep(self, seconds):
            self.waits.append(seconds)

    clock = Clock()
    monkeypatch.setattr(run, "time", clock)
    done = run.run("tool", [tool(tmp_path, f'echo "{message}" >&2; exit {exit_status}')], 10, retry_s=5)
    assert clock.waits == waits
    assert done.seconds == (5.3 if waits else 5.0)


def test_a_tool_is_found_in_the_usual_folders_after_the_given_ones(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(run.shutil, "which", lambda name, path: asked.append((name, path)))
    assert run.find("tool", ["/a", "/b"]) is None
    assert asked == [("tool", "/a:/b:/usr/local/bin:/usr/bin:/bin")]


def test_help_output_has_both_streams_and_is_awaited_for_30_seconds(tmp_path, monkeypatch):
    program = tool(tmp_path, "echo out; echo err >&2")
    assert run.answer(program, "-h") == "out\nerr\n"
    limits = []

    def late(command, timeout, **_options):
        limits.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(run.subprocess, "run", late)
    assert run.answer(program, "-h") == ""
    assert limits == [30]
