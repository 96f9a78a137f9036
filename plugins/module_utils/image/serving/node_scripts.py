# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes' scripts on a boot server: compute and write the requested ones. No other node's script is touched."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import (
    sync_directory,
    temporary_of,
    write_atomic,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    make_folder,
    remove_if_there,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_node, listed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import (
    checked_mac,
    checked_server,
    node_script,
    target_path,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, holds, node_files, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.channels import SUFFIX
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import (
    BOOT_PROGRAM,
    CHANNELS,
    IMAGES,
    NODES,
    Store,
)

# The link to the signed kernel of a node with Secure Boot.
PROGRAM_SUFFIX = ".efi"
# The line in which boot_script.node_script writes the node's name.
OWNER = re.compile(r"^set node (\S+)$", re.MULTILINE)
_TEXTS = {"type": "list", "elements": "str", "default": []}
_NIC = {key: {"type": "str", "required": key == "address"} for key in ("mac", "name", "address", "gateway")}
# The options of the modules for the nodes of a run.
OPTIONS: dict[str, Any] = {
    "channels_to_come": _TEXTS,
    "removed": _TEXTS,
    "nodes": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "mac": {"type": "str", "required": True},
            "channel": {"type": "str"},
            "digest": {"type": "str"},
            "kernel_arguments": _TEXTS,
            "servers": {"type": "list", "elements": "str", "required": True},
            "caches": _TEXTS,
            "report": {"type": "str", "default": ""},
            "nics": {"type": "list", "elements": "dict", "default": [], "options": _NIC},
            "secure_boot": {"type": "bool", "default": False},
        },
    },
}


