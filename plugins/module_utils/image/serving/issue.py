# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Issue the statement of what nodes may run, from the nodes and the boot servers' channels, on the host that signs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import listed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import checked_mac, stated_nics
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.node_scripts import of_another_node, wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.statement import StatedNode, Statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import NODES, Store

DAY_S = 86400
# A boot server whose clock differs by more does not confirm that of the host that signs.
CLOCK_S = 3600
REISSUE = "run once for all nodes with node_boot_statement_reissue: true"


@dataclass(frozen=True)
class Key:
    """minisign's keys in files of this host. ``password`` is that of the secret key, None for one without.

    ``command`` is one of the site that signs instead, as in ``sign.sign_by_command``; then there need be no secret key.
    """

    secret: str
    public: str
    password: str | None = None
    command: tuple[str, ...] = ()

    def signed(self, new: Statement) -> bytes:
        """Return the statement's file, with its signature. Raises ImageError."""
        data, public_key = statement.dump(new), sign.read_public_key(Path(self.public))
        if self.command:
            return data + sign.sign_by_command(data, self.command, public_key)
        return data + sign.signatures([data], Path(self.secret), public_key, self.password, statement.COMMENTS)[0]


@dataclass(frozen=True)
class Terms:
    """The days for which a statement is valid, and the time now in seconds since 1970.

    ``reissue``: a new one is issued though the last has a later time, is signed by another key, or is not on this host.
    """

    days: int
    now_s: int
    reissue: bool = False

    def __post_init__(self) -> None:
        """Raise ImageError for a number of days that must be a mistake."""
        if not 1 <= self.days <= 3650:
            raise ImageError(
                f"{self.days} is not a number of days", "give 1 to 3650", subject="node_boot_statement_days"
            )


@dataclass(frozen=True)
class Issue:
    """The last statement's file, empty before the first, and the one that holds now; in check mode it is not signed."""

    before: bytes
    after: bytes
    statement: Statement

    @property
    def changed(self) -> bool:
        """True if a new statement was issued."""
        return self.before != self.after


def ensure(
    store: Store,
    nodes: Sequence[Mapping[str, Any]],
    removed: Sequence[str],
    servers: Sequence[Mapping[str, Any]],
    key: Key,
    terms: Terms,
    check: bool,
    channels_to_come: Sequence[str] = (),
) -> Issue:
    """Issue a statement if the lines of ``nodes`` change or a third of the last one's validity has passed.

    ``nodes`` as for ``node_scripts.wanted``, ``removed`` are names; the lines of other nodes stay. ``servers`` are the
    boot servers, with host, images, channels, the sequence of their statement and their clock (``now_s``). The store is
    that of this host. A node that follows one of ``channels_to_come`` has no line until a server has the channel. The
    sequence is the time in seconds since 1970, or more: so it also grows if the last statement was lost everywhere.
    Raises ImageError before anything is changed.
    """
    wanted(nodes)
    _require_pins(nodes, servers)
    rows = _rows(nodes, _images(nodes, servers, channels_to_come))
    if not check:
        with store.reported():
            os.makedirs(store.path, mode=0o755, exist_ok=True)
    # In check mode, a new host has no store yet.
    with store.locked() if os.path.isdir(store.path) else contextlib.nullcontext():
        last = _last(store, key, terms)
        served = max((server["statement"] for server in servers), default=0)
        if not terms.reissue:
            _require_newest(last, servers, served)
        kept = _kept(last, rows, {node["name"] for node in nodes} | set(removed))
        new = Statement(
            max(terms.now_s, served + 1, statement.sequence_in(store) + 1),
            statement.text_of(terms.now_s),
            statement.text_of(terms.now_s + terms.days * DAY_S),
            {**kept, **rows},
        )
        before = store.contents(NODES, statement.STATEMENT) or b""
        if last and not terms.reissue and _still_right(last, new, terms):
            return Issue(before, before, last)
        _require_clock(last, servers, terms)
        after = statement.dump(new) if check else key.signed(new)
        if not check:
            statement.put(store, after)
        return Issue(before, after, new)


def _require_pins(nodes: Sequence[Mapping[str, Any]], servers: Sequence[Mapping[str, Any]]) -> None:
    """Raise ImageError if a boot server has not the image that a node is pinned to."""
    for server in servers:
        digests = {image["digest"] for image in server["images"]}
        for node in nodes:
            if node.get("digest") and node["digest"] not in digests:
                raise ImageError(
                    f"{server['host']} has no image {node['digest']}",
                    "publish the image there, or name another",
                    subject=f"node {node['name']}",
                )


