# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Disks are chosen by name, and none that anything uses: lsblk, exclusive opens and /proc on real loop devices."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.disks.erase import Eraser
from ansible_collections.sailloft.fleet.plugins.module_utils.disks.found import DiskError, NodeDisk, choose, find
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.modules import node_wipe

needs_loops = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/loop-control") or not shutil.which("mkfs.ext4"),
    reason="needs root and loop devices",
)
SIZE = 16 << 20


@pytest.fixture
def loop(tmp_path):
    """Yield the path of a loop device with an ext4 file system with the label scratch."""
    image = tmp_path / "disk"
    image.write_bytes(bytes(SIZE))
    subprocess.run(["mkfs.ext4", "-q", "-L", "scratch", str(image)], check=True)
    made = subprocess.run(["losetup", "-f", "--show", str(image)], check=True, capture_output=True, text=True)
    path = made.stdout.strip()
    try:
        yield path
    finally:
        subprocess.run(["losetup", "-d", path], check=True)


def disk_of(path, keep_labels=()):
    return next(disk for disk in find(System(), keep_labels) if disk.path == path)


@needs_loops
def test_a_disk_that_nothing_uses_is_erased_and_read_back(loop):
    disk = disk_of(loop)
    assert (disk.uses, disk.size_bytes) == ((), SIZE)
    eraser = Eraser(System(), 60)
    for method in (eraser.method(disk, "auto"), "zero"):
        eraser.erase([disk], method)
        with open(loop, "rb") as content:
            assert content.read() == bytes(SIZE)


@needs_loops
def test_a_disk_that_was_only_told_to_erase_is_found_out(loop, tmp_path):
    class Lying(System):
        def run(self, argv, stdin=None, timeout_s=None):
            return "" if argv[0] == "blkdiscard" else super().run(argv, stdin, timeout_s)

    with pytest.raises(DiskError, match="still shows"):
        Eraser(Lying(), 60).erase([disk_of(loop)], "discard")


@needs_loops
def test_a_mounted_disk_is_used(loop, tmp_path):
    (tmp_path / "point").mkdir()
    subprocess.run(["mount", loop, str(tmp_path / "point")], check=True)
    try:
        assert any("mounted" in use for use in disk_of(loop).uses)
    finally:
        subprocess.run(["umount", loop], check=True)
    assert disk_of(loop).uses == ()


@needs_loops
def test_a_disk_that_is_mounted_in_another_namespace_is_used(loop, tmp_path):
    (tmp_path / "point").mkdir()
    command = f"mount {loop} {tmp_path}/point && echo ready && read line"
    inside = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert inside.stdout.readline() == "ready\n"
        assert any("exclusively" in use for use in disk_of(loop).uses)
    finally:
        inside.communicate("end\n", timeout=30)


@needs_loops
def test_swap_space_is_used(loop):
    subprocess.run(["mkswap", loop], check=True, capture_output=True)
    if subprocess.run(["swapon", loop], capture_output=True, check=False).returncode:
        pytest.skip("this kernel takes no swap space")
    try:
        assert any("swap" in use for use in disk_of(loop).uses)
    finally:
        subprocess.run(["swapoff", loop], check=True)


@needs_loops
def test_a_disk_that_a_program_has_open_is_used(loop):
    with open(loop, "rb"):
        assert any(f"process {os.getpid()}" in use for use in disk_of(loop).uses)


@needs_loops
def test_a_disk_with_a_label_that_is_kept_is_used(loop):
    assert any("scratch" in use for use in disk_of(loop, ["cache", "scratch"]).uses)
    assert disk_of(loop, ["cache"]).uses == ()


@needs_loops
@pytest.mark.parametrize("label", ['my"cache', "ca$che", "my cache", "données"])
def test_a_label_is_kept_whatever_its_characters(loop, label):
    subprocess.run(["e2label", loop, label], check=True)
    assert any(label in use for use in disk_of(loop, [label]).uses)


@needs_loops
def test_a_disk_that_is_used_while_others_are_erased_is_not_erased(loop):
    disk = disk_of(loop)
    assert node_wipe.still_unused(System(), [], [disk]) == [disk]
    with open(loop, "rb"), pytest.raises(DiskError, match=f"process {os.getpid()}"):
        node_wipe.still_unused(System(), [], [disk])
    other = replace(disk, serial="another")
    with pytest.raises(DiskError, match="not the same"):
        node_wipe.still_unused(System(), [], [other])


def disk(name="nvme0n1", serial="S1", address="0000:5e:00.0", uses=()):
    return NodeDisk(name, f"/dev/{name}", serial, SIZE, frozenset([address]), tuple(uses))


def test_disks_are_chosen_by_serial_and_address():
    disks = [disk(), disk("nvme0n2"), disk("sda", "S2", "0000:00:17.0"), disk("sdb", "S3", "0000:00:17.0")]
    assert choose(disks, [{"serial": "S2", "pci": None}]) == [disks[2]]
    # A controller's namespaces go together; one that is named twice is erased once.
    assert choose(disks, [{"pci": "0000:5e:00.0"}, {"serial": "S1"}]) == disks[:2]


def test_a_missing_or_used_disk_stops_all():
    disks = [disk(), disk("nvme0n2", uses=["it is mounted"]), disk("nvme1n1", "S4", "0000:5f:00.0")]
    with pytest.raises(DiskError, match="nvme0n2"):
        choose(disks, [{"serial": "S4"}, {"serial": "S1"}])
    with pytest.raises(DiskError, match="S9"):
        choose(disks, [{"serial": "S4"}, {"serial": "S9"}])
    # A disk without a serial is not chosen by an empty one.
    assert choose([disk("vda", "")], []) == []


@pytest.mark.parametrize("wanted", [{"pci": "0000:00:17.0"}, {"serial": "S2"}, {"serial": ""}, {"serial": None}, {}])
def test_disks_that_a_name_does_not_tell_apart_are_not_erased(wanted):
    """Disks behind one SATA controller, or two disks with one serial."""
    disks = [disk("sda", "S2", "0000:00:17.0"), disk("sdb", "S3", "0000:00:17.0"), disk("sdc", "S2", "0000:00:18.0")]
    with pytest.raises(DiskError):
        choose([*disks, disk("vda", "")], [wanted])
    assert choose(disks, [{"pci": "0000:00:18.0"}]) == disks[2:]
