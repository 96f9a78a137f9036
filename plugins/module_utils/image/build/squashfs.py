# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pack a tree as one squashfs file with its dm-verity tree appended, and mount such files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, ToolError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Verity

# Measured on a Debian 12 root of 344 MB, 2 cores: zstd-3 109.8 MB in 5 s, zstd-9 with 256 KiB blocks 98.4 MB in 35 s
# (13 s of CPU), zstd-19 with 1 MiB 86.6 MB in 158 s, xz 79.6 MB in 369 s. zstd-9 has most of the gain at a twelfth
# of xz's time, and small blocks cost a node less memory and time at each read of a part of a file.
OPTIONS = ("-comp", "zstd", "-Xcompression-level", "9", "-b", "256K")
# dm-verity's block size, the largest that every kernel with 4 KiB pages supports; mksquashfs pads its output to it.
BLOCK_BYTES = 4096


def pack(tree: Path, output: Path, epoch: int, run: Run) -> None:
    """Write ``tree`` to ``output``: the same tree gives the same bytes.

    Times after ``epoch`` (s since 1970) are set to it. mksquashfs reads SOURCE_DATE_EPOCH for that, and stops if
    options for times are given too.
    """
    run(
        ["mksquashfs", tree, output, "-noappend", "-no-progress", "-quiet", *OPTIONS],
        env={"SOURCE_DATE_EPOCH": str(epoch)},
    )


def append_verity(path: Path, salt: str, run: Run) -> Verity:
    """Append the dm-verity hash tree (version 1, sha256, no superblock) to the file; ``salt`` is hexadecimal."""
    data_bytes = path.stat().st_size
    output = run(
        [
            "veritysetup",
            "format",
            "--no-superblock",
            "--hash=sha256",
            f"--data-block-size={BLOCK_BYTES}",
            f"--hash-block-size={BLOCK_BYTES}",
            f"--data-blocks={data_bytes // BLOCK_BYTES}",
            f"--hash-offset={data_bytes}",
            f"--salt={salt}",
            path,
            path,
        ]
    )
    match = re.search(r"^Root hash:\s*([0-9a-f]{64})$", output, re.MULTILINE)
    if not match:
        raise ImageError(
            f"veritysetup printed no root hash: {output.strip()}",
            "install cryptsetup-bin 2 or later",
            subject=run.subject,
        )
    return Verity(data_bytes=data_bytes, root_sha256=match.group(1), salt=salt)


def mount_read_only(path: Path, mount_point: Path, run: Run) -> None:
    """Mount the layer's tree at ``mount_point`` with a loop device; without one, unpack it there (slower)."""
    mount_point.mkdir()
    try:
        run(["mount", "-t", "squashfs", "-o", "loop,ro,nodev", path, mount_point])
    except ToolError:
        run.progress(f"{run.subject}: no loop device for {path.parent.name[:12]}, unpacking it")
        # unsquashfs also unpacks xattrs (file capabilities) and device nodes (whiteouts), which must be kept.
        run(["unsquashfs", "-quiet", "-no-progress", "-force", "-dest", mount_point, path])


def mount_overlay(lower: list[Path], upper: Path | None, mount_point: Path, work: Path, run: Run) -> None:
    """Mount ``lower`` (highest first) and the writable ``upper`` (or none) as one tree at ``mount_point``.

    All of overlayfs's extensions are off: they leave attributes in ``upper`` that differ from machine to machine.
    """
    mount_point.mkdir(exist_ok=True)
    if upper is None and len(lower) == 1:
        run(["mount", "--bind", lower[0], mount_point])
        return
    options = [
        "lowerdir=" + ":".join(map(os.fspath, lower)),
        "redirect_dir=off",
        "metacopy=off",
        "index=off",
        "xino=off",
    ]
    if upper is not None:
        upper.mkdir(exist_ok=True)
        work.mkdir()
        options += [f"upperdir={upper}", f"workdir={work}"]
    try:
        run(["mount", "-t", "overlay", "-o", ",".join(options), "overlay", mount_point])
    except ToolError as error:
        raise ImageError(
            f"overlayfs cannot be used in {mount_point.parent}: {error.output.strip()}",
            "put node_image_cache_dir on ext4, xfs or tmpfs",
            subject=run.subject,
        ) from error
