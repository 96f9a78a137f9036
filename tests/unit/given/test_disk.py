# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.given.disk import sync_directory


def test_a_directory_is_synced(tmp_path, disk_calls):
    sync_directory(tmp_path)
    assert disk_calls == [("fsync", str(tmp_path), None)]


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "file")
