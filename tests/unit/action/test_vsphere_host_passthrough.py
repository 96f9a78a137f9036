# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The end of a background job is noticed at once, with one run of a module, if the job's file can be read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.action import vsphere_host_passthrough
from ansible_collections.sailloft.fleet.plugins.plugin_utils import vsphere_progress

RUNS = {"started": True, "finished": False, "ansible_job_id": "j1"}


class Plugin(vsphere_host_passthrough.ActionModule):
    """The plugin, with a connection's transport; ``asked`` has its runs of async_status."""

    def __init__(self, transport: str) -> None:
        self._connection = SimpleNamespace(transport=transport)
        self.asked: list[dict[str, Any]] = []

    def _execute_module(self, **given: Any) -> dict[str, Any]:
        self.asked.append(given)
        return {"finished": True, "changed": True}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The file of a job, which is replaced by the result at the third check."""
    file = tmp_path / "j1"
    file.write_text(json.dumps(RUNS))
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            file.write_text(json.dumps({"changed": True}))
        assert len(looks) < 10, "still waiting"

    monkeypatch.setattr(vsphere_progress.time, "sleep", sleep)
    return SimpleNamespace(path=str(file), looks=looks, file=file)


def test_the_file_of_a_job_on_the_controller_is_read(job):
    plugin = Plugin("local")
    assert plugin.job_status(job.path, "status", {})["finished"]
    assert len(job.looks) == 3
    assert len(plugin.asked) == 1


def test_the_lines_are_shown_while_the_job_runs(job, monkeypatch):
    monkeypatch.setattr(vsphere_progress, "SHOW_S", -1)
    plugin = Plugin("local")
    assert plugin.job_status(job.path, "status", {}) == {"started": True, "finished": False}
    assert not plugin.asked


def test_the_file_of_a_job_on_another_host_is_not_read(job):
    plugin = Plugin("ssh")
    assert plugin.job_status(job.path, "status", {})["finished"]
    assert not job.looks
    assert plugin.asked[0]["module_args"] == {"jid": "j1", "mode": "status", "_async_dir": str(job.file.parent)}


@pytest.mark.parametrize("text", [None, "", "{"])
def test_ansible_reads_the_status_if_the_file_is_missing_or_incomplete(job, text):
    job.file.unlink() if text is None else job.file.write_text(text)
    plugin = Plugin("local")
    plugin.job_status(job.path, "status", {})
    assert not job.looks
    assert len(plugin.asked) == 1


def test_the_file_of_a_job_is_removed(job):
    plugin = Plugin("local")
    plugin.job_status(job.path, "cleanup", {})
    assert not job.file.exists()
    assert not plugin.asked
    for plugin in (Plugin("ssh"), Plugin("local")):
        # On another host, or if the file is missing or another user's, Ansible's module removes it.
        plugin.job_status(job.path, "cleanup", {})
        assert plugin.asked[0]["module_args"]["mode"] == "cleanup"
