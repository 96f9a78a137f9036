# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images as a page of the documentation or an inventory defines them, built by the role as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

ROOT = Path(__file__).parents[3]
# Layers that another run has built from the same definitions and the same state of the archives are not built again.
CACHE = ROOT / ".cache" / "documented_images"


def of_page(name: str) -> dict[str, Any]:
    """Return the variables in the YAML blocks of a page that define layers; a later block adds to an earlier one."""
    found: dict[str, Any] = {"node_image_layers": {}, "node_image_images": {}}
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for block in re.findall(r"^ {4}node_image_layers:\n(?:(?: {4}.*)?\n)*", text, re.MULTILINE):
        for variable, definitions in yaml.safe_load(textwrap.dedent(block)).items():
            found[variable].update(definitions)
    assert found["node_image_images"], f"{name} defines no image"
    return found


class Site:
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
        """Build the image gpu-node with the role node_image, promote it to stable, and return its digest."""
        folder = self.home.parent
        (folder / "play.yml").write_text(
            json.dumps([{"hosts": host, "gather_facts": False, "roles": ["sailloft.fleet.node_image"]}])
        )
        (folder / "variables.json").write_text(
            json.dumps(
                {
                    "ansible_connection": "local",
                    "ansible_python_interpreter": sys.executable,
                    "node_image_packages_install": False,
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
        digest = self.store.current("gpu-node")
        channels.promote(self.store, "stable", digest)
        return digest
