# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read back a disk that roles/lab/files/make-disk makes of an image. The lab's machines show that disks boot."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

MAKE_DISK = Path(__file__).parents[2] / "roles/lab/files/make-disk"
GRUB = Path("/usr/lib/grub/i386-pc")
HELD = "/var/lib/images/guest.qcow2"
PLAN = {"guest": {"size_gib": 1}, "server": {"size_gib": 2, "holds": {"image": "guest", "path": HELD}}}
PARTITION = 1 << 20
VERSION = "6.1.0-31-cloud-amd64"  # the kernel version of Sample
# A replacement for initramfs-tools: it records its arguments, and that it sees the image and a device.
UPDATE_INITRAMFS = """#!/bin/sh
echo "$@" > /boot/initrd.img-$3
cat /etc/name /etc/fstab >> /boot/initrd.img-$3
echo > /dev/null
"""


def squashfs(tree: Path) -> bytes:
    out = tree.with_suffix(".squashfs")
    subprocess.run(["mksquashfs", tree, out, "-quiet", "-no-progress", "-noappend"], check=True)
    return out.read_bytes()


@pytest.fixture(scope="module")
def layers(tmp_path_factory) -> dict[str, bytes]:
    """A root with a shell, GRUB and its own update-initramfs, and a layer that removes one file and changes another."""
    folder = tmp_path_factory.mktemp("layers")
    base, top = folder / "base", folder / "top"
    for name in ("bin", "boot", "dev", "etc", "proc", "run", "tmp", "usr/sbin", "var"):
        (base / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", base / "bin/busybox")
    for name in ("sh", "cat", "echo"):
        (base / "bin" / name).symlink_to("busybox")
    (base / "usr/sbin/update-initramfs").write_text(UPDATE_INITRAMFS)
    (base / "usr/sbin/update-initramfs").chmod(0o755)
    shutil.copytree(GRUB, base / "usr/lib/grub/i386-pc")
    (base / "etc/machine-id").write_text("uninitialized\n")
    (base / "etc/name").write_text("base\n")
    (base / "etc/gone").write_text("base\n")
    (base / "etc/of-a-user").write_text("kept\n")
    os.chown(base / "etc/of-a-user", 1234, 4321)
    (top / "etc").mkdir(parents=True)
    (top / "etc/name").write_text("top\n")
    os.mknod(top / "etc/gone", 0o020000, os.makedev(0, 0))
    return {"base": squashfs(base), "top": squashfs(top)}


@pytest.fixture(scope="module")
def store(layers, tmp_path_factory) -> Store:
    """A store with the images of a guest and of a server."""
    folder = tmp_path_factory.mktemp("site")
    store = Store(str(folder / "store"))
    Sample("guest", base=layers["base"]).publish(store, folder / "blobs")
    arguments = ("console=ttyS0", "rcupdate.rcu_cpu_stall_timeout=45")
    Sample("server", kernel=b"a kernel", arguments=arguments, **layers).publish(store, folder / "blobs")
    return store


def make(image: str, store: Store, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, MAKE_DISK, image, store.path, folder, json.dumps(PLAN)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def disk(store, tmp_path_factory) -> Path:
    """The disk of the server's image."""
    done = make("server", store, tmp_path_factory.mktemp("disks"))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def raw(disk) -> Path:
    """The raw bytes of the server's disk."""
    raw = disk.with_suffix(".raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
    return raw


def read(raw: Path, path: str, into: Path) -> bytes:
    """Return a file of the disk."""
    subprocess.run(["debugfs", "-R", f"dump {path} {into}", f"{raw}?offset={PARTITION}"], check=True)
    return into.read_bytes()


def test_the_disk_contains_the_merged_layers_of_the_image(raw, tmp_path):
    assert read(raw, "/etc/name", tmp_path / "name") == b"top\n"
    command = ["debugfs", "-R", "stat /etc/gone", f"{raw}?offset={PARTITION}"]
    assert "not found" in subprocess.run(command, capture_output=True, text=True, check=True).stderr
    command[2] = "stat /etc/of-a-user"
    assert "User:  1234   Group:  4321" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    subprocess.run(["e2fsck", "-fn", f"{raw}?offset={PARTITION}"], check=True)


def test_the_disk_has_the_images_kernel_and_arguments_and_a_new_initramfs(raw, disk, tmp_path):
    assert read(raw, f"/boot/vmlinuz-{VERSION}", tmp_path / "kernel") == b"a kernel"
    assert disk.with_suffix(".vmlinuz").read_bytes() == b"a kernel"
    fstab = read(raw, "/etc/fstab", tmp_path / "fstab")
    assert read(raw, f"/boot/initrd.img-{VERSION}", tmp_path / "initrd") == f"-c -k {VERSION}\ntop\n".encode() + fstab
    told = subprocess.run(["dumpe2fs", "-h", f"{raw}?offset={PARTITION}"], capture_output=True, text=True, check=True)
    uuid = re.search(r"^Filesystem UUID:\s+(\S+)$", told.stdout, re.MULTILINE).group(1)
    root = f"UUID={uuid}"
    assert fstab.decode().startswith(f"{root} / ext4 ")
    arguments = "console=ttyS0 rcupdate.rcu_cpu_stall_timeout=45"
    configuration = read(raw, "/boot/grub/grub.cfg", tmp_path / "grub").decode()
    assert f"linux /boot/vmlinuz-{VERSION} root={root} ro {arguments}\n" in configuration
    assert f"initrd /boot/initrd.img-{VERSION}\n" in configuration
    # The settings that update-grub reads.
    read(raw, "/etc/default/grub.d/10-image.cfg", tmp_path / "defaults")
    told = ["sh", "-c", f'. {tmp_path}/defaults; printf %s "$GRUB_CMDLINE_LINUX"']
    assert subprocess.run(told, capture_output=True, text=True, check=True).stdout == arguments


def test_the_machine_id_is_empty_before_the_first_boot(raw, tmp_path):
    assert read(raw, "/etc/machine-id", tmp_path / "id") == b""


def test_grub_is_installed_in_the_boot_sector_and_in_boot_grub(raw, tmp_path):
    table = json.loads(subprocess.run(["sfdisk", "--json", raw], capture_output=True, check=True).stdout)
    (partition,) = table["partitiontable"]["partitions"]
    assert partition["start"] * 512 == PARTITION
    assert partition["bootable"]
    assert (partition["start"] + partition["size"]) * 512 == raw.stat().st_size == 2 << 30
    with raw.open("rb") as stream:
        first = stream.read(512)
        assert first[:440] == (GRUB / "boot.img").read_bytes()[:440]
        assert first[510:] == b"\x55\xaa"
        # core.img begins with diskboot.img.
        assert stream.read(16) == (GRUB / "diskboot.img").read_bytes()[:16]
    assert read(raw, "/boot/grub/i386-pc/linux.mod", tmp_path / "module") == (GRUB / "linux.mod").read_bytes()


def test_the_disk_contains_the_disk_of_the_guest(raw, disk, tmp_path):
    (guest,) = disk.parent.glob("guest-*.qcow2")
    assert read(raw, HELD, tmp_path / "guest") == guest.read_bytes()


def test_an_existing_disk_is_reused_and_its_time_of_use_is_updated(store, disk):
    made = disk.stat()
    again = make("server", store, disk.parent)
    assert again.stderr == ""
    assert again.stdout.strip() == str(disk)
    assert (disk.stat().st_ino, disk.stat().st_ctime_ns > made.st_ctime_ns) == (made.st_ino, True)


def test_the_least_recently_used_disks_are_removed_unless_a_machine_uses_them(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("make_disk", str(MAKE_DISK))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setitem(sys.modules, loader.name, script)
    loader.exec_module(script)
    disks, machine = tmp_path / "images", tmp_path / "lab/hv01/disk.qcow2"
    disks.mkdir()
    machine.parent.mkdir(parents=True)
    paths = [disks / f"{name}.qcow2" for name in ("machines", "oldest", "older", "new", "held")]
    for days_ago, path in zip((9, 8, 7, 0, 10), paths):
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1M"], check=True)
        path.with_suffix(".vmlinuz").touch()
        os.utime(path, (time.time() - 86400 * days_ago,) * 2)
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", paths[0], machine]
    subprocess.run(command, check=True)
    bytes_of_all = sum(path.stat().st_blocks * 512 for path in paths)
    assert script.trim(disks, bytes_of_all, keep={paths[4]}) == []
    assert script.trim(disks, bytes_of_all - 1, keep={paths[4], None}) == [paths[1]]
    assert {path.stem for path in disks.glob("*.vmlinuz")} == {"machines", "older", "new", "held"}
    assert script.trim(disks, 0, keep={paths[4]}) == paths[2:4]
    assert {path.stem for path in disks.iterdir()} == {"machines", "held"}


@pytest.mark.long
def test_a_changed_guest_image_gives_another_disk(layers, disk, tmp_path):
    other = Store(str(tmp_path / "store"))
    # The server's image is the same, including its digest.
    Sample(
        "server", kernel=b"a kernel", arguments=("console=ttyS0", "rcupdate.rcu_cpu_stall_timeout=45"), **layers
    ).publish(other, tmp_path / "blobs")
    Sample("guest", arguments=("quiet",), base=layers["base"]).publish(other, tmp_path / "blobs")
    done = make("server", other, tmp_path / "disks")
    assert Path(done.stdout.strip()).name != disk.name
    # A killed run leaves a directory but no disk.
    assert {path.suffix for path in (tmp_path / "disks").iterdir()} == {".qcow2", ".vmlinuz"}


def test_an_image_without_a_boot_loader_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "tree/usr/sbin").mkdir(parents=True)
    (tmp_path / "tree/etc").mkdir()
    store = Store(str(tmp_path / "store"))
    Sample("guest", base=squashfs(tmp_path / "tree")).publish(store, tmp_path / "blobs")
    done = make("guest", store, tmp_path / "disks")
    assert done.returncode == 1
    assert done.stderr == (
        "make-disk: disk of guest: the image has no /usr/lib/grub/i386-pc/boot.img; "
        "add grub-pc to the packages of a layer\n"
    )
    assert list((tmp_path / "disks").iterdir()) == []


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (
            "server",
            "image server: is not in store {}, which has none; build it: ansible-playbook "
            "-i inventories/lab playbooks/lab_images.yml",
        ),
        ("desk", "image desk: has no disk (images with disks: guest, server); set its size_gib"),
    ],
)
def test_a_missing_image_or_disk_size_is_named(tmp_path, image, message):
    done = make(image, Store(str(tmp_path)), tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"make-disk: {message.format(tmp_path)}\n"
