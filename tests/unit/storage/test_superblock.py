# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Superblocks of the real mkfs.xfs, read as blkid and xfs_info read them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.storage.drives import read_signature, read_superblock

pytestmark = pytest.mark.skipif(not shutil.which("mkfs.xfs"), reason="needs mkfs.xfs")


@pytest.mark.parametrize("block", [4096, 1024])
def test_a_superblock_says_what_mkfs_was_told(tmp_path, block):
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(1 << 30)
    geometry = ["-b", f"size={block}", "-d", "su=512k,sw=3", "-l", "su=32k"]
    subprocess.run(["mkfs.xfs", "-q", "-L", "twelve-chars", *geometry, image], check=True)
    read = read_superblock(image)
    shown = subprocess.run(
        ["blkid", "-p", "-s", "UUID", "-o", "value", image], capture_output=True, text=True, check=False
    )
    assert (read.label, read.uuid, read.is_complete) == ("twelve-chars", shown.stdout.strip(), True)
    assert (read.stripe_unit, read.stripe_width) == (512 << 10, 3 * 512 << 10)


def test_other_content_is_none(tmp_path):
    (tmp_path / "disk").write_bytes(b"XFSB")
    assert read_superblock(tmp_path / "disk") is None
    (tmp_path / "disk").write_bytes(bytes(512))
    assert read_superblock(tmp_path / "disk") is None


def test_a_device_that_cannot_be_read_is_not_blank(tmp_path):
    assert "unknown" in read_signature(str(tmp_path / "none")).kind
    (tmp_path / "blank").write_bytes(bytes(1 << 20))
    assert read_signature(str(tmp_path / "blank")) is None
