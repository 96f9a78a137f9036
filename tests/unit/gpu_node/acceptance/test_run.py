# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

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
    assert done.reason == "it did not finish in 0.3 s"
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
