# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the first stage: the initramfs that fetches an image, verifies it and mounts it.

Its behaviour is in the init script. That is a file of the role ``node_image``, since Ansible ships no data files with a
module.
"""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import file_inside
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import kernel_modules, userland
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import PUBLIC_KEY

# All applets are one file; the shell needs links only for programs that other programs start by path.
LINKS = (("bin/sh", "busybox"), ("sbin/modprobe", "../bin/busybox"), ("sbin/dhcp-lease", "../init"))
KEY_COMMENT = "public key of sailloft images"
FOLDERS = ("dev", "proc", "run", "sys", "tmp")
ZSTD = ("zstd", "-19", "--single-thread", "--no-progress", "-q", "-c")


def build(
    root: Path,
    kernel_version: str,
    userland_tree: Path,
    public_key: str,
    init: str,
    epoch: int,
    output: Path,
    drivers: Sequence[str] = (),
) -> None:
    """Write the first stage to ``output``: the same inputs give the same bytes with the same zstd or zlib.

    ``root`` is the image's whole tree, for the kernel's modules; ``userland_tree`` has busybox-static, minisign and
    dmsetup unpacked, with their libraries; ``public_key`` is a result of ``sign.read_public_key``; ``init`` is the
    script's text; ``epoch`` is the time of all files (s since 1970); ``drivers`` are modules beside the usual ones.
    Raises ImageError.
    """
    if not PUBLIC_KEY.fullmatch(public_key):
        raise ImageError(
            "not a minisign public key", "give the file that 'minisign -G' wrote as *.pub", subject="public key"
        )
    entries = [
        *(cpio.folder(path) for path in FOLDERS),
        *(cpio.link(path, target) for path, target in LINKS),
        # The kernel opens it as init's standard input and output, before init mounts anything.
        cpio.character_device("dev/console", 5, 1),
        cpio.file("init", init.encode(), executable=True),
        # minisign does not read a key file without the comment.
        cpio.file("etc/sailloft/image.pub", f"untrusted comment: {KEY_COMMENT}\n{public_key}\n".encode()),
        *{entry.path: entry for entry in (*userland.debug_entries(root), *userland.entries(userland_tree))}.values(),
        *kernel_modules.entries(root, kernel_version, drivers),
    ]
    output.write_bytes(compressed(cpio.archive(entries, epoch), root, kernel_version))


def compressed(data: bytes, root: Path, version: str) -> bytes:
    """Compress with zstd, which unpacks fastest, if the kernel's configuration has it, else with gzip (all have it)."""
    names = [f"boot/config-{version}", *(f"{top}/modules/{version}/config" for top in ("lib", "usr/lib"))]
    files = filter(None, (file_inside(root, name) for name in names))
    config = next((path.read_text("utf-8", "replace") for path in files), "")
    if "CONFIG_RD_ZSTD=y" not in config.splitlines():
        return gzip.compress(data, 9, mtime=0)
    try:
        return subprocess.run(ZSTD, input=data, stdout=subprocess.PIPE, check=True).stdout
    except FileNotFoundError as error:
        raise ImageError("not found on the build host", "apt-get install zstd", subject="tool zstd") from error
