# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_trees import PACK, VERSION, kernel
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import (
    initramfs,
    kernel_modules,
    userland,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign

PUBLIC_KEY = "RW" + "A" * 54
PROGRAMS = ("busybox", "minisign", "dmsetup")

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason="the first stage's programs are not on this machine (bindep.txt)"
)


def unpacked(data: bytes, folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["busybox", "cpio", "-id", "--quiet"], input=data, cwd=folder, check=True)
    return folder


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf to compare with")
@needs_tools
def test_the_digest_of_the_programs_includes_their_libraries(tmp_path):
    for entry in userland.entries(Path("/")):
        place = tmp_path / ("usr/bin/dmsetup" if entry.path == "sbin/dmsetup" else entry.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(entry.data)
    before = userland.digest(tmp_path)
    assert before == userland.digest(Path("/"))
    (tmp_path / "etc").mkdir()
    assert userland.digest(tmp_path) == before
    library = next(path for path in tmp_path.rglob("libdevmapper*"))
    library.write_bytes(library.read_bytes() + b"fixed")
    assert userland.digest(tmp_path) != before


@pytest.mark.parametrize("suffix", PACK)
def test_only_needed_modules_are_included_uncompressed_with_their_tables(tmp_path, suffix):
    entries = {entry.path: entry.data for entry in kernel_modules.entries(kernel(tmp_path, suffix), VERSION)}
    folder = f"lib/modules/{VERSION}"
    modules = {path.rpartition("/")[2] for path in entries if path.endswith(".ko")}
    assert modules == {
        *("virtio_net.ko", "failover.ko", "loop.ko", "squashfs.ko"),
        *("dm-verity.ko", "dm-mod.ko", "dm-bufio.ko", "helper.ko"),
    }
    assert entries[f"{folder}/kernel/net/virtio_net.ko"] == b"kernel/net/virtio_net.ko"
    assert (
        "kernel/md/dm-verity.ko: kernel/md/dm-mod.ko kernel/md/dm-bufio.ko\n"
        in entries[f"{folder}/modules.dep"].decode()
    )
    assert entries[f"{folder}/modules.alias"] == b"alias virtio:d1v* virtio_net\nalias dm-y dm-verity\n"


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_damaged_or_missing_module_is_refused(tmp_path, suffix):
    root = kernel(tmp_path, suffix)
    path = root / f"lib/modules/{VERSION}/kernel/block/loop.ko{suffix}"
    whole = path.read_bytes()
    for damaged in (whole[:-9], b"text"):
        path.write_bytes(damaged)
        with pytest.raises(ImageError, match=rf"kernel module .*loop\.ko{suffix}: cannot be unpacked: .*install"):
            kernel_modules.entries(root, VERSION)
    path.unlink()
    with raises(ImageError, "unpacked", "No such file"):
        kernel_modules.entries(root, VERSION)


def test_a_kernel_without_the_needed_modules_is_refused(tmp_path):
    with raises(ImageError, "kernel 9", f"{tmp_path}/lib/modules"):
        kernel_modules.entries(tmp_path, "9")
    for number, (drop, why) in enumerate(
        (("squashfs", "has no squashfs"), ("virtio_net", "none of the network drivers"))
    ):
        root = tmp_path / str(number)
        root.mkdir()
        with pytest.raises(ImageError, match=why):
            kernel_modules.entries(kernel(root, drop=drop), VERSION)
    (tmp_path / "bare").mkdir()
    root = kernel(tmp_path / "bare")
    (root / "lib/modules" / VERSION / "modules.dep").unlink()
    with raises(ImageError, "modules.dep", "No such file"):
        kernel_modules.entries(root, VERSION)


@needs_tools
def test_programs_run_with_the_included_libraries(tmp_path):
    there = unpacked(cpio.archive(userland.entries(Path("/")), 0), tmp_path / "out")
    loader = next(there.glob("lib64/ld-linux*"), None) or next(there.glob("lib/ld-linux*"))
    folders = {str(path.parent) for path in there.rglob("lib*.so*")}
    for program, expected in (("bin/minisign", "Usage"), ("sbin/dmsetup", "Library version")):
        command = [loader, "--library-path", ":".join(folders), "--inhibit-cache", there / program]
        found = subprocess.run(
            [*command, *(["version"] if "dmsetup" in program else [])], capture_output=True, text=True, check=False
        )
        assert expected in found.stdout + found.stderr


@needs_tools
def test_links_are_followed_within_the_tree(tmp_path):
    """Debian's packages have the loader as a link to an absolute path, and a library as a link to its version."""
    for program in PROGRAMS:
        place = tmp_path / "usr/bin" / program
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shutil.which(program), place)
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "lib64").mkdir()
    for entry in userland.entries(Path("/")):
        if ".so" in entry.path:
            name = Path(entry.path).name
            (libraries / f"{name}.real").write_bytes(entry.data)
            (libraries / name).unlink(missing_ok=True)
            (libraries / name).symlink_to(f"{name}.real")
    (tmp_path / "lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    here = {Path(entry.path).name: entry.data for entry in userland.entries(tmp_path)}
    assert here == {Path(entry.path).name: entry.data for entry in userland.entries(Path("/"))}
    # The tree of packages that have no files outside of /usr: the link /lib64 is in another package.
    (tmp_path / "lib64").rename(tmp_path / "usr/lib64")
    assert here == {Path(entry.path).name: entry.data for entry in userland.entries(tmp_path)}
    (libraries / "libsodium.so.23").unlink()
    with raises(ImageError, tmp_path, "no libsodium.so.23"):
        userland.entries(tmp_path)
    (tmp_path / "usr/bin/minisign").unlink()
    with raises(ImageError, tmp_path, "no minisign"):
        userland.entries(tmp_path)


@needs_tools
@pytest.mark.parametrize(
    ("config", "magic"), [("CONFIG_RD_ZSTD=y\n", b"\x28\xb5\x2f\xfd"), ("CONFIG_X=y\n", b"\x1f\x8b")]
)
def test_the_first_stage_is_reproducible(tmp_path, config, magic):
    root = kernel(tmp_path, config=config)
    built = []
    for name in ("one", "two"):
        initramfs.build(root, VERSION, Path("/"), PUBLIC_KEY, "#!/bin/sh\n", 1700000000, tmp_path / name)
        built.append((tmp_path / name).read_bytes())
    assert built[0] == built[1]
    assert built[0].startswith(magic)
    # RFC 1952: the header of gzip has a time. It must be 0, or the bytes would depend on the time of the build.
    assert magic[0] == 0x28 or built[0][4:8] == bytes(4)
    tool = "zstd" if magic[0] == 0x28 else "gzip"
    data = subprocess.run([tool, "-dc"], input=built[0], stdout=subprocess.PIPE, check=True).stdout
    # The fields of a newc header are hexadecimal; the tenth and eleventh are a device's numbers (console: 5 and 1).
    (header,) = re.findall(rb"070701([0-9A-Fa-f]{104})dev/console\0", data)
    assert [int(header[8 * field : 8 * field + 8], 16) for field in (9, 10)] == [5, 1]
    there = unpacked(data, tmp_path / "out")
    assert (there / "init").read_text() == "#!/bin/sh\n"
    assert all(os.access(there / path, os.X_OK) for path in ("bin/busybox", "bin/minisign", "sbin/dmsetup"))
    assert os.access(there / "init", os.X_OK)
    assert (there / "etc/sailloft/image.pub").read_text().endswith(f"\n{PUBLIC_KEY}\n")
    assert os.readlink(there / "bin/sh") == "busybox"
    assert (there / f"lib/modules/{VERSION}/kernel/block/loop.ko").exists()


@needs_tools
def test_minisign_accepts_the_public_key_in_the_first_stage(tmp_path):
    public, secret, message = (tmp_path / name for name in ("image.pub", "image.key", "message"))
    command = ["minisign", "-G", "-W", "-p", public, "-s", secret]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    message.write_text("text")
    key = sign.read_public_key(public)
    message.with_name("message.minisig").write_bytes(sign.signatures([b"text"], secret, key, None, sign.MANIFEST)[0])
    root = kernel(tmp_path, config="")
    initramfs.build(root, VERSION, Path("/"), key, "#!/bin/sh\n", 1700000000, tmp_path / "stage")
    there = unpacked(gzip.decompress((tmp_path / "stage").read_bytes()), tmp_path / "out")
    subprocess.run(["minisign", "-V", "-q", "-p", there / "etc/sailloft/image.pub", "-m", message], check=True)


def test_an_invalid_public_key_is_refused(tmp_path):
    for text in ("", "untrusted comment: x\n", "ssh-ed25519 AAAA", f"{PUBLIC_KEY}\n"):
        with raises(ImageError, "minisign public key"):
            initramfs.build(tmp_path, VERSION, Path("/"), text, "", 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()