@dataclass(frozen=True)
class ScriptChange:
    """Scripts by file name without the suffix: all before the change, those to write, and those to remove.

    ``others`` are the names of nodes whose scripts exist and were not requested. ``stated``: whether the statement
    is another one, or nodes' files are new. ``programs`` are the links to signed kernels that change: before and after,
    "" for none.
    """

    before: Mapping[str, str]
    written: Mapping[str, str]
    removed: tuple[str, ...]
    others: tuple[str, ...]
    stated: bool = False
    programs: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def wanted(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return MAC address, in the form of the file's name -> script.

    A node has name, mac, servers, caches, channel or digest, kernel_arguments, report, nics and secure_boot. Raises
    ImageError.
    """
    scripts: dict[str, str] = {}
    names: dict[str, str] = {}
    used: set[str] = set()
    for node in nodes:
        name = node["name"]
        subject = f"node {name}"
        mac = checked_mac(node["mac"], subject)
        if mac in names:
            raise ImageError(
                f"has the MAC address {mac} of node {names[mac]}", "give each node its own", subject=subject
            )
        if name in used:
            raise ImageError("is listed twice", "give each node its own name", subject=subject)
        names[mac] = name
        used.add(name)
        for url in node.get("caches") or ():
            checked_server(url, subject)
        target = target_path(node.get("channel"), node.get("digest"), subject)
        arguments, report = node.get("kernel_arguments") or [], node.get("report") or ""
        if arguments and node.get("secure_boot"):
            raise ImageError(
                f"has node_boot_secure_boot, so its own kernel argument {arguments[0]!r} cannot be signed",
                "give it to the image (kernel_arguments of a layer), or build an image for this node",
                subject=subject,
            )
        scripts[mac] = node_script(name, mac, target, node["servers"], arguments, report, node.get("nics") or ())
    return scripts


def ensure(
    store: Store,
    nodes: Sequence[Mapping[str, Any]],
    check: bool,
    removed: Sequence[str] = (),
    channels_to_come: Sequence[str] = (),
    hold: str = "",
    stated: bytes = b"",
    files: Sequence[str] = (),
) -> ScriptChange:
    """Put the scripts of ``nodes`` into the store, and remove those of the nodes named in ``removed``.

    ``stated`` is the file of the signed statement that has them, which is put there first; empty for none. Before it,
    ``files``: the texts of nodes' files that it names.

    A node that follows one of ``channels_to_come`` has no script until the store has the channel. If a node's MAC
    address changed, its script under the old one is removed. ``hold`` is that of this run. Raises ImageError before
    anything is changed, also if another run's hold covers one of these nodes.
    """
    wanted(nodes)
    names = {node["name"] for node in nodes}
    for name in removed:
        if checked_node(name) in names:
            raise ImageError(
                "its script is to be both written and removed",
                "remove it from the inventory, or keep it",
                subject=f"node {name}",
            )
    store.require()
    with store.locked():
        if not check:
            holds.permit(store, hold, holds.Scope(nodes=tuple(sorted(names | set(removed)))))
        removed_names = [
            name for name in channels_to_come if not os.path.exists(os.path.join(store.path, CHANNELS, name + SUFFIX))
        ]
        nodes = [node for node in nodes if node.get("channel") not in removed_names]
        scripts = wanted(nodes)
        _require_targets(store, nodes)
        old_scripts = channels.node_scripts(store)
        owners = {mac: _owner(text) for mac, text in old_scripts.items()}
        ours = names | set(removed)
        for node in nodes:
            mac = checked_mac(node["mac"], "")
            if mac in owners and owners[mac] not in ours:
                raise of_another_node(node["name"], mac, owners[mac] or "(none)")
        removed_macs = tuple(sorted(mac for mac in old_scripts if owners[mac] in ours and mac not in scripts))
        # This refuses a node, so it comes before the statement.
        programs = _programs(store, nodes, [*scripts, *removed_macs])
        filed = node_files.put(store, files, check)
        change = ScriptChange(
            before=old_scripts,
            written={mac: text for mac, text in sorted(scripts.items()) if old_scripts.get(mac) != text},
            removed=removed_macs,
            others=tuple(sorted({owner for owner in owners.values() if owner and owner not in ours})),
            stated=(bool(stated) and statement.put(store, stated, check)) or filed,
            programs=programs,
        )
        if not check and (change.written or change.removed or change.programs):
            _apply(store, change)
    return change


def of_another_node(name: str, mac: str, owner: str) -> ImageError:
    """Return the error for a node whose MAC address the store has for another node."""
    return ImageError(
        f"the script of its MAC address {mac} belongs to node {owner}",
        "correct node_boot_mac, run for both nodes, or, if that node is gone, name it in node_boot_removed",
        subject=f"node {name}",
    )


def no_program(node: str, host: str, digest: str) -> ImageError:
    """Return the error for a node with Secure Boot whose image has no signed kernel in a store."""
    return ImageError(
        f"has node_boot_secure_boot, but {host} has no signed kernel of its image {digest}",
        "set node_image_secure_boot, and run playbooks/node_images.yml",
        subject=f"node {node}",
    )


def _owner(script: str) -> str:
    match = OWNER.search(script)
    return match[1] if match else ""


def _require_targets(store: Store, nodes: Sequence[Mapping[str, Any]]) -> None:
    followers: dict[str, list[str]] = {}
    for node in nodes:
        if node.get("channel"):
            followers.setdefault(node["channel"], []).append(node["name"])
    for name, of in sorted(followers.items()):
        try:
            channels.known(store, name)
        except ImageError as error:
            raise ImageError(
                error.cause, error.remedy, subject=f"{error.subject}, which {listed(of)} would boot"
            ) from error
    complete: set[str] = set()
    for node in nodes:
        digest = node.get("digest")
        if digest and digest not in complete:
            subject = f"node {node['name']}"
            if digest not in store.images():
                raise ImageError(
                    f"{store.subject} has no image {digest}",
                    "publish the image there, or name another",
                    subject=subject,
                )
            missing = sorted(store.missing_blobs(store.manifest(digest)))
            if missing:
                raise ImageError(
                    f"image {digest} lacks blob {missing[0]} in {store.subject}",
                    "publish the image again",
                    subject=subject,
                )
            complete.add(digest)


def _programs(store: Store, nodes: Sequence[Mapping[str, Any]], macs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return MAC address -> target of the link to the signed kernel before and after, of those ``macs`` that change.

    The firmware of a node with Secure Boot fetches its link. Raises ImageError if its image has no signed kernel.
    """
    digests = {name: channel.digest for name, channel in channels.read_all(store).items()}
    targets: dict[str, str] = {}
    for node in nodes:
        if node.get("secure_boot"):
            digest = node.get("digest") or digests[node["channel"]]
            if not os.path.exists(store.place(IMAGES, digest, BOOT_PROGRAM)):
                raise no_program(node["name"], store.subject, digest)
            targets[checked_mac(node["mac"], "")] = os.path.join("..", IMAGES, digest, BOOT_PROGRAM)
    rows = {mac: (_target(store.place(NODES, mac + PROGRAM_SUFFIX)), targets.get(mac, "")) for mac in macs}
    return {mac: row for mac, row in rows.items() if row[0] != row[1]}


def _target(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else ""


def _link(path: str, target: str) -> None:
    """Make or replace the link at once; remove it if there is no target."""
    if target:
        remove_if_there(temporary_of(path))
        os.symlink(target, temporary_of(path))
        os.replace(temporary_of(path), path)
    else:
        remove_if_there(path)


def _apply(store: Store, change: ScriptChange) -> None:
    with store.reported():
        folder = store.place(NODES)
        if not os.path.isdir(folder):
            make_folder(folder)
        for mac, text in change.written.items():
            write_atomic(os.path.join(folder, mac + SUFFIX), text.encode("ascii"))
        for mac in change.removed:
            remove_if_there(os.path.join(folder, mac + SUFFIX))
        for mac, (_before, target) in change.programs.items():
            _link(os.path.join(folder, mac + PROGRAM_SUFFIX), target)
        sync_directory(folder)
