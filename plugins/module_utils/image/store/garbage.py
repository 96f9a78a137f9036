# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Garbage collection of a store: remove the files that nothing names, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import sync_directory, temporary_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_digest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, holds, node_files, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import BLOBS, IMAGES, NODES, Store


@dataclass(frozen=True)
class Garbage:
    """The paths in the store to be removed, sorted, and the bytes of all files in them."""

    paths: tuple[str, ...]
    size_bytes: int


def reasons(store: Store, keep: Iterable[str], history: int) -> dict[str, list[str]]:
    """Return digest -> reasons why its image stays, sorted by digest; the image need not be in the store.

    ``keep``: digests that nodes report to run; ``history``: the number of a channel's earlier images that it can return
    to. Raises ImageError, also if a channel cannot be read, since its images must not be removed.
    """
    if history < 0:
        raise ImageError(
            f"history {history} is less than 0",
            "give the number of images that channels can go back",
            subject=store.subject,
        )
    reasons_by_digest: dict[str, list[str]] = {}
    for name, channel in channels.read_all(store).items():
        reasons_by_digest.setdefault(channel.digest, []).append(f"channel {name}")
        for digest in channel.history[:history]:
            reasons_by_digest.setdefault(digest, []).append(f"history of channel {name}")
    for node, text in (*channels.node_scripts(store).items(), *_links(store)):
        for digest in channels.PINS.findall(text):
            reasons_by_digest.setdefault(digest, []).append(f"node {node}")
    stated = statement.read(store)
    for row in stated.nodes.values() if stated else ():
        reasons_by_digest.setdefault(row.image, []).append("statement")
    for name, digest in store.currents().items():
        reasons_by_digest.setdefault(digest, []).append(f"last build of {name}")
    for digest in keep:
        reasons_by_digest.setdefault(checked_digest(digest, f"{store.subject}: keep"), []).append("keep")
    return {digest: list(dict.fromkeys(reasons_by_digest[digest])) for digest in sorted(reasons_by_digest)}


def _links(store: Store) -> Iterator[tuple[str, str]]:
    """Yield each node with Secure Boot and where the link to its signed kernel leads to."""
    with store.reported():
        for name in store.entries(NODES):
            path = store.place(NODES, name)
            if os.path.islink(path):
                yield os.path.splitext(name)[0], os.readlink(path)


def paths(store: Store) -> list[str]:
    """Return the paths in the store that ``collect`` looks at, sorted. Raises ImageError."""
    images = [os.path.join(IMAGES, digest) for digest in store.images()]
    blobs = [os.path.join(BLOBS, sha256) for sha256 in store.blobs()]
    return sorted([*images, *blobs, *map(node_files.path_of, node_files.present(store)), *store.left_behind()])


def garbage(store: Store, keep: Iterable[str], history: int) -> Garbage:
    """Return what ``collect`` would remove. Raises ImageError."""
    staying = set(reasons(store, keep, history))
    going = []
    used: set[str] = set()
    for digest in store.images():
        if digest in staying:
            used |= store.manifest(digest).blobs()
        else:
            going.append(os.path.join(IMAGES, digest))
    going += [os.path.join(BLOBS, sha256) for sha256 in store.blobs() if sha256 not in used]
    stated = statement.read(store)
    if stated:
        files = {row.files for row in stated.nodes.values()}
        going += [node_files.path_of(digest) for digest in node_files.present(store) if digest not in files]
    # A directory is removed with all that it contains.
    going += [path for path in store.left_behind() if os.path.dirname(path) not in going]
    with store.reported():
        return Garbage(tuple(sorted(going)), sum(_size_bytes(store.place(path)) for path in going))


def collect(store: Store, keep: Iterable[str], history: int, hold: str = "") -> Garbage:
    """Remove files that nothing names, images before their blobs; return the removed files.

    Raises ImageError as ``reasons`` does. ``hold`` is that of this run; if there is any other, nothing is removed.
    An image's directory is removed by one rename, so that no reader finds an image without its blobs. If a run is
    killed, the next one completes it.
    """
    store.require()
    with store.locked():
        holds.permit(store, hold, holds.Scope(whole=True))
        unused = garbage(store, keep, history)
        images = [path for path in unused.paths if os.path.dirname(path) == IMAGES and path not in store.left_behind()]
        store.sweep()
        with store.reported():
            for path in images:
                os.rename(store.place(path), temporary_of(store.place(path)))
            if images:
                sync_directory(store.place(IMAGES))
            for path in unused.paths:
                if os.path.dirname(path) in (BLOBS, NODES) and os.path.lexists(store.place(path)):
                    os.remove(store.place(path))
        store.sweep()
    return unused


def _size_bytes(path: str) -> int:
    if not os.path.isdir(path):
        return os.lstat(path).st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _folders, names in os.walk(path) for name in names
    )
