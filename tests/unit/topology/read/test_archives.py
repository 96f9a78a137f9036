# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tars: both sides of their limits, and whole messages."""

from __future__ import annotations

import gzip
import io
import os
import tarfile

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read import archives

FILE, DIRECTORY, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE
NOTHING = "nothing in this tar is used; create it again from /sys and /proc only"


def tar(*members):
    """Return a tar of (name, type, link or content)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == FILE:
                member.size = len(text)
            else:
                member.linkname = text
            archive.addfile(member, io.BytesIO(text.encode()) if kind == FILE else None)
    return stream.getvalue()


@pytest.fixture
def unpacked(tmp_path):
    """Return a function that unpacks a tar, and returns what is in it: contents of files, targets of links."""

    def unpack(content):
        path, folder = tmp_path / "a.tar", tmp_path / "folder"
        path.write_bytes(content)
        folder.mkdir()
        archives.unpack(str(path), str(folder))
        return {
            str(place.relative_to(folder)): os.readlink(place)
            if place.is_symlink()
            else None
            if place.is_dir()
            else place.read_text()
            for place in sorted(folder.rglob("*"))
        }

    return unpack


@pytest.fixture
def refusal(unpacked, tmp_path):
    """Return a function that returns the message for a tar, without its path."""

    def refused(content):
        with pytest.raises(TopologyError) as error:
            unpacked(content)
        assert str(error.value).startswith(f"{tmp_path}/a.tar: ")
        return str(error.value)[len(f"{tmp_path}/a.tar: ") :]

    return refused


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024])
def test_files_of_any_length_are_unpacked_and_the_end_is_found(unpacked, size):
    members = [("sys", DIRECTORY, ""), ("./sys//a", FILE, "x" * size), ("proc/b/c", FILE, "y" * size)]
    assert unpacked(tar(*members)) == {
        "sys": None,
        "sys/a": "x" * size,
        "proc": None,
        "proc/b": None,
        "proc/b/c": "y" * size,
    }


def test_a_tar_may_end_with_one_block_of_zeros(unpacked):
    whole = tar(("a", FILE, "x"))
    assert unpacked(whole[:1536]) == {"a": "x"}


@pytest.mark.parametrize("cut", [1024, 1535])
def test_a_tar_without_a_whole_block_of_zeros_is_cut_short(refusal, cut):
    assert refusal(tar(("a", FILE, "x"))[:cut]) == Mentions("damaged")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("/tmp/out", FILE, "x")], f"/tmp/out points outside the tree; {NOTHING}"),
        ([("a/../b", FILE, "x")], f"a/../b points outside the tree; {NOTHING}"),
        ([("a", LINK, "b"), ("a/c", FILE, "x")], f"a/c points outside the tree; {NOTHING}"),
        ([("a", LINK, "b"), ("a/c/d", FILE, "x")], f"a/c/d points outside the tree; {NOTHING}"),
        ([("a", LINK, "/b")], f"a is a link to a place outside the tree: /b; {NOTHING}"),
        ([("a", LINK, "..")], f"a is a link to a place outside the tree: ..; {NOTHING}"),
        ([("a/b", LINK, "../../c")], f"a/b is a link to a place outside the tree: ../../c; {NOTHING}"),
        ([("a/b", LINK, "c/../d")], f"a/b is a link to a place outside the tree: c/../d; {NOTHING}"),
        ([("a", tarfile.FIFOTYPE, "")], f"a is not a file, directory or symbolic link; {NOTHING}"),
        ([("a", tarfile.LNKTYPE, "b")], f"a is not a file, directory or symbolic link; {NOTHING}"),
    ],
)
def test_a_member_that_leads_out_of_the_tree_is_refused(refusal, members, why):
    assert refusal(tar(*members)) == why


@pytest.mark.parametrize(
    ("name", "link"), [("a", "b"), ("a", "."), ("a/b", "../c"), ("a/b/c", "../../d"), ("a/b", ".././/c/d")]
)
def test_a_link_that_stays_in_the_tree_is_kept(unpacked, name, link):
    assert unpacked(tar((name, LINK, link)))[name] == link


def test_members_are_counted(unpacked, refusal, monkeypatch):
    three = tar(("a", FILE, "x"), ("b", FILE, "x"), ("c", FILE, "x"))
    monkeypatch.setattr(archives, "LIMIT_MEMBERS", 3)
    assert list(unpacked(three)) == ["a", "b", "c"]


def test_one_member_too_many_is_refused(refusal, monkeypatch):
    monkeypatch.setattr(archives, "LIMIT_MEMBERS", 2)
    three = tar(("a", FILE, "x"), ("b", FILE, "x"), ("c", FILE, "x"))
    assert refusal(three) == Mentions("2 files")


@pytest.mark.parametrize("less", [0, 1])
def test_the_unpacked_tar_has_a_limited_size(tmp_path, monkeypatch, less):
    content = tar(("a", FILE, "x" * 100))
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(archives, "LIMIT_BYTES", len(content) - less)
    if not less:
        archives.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "folder"))
        return
    with raises(TopologyError, f"{tmp_path}/a.tar.gz", "0 MiB"):
        archives.unpack(str(tmp_path / "a.tar.gz"), str(tmp_path / "folder"))


def test_the_limits_are_far_above_a_recording_of_all_of_sys():
    assert (archives.LIMIT_BYTES, archives.LIMIT_MEMBERS) == (256 * 1024 * 1024, 200000)


@pytest.mark.parametrize(
    ("head", "is_archive"),
    [
        (b"\x1f\x8b", True),
        (b"\x1f", False),
        (b"BZh9", True),
        (b"\xfd7zXZ\x00", True),
        (b"\xfd7zXZ", False),
        (bytes(257) + b"ustar", True),
        (bytes(256) + b"ustar", False),
        (bytes(258) + b"ustar", False),
        (b"ustar", False),
        (b"", False),
    ],
)
def test_an_archive_is_known_by_its_first_bytes(head, is_archive):
    assert archives.is_archive(head) is is_archive
    assert archives.HEAD_BYTES == 512


def test_a_file_that_is_no_tar_is_refused(refusal):
    text = refusal(gzip.compress(b"text"))
    assert text.startswith("read as a tar of /sys and /proc, but cannot be unpacked: ")
    assert text.endswith(f"; {NOTHING}")


@pytest.mark.parametrize("kind", [DIRECTORY, LINK])
def test_a_tar_may_end_with_a_member_without_content(unpacked, kind):
    assert list(unpacked(tar(("a", kind, "b"))[:1024])) == ["a"]
