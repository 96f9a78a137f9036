# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Install the crash kernel of a node in an image: kernel, initramfs, and the service that loads them."""

from __future__ import annotations

import glob
import gzip
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import load
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import (
    initramfs,
    kernel_modules,
    userland,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio

MODULE = "node_crash_dump"
CODE = "/usr/lib/sailloft/crash.pyz"
SERVICE = "sailloft-crash.service"
SERVICE_FILE = f"/etc/systemd/system/{SERVICE}"
# Program, its path in the initramfs, the package that has it on Debian and on Fedora's family.
PROGRAMS = (
    ("busybox", "bin/busybox", "busybox-static"),
    ("makedumpfile", "bin/makedumpfile", "makedumpfile"),
    ("age", "bin/age", "age"),
)
# Bech32 of an X25519 key (age's specification, "The X25519 recipient type").
KEY = re.compile(r"age1[02-9ac-hj-np-z]{58}")
SERVICE_TEXT = """# Written by sailloft.fleet.{module}; changes here are lost.
[Unit]
Description=Loads the kernel that sends a dump when this one crashes (Sailloft)
ConditionPathExists=/run/sailloft/boot.json

[Service]
Type=oneshot
RemainAfterExit=yes
# The drivers of watchdogs may be loading: the crash kernel needs the same.
ExecStartPre=-udevadm settle --timeout=60
ExecStart={python} {code} {key}

[Install]
WantedBy=multi-user.target
"""


def ensure(
    system: System,
    key: str,
    init: str,
    drivers: Sequence[str],
    in_image: bool,
    check: bool = False,
    python: str = sys.executable,
) -> Outcome:
    """Install the crash kernel. ``key`` is age's public key, ``init`` the first stage's script. Raises HostError."""
    if not KEY.fullmatch(key):
        raise RequestError(
            f"{MODULE}: key: {key!r:.40} is no public key of age", "give the one that age-keygen shows, age1..."
        )
    if not in_image:
        raise HostError(
            f"{MODULE}: this host is no image: nothing was changed",
            "add the role node_crash_dump to a layer of an image; a host with a disk has its distribution's kdump",
        )
    unit.check_systemd(system, MODULE, running=False)
    version, kernel = _kernel(system)
    service = SERVICE_TEXT.format(module=MODULE, python=python, code=CODE, key=key)
    wanted = {
        load.KERNEL: kernel,
        load.INITRAMFS: _initramfs(system, version, init, drivers),
        CODE: archive.build(load.__name__),
        SERVICE_FILE: service.encode(),
    }
    facts = {"service": SERVICE, "kernel": version, "initramfs_bytes": len(wanted[load.INITRAMFS])}
    return unit.install_in_image(system, SERVICE, wanted, facts, check)


def _kernel(system: System) -> tuple[str, bytes]:
    """Return the version of the image's kernel and its file. Raises HostError."""
    places = {path.partition("vmlinuz-")[2]: path for path in glob.glob(system.path("/boot/vmlinuz-*"))}
    places.update({path.split("/")[-2]: path for path in glob.glob(system.path("/lib/modules/*/vmlinuz"))})
    places = {version: path for version, path in places.items() if system.exists(f"/lib/modules/{version}/modules.dep")}
    if len(places) != 1:
        raise HostError(
            f"{MODULE}: the image has {len(places)} kernels with modules ({', '.join(sorted(places)) or 'none'})",
            "give the role to the layer of the one kernel, or to one above it",
        )
    [(version, path)] = places.items()
    return version, Path(path).read_bytes()


def _initramfs(system: System, version: str, init: str, drivers: Sequence[str]) -> bytes:
    """Return the initramfs: the same image gives the same bytes. Raises HostError."""
    root = Path(system.path("/"))
    folders = [root / folder for folder in userland.PROGRAM_FOLDERS]
    missing = [package for name, _place, package in PROGRAMS if not any((folder / name).exists() for folder in folders)]
    if missing:
        raise HostError(f"{MODULE}: the image lacks {', '.join(missing)}", "add them to the packages of its layer")
    try:
        entries = [
            *(cpio.folder(path) for path in initramfs.FOLDERS),
            *(cpio.link(path, target) for path, target in initramfs.LINKS),
            cpio.character_device("dev/console", 5, 1),
            cpio.file("init", init.encode(), executable=True),
            *userland.entries(root, PROGRAMS),
            *kernel_modules.entries(root, version, drivers, with_watchdogs=True),
        ]
    except ImageError as error:
        raise HostError.of(error) from error
    # All kernels take gzip, which needs no program in the image.
    return gzip.compress(cpio.archive(entries, 0), 9, mtime=0)
