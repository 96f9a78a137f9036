# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Archives of the first stage, byte by byte as the kernel's document describes them, and as BusyBox reads them."""

from __future__ import annotations

import os
import subprocess

from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio

ENTRIES = [
    cpio.file("init", b"#!/bin/sh\n", executable=True),
    cpio.file("etc/name", b"node"),
    cpio.link("bin/sh", "busybox"),
    cpio.character_device("dev/console", 5, 1),
]
FIELDS = [
    "inode",
    "mode",
    "owner",
    "group",
    "links",
    "time",
    "bytes",
    "major",
    "minor",
    "device_major",
    "device_minor",
    "name_bytes",
    "sum",
]


def records(data: bytes) -> dict[str, dict[str, int]]:
    """Return {name: the fields of its header}; headers and contents begin at multiples of four bytes."""
    found, at = {}, 0
    while "TRAILER!!!" not in found:
        assert data[at : at + 6] == b"070701"
        values = [int(data[at + 6 + 8 * field : at + 14 + 8 * field], 16) for field in range(13)]
        fields = dict(zip(FIELDS, values))
        name = data[at + 110 : at + 110 + fields["name_bytes"]]
        assert name.endswith(b"\0")
        found[name[:-1].decode()] = {**fields, "at": at}
        at += 110 + fields["name_bytes"]
        at += -at % 4
        at += fields["bytes"]
        at += -at % 4
    assert not data[at:].strip(b"\0")
    return found


def test_the_headers_contain_the_properties_of_the_entries():
    data = cpio.archive(ENTRIES, epoch=1700000000)
    found = records(data)
    names = ["bin", "bin/sh", "dev", "dev/console", "etc", "etc/name", "init", "TRAILER!!!"]
    assert list(found) == names
    assert [found[name]["mode"] for name in names] == [
        *(0o040755, 0o120777, 0o040755, 0o020600, 0o040755, 0o100644, 0o100755, 0)
    ]
    assert [found[name]["inode"] for name in names] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert [found[name]["links"] for name in names] == [2, 1, 2, 1, 2, 1, 1, 1]
    assert [found[name]["bytes"] for name in names] == [0, 7, 0, 0, 0, 4, 10, 0]
    assert [found[name]["time"] for name in names] == [1700000000] * 7 + [0]
    device = found["dev/console"]
    assert (device["device_major"], device["device_minor"], device["major"], device["minor"]) == (5, 1, 0, 0)
    assert {(entry["owner"], entry["group"], entry["sum"]) for entry in found.values()} == {(0, 0, 0)}


def test_the_archive_is_padded_to_blocks_and_reproducible():
    data = cpio.archive(ENTRIES, epoch=1)
    assert len(data) == 1024  # eight records of 116 to 132 bytes
    assert cpio.archive(reversed(ENTRIES), epoch=1) == data


def test_busybox_unpacks_the_archive(tmp_path):
    entries = [
        cpio.file("a/b/long", b"x" * 1001, executable=True),
        cpio.file("a/empty", b""),
        cpio.link("a/link", "b/long"),
        cpio.character_device("dev/null", 1, 3),
    ]
    data = cpio.archive(entries, 1700000000)
    subprocess.run(["busybox", "cpio", "-id", "--quiet"], input=data, cwd=tmp_path, check=True)
    assert (tmp_path / "a/b/long").read_bytes() == b"x" * 1001
    assert (tmp_path / "a/b/long").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a/empty").read_bytes() == b""
    assert os.readlink(tmp_path / "a/link") == "b/long"
    if os.geteuid() == 0:
        assert (tmp_path / "dev/null").stat().st_rdev == os.makedev(1, 3)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {
        *("a", "a/b", "a/b/long", "a/empty", "a/link", "dev"),
        *(["dev/null"] if os.geteuid() == 0 else []),
    }


def test_a_duplicate_path_is_refused():
    with raises(ValueError, "init", "twice"):
        cpio.archive([*ENTRIES, cpio.folder("init")], epoch=1)
