# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Disk images that are overlays of a base: made where they are missing, never touched again."""

from __future__ import annotations

import os
import subprocess

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import Disk, DomainSpec


def make(spec: DomainSpec) -> None:
    """Make every missing overlay. Each appears whole or not at all. Raises DomainError with what qemu-img said."""
    for disk in spec.disks:
        if not disk.base or os.path.exists(disk.path):
            continue
        partial = f"{disk.path}.part"
        try:
            done = subprocess.run(command(disk, partial), capture_output=True, text=True, check=False)
            if done.returncode:
                raise DomainError(f"disk {disk.path} cannot be made: {done.stderr.strip()}", domain=spec.name)
            os.replace(partial, disk.path)
        except OSError as error:
            raise DomainError(
                f"disk {disk.path} cannot be made: {error}", "qemu-img is in qemu-utils", domain=spec.name
            ) from error


def remove(spec: DomainSpec) -> None:
    """Remove every overlay; the bases stay. Raises DomainError."""
    for disk in spec.disks:
        if disk.base and os.path.exists(disk.path):
            try:
                os.remove(disk.path)
            except OSError as error:
                raise DomainError(f"disk {disk.path} cannot be removed: {error.strerror}", domain=spec.name) from error


def command(disk: Disk, target: str) -> list[str]:
    """qemu-img's command line for an overlay."""
    size = [f"{disk.size_mib}M"] if disk.size_mib else []
    return ["qemu-img", "create", "-q", "-f", "qcow2", "-b", disk.base or "", "-F", disk.base_format, target, *size]
