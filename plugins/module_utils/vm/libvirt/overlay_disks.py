# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Disk images that are made if they are missing, and not changed later: overlays of a base image, and seeds."""

from __future__ import annotations

import os
import subprocess

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import base_images, seed_disks
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.disk_use import partial
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Disk, DomainSpec


def make(spec: DomainSpec) -> None:
    """Make every missing disk. Each appears complete or not at all. Raises DomainError with the program's message."""
    for disk in spec.disks:
        if not disk.is_made or os.path.lexists(disk.path):
            continue
        if not disk.base:
            seed_disks.make(spec, disk)
            continue
        base_images.download(disk, spec.name)
        unfinished = partial(disk.path)
        try:
            process = subprocess.run(command(disk, unfinished), capture_output=True, text=True, check=False)
            if process.returncode:
                raise DomainError(f"disk {disk.path} cannot be created: {process.stderr.strip()}", domain=spec.name)
            os.replace(unfinished, disk.path)
        except OSError as error:
            raise DomainError(
                f"disk {disk.path} cannot be created: {error}", "qemu-img is in qemu-utils", domain=spec.name
            ) from error


def remove(name: str, paths: list[str]) -> None:
    """Remove the disks at ``paths`` of virtual machine ``name``; see ``disk_use.removable``. Raises DomainError."""
    for path in paths:
        try:
            os.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DomainError(f"disk {path} cannot be removed: {error.strerror}", domain=name) from error


def command(disk: Disk, target: str) -> list[str]:
    """Return qemu-img's command line for an overlay."""
    size = [f"{disk.size_mib}M"] if disk.size_mib else []
    return ["qemu-img", "create", "-q", "-f", "qcow2", "-b", disk.base or "", "-F", disk.base_format, target, *size]
