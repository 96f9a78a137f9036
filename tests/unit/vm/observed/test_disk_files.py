# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Identities and bases of files, with headers of qcow2 images that are written here byte by byte."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import disk_files
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.disk_files import ImageFile


def header(name: bytes, offset: int = 20, size: int | None = None, magic: bytes = b"QFI\xfb") -> bytes:
    """Return the start of a qcow2 image whose base is called ``name``, behind a header of 20 bytes."""
    length = len(name) if size is None else size
    return magic + (3).to_bytes(4, "big") + offset.to_bytes(8, "big") + length.to_bytes(4, "big") + name


def base_of(path: Path, data: bytes) -> str | None:
    path.write_bytes(data)
    return disk_files.observe([str(path)])[str(path)].base


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("base", "{here}/base"),
        ("/img/base", "/img/base"),
        ("../a/./base", "{above}/a/base"),
        ("a:b/c", None),
        ("a/b:c", "{here}/a/b:c"),
        ("nbd://host/x", None),
        ("a\0b", None),
        ("b" * 1023, "{here}/" + "b" * 1023),
        ("b" * 1024, None),
        ("b", "{here}/b"),
        ("", None),
    ],
)
def test_the_base_is_a_path_of_at_most_1023_bytes(tmp_path: Path, name: str, base: str | None) -> None:
    found = base_of(tmp_path / "disk", header(name.encode()))
    assert found == (base.format(here=tmp_path, above=tmp_path.parent) if base else None)


def test_a_header_that_is_not_one_of_an_overlay_has_no_base(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    assert base_of(path, header(b"base", magic=b"QFI\xfa")) is None
    assert base_of(path, header(b"base", offset=0)) is None
    assert base_of(path, header(b"base", size=0)) is None
    assert base_of(path, header(b"")[:19]) is None
    assert base_of(path, header(b"", size=4)) == str(tmp_path)
    assert base_of(path, header(b"xxbase", offset=22, size=4)) == str(tmp_path / "base")


def test_an_image_names_its_base_and_a_chain_is_followed_once(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / str(number)).write_bytes(header(str(number + 1).encode()))
    found = disk_files.observe([str(tmp_path / "0")])
    # A chain is followed up to 64 images.
    assert list(found) == [str(tmp_path / str(number)) for number in range(64)]
    (tmp_path / "loop").write_bytes(header(b"loop"))
    assert list(disk_files.observe([str(tmp_path / "loop"), str(tmp_path / "loop")])) == [str(tmp_path / "loop")]


def test_a_file_has_its_inode_and_a_missing_one_its_path(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(b"")
    (tmp_path / "link").symlink_to("disk")
    (tmp_path / "gone").symlink_to("nowhere")
    seen = os.stat(tmp_path / "disk")
    identity = f"file {seen.st_dev}:{seen.st_ino}"
    names = ("disk", "link", "gone", "missing")
    assert list(disk_files.observe(str(tmp_path / name) for name in names).values()) == [
        ImageFile(identity, True, True, None),
        ImageFile(identity, True, False, None),
        ImageFile(f"path {tmp_path}/nowhere", False, False, None),
        ImageFile(f"path {tmp_path}/missing", False, True, None),
    ]


def test_a_directory_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = disk_files.observe([str(tmp_path), str(tmp_path / "pipe")]).values()
    assert [(file.exists, file.base) for file in found] == [(True, None), (True, None)]


def test_a_block_device_has_its_numbers_and_may_be_an_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stat_of = str(tmp_path / "device"), os.stat
    (tmp_path / "device").write_bytes(header(b"base"))
    seen = SimpleNamespace(st_mode=stat.S_IFBLK | 0o600, st_rdev=os.makedev(252, 3), st_dev=1, st_ino=2)
    monkeypatch.setattr(os, "stat", lambda name, **more: seen if name == path else stat_of(name, **more))
    assert disk_files.observe([path])[path] == ImageFile("device 252:3", True, True, str(tmp_path / "base"))
