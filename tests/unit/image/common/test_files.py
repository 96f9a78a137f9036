# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import hashlib
import os
import stat
import subprocess

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import files


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_cannot_represent_are_refused(number):
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        files.canonical_json({"size": number})


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert files.canonical_json({"b": 1, "a": ["é"]}) == b'{\n  "a": [\n    "\\u00e9"\n  ],\n  "b": 1\n}\n'
    assert files.canonical_json({"a": ["é"], "b": 1}) == files.canonical_json({"b": 1, "a": ["é"]})


def test_a_folder_is_readable_by_a_web_server_and_the_umask_is_restored(tmp_path):
    before = os.umask(0o077)
    try:
        files.make_folder(tmp_path / "blobs")
        with pytest.raises(FileExistsError):
            files.make_folder(tmp_path / "blobs")
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "blobs").st_mode) == 0o755


def test_the_digest_of_a_file_of_several_chunks_is_that_of_all_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 4)
    (tmp_path / "blob").write_bytes(b"0123456789")
    assert files.sha256_of(tmp_path / "blob") == hashlib.sha256(b"0123456789").hexdigest()


def test_removing_a_missing_file_is_no_error(tmp_path):
    files.remove_if_there(tmp_path / "none")
    (tmp_path / "there").touch()
    files.remove_if_there(tmp_path / "there")
    assert os.listdir(tmp_path) == []


def test_unnamed_files_are_read_and_written_by_other_processes_and_are_in_no_directory(tmp_path):
    with files.unnamed_files(b"text", b"") as (text, copy):
        command = ["cp", files.fd_path(text), files.fd_path(copy)]
        subprocess.run(command, pass_fds=(text, copy), check=True)
        assert files.fd_content(copy) == files.fd_content(text) == b"text"
        assert os.fstat(text).st_nlink == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(text)