def _images(
    nodes: Sequence[Mapping[str, Any]], servers: Sequence[Mapping[str, Any]], to_come: Sequence[str]
) -> dict[str, str]:
    """Return channel -> digest of the channels that nodes follow.

    Raises ImageError if the servers do not agree, or have not a channel that is not ``to_come``.
    """
    followed = {node["channel"] for node in nodes if node.get("channel")}
    digests: dict[str, str] = {}
    hosts: dict[str, str] = {}
    for server in servers:
        for channel in server["channels"]:
            name, digest = channel["name"], channel["digest"]
            if digests.setdefault(name, digest) != digest and name in followed:
                raise ImageError(
                    f"names {digests[name]} on {hosts[name]} and {digest} on {server['host']}",
                    "promote one image on all of them (playbooks/node_images.yml)",
                    subject=f"channel {name}",
                )
            hosts.setdefault(name, server["host"])
    for name in sorted(followed - set(digests) - set(to_come)):
        of = [node["name"] for node in nodes if node.get("channel") == name]
        raise ImageError(
            "no boot server has such a channel",
            f"existing channels: {', '.join(sorted(hosts))}" if hosts else "promote one",
            subject=f"channel {name}, which {listed(of)} would boot",
        )
    return {name: digest for name, digest in digests.items() if name in followed}


def _rows(nodes: Sequence[Mapping[str, Any]], images: Mapping[str, str]) -> dict[str, StatedNode]:
    rows = {}
    for node in nodes:
        subject, channel = f"node {node['name']}", node.get("channel") or ""
        image = images.get(channel) if channel else node["digest"]
        if image:
            mac = checked_mac(node["mac"], subject).replace("-", ":")
            nics = tuple(stated_nics(mac, node.get("nics") or (), subject))
            servers, report = tuple(node["servers"]), node.get("report") or ""
            rows[mac] = StatedNode(node["name"], image, servers, nics, channel, report)
    return rows


def _last(store: Store, key: Key, terms: Terms) -> Statement | None:
    """Return this host's last statement, None if there is none. Raises ImageError unless this key signed it."""
    data = store.contents(NODES, statement.STATEMENT)
    if data is None:
        return None
    subject = f"statement {statement.path_of(store)}"
    if sign.verifies(*statement.split(data), sign.read_public_key(Path(key.public))):
        return statement.load(data, subject)
    if terms.reissue:
        return None
    raise ImageError(f"is not signed by the key {key.public}", f"if you changed the key, {REISSUE}", subject=subject)


def _require_newest(last: Statement | None, servers: Sequence[Mapping[str, Any]], served: int) -> None:
    """Raise ImageError if a boot server has a later statement than this host has issued."""
    sequence = last.sequence if last else 0
    if served > sequence:
        host = next(server["host"] for server in servers if server["statement"] == served)
        raise ImageError(
            f"has the sequence {served}, but the last one of the host that signs {sequence or 'does not exist'}",
            f"sign on one host only (node_boot_signer); if its store was lost, {REISSUE}",
            subject=f"statement of {host}",
        )


def _kept(last: Statement | None, rows: Mapping[str, StatedNode], named: set[str]) -> dict[str, StatedNode]:
    """Return the last lines of nodes that are not ``named``. Raises ImageError if one has a MAC address of ``rows``."""
    kept = {mac: row for mac, row in (last.nodes if last else {}).items() if row.name not in named}
    for mac in rows:
        if mac in kept:
            raise of_another_node(rows[mac].name, mac, kept[mac].name)
    return kept


def _still_right(last: Statement, new: Statement, terms: Terms) -> bool:
    """Return whether the last statement has the new one's lines and validity, of which two thirds are left."""
    issued_s, expires_s = statement.seconds(last.issued), statement.seconds(last.expires)
    valid_s = terms.days * DAY_S
    return (
        replace(new, sequence=last.sequence, issued=last.issued, expires=last.expires) == last
        and expires_s - issued_s == valid_s
        and (expires_s - terms.now_s) * 3 >= valid_s * 2
    )


def _require_clock(last: Statement | None, servers: Sequence[Mapping[str, Any]], terms: Terms) -> None:
    """Raise ImageError if this host's clock agrees with that of no boot server, or is before the last statement.

    Nodes would refuse what is signed by a late clock, and warn of what is signed by an early one.
    """
    subject, now = "clock of the host that signs", statement.text_of(terms.now_s)
    if servers and all(abs(server["now_s"] - terms.now_s) > CLOCK_S for server in servers):
        clocks = listed([f"{server['host']} {statement.text_of(server['now_s'])}" for server in servers])
        raise ImageError(f"is {now}, but that of {clocks}", "set the one that is wrong", subject=subject)
    if last and not terms.reissue and terms.now_s < statement.seconds(last.issued):
        raise ImageError(
            f"is {now}, before the last statement was issued ({last.issued})",
            f"set it; if it was wrong then and is right now, {REISSUE}",
            subject=subject,
        )
