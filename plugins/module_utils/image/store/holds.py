# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Holds: they record which operator's run is changing which nodes, channel or images of a boot server now.

A hold is a file ``holds/NAME.json`` of the store, written under the store's lock. Two holds that share a node or a
channel exclude each other; one of the whole store excludes all others. Every change of scripts, channels and images
checks the holds under the same lock, so that a run whose hold was taken over cannot change anything any more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import sync_directory, write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    canonical_json,
    remove_if_there,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import (
    checked_name,
    checked_node,
    listed,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import HOLDS, Store

FORMAT = "sailloft-hold/1"
NAME = re.compile(r"hold-[0-9a-f]{8}")
SUFFIX = ".json"


@dataclass(frozen=True)
class Scope:
    """The changes of a run: the scripts of these nodes, this channel (empty: none), and with ``whole`` anything.

    A run that copies images into the store has an empty scope: only a hold of the whole store excludes it.
    """

    nodes: tuple[str, ...] = ()
    channel: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Holder:
    """The run that has a hold.

    ``process`` is the id of its ansible-playbook. ``machine`` is the scope in which that id is unique, empty if it
    cannot be determined. ``since`` is the controller's time, UTC, in ISO 8601 form.
    """

    user: str
    host: str
    machine: str
    process: int
    playbook: str
    since: str


@dataclass(frozen=True)
class Hold:
    """A hold as stored in its file."""

    name: str
    holder: Holder
    scope: Scope


def checked_hold(name: Any) -> str:
    """Return ``name`` unchanged. Raises ImageError if it cannot be a hold's name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ImageError("not a hold name", "give it as it was reported, like hold-0123abcd", subject=f"hold {name!r}")
    return name


def scope_of(nodes: Iterable[str], channel: str, whole: bool) -> Scope:
    """Return the scope of a user's values. Raises ImageError for an invalid name."""
    return Scope(
        tuple(sorted({checked_node(node) for node in nodes})),
        checked_name(channel, "channel") if channel else "",
        whole,
    )


def render(hold: Hold) -> bytes:
    """Return the bytes of the hold's file; ``parse`` is the inverse."""
    return canonical_json({"format": FORMAT, **asdict(hold)})


def parse(data: bytes, name: str) -> Hold:
    """Parse the hold ``name``. Raises ImageError."""
    try:
        hold: Hold = stored.load(Hold, json.loads(data), FORMAT, "hold", "")
        if hold.name == name:
            return hold
    except (ValueError, RecursionError, StoredError):
        pass
    raise ImageError(
        f"{HOLDS}/{name}{SUFFIX} is not in the format of a hold",
        "make sure that no run is in progress, and remove the file",
        subject=f"hold {name}",
    )


def read_all(store: Store) -> list[Hold]:
    """Return all holds of the store, sorted by name. Raises ImageError."""
    names = [
        name[: -len(SUFFIX)] for name in store.entries(HOLDS) if name.endswith(SUFFIX) and not name.startswith(".")
    ]
    texts = [(name, store.contents(HOLDS, name + SUFFIX)) for name in names]
    return [parse(data, name) for name, data in texts if data is not None]


def shared(scope: Scope, other_scope: Scope) -> str:
    """Return as text what two scopes share; empty if they do not exclude each other."""
    if scope.whole or other_scope.whole:
        return "the whole store"
    nodes = sorted(set(scope.nodes) & set(other_scope.nodes))
    if nodes:
        return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {listed(nodes)}"
    return f"channel {scope.channel}" if scope.channel and scope.channel == other_scope.channel else ""


def conflicts(scope: Scope, holds: Iterable[Hold], own_name: str = "") -> list[Hold]:
    """Return those of ``holds`` that exclude ``scope``, except the run's own."""
    return [hold for hold in holds if hold.name != own_name and shared(scope, hold.scope)]


def refusal(scope: Scope, conflicting: Sequence[Hold]) -> ImageError:
    """Return the error for a scope that other holds exclude: who holds what since when, and the remedy."""
    names = ",".join(hold.name for hold in conflicting)
    runs, their = ("that run has", "its hold") if len(conflicting) == 1 else ("those runs have", "their holds")
    return ImageError(
        " and ".join(described(hold) for hold in conflicting),
        f"wait until {runs} ended; if no such run is in progress, take over {their} with "
        f"-e node_boot_take_over={names}",
        subject=shared(scope, conflicting[0].scope),
    )


def described(hold: Hold) -> str:
    """Return a text that says who holds what since when."""
    holder, scope = hold.holder, hold.scope
    parts = [
        *(["the whole store"] if scope.whole else []),
        *([f"channel {scope.channel}"] if scope.channel else []),
        *([f"{len(scope.nodes)} nodes ({listed(scope.nodes)})"] if len(scope.nodes) > 1 else []),
        *([f"node {scope.nodes[0]}"] if len(scope.nodes) == 1 else []),
    ]
    return (
        f"held by {holder.user} on {holder.host} since {holder.since} ({holder.playbook}, process {holder.process}: "
        f"{' and '.join(parts) or 'images are copied'}; {hold.name})"
    )


def take(store: Store, hold: Hold, taken_over: Iterable[str] = (), check: bool = False) -> list[Hold]:
    """Write the hold and remove those that are ``taken_over``; return the holds that exclude it.

    If any hold excludes it, nothing is changed. A hold of the same name is replaced: it belongs to the same run. In
    check mode nothing is written. Raises ImageError.
    """
    checked_hold(hold.name)
    replaced = {checked_hold(name) for name in taken_over}
    # Before the first run, a boot server has no store yet, and so no holds.
    if check and not os.path.isdir(store.path):
        return []
    store.require()
    with store.locked():
        held_now = read_all(store)
        conflicting = [
            old_hold for old_hold in conflicts(hold.scope, held_now, hold.name) if old_hold.name not in replaced
        ]
        if not conflicting and not check:
            with store.reported():
                folder = store.place(HOLDS)
                if not os.path.isdir(folder):
                    # Only those who change the store need to know who else does.
                    os.mkdir(folder, 0o700)
                write_atomic(os.path.join(folder, hold.name + SUFFIX), render(hold))
                for old_hold in held_now:
                    if old_hold.name in replaced:
                        remove_if_there(os.path.join(folder, old_hold.name + SUFFIX))
                sync_directory(folder)
        return conflicting


def release(store: Store, name: str) -> bool:
    """Remove the hold; return whether there was one. Raises ImageError."""
    checked_hold(name)
    store.require()
    with store.locked(), store.reported():
        path = store.place(HOLDS, name + SUFFIX)
        exists = os.path.lexists(path)
        if exists:
            remove_if_there(path)
            sync_directory(store.place(HOLDS))
            if not os.listdir(store.place(HOLDS)):
                os.rmdir(store.place(HOLDS))
        return exists


def permit(store: Store, own_name: str, scope: Scope) -> None:
    """Raise ImageError if another run's hold excludes a change of ``scope``, or the hold ``own_name`` is gone.

    ``own_name`` is empty for a change without a hold. Call it only under the store's lock, and make the change under
    the same lock.
    """
    held_now = read_all(store)
    conflicting = conflicts(scope, held_now, own_name)
    if conflicting:
        raise refusal(scope, conflicting)
    if own_name and checked_hold(own_name) not in [hold.name for hold in held_now]:
        raise ImageError(
            f"it is no longer in {store.subject}: another run has taken it over",
            "check what that run does, and run again when it has ended",
            subject=f"hold {own_name}",
        )
