# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Channels: a name that nodes follow, and the image that it names now.

A channel is one file, which iPXE runs unchanged. It is replaced atomically, so there is no partial promotion.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import sync_directory, write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    DIGEST,
    make_folder,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import (
    NAME,
    checked_digest,
    checked_name,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import holds
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import (
    BOOT_SCRIPT,
    CHANNELS,
    NODES,
    SIGNATURE,
    Store,
)

SUFFIX = ".ipxe"
# The number of earlier images that a channel can return to. The limit keeps the file from growing without end.
HISTORY_ENTRIES = 10
COMMENT = "# sailloft-channel "
FOLLOWS = re.compile(r"channels/([a-z0-9][a-z0-9._-]*)\.ipxe")
PINS = re.compile(r"images/([0-9a-f]{64})")


@dataclass(frozen=True)
class Channel:
    """A channel: the digest that it names, and those that it named before, the latest first."""

    name: str
    digest: str
    history: tuple[str, ...] = ()


def render(channel: Channel) -> bytes:
    """Return the bytes of the channel's file; ``parse`` is the inverse."""
    state = {"channel": channel.name, "digest": channel.digest, "history": list(channel.history)}
    return f"#!ipxe\n{COMMENT}{json.dumps(state)}\n{_command(channel.digest)}\n".encode()


def _command(digest: str) -> str:
    return f"chain ../images/{digest}/boot.ipxe"


def parse(data: bytes, subject: str) -> Channel:
    """Parse a channel. Raises ImageError, about ``subject``."""
    try:
        first, comment, command, end = data.decode("ascii").split("\n")
        state = json.loads(comment[len(COMMENT) :])
        channel: Channel = stored.build(Channel, {**state, "name": state["channel"]})
        if (
            (first, comment[: len(COMMENT)], command, end) == ("#!ipxe", COMMENT, _command(channel.digest), "")
            and NAME.fullmatch(channel.name)
            and all(DIGEST.fullmatch(digest) for digest in (channel.digest, *channel.history))
        ):
            return channel
    except (ValueError, KeyError, TypeError, RecursionError, StoredError):
        pass
    raise ImageError(
        "not in the format of a channel", "remove the file, and promote the channel's image again", subject=subject
    )


def promoted(channel: Channel | None, name: str, digest: str) -> Channel:
    """Return the channel naming ``digest``, unchanged if it already does; ``channel`` is None for a new one."""
    if channel is None:
        return Channel(name, digest)
    if channel.digest == digest:
        return channel
    return replace(channel, digest=digest, history=(channel.digest, *channel.history)[:HISTORY_ENTRIES])


def rolled_back(channel: Channel) -> Channel:
    """Return the channel naming its previous image again. Raises ImageError if there is no previous image."""
    if not channel.history:
        raise ImageError(
            "has no history, it never named another image",
            "promote an image instead",
            subject=f"channel {channel.name}",
        )
    return replace(channel, digest=channel.history[0], history=channel.history[1:])


def path_of(store: Store, name: str) -> str:
    """Return the path of the channel's file. Raises ImageError if ``name`` is not a valid name."""
    return store.place(CHANNELS, checked_name(name, "channel") + SUFFIX)


def read(store: Store, name: str) -> Channel | None:
    """Return the channel, None if there is none. Raises ImageError."""
    data = store.contents(CHANNELS, os.path.basename(path_of(store, name)))
    if data is None:
        return None
    channel = parse(data, f"channel {name}")
    if channel.name != name:
        raise ImageError(
            f"its file is that of channel {channel.name}",
            "promote it again under its own name",
            subject=f"channel {name}",
        )
    return channel


def read_all(store: Store) -> dict[str, Channel]:
    """Return all channels by name. Raises ImageError."""
    names = [
        name[: -len(SUFFIX)] for name in store.entries(CHANNELS) if name.endswith(SUFFIX) and not name.startswith(".")
    ]
    channels = {name: read(store, name) for name in names}
    return {name: channel for name, channel in channels.items() if channel is not None}


def known(store: Store, name: str) -> Channel:
    """Return the channel. Raises ImageError if there is none."""
    channel = read(store, name)
    if channel is None:
        names = ", ".join(read_all(store))
        raise ImageError(
            f"{store.subject} has no such channel",
            f"existing channels: {names}" if names else "promote one",
            subject=f"channel {name}",
        )
    return channel


def require_image(store: Store, name: str, digest: str) -> None:
    """Raise ImageError, about channel ``name``, if the store does not have the whole image."""
    checked_digest(digest, f"channel {name}")
    for file in (BOOT_SCRIPT, SIGNATURE):
        store.read(digest, file)
    missing = sorted(store.missing_blobs(store.manifest(digest)))
    if missing:
        raise ImageError(
            f"image {digest} is not complete, blob {missing[0]} is missing or truncated",
            "copy or publish the image again",
            subject=f"channel {name}",
        )


def promote(
    store: Store, name: str, digest: str, check: bool = False, hold: str = ""
) -> tuple[Channel | None, Channel]:
    """Make the channel, which may be new, name ``digest``; return the channel before and after.

    ``hold`` is that of this run. Raises ImageError, also if another run's hold covers the channel.
    """
    checked_digest(digest, f"channel {name}")
    store.require()
    with store.locked():
        _permit(store, name, check, hold)
        old = read(store, name)
        new = promoted(old, name, digest)
        require_image(store, name, digest)
        return _replace(store, old, new, check)


def rollback(
    store: Store, name: str, digest: str | None = None, check: bool = False, hold: str = ""
) -> tuple[Channel, Channel]:
    """Make the channel name its previous image; return the channel before and after.

    With ``digest``, it is changed only if it names that now, so that a second call does not go back further. ``hold``
    is that of this run. Raises ImageError, also if another run's hold covers the channel.
    """
    if digest is not None:
        checked_digest(digest, f"channel {name}")
    store.require()
    with store.locked():
        _permit(store, name, check, hold)
        old = known(store, name)
        if digest is not None and old.digest != digest:
            return old, old
        new = rolled_back(old)
        require_image(store, name, new.digest)
        _replace(store, old, new, check)
        return old, new


def remove(store: Store, name: str, check: bool = False, hold: str = "") -> Channel | None:
    """Remove the channel if there is one; return it as it was.

    ``hold`` is that of this run. Raises ImageError if a node follows the channel or another run's hold covers it.
    """
    store.require()
    with store.locked():
        _permit(store, name, check, hold)
        old = read(store, name)
        followers = sorted(node for node, text in node_scripts(store).items() if name in FOLLOWS.findall(text))
        if old is not None and followers:
            raise ImageError(
                f"{', '.join(followers)} would boot nothing",
                "let these nodes follow another channel first",
                subject=f"channel {name}",
            )
        if old is not None and not check:
            with store.reported():
                os.remove(path_of(store, name))
                sync_directory(store.place(CHANNELS))
        return old


def node_scripts(store: Store) -> dict[str, str]:
    """Return node (the file name of its script) -> script. Raises ImageError."""
    names = [name for name in store.entries(NODES) if name.endswith(SUFFIX) and not name.startswith(".")]
    texts = {name[: -len(SUFFIX)]: store.contents(NODES, name) for name in names}
    return {node: text.decode("utf-8", "replace") for node, text in texts.items() if text is not None}


def _permit(store: Store, name: str, check: bool, hold: str) -> None:
    # A run in check mode has no hold and changes nothing.
    if not check:
        holds.permit(store, hold, holds.Scope(channel=name))


def _replace(store: Store, old: Channel | None, new: Channel, check: bool) -> tuple[Channel | None, Channel]:
    if new != old and not check:
        with store.reported():
            folder = store.place(CHANNELS)
            if not os.path.isdir(folder):
                make_folder(folder)
            write_atomic(path_of(store, new.name), render(new))
    return old, new
