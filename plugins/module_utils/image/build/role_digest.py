# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute a digest of a role's contents. A layer to which the role is applied is built again when the digest changes.

The digest covers the role's own files, every role that one of these files names (as a dependency, or to include it),
and those plugins of the role's collection that the files name, with everything that these plugins import. Any word of
the files may be a name, so the digest covers too much rather than too little. It does not cover Ansible itself and
modules of other collections, since every build host has its own version of them. A digest of the whole collection would
be simpler, but any change in it would build all layers again, with a new digest for each image.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import ansible_paths
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

WORD = re.compile(r"[A-Za-z_]\w*")
# The full name of a role, which may be in another collection.
FULL_NAME = re.compile(r"\b[a-z_]\w*\.[a-z_]\w*\.[a-z_]\w*\b")


def content_digest(name: str) -> str:
    """Return the hexadecimal sha256 of a role.

    ``name`` is ``namespace.collection.role``, or ``role`` in Ansible's roles path. Raises ImageError if Ansible would
    not find it.
    """
    start = _find(name)
    if start is None:
        raise ImageError(
            "Ansible does not find it" + _places(name),
            "install it on the build host, or correct its name",
            subject=f"role {name}",
        )
    files: dict[str, Path] = {}
    seen: set[Path] = set()
    queue = [(name, start)]
    while queue:
        label, role = queue.pop()
        if role in seen:
            continue
        seen.add(role)
        names: set[str] = set()
        for path in _files(role):
            files[f"role {label}/{path.relative_to(role).as_posix()}"] = path
            names |= _words(path)
        collection = role.parents[1] if label.count(".") == 2 else None
        if collection is not None:
            for path in _plugins(collection, names):
                files[f"plugin {label.rpartition('.')[0]}/{path.relative_to(collection).as_posix()}"] = path
        for word in sorted(names):
            included = _named(word, label, collection)
            if included is not None:
                queue.append(included)
    return _digest(files)


def _named(word: str, label: str, collection: Path | None) -> tuple[str, Path] | None:
    """Return the role that a word in the role ``label`` may mean, with its path; None if there is none."""
    if "." in word:
        # Modules have such names too, and asking Ansible about each would take a second. So only a role of this name
        # in the named collection's directory counts.
        place = _find(word)
        return None if place is None else (word, place)
    if collection is not None:
        place = collection / "roles" / word
        return (f"{label.rpartition('.')[0]}.{word}", place) if place.is_dir() else None
    place = _in_roles_path(word)
    return None if place is None else (word, place)


def _digest(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for label, path in sorted(files.items()):
        if path.is_symlink():
            kind, content = "link", os.readlink(path).encode()
        else:
            kind = "program" if os.access(path, os.X_OK) else "file"
            content = path.read_bytes()
        digest.update(f"{kind} {label} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(role: Path) -> list[Path]:
    paths = []
    for folder, folders, names in os.walk(role):
        folders[:] = sorted(entry for entry in folders if entry not in (".git", "__pycache__", "molecule"))
        links = [entry for entry in folders if Path(folder, entry).is_symlink()]
        paths += [Path(folder, entry) for entry in sorted([*names, *links]) if not entry.endswith(".pyc")]
    return paths


def _words(path: Path) -> set[str]:
    if path.suffix not in (".yml", ".yaml", ".j2", ".json") or not path.is_file():
        return set()
    text = path.read_text(encoding="utf-8", errors="replace")
    return set(WORD.findall(text)) | set(FULL_NAME.findall(text))


def _plugins(collection: Path, names: set[str]) -> list[Path]:
    """Return the plugins of a collection with these names, and all files of the collection that they import."""
    queue = [
        path
        for path in sorted((collection / "plugins").glob("*/*.py"))
        if path.stem in names and path.parent.name not in ("module_utils", "doc_fragments")
    ]
    plugins: set[Path] = set()
    while queue:
        path = queue.pop()
        if path not in plugins:
            plugins.add(path)
            queue += _imports(path, collection)
    return sorted(plugins)


def _imports(path: Path, collection: Path) -> list[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return []
    prefix = f"ansible_collections.{collection.parent.name}.{collection.name}."
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            base = "." * node.level + node.module
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.ImportFrom):
            names += ["." * node.level + alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    files = []
    for name in names:
        if name.startswith("."):
            level = len(name) - len(name.lstrip("."))
            place = path.parents[level - 1].joinpath(*name.lstrip(".").split("."))
        elif name.startswith(prefix):
            place = collection.joinpath(*name[len(prefix) :].split("."))
        else:
            continue
        files += [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return files


def _find(name: str) -> Path | None:
    if os.path.isabs(name):
        return Path(name) if Path(name).is_dir() else None
    parts = name.split(".")
    if len(parts) != 3:
        return _in_roles_path(name)
    collection = ansible_paths.collections().get(".".join(parts[:2]))
    place = None if collection is None else collection / "roles" / parts[2]
    return place if place is not None and place.is_dir() else None


def _in_roles_path(name: str) -> Path | None:
    for folder in ansible_paths.roles():
        if (folder / name).is_dir():
            return folder / name
    return None


def _places(name: str) -> str:
    if name.count(".") != 2:
        return f" ({', '.join(str(folder) for folder in ansible_paths.roles()) or 'its roles path is empty'})"
    collection = name.rpartition(".")[0]
    place = ansible_paths.collections().get(collection)
    return f" (there is no collection {collection})" if place is None else f" ({place}/roles)"
