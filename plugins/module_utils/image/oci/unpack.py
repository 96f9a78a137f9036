# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Unpack a container image as the tree of a layer: umoci verifies its layers and applies them, in a room.

Names and links that lead out of the tree are taken as in a chroot by umoci, which follows links within the tree only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import unpacking
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    Run,
    ToolError,
    file_inside,
    inside,
    tail,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci.layout import NAME, Layout, subject_of

# What container engines put into a container and leave in an image that is made of it: a node gets its own, and
# policy-rc.d and docker-clean (github.com/debuerreotype/debuerreotype, debuerreotype-minimizing-config) would keep its
# services from starting and apt from caching.
OF_CONTAINERS = (
    *(".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf"),
    *("usr/sbin/policy-rc.d", "etc/apt/apt.conf.d/docker-clean"),
)
# os-release(5).
RELEASE_FIELD = re.compile(r"""^(ID|VERSION_ID|VERSION_CODENAME)=["']?([\w.-]+)""", re.ASCII | re.MULTILINE)


def unpack(image: Layout, root: Path, work: Path, layer: Layer, run: Run) -> None:
    """Unpack the layer's container image as ``root``, which must not exist. ``work`` is its directory.

    Raises ImageError; ``root`` must not be used then.
    """
    subject = subject_of(layer)
    run.progress(f"{subject}: unpacking")
    bundle = work / "oci"
    bundle.mkdir(mode=0o700)
    command = ["umoci", "raw", "unpack", "--image", f"{image.folder}:{NAME}", f"{bundle}/rootfs"]
    try:
        run(unpacking(command, image.folder, bundle))
    except ToolError as error:
        raise ImageError(
            f"umoci cannot unpack it: {tail(error.output)}",
            f"use another image; if the digest of a blob differs, remove {image.folder}, and run again",
            subject=subject,
        ) from error
    os.rename(bundle / "rootfs", root)
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


def _require_release(root: Path, layer: Layer, subject: str) -> None:
    """Raise ImageError if the tree's os-release(5) is not that of the layer's distribution and suite."""
    path = file_inside(root, "etc/os-release") or file_inside(root, "usr/lib/os-release")
    fields = dict(RELEASE_FIELD.findall(path.read_text(errors="replace"))) if path else {}
    system, version, codename = (fields.get(name, "") for name in ("ID", "VERSION_ID", "VERSION_CODENAME"))
    if system != layer.distribution or layer.suite not in (version, version.partition(".")[0], codename):
        raise ImageError(
            f"its /etc/os-release says {f'{system} {codename or version}'.strip() or 'nothing'}, "
            f"the layer {layer.distribution} {layer.suite}",
            "correct distribution and suite, or use another image",
            subject=subject,
        )
