# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Unpack a container image as the tree of a layer: umoci applies its layers, with their whiteouts, in a room."""

from __future__ import annotations

import os
import posixpath
import shlex
import shutil
import stat
import tarfile
import zlib
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import unpacking
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    Run,
    ToolError,
    file_inside,
    inside,
    tail,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import DISTRIBUTIONS, family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci.layout import NAME, Layout, altered, subject_of

# What container engines put into a container and leave in an image that is made of it: a node gets its own, and
# policy-rc.d and docker-clean (github.com/debuerreotype/debuerreotype, debuerreotype-minimizing-config) would keep its
# services from starting and apt from caching.
OF_CONTAINERS = (
    *(".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf"),
    *("usr/sbin/policy-rc.d", "etc/apt/apt.conf.d/docker-clean"),
)
# What a file takes at least on the file systems that a cache may have.
LEAST_FILE_BYTES = 4096


def unpack(image: Layout, root: Path, work: Path, layer: Layer, run: Run) -> None:
    """Unpack the layer's container image as ``root``, which must not exist. ``work`` is its directory.

    Raises ImageError; ``root`` must not be used then.
    """
    subject = subject_of(layer)
    run.progress(f"{layer.subject}: unpacking {layer.oci.reference if layer.oci else image.folder}")
    _require_harmless(image, shutil.disk_usage(work).free, subject)
    bundle = work / "oci"
    bundle.mkdir(mode=0o700)
    command = ["umoci", "raw", "unpack", "--image", f"{image.folder}:{NAME}", f"{bundle}/rootfs"]
    try:
        run(unpacking(command, [image.folder], [bundle]))
    except ToolError as error:
        raise ImageError(
            f"umoci cannot unpack it: {tail(error.output)}",
            "use another image, or free some space where node_image_cache_dir is if that is the cause",
            subject=subject,
        ) from error
    os.rename(bundle / "rootfs", root)
    bundle.rmdir()
    _remove_devices(root, subject)
    for name in OF_CONTAINERS:
        path = inside(root, name)
        # A link, such as that of systemd-resolved, is a setting of the image.
        if path.is_file() and not path.is_symlink():
            path.unlink()
    _require_release(root, layer, subject)
    if not family_of(layer.distribution).packages(root, run):
        raise ImageError(
            "its database of packages is missing or has a form that the build host's dpkg or rpm does not read",
            "use an image that is made of packages, of Debian, Ubuntu, or Enterprise Linux 9 or later",
            subject=subject,
        )


def _require_harmless(image: Layout, free_bytes: int, subject: str) -> None:
    """Raise ImageError for a layer with other bytes than its digest says, or with files outside of the tree or too big.

    umoci also keeps all in the tree, but by changing what leads out of it.
    """
    needed_bytes = 0
    for path in image.layers:
        layer_name = f"its layer sha256:{path.name}"
        if not path.is_file() or sha256_of(path) != path.name:
            raise altered(f"sha256:{path.name}", subject, image.folder)
        try:
            with tarfile.open(path, "r|*") as archive:
                for member in archive:
                    archive.members.clear()  # type: ignore[attr-defined]  # they would all be kept in memory
                    name = _leading_out(member)
                    if name:
                        raise ImageError(
                            f"{layer_name} has {name!r}, which leads out of the tree",
                            "use an image of a maker whom you trust",
                            subject=subject,
                        )
                    needed_bytes += max(member.size, LEAST_FILE_BYTES)
                    if needed_bytes > free_bytes:
                        raise ImageError(
                            f"{layer_name} needs {needed_bytes} bytes up to {member.name[:200]!r} ({member.size}), "
                            f"but only {free_bytes} are free",
                            "free some space where node_image_cache_dir is, or use a smaller image",
                            subject=subject,
                        )
        except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
            raise ImageError(
                f"{layer_name} cannot be read: {str(error)[:200]}", "use another image", subject=subject
            ) from error


def _leading_out(member: tarfile.TarInfo) -> str:
    """Return the name or the target that leads out of the tree; "" if none does."""
    if ".." in member.name.split("/"):
        return member.name[:200]
    if member.islnk() and ".." in member.linkname.split("/"):
        return f"{member.name[:200]} -> {member.linkname[:200]}"
    if member.issym() and not member.linkname.startswith("/"):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name.lstrip("/")), member.linkname))
        if target.split("/")[0] == "..":
            return f"{member.name[:200]} -> {member.linkname[:200]}"
    return ""


def _remove_devices(root: Path, subject: str) -> None:
    """Empty /dev, where a node has its own. Raises ImageError for devices elsewhere."""
    folder = inside(root, "dev")
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
        folder.mkdir(mode=0o755)
    for place, _folders, names in os.walk(root):
        for name in names:
            mode = os.lstat(os.path.join(place, name)).st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                path = os.path.join(place, name)[len(os.fspath(root)) :]
                raise ImageError(f"{path} is a device", "make the image without it", subject=subject)


def _require_release(root: Path, layer: Layer, subject: str) -> None:
    """Raise ImageError if the tree's os-release(5) is not that of the layer's distribution and suite."""
    path = file_inside(root, "etc/os-release") or file_inside(root, "usr/lib/os-release")
    lines = path.read_text(errors="replace").splitlines() if path else []
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        values = {name: "".join(shlex.split(fields.get(name, ""))) for name in ("ID", "VERSION_ID", "VERSION_CODENAME")}
    except ValueError:
        values = dict.fromkeys(("ID", "VERSION_ID", "VERSION_CODENAME"), "")
    system, version, codename = values.values()
    if system not in DISTRIBUTIONS:
        raise ImageError(
            f"its /etc/os-release says {system[:80] or 'nothing'}, which is no known distribution",
            f"use an image of one of: {', '.join(sorted(DISTRIBUTIONS))}",
            subject=subject,
        )
    releases = {version, version.partition(".")[0], codename}
    if system != layer.distribution or layer.suite not in releases:
        release = codename or version.partition(".")[0]
        raise ImageError(
            f"its /etc/os-release says {system} {release[:80]}, the layer {layer.distribution} {layer.suite}",
            f"set distribution: {system} and suite: {release[:80]!r}, or use another image",
            subject=subject,
        )
