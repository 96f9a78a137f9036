# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files are written completely or not at all, also after a power loss."""

from __future__ import annotations

import os
import stat
import time

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk


def test_a_directory_is_synced(tmp_path, disk_calls):
    disk.sync_directory(tmp_path)
    assert disk_calls == [("fsync", str(tmp_path), None)]


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        disk.sync_directory(tmp_path / "file")


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_afterwards(tmp_path, disk_calls):
    """Otherwise a power loss can leave an empty file under the new name (fsync(2), rename(2))."""
    path, temporary = str(tmp_path / "stable.ipxe"), str(tmp_path / ".stable.ipxe.new")
    disk.write_atomic(path, b"new")
    assert disk_calls == [
        ("fsync", temporary, b"new"),
        ("replace", temporary, path),
        ("fsync", str(tmp_path), None),
    ]
    assert os.listdir(tmp_path) == ["stable.ipxe"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "stable.ipxe"
    path.write_bytes(b"old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="left"):
        disk.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["stable.ipxe"]


@pytest.mark.parametrize(("prepare", "mode"), [(disk.public, 0o644), (disk.private, 0o600)])
def test_a_new_file_has_its_mode_whatever_the_umask_and_a_killed_run_left(tmp_path, prepare, mode):
    (tmp_path / ".a.new").write_bytes(b"left by a killed run, and longer")
    (tmp_path / ".a.new").chmod(0o640)
    before = os.umask(0o027)
    try:
        disk.write_atomic(tmp_path / "a", b"new", prepare)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_new_file_is_private_and_empty_until_it_has_its_mode(tmp_path):
    seen = []

    def prepare(handle):
        there = os.fstat(handle)
        seen.append((stat.S_IMODE(there.st_mode), there.st_size))

    disk.write_synced(tmp_path / "a", b"secret", prepare)
    assert seen == [(0o600, 0)]


def test_a_kill_before_the_rename_removes_the_temporary_file(tmp_path, monkeypatch):
    def killed(*_paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        disk.write_atomic(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == []


def test_a_file_whose_mode_is_not_prepared_is_private(tmp_path):
    before = os.umask(0)
    try:
        disk.write_atomic(tmp_path / "a", b"new", lambda _handle: None)
        disk.write_synced(tmp_path / "b", b"new", lambda _handle: None)
        disk.write_atomic(tmp_path / "c", b"new", lambda _handle: None, mode=0o640)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"] == [0o600, 0o600, 0o640]


def test_no_descriptor_is_left_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    disk.write_atomic(tmp_path / "a", b"new")
    disk.sync_directory(tmp_path)
    assert os.listdir("/proc/self/fd") == before


def test_a_symbolic_link_in_the_place_of_the_temporary_file_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(b"kept")
    (tmp_path / ".a.new").symlink_to("other")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        disk.write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "other").read_bytes() == b"kept"


def test_writers_at_once_wait_for_each_other(tmp_path):
    """Each content is long, and is prepared slowly, so that without the lock the parts of two writers would meet."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    contents = {bytes([65 + number]) * 200_000 for number in range(6)}
    children = []
    for content in contents:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _turn in range(10):
                    disk.write_atomic(path, content, lambda _handle: time.sleep(0.002))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    seen = set()
    while children:
        seen.add(path.read_bytes())
        child, status = os.waitpid(children[-1], os.WNOHANG)
        if child:
            assert status == 0
            children.pop()
    assert seen <= {b"old", *contents}
    assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["a"]
