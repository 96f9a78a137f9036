# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All nodes' scripts on a boot server: what they should be, and making them so."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.boot_script import (
    checked_mac,
    node_script,
    target_path,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.channels import SUFFIX
from ansible_collections.sailloft.fleet.plugins.module_utils.image.error import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.files import (
    make_folder,
    remove_if_there,
    sync_folder,
    write_atomic,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.names import listed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import CHANNELS, NODES, Store


@dataclass(frozen=True)
class Change:
    """Scripts by file name without their suffix: those to write, with their text before, and those to remove."""

    before: Mapping[str, str]
    written: Mapping[str, str]
    removed: tuple[str, ...]


def wanted(nodes: Sequence[Mapping[str, Any]], servers: Sequence[str], report: str) -> dict[str, str]:
    """MAC as in the file's name -> script. A node has name, mac, channel or digest, kernel_arguments.

    Raises ImageError.
    """
    found: dict[str, str] = {}
    names: dict[str, str] = {}
    for node in nodes:
        name = node["name"]
        subject = f"node {name}"
        mac = checked_mac(node["mac"], subject)
        if mac in names:
            raise ImageError(subject, f"has the MAC address {mac} of node {names[mac]}", "give each node its own")
        if name in names.values():
            raise ImageError(subject, "is there twice", "give each node a name of its own")
        names[mac] = name
        target = target_path(node.get("channel"), node.get("digest"), subject)
        found[mac] = node_script(name, mac, target, servers, node.get("kernel_arguments") or [], report)
    return found


def ensure(
    store: Store,
    nodes: Sequence[Mapping[str, Any]],
    servers: Sequence[str],
    report: str,
    check: bool,
    channels_to_come: Sequence[str] = (),
) -> Change:
    """Have these scripts in the store and no others. Raises ImageError before anything is touched.

    Nodes that follow one of ``channels_to_come`` get none until the store has it.
    """
    wanted(nodes, servers, report)
    store.require()
    with store.locked():
        away = [
            name for name in channels_to_come if not os.path.exists(os.path.join(store.path, CHANNELS, name + SUFFIX))
        ]
        nodes = [node for node in nodes if node.get("channel") not in away]
        scripts = wanted(nodes, servers, report)
        _require_targets(store, nodes)
        there = channels.node_scripts(store)
        change = Change(
            before=there,
            written={mac: text for mac, text in sorted(scripts.items()) if there.get(mac) != text},
            removed=tuple(sorted(set(there) - set(scripts))),
        )
        if not check and (change.written or change.removed):
            _apply(store, change)
    return change


def _require_targets(store: Store, nodes: Sequence[Mapping[str, Any]]) -> None:
    followers: dict[str, list[str]] = {}
    for node in nodes:
        if node.get("channel"):
            followers.setdefault(node["channel"], []).append(node["name"])
    for name, of in sorted(followers.items()):
        try:
            channels.known(store, name)
        except ImageError as error:
            raise ImageError(f"{error.subject}, which {listed(of)} would boot", error.why, error.mend) from error
    whole: set[str] = set()
    for node in nodes:
        digest = node.get("digest")
        if digest and digest not in whole:
            subject = f"node {node['name']}"
            if digest not in store.images():
                raise ImageError(
                    subject, f"{store.subject} has no image {digest}", "publish the image there, or name another"
                )
            missing = sorted(store.missing_blobs(store.manifest(digest)))
            if missing:
                raise ImageError(
                    subject, f"image {digest} lacks blob {missing[0]} in {store.subject}", "publish the image again"
                )
            whole.add(digest)


def _apply(store: Store, change: Change) -> None:
    with store.reported():
        folder = store.place(NODES)
        if not os.path.isdir(folder):
            make_folder(folder)
        for mac, text in change.written.items():
            write_atomic(os.path.join(folder, mac + SUFFIX), text.encode("ascii"))
        for mac in change.removed:
            remove_if_there(os.path.join(folder, mac + SUFFIX))
        sync_folder(folder)
