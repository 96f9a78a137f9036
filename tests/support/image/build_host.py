# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host that builds images with the real tools, and publishes them in its own store."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import build
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

INIT = Path(__file__).parents[3] / "roles" / "node_image" / "files" / "first-stage" / "init"
BASE = {
    "distribution": "debian",
    "suite": "bookworm",
    "architecture": "amd64",
    "archives": [
        {
            "url": "http://deb.debian.org/debian",
            "suites": ["bookworm"],
            "components": ["main"],
            "keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
        }
    ],
    "packages": ["linux-image-cloud-amd64", "systemd-sysv", "udev", "dbus", "kmod", "passwd"],
    "kernel_arguments": ["console=ttyS0"],
}
IMAGES = {"node": {"layer": "site"}}


def make_keys(folder: Path) -> Path:
    """Make a directory with a key pair without a password, as BuildHost needs it."""
    folder.mkdir()
    command = ["minisign", "-G", "-W", "-p", folder / "image.pub", "-s", folder / "image.key"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


@dataclass
class BuildHost:
    """A build host: ``keys`` has the pair image.key and image.pub; store and cache are in ``folder``."""

    folder: Path
    keys: Path
    check: bool = False

    @property
    def store(self) -> Store:
        """The store to which the host publishes."""
        return Store(os.fspath(self.folder / "store"))

    @property
    def cache(self) -> Path:
        """The directory in which the host builds."""
        return self.folder / "cache"

    def build(self, requested: dict, images: dict | None = None) -> tuple[list[build.Outcome], list[str], float]:
        """Return the results of the images, the lines of progress, and the time in s."""
        lines: list[str] = []
        started = time.monotonic()
        setting = build.Setting(
            store=self.folder / "store",
            cache=self.cache,
            secret_key=self.keys / "image.key",
            public_key=self.keys / "image.pub",
            password=None,
            init=INIT.read_text(),
            check=self.check,
            open_url=open_url,
        )
        outcomes = build.build(read_images(images or IMAGES, requested), setting, lines.append)
        return outcomes, lines, time.monotonic() - started

    def checking(self) -> BuildHost:
        """Return the same host in check mode."""
        return replace(self, check=True)

    def tree(self, name: str) -> dict[str, Path]:
        """Return {layer name: its directory in the cache}."""
        manifest = self.store.manifest(self.store.current(name))
        return {layer.name: self.cache / "layers" / layer.key for layer in manifest.layers}
