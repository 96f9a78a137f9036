# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A layer's squashfs and verity tree, made by the real tools, and the mount commands, which are not run."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from messages import raises
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import squashfs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run

REAL = Run("layer site", lambda text: None)
EPOCH = 1_783_764_997
CONTENT = random.Random(1).randbytes(20_000)  # several blocks, even when compressed
OFF = "redirect_dir=off,metacopy=off,index=off,xino=off"


@pytest.fixture
def tree(tmp_path):
    """A layer's tree with one file, which is newer than the image."""
    (tmp_path / "tree/etc").mkdir(parents=True)
    (tmp_path / "tree/etc/motd").write_bytes(CONTENT)
    return tmp_path / "tree"


def packed(tree, name) -> bytes:
    squashfs.pack(tree, tree.parent / name, EPOCH, REAL)
    return (tree.parent / name).read_bytes()


def test_the_same_tree_gives_the_same_bytes_with_other_file_times(tree):
    first = packed(tree, "one")
    os.utime(tree / "etc/motd", (EPOCH + 5_000, EPOCH + 5_000))
    assert packed(tree, "two") == first
    (tree / "etc/motd").write_text("other")
    assert packed(tree, "three") != first


def test_a_packed_tree_is_unpacked_unchanged(tree):
    packed(tree, "one")
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", "out", "one"], cwd=tree.parent, check=True)
    assert (tree.parent / "out/etc/motd").read_bytes() == CONTENT
    assert (tree.parent / "out/etc/motd").stat().st_mtime == EPOCH


def test_the_verity_tree_follows_the_data_and_detects_changes(tree):
    data = packed(tree, "one")
    path = tree.parent / "one"
    verity = squashfs.append_verity(path, "ab" * 32, REAL)
    assert (verity.data_bytes, verity.salt) == (len(data), "ab" * 32)
    assert len(data) % squashfs.BLOCK_BYTES == 0
    whole = path.read_bytes()
    assert whole.startswith(data)
    assert len(whole) > len(data)

    def verified() -> bool:
        blocks = [f"--{what}-block-size={squashfs.BLOCK_BYTES}" for what in ("data", "hash")]
        places = [f"--data-blocks={len(data) // squashfs.BLOCK_BYTES}", f"--hash-offset={len(data)}"]
        options = ["--no-superblock", "--hash=sha256", f"--salt={verity.salt}", *blocks, *places]
        command = ["veritysetup", "verify", *options, path, path, verity.root_sha256]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert verified()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert not verified()


def test_output_of_veritysetup_without_a_root_hash_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with raises(ImageError, "site", "veritysetup", "cryptsetup-bin"):
        squashfs.append_verity(tmp_path / "file", "", Tools(answer=lambda argv: "UUID: 1\n"))


def test_a_layer_is_mounted_or_unpacked_if_there_is_no_loop_device(tmp_path):
    path, told = tmp_path / "0123456789abcdef/layer.squashfs", []
    mount = ["mount", "-t", "squashfs", "-o", "loop,ro,nodev", str(path)]
    tools = Tools(progress=told.append)
    squashfs.mount_read_only(path, tmp_path / "one", tools)
    assert (tools.ran, told) == ([[*mount, str(tmp_path / "one")]], [])
    tools = Tools(progress=told.append, answer=lambda argv: (32, "no loop") if argv[0] == "mount" else "")
    squashfs.mount_read_only(path, tmp_path / "two", tools)
    unpack = ["unsquashfs", "-quiet", "-no-progress", "-force", "-dest", str(tmp_path / "two"), str(path)]
    assert tools.ran == [[*mount, str(tmp_path / "two")], unpack]
    assert told == ["layer site: no loop device for 0123456789ab, unpacking it"]
    assert (tmp_path / "two").is_dir()


def test_layers_are_mounted_as_an_overlay(tmp_path):
    high, low, upper, at, work = (tmp_path / name for name in ("high", "low", "upper", "at", "work"))
    tools = Tools()
    squashfs.mount_overlay([low], None, at, work, tools)
    assert tools.ran == [["mount", "--bind", str(low), str(at)]]
    assert not work.exists()
    tools = Tools()
    squashfs.mount_overlay([high, low], None, at, work, tools)
    assert tools.ran == [["mount", "-t", "overlay", "-o", f"lowerdir={high}:{low},{OFF}", "overlay", str(at)]]
    assert not work.exists()
    tools = Tools()
    squashfs.mount_overlay([low], upper, at, work, tools)
    options = f"lowerdir={low},{OFF},upperdir={upper},workdir={work}"
    assert tools.ran == [["mount", "-t", "overlay", "-o", options, "overlay", str(at)]]
    assert upper.is_dir()
    assert work.is_dir()


def test_a_file_system_without_support_for_overlayfs_is_refused(tmp_path):
    at = tmp_path / "at"
    tools = Tools(answer=lambda argv: (32, "wrong fs type\n"))
    with raises(ImageError, "site", tmp_path, "wrong fs type", "node_image_cache_dir"):
        squashfs.mount_overlay([tmp_path / "a", tmp_path / "b"], None, at, tmp_path / "work", tools)
