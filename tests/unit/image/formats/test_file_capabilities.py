# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Capabilities of files: the kernel's attribute, the line of the diff, and a layer's squashfs."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.squashfs import pack
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import file_capabilities
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats.listing import listing
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import forbidden
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import changes

# The values that `setcap cap_net_raw=ep` and `setcap cap_net_admin,cap_net_raw+eip` write.
PING = "0100000200200000000000000000000000000000"
TOOL = "0100000200300000003000000000000000000000"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "none"),
        (PING, "cap_net_raw=ep"),
        (TOOL, "cap_net_admin,cap_net_raw=eip"),
        ("0000000200200000000000000000000000000000", "cap_net_raw=p"),
        ("0000000200000000002000000000000000000000", "cap_net_raw=i"),
        ("0100000200200000000000008000000000000000", "cap_net_raw,cap_bpf=ep"),
        ("0100000200000000000000000001000000000000", "cap_checkpoint_restore=ep"),
        ("0100000200000000000000000002000000000000", "cap_41=ep"),
        ("0100000200000000000000000000008000000000", "cap_63=ep"),
        ("0000000200000000000000000000000080000000", "cap_bpf=i"),
        ("01000003002000000000000000000000000000002a000000", "cap_net_raw=ep (user 42)"),
        ("010000010020000000000000", "cap_net_raw=ep"),
        ("0100000200000000000000000000000000000000", "none set"),
        ("0100000900200000", "0100000900200000"),
        ("01", "01"),
        ("no", "no"),
    ],
)
def test_capabilities_are_shown_in_the_format_of_getcap(value, message):
    assert file_capabilities.text(value) == message


def test_a_change_of_only_the_capabilities_is_in_the_diff():
    sample = Sample("node", base=b"base")
    file = {"type": "file", "mode": "0755", "owner": 0, "group": 0, "size_bytes": 1, "sha256": "0" * 64}
    before, after = {"/bin/ping": file}, {"/bin/ping": {**file, "capabilities": PING}}
    found = changes.changes(sample.manifest, Sample("node", base=b"other").manifest, {"base": before}, {"base": after})
    assert "  ~ /bin/ping (layer base): capabilities none -> cap_net_raw=ep" in changes.text(found)


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("mksquashfs", "unsquashfs")),
    reason="only root may give capabilities; needs squashfs-tools (bindep.txt)",
)
def test_a_layer_keeps_and_lists_capabilities(tmp_path):
    tree, parent = tmp_path / "tree", tmp_path / "parent"
    for folder in (tree, parent):
        folder.mkdir()
        for name in ("ping", "cat"):
            (folder / name).write_bytes(b"x")
            os.utime(folder / name, (1, 1))
    os.setxattr(tree / "ping", file_capabilities.ATTRIBUTE, bytes.fromhex(PING))
    (tree / "link").symlink_to("ping")
    assert file_capabilities.read(os.fspath(tree / "link")) == ""
    (tree / "link").unlink()
    # A layer on top of the parent differs from it only in capabilities.
    forbidden.prune(tree, parent, 1)
    assert [path.name for path in tree.iterdir()] == ["ping"]
    assert listing(tree)["/ping"]["capabilities"] == PING
    assert "capabilities" not in listing(parent)["/cat"]
    pack(tree, tmp_path / "layer.squashfs", 1, tools.Run("layer", print))
    subprocess.run(
        ["unsquashfs", "-quiet", "-no-progress", "-d", tmp_path / "out", tmp_path / "layer.squashfs"], check=True
    )
    assert listing(tmp_path / "out") == listing(tree)
