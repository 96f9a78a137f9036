# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.common.progress import to_file


def test_each_line_has_the_elapsed_seconds_and_is_written_immediately(tmp_path):
    tell = to_file(str(tmp_path / "progress"))
    tell("one")
    assert re.fullmatch(r" +0 s  one\n", (tmp_path / "progress").read_text())
    tell("two")
    assert re.fullmatch(r" +0 s  one\n +\d s  two\n", (tmp_path / "progress").read_text())


def test_nothing_is_written_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_file(None)("one")
    assert list(tmp_path.iterdir()) == []
