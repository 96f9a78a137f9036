# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The file of a reading is on the controller, for its owner only, and not in the result."""

from __future__ import annotations

import base64

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.action import ib_fabric_info
from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress


def test_the_content_is_written_and_leaves_the_result(make, tmp_path, monkeypatch):
    path = tmp_path / "read/node-1.json.gz"
    answer = {"path": str(path), "content": base64.b64encode(b"readings").decode(), "unread": []}
    monkeypatch.setattr(ShownProgress, "run", lambda *_arguments: dict(answer))
    assert make(ib_fabric_info, path=str(path)).run() == {"path": str(path), "unread": []}
    assert (path.read_bytes(), path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (
        b"readings",
        0o600,
        0o700,
    )
    answer["path"] = str(path / "below")
    with pytest.raises(AnsibleActionFail, match="cannot write"):
        make(ib_fabric_info, path=answer["path"]).run()


def test_a_failure_of_the_module_is_returned(make, monkeypatch):
    monkeypatch.setattr(ShownProgress, "run", lambda *_arguments: {"failed": True, "msg": "no"})
    assert make(ib_fabric_info, path="/nowhere").run() == {"failed": True, "msg": "no"}
