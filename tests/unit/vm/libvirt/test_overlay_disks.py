# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import overlay_disks
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Disk, DomainSpec

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed here")


def spec(tmp_path: Path, **more: object) -> DomainSpec:
    return DomainSpec("a", disks=[Disk(str(tmp_path / "a.qcow2"), base=str(tmp_path / "base.qcow2"), **more)])


def test_the_command_has_the_base_and_an_optional_size() -> None:
    disk = Disk("/a", base="/base", base_format="raw", size_mib=20)
    assert overlay_disks.command(disk, "/a.part") == [
        "qemu-img", "create", "-q", "-f", "qcow2", "-b", "/base", "-F", "raw", "/a.part", "20M",
    ]  # fmt: skip
    assert overlay_disks.command(Disk("/a", base="/base"), "/a.part")[-1] == "/a.part"


@needs_qemu_img
def test_an_overlay_is_made_once_and_removed(tmp_path: Path) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / "base.qcow2", "8M"], check=True)
    (tmp_path / "a.qcow2.part").write_text("left by a run that was killed")
    overlay_disks.make(spec(tmp_path, size_mib=16))
    asked = subprocess.run(
        ["qemu-img", "info", "--output=json", tmp_path / "a.qcow2"], check=True, capture_output=True, text=True
    )
    found = json.loads(asked.stdout)
    assert (found["virtual-size"], found["full-backing-filename"]) == (16 * 1024**2, str(tmp_path / "base.qcow2"))
    (tmp_path / "a.qcow2").write_text("what the guest wrote")
    overlay_disks.make(spec(tmp_path))
    assert (tmp_path / "a.qcow2").read_text() == "what the guest wrote"
    overlay_disks.remove("a", [str(tmp_path / "a.qcow2")])
    overlay_disks.remove("a", [str(tmp_path / "a.qcow2")])
    assert sorted(item.name for item in tmp_path.iterdir()) == ["base.qcow2"]


@needs_qemu_img
def test_a_missing_base_image_is_refused(tmp_path: Path) -> None:
    with raises(DomainError, "virtual machine a", "a.qcow2", "base.qcow2"):
        overlay_disks.make(spec(tmp_path))
    assert not (tmp_path / "a.qcow2").exists()
