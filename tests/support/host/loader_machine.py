# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An emulated machine whose GRUB reads Boot Loader Specification entries, and whose kernel prints its arguments.

RHEL's own packages are not available everywhere. Its ``blscfg`` has been in upstream GRUB since 2.14, which is in
Debian 14 ("forky"). That GRUB and this release's kernel are downloaded and unpacked to a cache; nothing is installed
here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from forky import apt_options
from patience import run_to_its_end
from user_cache import user_cache

CACHE = user_cache("boot_loader")
GRUB_MODULES = ("normal", "blsuki", "loadenv", "linux", "fat", "part_msdos", "serial", "terminal", "boot")
# Like RHEL's configuration, without the menu: the environment block, then an entry for each file below /loader/entries.
GRUB_CFG = """serial --unit=0
terminal_output serial
load_env
set timeout=0
blscfg
"""
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
exec >/dev/console 2>&1
echo
grep -H . /proc/cmdline /sys/devices/system/node/node*/hugepages/*/nr_hugepages /sys/kernel/iommu_groups/*/type
poweroff -f
"""
NODE_MIB = 2048
LIMIT_S = 180
FIRMWARE = Path("/usr/share/OVMF")


def packages() -> Path:
    """Return the directory of the unpacked GRUB and kernel, which are downloaded once."""
    folder = CACHE / "unpacked"
    if folder.exists():
        return folder
    unfinished = CACHE / "unfinished"
    options = apt_options(unfinished)
    _run("apt-get", "-q", *options, "update")
    _run("apt-get", "-q", *options, "download", "grub-efi-amd64-bin", cwd=unfinished)
    output = _run("apt-cache", "depends", "--important", "linux-image-amd64")
    _run("apt-get", "-q", "download", re.findall(r"Depends: (linux-image-\S+)", output)[0], cwd=unfinished)
    for package in sorted(unfinished.glob("*.deb")):
        _run("dpkg-deb", "-x", package, unfinished / "unpacked")
    (unfinished / "unpacked").rename(folder)
    shutil.rmtree(unfinished)
    return folder


def boot(disk: Path, kernel: str, initramfs: str) -> list[str]:
    """Boot from ``disk`` and return the lines that the booted kernel prints, each ``path:content``.

    ``disk`` is the tree of a boot file system, to which firmware, a kernel and an initramfs are added.
    """
    have = packages()
    _initramfs(disk.parent / "root", disk / initramfs)
    shutil.copy(next((have / "boot").glob("vmlinuz-*")), disk / kernel)
    (disk / "grub2" / "grub.cfg").write_text(GRUB_CFG)
    program = disk / "EFI" / "BOOT" / "BOOTX64.EFI"
    program.parent.mkdir(parents=True, exist_ok=True)
    modules = next((have / "usr/lib/grub").iterdir())
    _run("grub-mkimage", "-d", modules, "-O", modules.name, "-p", "(hd0,msdos1)/grub2", "-o", program, *GRUB_MODULES)
    variables = disk.parent / "variables"
    shutil.copy(FIRMWARE / "OVMF_VARS_4M.fd", variables)

    console = disk.parent / "console.log"
    command = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max"]
    command += ["-m", str(2 * NODE_MIB), "-smp", "2", "-device", "intel-iommu,intremap=on"]
    for node in range(2):
        command += ["-object", f"memory-backend-ram,id=node{node},size={NODE_MIB}M"]
        command += ["-numa", f"node,nodeid={node},memdev=node{node},cpus={node}"]
    command += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}"]
    command += ["-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE / 'OVMF_CODE_4M.fd'}"]
    command += ["-drive", f"if=pflash,format=raw,file={variables}"]
    # QEMU presents the tree as a FAT file system.
    command += ["-drive", f"file=fat:rw:{disk},format=raw,if=virtio"]
    return run_to_its_end(command, console, LIMIT_S).splitlines()


def _initramfs(tree: Path, image: Path) -> None:
    for name in ("bin", "dev", "proc", "sys"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", tree / "bin" / "busybox")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    with image.open("wb") as out:
        names = subprocess.run(["find", "."], cwd=tree, check=True, capture_output=True).stdout
        make = ["busybox", "cpio", "-o", "-H", "newc"]
        subprocess.run(make, cwd=tree, input=names, stdout=out, stderr=subprocess.PIPE, check=True)


def _run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
