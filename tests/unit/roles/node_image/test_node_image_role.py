# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of the role node_image and its action plugin around a build."""

from __future__ import annotations

import shutil
import stat
import sys
from types import SimpleNamespace

import pytest
import yaml
from playing import ansible_playbook

from ansible_collections.sailloft.fleet.plugins.action import node_image
from ansible_collections.sailloft.fleet.plugins.plugin_utils import shown_progress


@pytest.mark.long  # make molecule-image creates keys
@pytest.mark.skipif(not shutil.which("minisign"), reason="no minisign on this machine (bindep.txt)")
def test_the_keys_are_created_and_their_folder_keeps_its_mode(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    variables = {
        "node_image_signing_key": str(closed / "image.key"),
        "node_image_public_key": str(tmp_path / "made/image.pub"),
        "ansible_python_interpreter": sys.executable,
    }
    tasks = [{"ansible.builtin.include_role": {"name": "sailloft.fleet.node_image", "tasks_from": "key"}}]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    status, output = ansible_playbook("-i", "localhost,", str(tmp_path / "play.yml"), ANSIBLE_HOME=str(tmp_path))
    assert status == 0, output
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert stat.S_IMODE((closed / "image.key").stat().st_mode) & 0o077 == 0
    assert (tmp_path / "made/image.pub").is_file()


@pytest.mark.long
def test_check_mode_without_a_key_names_the_images_and_creates_nothing(tmp_path):
    variables = {
        "node_image_signing_key": str(tmp_path / "keys/image.key"),
        "node_image_public_key": str(tmp_path / "keys/image.pub"),
        "node_image_cache_dir": str(tmp_path / "cache"),
        "node_image_store_dir": str(tmp_path / "store"),
        "node_image_images": {"gpu-node": {"layer": "gpu"}},
        "packages_install": False,
        "ansible_python_interpreter": sys.executable,
    }
    roles = [{"role": "sailloft.fleet.node_image"}]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "roles": roles}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    options = ["-i", "localhost,", str(tmp_path / "play.yml"), "--check"]
    status, output = ansible_playbook(*options, ANSIBLE_HOME=str(tmp_path))
    assert status == 0, output
    text = " ".join(output.split())
    assert "would build gpu-node" in text
    assert f"no key {tmp_path}/keys/image.pub" in text
    assert not [name for name in ("keys", "cache", "store") if (tmp_path / name).exists()]


class Watching(node_image.ActionModule):
    """The action plugin, which gets ``status`` at each check."""

    _play_context = SimpleNamespace(remote_addr="build01")

    def __init__(self, status):
        self._task = SimpleNamespace(async_val=0)
        self.status = status

    def _execute_module(self, **_given):
        return {"ansible_job_id": "1", "results_file": "/root/.ansible_async/1"}

    def job_status(self, job, mode, task_vars):
        return dict(self.status)

    def show_lines(self, progress, shown):
        return shown


def test_a_build_that_no_longer_reports_is_not_waited_for(monkeypatch):
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        assert len(looks) < 10, "still waiting"

    monkeypatch.setattr(shown_progress.time, "sleep", sleep)
    lost = Watching({"failed": True, "msg": "no Python here"}).watched({}, "", {})
    assert lost == {"failed": True, "msg": "no Python here"}
    monkeypatch.setattr(shown_progress, "LIMIT_S", -shown_progress.GRACE_S)
    killed = Watching({"started": 1, "finished": 0}).watched({}, "", {})
    assert killed["failed"]
    assert "process" in killed["msg"]
