# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The paths of collections and roles, as Ansible of the build host reports them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import run

PARTS_OF_PYTHON = ("bin", "lib", "lib64", "pyvenv.cfg")
PARTS_OF_COLLECTION = ("FILES.json", "MANIFEST.json", "galaxy.yml", "meta", "plugins", "roles")


@functools.cache
def collections() -> dict[str, Path]:
    """Return each collection's directory by name, from the first place that Ansible searches. Raises ImageError."""
    folders: dict[str, Path] = {}
    for folder, names in _ask(["ansible-galaxy", "collection", "list", "--format", "json"]).items():
        for name in names:
            folders.setdefault(name, Path(folder, *name.split(".")))
    return folders


def roles() -> list[Path]:
    """Return the directories of roles without a collection, in search order. Raises ImageError."""
    return [Path(folder) for folder in ansible_settings()["DEFAULT_ROLES_PATH"]]


def needed() -> list[Path]:
    """Return what ansible-playbook of this build host reads outside of /usr, and nothing else. Raises ImageError.

    Of a collection that is a link, perhaps to a checkout beside inventories, only the parts that Ansible loads.
    """
    program = shutil.which("ansible-playbook")
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), *([Path(program).resolve().parents[1]] if program else [])]
    paths = [prefix / part for prefix in prefixes if prefix != Path("/usr") for part in PARTS_OF_PYTHON]
    for folder in ansible_settings()["COLLECTIONS_PATHS"]:
        place = Path(folder, "ansible_collections")
        paths.append(place)
        for collection in place.glob("*/*"):
            if collection.resolve() != place.resolve() / collection.relative_to(place):
                paths += [collection.resolve() / part for part in PARTS_OF_COLLECTION]
    return [path for path in dict.fromkeys([*paths, *roles()]) if path.exists()]


def configuration() -> str:
    """Return an ansible.cfg with only the search paths of this build host's configuration. Raises ImageError."""
    settings = ansible_settings()
    # In this file, Ansible reads "%" as the beginning of a name and "%%" as a percent sign.
    places = {
        "collections_path": ":".join(settings["COLLECTIONS_PATHS"]).replace("%", "%%"),
        "roles_path": ":".join(settings["DEFAULT_ROLES_PATH"]).replace("%", "%%"),
    }
    return "[defaults]\n" + "".join(f"{name} = {value}\n" for name, value in places.items())


@functools.cache
def ansible_settings() -> dict[str, Any]:
    """Return the build host's settings of Ansible by name. Raises ImageError."""
    listed = _ask(["ansible-config", "dump", "--format", "json"])
    return {setting["name"]: setting["value"] for setting in listed if "name" in setting}


def _ask(argv: list[str]) -> Any:
    process = run(argv, env={**os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_DEPRECATION_WARNINGS": "false"})
    lines = process.stdout.splitlines()
    # Warnings come before the data.
    start = next((number for number, line in enumerate(lines) if line.startswith("{") or line in ("[", "[{")), 0)
    try:
        return json.loads("\n".join(lines[start:]))
    except ValueError as error:
        raise ImageError(
            f"unexpected output: {process.stdout.strip()[:300]}",
            "check that Ansible runs on the build host",
            subject=" ".join(argv[:2]),
        ) from error
