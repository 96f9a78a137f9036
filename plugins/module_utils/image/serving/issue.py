# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Issue the statement of what nodes may run, from the nodes and the boot servers' channels, on the host that signs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import listed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import checked_mac, stated_nics
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.node_scripts import (
    no_program,
    of_another_node,
    wanted,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files, sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.statement import StatedNode, Statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import NODES, Store

DAY_S = 86400
# A boot server whose clock differs by more does not confirm that of the host that signs.
CLOCK_S = 3600
# How long a node may boot the image before: until its script on each boot server, and the kernel that it has fetched,
# are those of the new one. A first stage trusts no clock that is further off.
CHANGE_S = 3600
REISSUE = "run once for all nodes with node_boot_statement_reissue: true"


@dataclass(frozen=True)
class StatementRequest:
    """The lines that a run states: those of ``nodes``, as for ``node_scripts.wanted``; those of ``removed`` names end.

    A node that follows one of ``channels_to_come`` has no line until a server has the channel. ``promoted`` is channel
    -> digest that the servers' channels name once they have the statement: it is signed before nodes' scripts change.
    ``files`` is name -> text of the files of those nodes that have their own (node_files).
    """

    nodes: Sequence[Mapping[str, Any]]
    removed: Sequence[str] = ()
    channels_to_come: Sequence[str] = ()
    promoted: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


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
    """The last statement's file, empty before the first, and the one that holds now; in check mode it is not signed.

    ``files`` are the texts of nodes' files that a boot server lacks; ``diffs`` those of nodes' files, as Ansible's.
    """

    before: bytes
    after: bytes
    statement: Statement
    files: Sequence[str] = ()
    diffs: Sequence[Mapping[str, str]] = ()

    @property
    def changed(self) -> bool:
        """True if a new statement was issued."""
        return self.before != self.after


def ensure(
    store: Store,
    request: StatementRequest,
    servers: Sequence[Mapping[str, Any]],
    signer: Signer,
    terms: Terms,
    check: bool,
) -> Issue:
    """Issue a statement if the lines of the request change or a third of the last one's validity has passed.

    The lines of other nodes stay. ``servers`` are the boot servers, with host, images, channels, the sequence of their
    statement, the digests of nodes' ``files`` and their clock (``now_s``). The store is that of this host. The sequence
    is the time in seconds since 1970, or more: so it also grows if the last statement was lost everywhere. A line whose
    image changes names the one before for CHANGE_S. Raises ImageError before anything is changed.
    """
    wanted(request.nodes)
    _require_images(request, servers)
    images = _images(request, servers)
    _require_parts(request, images, servers)
    if not check:
        with store.reported():
            os.makedirs(store.path, mode=0o755, exist_ok=True)
    # In check mode, a new host has no store yet.
    with store.locked() if os.path.isdir(store.path) else contextlib.nullcontext():
        last = _last(store, signer, terms)
        served = max((server["statement"] for server in servers), default=0)
        if not terms.reissue:
            _require_newest(last, servers, served)
        rows = _rows(request, images)
        old_rows = _kept(last, rows, {node["name"] for node in request.nodes} | set(request.removed))
        new = Statement(
            max(terms.now_s, served + 1, statement.sequence_in(store) + 1),
            statement.text_of(terms.now_s),
            statement.text_of(terms.now_s + terms.days * DAY_S),
            _with_previous({**old_rows, **rows}, last.nodes if last else {}, terms.now_s),
        )
        old_bytes = store.contents(NODES, statement.STATEMENT) or b""
        files = _lacking_files(store, request, new, servers)
        if last and not terms.reissue and _still_right(last, new, terms):
            node_files.put(store, request.files.values(), check)
            return Issue(old_bytes, old_bytes, last, files)
        _require_clock(last, servers, terms)
        new_bytes = statement.dump(new) if check else statement.signed(new, signer)
        diffs = node_files.diffs(*(_files_of(store, request, part) for part in (last, new)))
        if not check:
            node_files.put(store, request.files.values())
            statement.put(store, new_bytes)
        return Issue(old_bytes, new_bytes, new, files, diffs)


def _require_images(request: StatementRequest, servers: Sequence[Mapping[str, Any]]) -> None:
    """Raise ImageError if a boot server has not an image that a node is pinned to, or that a channel will name."""
    images = [(f"node {node['name']}", node["digest"]) for node in request.nodes if node.get("digest")]
    images += [(f"channel {name}", digest) for name, digest in request.promoted.items()]
    for server in servers:
        digests = {image["digest"] for image in server["images"]}
        for subject, digest in images:
            if digest not in digests:
                cause = f"{server['host']} has no image {digest}"
                raise ImageError(cause, "publish the image there, or name another", subject=subject)


def _require_parts(request: StatementRequest, images: Mapping[str, str], servers: Sequence[Mapping[str, Any]]) -> None:
    """Raise ImageError if a boot server has not the signed kernel of a node, or an image that takes its files."""
    for server in servers:
        signed = {image["digest"] for image in server["images"] if image.get("signed_kernel")}
        knowing = {image["digest"] for image in server["images"] if node_files.FORMAT in image.get("knows", ())}
        for node in request.nodes:
            digest = node.get("digest") or images.get(node.get("channel") or "")
            if node.get("secure_boot") and digest and digest not in signed:
                raise no_program(node["name"], server["host"], digest)
            if request.files.get(node["name"]) and digest and digest not in knowing:
                raise ImageError(
                    f"has node_boot_files, and its image {digest} was built before first stages took such files",
                    "build the image again (playbooks/node_images.yml)",
                    subject=f"node {node['name']}",
                )


def _images(request: StatementRequest, servers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return channel -> digest of the channels that nodes follow.

    Raises ImageError if the servers do not agree, or have not a channel that is not to come.
    """
    followed = {node["channel"] for node in request.nodes if node.get("channel")}
    digests = dict(request.promoted)
    hosts = dict.fromkeys(digests, "this run")
    for server in servers:
        for channel in server["channels"]:
            name, digest = channel["name"], channel["digest"]
            if digests.setdefault(name, digest) != digest and name in followed - set(request.promoted):
                raise ImageError(
                    f"names {digests[name]} on {hosts[name]} and {digest} on {server['host']}",
                    "promote one image on all of them (playbooks/node_images.yml)",
                    subject=f"channel {name}",
                )
            hosts.setdefault(name, server["host"])
    for name in sorted(followed - set(digests) - set(request.channels_to_come)):
        of = [node["name"] for node in request.nodes if node.get("channel") == name]
        raise ImageError(
            "no boot server has such a channel",
            f"existing channels: {', '.join(sorted(hosts))}" if hosts else "promote one",
            subject=f"channel {name}, which {listed(of)} would boot",
        )
    return {name: digest for name, digest in digests.items() if name in followed}


def _rows(request: StatementRequest, images: Mapping[str, str]) -> dict[str, StatedNode]:
    rows = {}
    for node in request.nodes:
        subject, channel = f"node {node['name']}", node.get("channel") or ""
        image = images.get(channel) if channel else node["digest"]
        if image:
            mac = checked_mac(node["mac"], subject).replace("-", ":")
            nics = tuple(stated_nics(mac, node.get("nics") or (), subject))
            servers, report = tuple(node["servers"]), node.get("report") or ""
            files = node_files.digest_of(request.files.get(node["name"], ""))
            caches = tuple(node.get("caches") or ())
            rows[mac] = StatedNode(node["name"], image, servers, nics, channel, report, files=files, caches=caches)
    return rows


def _files_of(store: Store, request: StatementRequest, stated: Statement | None) -> dict[str, str]:
    """Return the texts of the files that a statement names, by node; without those that nobody has any more."""
    texts = {node_files.digest_of(text): text for text in request.files.values()}
    rows = [row for row in stated.nodes.values() if row.files] if stated else []
    return {row.name: texts.get(row.files) or node_files.read(store, row.files) or "" for row in rows}


def _lacking_files(
    store: Store, request: StatementRequest, new: Statement, servers: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the files that a boot server lacks. Raises ImageError for those that nobody has any more."""
    everywhere = set.intersection(*(set(server["files"]) for server in servers)) if servers else set()
    rows = [row for row in new.nodes.values() if row.files and servers and row.files not in everywhere]
    texts = _files_of(store, request, replace(new, nodes={row.name: row for row in rows}))
    for name, text in texts.items():
        if not text:
            cause = f"its files are neither in {store.subject} nor of this run"
            raise ImageError(cause, f"run playbooks/node_scripts.yml -l {name}", subject=f"node {name}")
    return sorted(set(texts.values()))


def _with_previous(rows: Mapping[str, StatedNode], last: Mapping[str, StatedNode], now_s: int) -> dict[str, StatedNode]:
    """Return the lines with the image of the last statement, where it is another one or was within CHANGE_S."""
    result = {}
    for mac, row in rows.items():
        old_row = last.get(mac)
        previous = until = ""
        if old_row and old_row.image != row.image:
            previous, until = old_row.image, statement.text_of(now_s + CHANGE_S)
        # One that was signed by a clock that was ahead ends too.
        elif old_row and old_row.until and now_s < statement.seconds(old_row.until) <= now_s + CHANGE_S:
            previous, until = old_row.previous, old_row.until
        result[mac] = replace(row, previous=previous, until=until)
    return result


def _last(store: Store, signer: Signer, terms: Terms) -> Statement | None:
    """Return this host's last statement, None if there is none. Raises ImageError unless this key signed it."""
    data = store.contents(NODES, statement.STATEMENT)
    if data is None:
        return None
    subject = f"statement {statement.path_of(store)}"
    if sign.verifies(*statement.split(data), signer.key):
        return statement.load(data, subject)
    if terms.reissue:
        return None
    raise ImageError(
        f"is not signed by the key {signer.public_key}", f"if you changed the key, {REISSUE}", subject=subject
    )


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


def _kept(last: Statement | None, rows: Mapping[str, StatedNode], names: set[str]) -> dict[str, StatedNode]:
    """Return the last lines of nodes that are not ``names``. Raises ImageError if one has a MAC address of ``rows``."""
    old_rows = {mac: row for mac, row in (last.nodes if last else {}).items() if row.name not in names}
    for mac in rows:
        if mac in old_rows:
            raise of_another_node(rows[mac].name, mac, old_rows[mac].name)
    return old_rows


def _still_right(last: Statement, new: Statement, terms: Terms) -> bool:
    """Return whether the last statement has the new one's lines and validity, of which two thirds are left.

    That an image before may no longer boot needs no new statement: its time is in the last one.
    """
    issued_s, expires_s = statement.seconds(last.issued), statement.seconds(last.expires)
    valid_s = terms.days * DAY_S
    return (
        _now(new.nodes) == _now(last.nodes)
        and expires_s - issued_s == valid_s
        and (expires_s - terms.now_s) * 3 >= valid_s * 2
    )


def _now(rows: Mapping[str, StatedNode]) -> dict[str, StatedNode]:
    return {mac: replace(row, previous="", until="") for mac, row in rows.items()}


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
