# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images built with the real tools from Debian's archive: as root, with namespaces, loop devices and overlayfs."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.image import build
from ansible_collections.sailloft.fleet.plugins.module_utils.image.spec import read_images
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import Store

REPOSITORY = Path(__file__).parents[2]
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
GPU = {
    "parent": "base",
    "packages": ["openssh-server", "python3-minimal"],
    "users": [{"name": "ops", "groups": ["adm"], "authorized_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ops"]}],
    "files": [{"path": "/etc/motd", "content": "GPU node\n"}],
    "services": {"enabled": ["ssh"], "masked": ["apt-daily.timer"]},
}
LAYERS = {"base": BASE, "gpu": GPU, "site": {"parent": "gpu", "packages": ["less"]}}
IMAGES = {"node": {"layer": "site"}}


@dataclass
class Site:
    """A build host: its keys, cache and store."""

    folder: Path
    keys: Path
    check: bool = False

    @property
    def store(self) -> Store:
        """Where it publishes."""
        return Store(os.fspath(self.folder / "store"))

    @property
    def cache(self) -> Path:
        """Where it builds."""
        return self.folder / "cache"

    def build(self, wished: dict, images: dict | None = None) -> tuple[list[build.Outcome], list[str], float]:
        """What became of the images, the lines of progress, and the time in s."""
        lines: list[str] = []
        started = time.monotonic()
        setting = build.Setting(
            store=self.folder / "store",
            cache=self.cache,
            secret_key=self.keys / "image.key",
            public_key=self.keys / "image.pub",
            password=None,
            init=(REPOSITORY / "roles/node_image/files/first-stage/init").read_text(),
            check=self.check,
            open_url=open_url,
        )
        outcomes = build.build(read_images(images or IMAGES, wished), setting, lines.append)
        return outcomes, lines, time.monotonic() - started

    def checking(self) -> Site:
        """The same host in check mode."""
        return replace(self, check=True)

    def tree(self, name: str) -> dict[str, Path]:
        """Layer name -> its folder in the cache."""
        manifest = self.store.manifest(self.store.current(name))
        return {layer.name: self.cache / "layers" / layer.key for layer in manifest.layers}


@pytest.fixture
def wished() -> dict:
    """The layers, to be changed."""
    return copy.deepcopy(LAYERS)


@pytest.fixture(scope="session")
def keys(tmp_path_factory) -> Path:
    """A pair without password."""
    folder = tmp_path_factory.mktemp("keys")
    subprocess.run(
        ["minisign", "-G", "-W", "-p", folder / "image.pub", "-s", folder / "image.key"],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="session")
def site(keys, tmp_path_factory) -> Site:
    """A build host that has built LAYERS, on the file system of pytest's temporary folders."""
    made = Site(tmp_path_factory.mktemp("site"), keys)
    made.outcomes, made.lines, made.seconds = made.build(copy.deepcopy(LAYERS))
    return made


@pytest.fixture(scope="session")
def other(keys):
    """Another host, with nothing in its cache, on another file system (whose folders list files in another order)."""
    folder = Path(tempfile.mkdtemp(prefix="sailloft-image-", dir="/dev/shm"))
    yield Site(folder, keys)
    shutil.rmtree(folder)


def pytest_configure() -> None:
    """These tests do not pass for want of root: they are not to be run without."""
    if os.geteuid() != 0:
        sys.exit("tests/image: run as root (make image)")
