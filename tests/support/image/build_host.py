# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts that build images with the real tools and publish them: by the library, and by the role as a user does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import build
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot

ROOT = Path(__file__).parents[3]
INIT = ROOT / "roles" / "node_image" / "files" / "first-stage" / "init"
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
# Layers that another run has built from the same definitions and the same state of the archives are not built again.
CACHE = ROOT / ".cache" / "documented_images"


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
    secure_boot: SecureBoot | None = None

    @property
    def store(self) -> Store:
        """The store to which the host publishes."""
        return Store(os.fspath(self.folder / "store"))

    @property
    def cache(self) -> Path:
        """The directory in which the host builds."""
        return self.folder / "cache"

    def build(self, requested: dict, images: dict | None = None) -> tuple[list[build.BuiltImage], list[str], float]:
        """Return the results of the images, the lines of progress, and the time in s."""
        lines: list[str] = []
        started = time.monotonic()
        setting = build.BuildEnvironment(
            store=self.folder / "store",
            cache=self.cache,
            signer=Signer(str(self.keys / "image.key"), str(self.keys / "image.pub")),
            init=INIT.read_text(),
            check=self.check,
            open_url=open_url,
            secure_boot=self.secure_boot,
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


def images_of_page(name: str) -> dict[str, Any]:
    """Return the variables in the YAML blocks of a page that define layers; a later block adds to an earlier one."""
    found: dict[str, Any] = {"node_image_layers": {}, "node_image_images": {}}
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for block in re.findall(r"^ {4}node_image_layers:\n(?:(?: {4}.*)?\n)*", text, re.MULTILINE):
        for variable, definitions in yaml.safe_load(textwrap.dedent(block)).items():
            found[variable].update(definitions)
    assert found["node_image_images"], f"{name} defines no image"
    return found


class DocumentedSite:
    """A build host and store of a user whose SSH key is in ``home``; ``variables`` are those of the image."""

    def __init__(self, folder: Path) -> None:
        self.home, self.store_folder, self.keys = folder / "home", folder / "store", CACHE / "keys"
        self.key = self.home / ".ssh" / "id_ed25519"
        self.key.parent.mkdir(parents=True)
        # The same key in each run, as the images contain it.
        kept = CACHE / "id_ed25519"
        if not kept.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", kept], check=True)
        for suffix in ("", ".pub"):
            target = Path(f"{self.key}{suffix}")
            target.write_bytes(Path(f"{kept}{suffix}").read_bytes())
            target.chmod(0o600)

    @property
    def store(self) -> Store:
        return Store(os.fspath(self.store_folder))

    def build(self, variables: dict[str, Any], inventory: str = "localhost,", host: str = "localhost") -> str:
        """Build the image with the role node_image, promote it to stable, and return its digest.

        Without images in ``variables``, it is gpu-node of the inventory.
        """
        folder = self.home.parent
        (folder / "play.yml").write_text(
            json.dumps([{"hosts": host, "gather_facts": False, "roles": ["sailloft.fleet.node_image"]}])
        )
        (folder / "variables.json").write_text(
            json.dumps(
                {
                    "ansible_connection": "local",
                    "ansible_python_interpreter": sys.executable,
                    "packages_install": False,
                    "node_image_store_dir": os.fspath(self.store_folder),
                    "node_image_cache_dir": os.fspath(CACHE / "layers"),
                    "node_image_signing_key": os.fspath(self.keys / "image.key"),
                    "node_image_public_key": os.fspath(self.keys / "image.pub"),
                }
            )
        )
        # A file of variables, as the user's group_vars: its templates are evaluated.
        (folder / "page.yml").write_text(yaml.safe_dump(variables))
        command = ["ansible-playbook", "-i", inventory, "-e", f"@{folder}/page.yml", "-e", f"@{folder}/variables.json"]
        done = subprocess.run(
            [*command, folder / "play.yml"],
            cwd=ROOT,
            env={**os.environ, "HOME": os.fspath(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"the image was not built: {done.stdout[-4000:]}{done.stderr[-2000:]}"
        digest = self.store.current(next(iter(variables.get("node_image_images", ["gpu-node"]))))
        channels.promote(self.store, "stable", digest)
        return digest
