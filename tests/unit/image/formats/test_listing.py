# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The listing of a layer. Capabilities are tested in test_file_capabilities.py."""

from __future__ import annotations

import hashlib
import os
import stat
from types import SimpleNamespace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import listing


def test_every_type_of_file_is_listed_with_its_properties(tmp_path):
    folder = tmp_path / "etc/deep"
    folder.mkdir(parents=True)
    folder.chmod(0o2750)
    (folder / "name").write_bytes(b"node")
    (folder / "name").chmod(0o4711)
    (folder / "name").touch()
    (tmp_path / "link").symlink_to("etc/nowhere")
    os.mkfifo(tmp_path / "pipe", 0o600)
    own = {"owner": os.getuid(), "group": os.getgid()}
    found = listing.listing(tmp_path)
    assert sorted(found) == ["/etc", "/etc/deep", "/etc/deep/name", "/link", "/pipe"]
    assert found["/etc/deep"] == {"type": "directory", "mode": "2750", **own}
    assert found["/etc/deep/name"] == {
        "type": "file",
        "mode": "4711",
        **own,
        "size_bytes": 4,
        "sha256": hashlib.sha256(b"node").hexdigest(),
    }
    assert found["/link"] == {"type": "link", "mode": "0777", **own, "target": "etc/nowhere"}
    assert found["/pipe"] == {"type": "fifo", "mode": "0600", **own}


@pytest.mark.parametrize(
    ("kind", "device", "whiteout"),
    [
        (stat.S_IFCHR, 0, True),
        (stat.S_IFCHR, os.makedev(1, 3), False),
        (stat.S_IFBLK, 0, False),
        (stat.S_IFREG, 0, False),
    ],
)
def test_only_the_whiteout_device_of_overlayfs_removes_a_file(kind, device, whiteout):
    status = SimpleNamespace(st_mode=kind | 0o600, st_rdev=device, st_uid=1, st_gid=2, st_size=0)
    assert listing.is_whiteout(status) == whiteout
    if kind != stat.S_IFREG:
        properties = {"type": "device", "mode": "0600", "owner": 1, "group": 2}
        assert listing.properties("/never/read", status) == ({"type": "whiteout"} if whiteout else properties)
