# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of single nodes, which first stages write over those of the image: nodes/SHA256.files of a store.

The statement has the digest of each node's, and so its signature covers them. The text has one line for each file:
mode, owner, group, path, and base64 of the content, "-" for an empty one. That is the payload of a node's secrets, but
everyone who reaches a boot server can read it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import make_folder
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import private_keys
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.contents import MOUNTED
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import NODES, Store

# What a first stage must know, so that it does not boot a node without its files.
FORMAT = "sailloft-node-files/1"
SUFFIX = ".files"
# A first stage fetches no more (its files_limit_bytes).
MOST_BYTES = 1 << 18
# Paths that the first stage or the image's own programs write or start: pattern, why not, what to do.
RESERVED = (
    ("/etc/hostname", "the first stage writes the node's name there", "rename the node in the inventory"),
    ("/etc/ssh/ssh_host_.+", "a node makes its host keys, or decrypts them", "deliver them with node_identity_secrets"),
    (
        "/usr/lib/sailloft(/.*)?|/etc/systemd/system/sailloft-[^/]+",
        "a role puts its program or unit there",
        "set the role's variables in a layer, and build the image again",
    ),
    (
        "(/usr)?/s?bin/init|(/usr)?/lib/systemd/systemd",
        "the node starts it as its first process",
        "put it into a layer of the image",
    ),
    (
        "/(bin|boot|etc|home|lib|lib32|lib64|media|mnt|opt|root|sbin|srv|usr|var)",
        "it is a directory of each image",
        "name a file in it",
    ),
)


def text_of(node: str, files: Any) -> str:
    """Return the text of a node's files, empty for none. ``files``: path -> {content, mode, owner, group}.

    Raises ImageError.
    """
    subject = f"node {node}: node_boot_files"
    settings, rows = Settings(ImageError, subject, files), []
    for path in settings.data:
        if not isinstance(path, str):
            raise settings.refuse(f"{path!r} is not an absolute path", "write it like /etc/hosts")
        item = settings.part(path)
        item.only("content", "mode", "owner", "group")
        item.need("content")
        row = {"path": path, "content": item.data["content"], "mode": item.value("mode", values.text, "0644")}
        rows.append({**row, **{name: item.value(name, values.text, "root") for name in ("owner", "group")}})
    checked = identity.read_secrets(rows, subject)
    for file in checked:
        if any(file.path == folder or file.path.startswith(f"{folder}/") for folder in MOUNTED):
            raise settings.refuse(f"{file.path} would be hidden by a mount at boot", "use another directory")
        for pattern, cause, remedy in RESERVED:
            if re.fullmatch(pattern, file.path):
                raise settings.refuse(f"{file.path} cannot be a file of a node: {cause}", remedy)
        kind = private_keys.kind_of(file.content.encode())
        if kind:
            raise settings.refuse(
                f"everyone who reaches a boot server could read {file.path} ({kind})",
                "deliver it with node_identity_secrets",
            )
    text = identity.payload(checked).decode("ascii")
    if len(text) > MOST_BYTES:
        raise settings.refuse(
            f"they take {len(text)} bytes (in base64), the maximum is {MOST_BYTES}", "put large files into the image"
        )
    return text


def digest_of(text: str) -> str:
    """Return the hexadecimal sha256 of a node's files, empty for none."""
    return hashlib.sha256(text.encode("ascii")).hexdigest() if text else ""


def diffs(before: Mapping[str, str], after: Mapping[str, str]) -> list[dict[str, str]]:
    """Return Ansible's diffs of files, from the texts of nodes by name; equal changes of several nodes are one."""
    names_by_change: dict[tuple[str, str, str], list[str]] = {}
    for name in sorted({*before, *after}):
        old, new = _shown(before.get(name, "")), _shown(after.get(name, ""))
        for path in sorted({*old, *new}):
            change = (path, old.get(path, ""), new.get(path, ""))
            if change[1] != change[2]:
                names_by_change.setdefault(change, []).append(name)
    rows = ((f"{fold(names)}: {path}", *texts) for (path, *texts), names in names_by_change.items())
    return [
        {"before_header": header, "after_header": header, "before": old_text, "after": new_text}
        for header, old_text, new_text in rows
    ]


def _shown(text: str) -> dict[str, str]:
    """Return path -> the file's mode, owner, group and content."""
    rows = (line.split(" ") for line in text.splitlines())
    return {
        path: f"{mode} {owner} {group}\n{base64.b64decode(content.rstrip('-')).decode()}"
        for mode, owner, group, path, content in rows
    }


def path_of(digest: str) -> str:
    """Return the path in a store of the files with this digest."""
    return os.path.join(NODES, digest + SUFFIX)


def read(store: Store, digest: str) -> str | None:
    """Return the text with this digest; None if the store has none, or a damaged one. Raises ImageError."""
    data = store.contents(path_of(digest))
    return data.decode("ascii") if data and hashlib.sha256(data).hexdigest() == digest else None


def present(store: Store) -> list[str]:
    """Return the digests of all files in the store that are not damaged, sorted. Raises ImageError."""
    digests = [name[: -len(SUFFIX)] for name in store.entries(NODES) if name.endswith(SUFFIX)]
    return [digest for digest in digests if read(store, digest)]


def put(store: Store, texts: Iterable[str], check: bool = False) -> bool:
    """Write the texts that the store does not have; return whether it changes. Call it only under ``locked``."""
    absent = {digest_of(text): text for text in texts if text and not read(store, digest_of(text))}
    if absent and not check:
        with store.reported():
            if not os.path.isdir(store.place(NODES)):
                make_folder(store.place(NODES))
            for digest, text in absent.items():
                write_atomic(store.place(path_of(digest)), text.encode("ascii"))
    return bool(absent)
