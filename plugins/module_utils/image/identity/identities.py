# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes' bundles in a store: compute and write the requested ones. No other node's bundle is touched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import sync_directory, write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    make_folder,
    remove_if_there,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_node
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity.tools import (
    KEY_BYTES,
    encrypt,
    require,
    wrap,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import (
    TRUSTED_COMMENT,
    Signer,
    trusted_comment,
    verifies,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import IDENTITY, LEFT_BEHIND, Store


@dataclass(frozen=True)
class BundleInputs:
    """The inputs of a node's bundle; it is not written for a node that is not ``proven`` to run its image.

    With a ``policy``, it is bound to what the node has booted.
    """

    name: str
    ek: bytes
    secrets: tuple[identity.Secret, ...]
    proven: bool = True
    policy: bytes = b""

    @property
    def subject(self) -> str:
        """The name of the node in error messages."""
        return f"node {self.name}"


@dataclass(frozen=True)
class BundleChange:
    """Public data of bundles by node: of all before the change and of the requested ones after it; the changed nodes.

    None stands for a file that is not one of our bundles. ``others`` are the nodes whose bundles were not requested,
    ``withheld`` those whose bundles would be written, and are not proven.
    """

    before: Mapping[str, Mapping[str, str] | None]
    after: Mapping[str, Mapping[str, str]]
    written: tuple[str, ...]
    removed: tuple[str, ...]
    others: tuple[str, ...]
    withheld: tuple[str, ...] = ()


def read_nodes(nodes: Sequence[Mapping[str, Any]], policy: bytes = b"") -> list[BundleInputs]:
    """Return the nodes from dicts {name, ek, secrets, proven, measured}, sorted by name. Raises ImageError.

    The bundles of nodes that are measured are bound to the ``policy``.
    """
    node_by_name: dict[str, BundleInputs] = {}
    owners: dict[bytes, str] = {}
    for entry in nodes:
        name = checked_node(entry["name"])
        subject = f"node {name}"
        ek = identity.read_ek(entry["ek"], subject)
        if name in node_by_name:
            raise ImageError("is listed twice", "list each node once", subject=subject)
        if ek in owners:
            raise ImageError(
                f"has the endorsement key of node {owners[ek]}",
                "each TPM has its own key: enrol both again",
                subject=subject,
            )
        owners[ek] = name
        secrets = identity.read_secrets(entry["secrets"], subject)
        bound = policy if entry.get("measured") else b""
        node_by_name[name] = BundleInputs(name, ek, secrets, entry.get("proven", True), bound)
    return [node_by_name[name] for name in sorted(node_by_name)]


def ensure(
    store: Store, nodes: Sequence[BundleInputs], signer: Signer, check: bool, removed: Sequence[str] = ()
) -> BundleChange:
    """Put these nodes' bundles into the store, and remove those of the nodes named in ``removed``.

    An existing bundle stays if it has the digest of the requested one and a signature by the signing key.
    Raises ImageError before anything is touched.
    """
    contradictory = sorted({checked_node(name) for name in removed} & {node.name for node in nodes})
    if contradictory:
        raise ImageError(
            "its bundle is to be both written and removed",
            "remove its node_identity_ek from the inventory, or its name from node_identity_removed",
            subject=f"node {contradictory[0]}",
        )
    store.require()
    with store.locked():
        old_files = {name: store.contents(IDENTITY, name) or b"" for name in _names(store)}
        parsed = {name: _parsed(data, name) for name, data in old_files.items()}
        unchanged = _kept(nodes, parsed, signer)
        wanted = {node.name: digest for node, digest in zip(nodes, unchanged.digests)}
        signers = {node.name: identity.signer(node.name, node.secrets) for node in nodes}
        signed = {name for name, signer in signers.items() if store.contents(IDENTITY, _signer_of(name)) == signer}
        changed = [node for node in nodes if node.name not in unchanged.names & signed]
        new = [node for node in changed if node.proven]
        withheld = tuple(node.name for node in changed if not node.proven)
        change = BundleChange(
            before={name: identity.stated(bundle[0]) if bundle else None for name, bundle in parsed.items()},
            after={
                node.name: {"node": node.name, "ek": identity.ek_digest(node.ek), "digest": wanted[node.name]}
                for node in nodes
                if node.name not in withheld
            },
            written=tuple(node.name for node in new),
            removed=tuple(sorted(set(old_files) & set(removed))),
            others=tuple(sorted(set(old_files) - set(wanted) - set(removed))),
            withheld=withheld,
        )
        # Bundles are made in check mode too, since it must report errors of openssl or of the TPM's tool.
        bundles = _bundles(new, wanted, signer)
        if not check:
            _apply(store, bundles, signers, change.removed)
    return change


@dataclass(frozen=True)
class _Kept:
    """The requested digests in the nodes' order, and the nodes whose bundles stay."""

    digests: list[str]
    names: set[str]


def _names(store: Store) -> list[str]:
    return [name for name in store.entries(IDENTITY) if not name.startswith(".")]


def _signer_of(node: str) -> str:
    """Return the name of the file with the node's public host key. The web servers do not serve hidden files."""
    return f".{node}.signer"


def _parsed(data: bytes, name: str) -> tuple[identity.Bundle, bytes, bytes] | None:
    try:
        return identity.parse(data, f"node {name}")
    except ImageError:
        return None


def _kept(
    nodes: Sequence[BundleInputs], parsed: Mapping[str, tuple[identity.Bundle, bytes, bytes] | None], signer: Signer
) -> _Kept:
    """Return the bundles to keep."""
    require("minisign")
    key, public_key = _digest_key(signer), signer.key
    digests = [identity.digest(key, node.name, node.ek, node.secrets, node.policy) for node in nodes]
    names = set()
    for node, digest in zip(nodes, digests):
        old_bundle = parsed.get(node.name)
        if not old_bundle:
            continue
        bundle, signed, signature = old_bundle
        stated = {"node": node.name, "ek": identity.ek_digest(node.ek), "digest": digest}
        ours = trusted_comment(signature) == identity.COMMENTS.trusted
        if identity.stated(bundle) == stated and ours and verifies(signed, signature, public_key):
            names.add(node.name)
    return _Kept(digests, names)


def _digest_key(signer: Signer) -> bytes:
    """Return the key of digests. Raises ImageError for a command by which all bundles would change at each run."""
    signatures = _signatures(signer, [identity.DIGEST_KEY_MESSAGE] * (2 if signer.command else 1))
    if signatures[0] != signatures[-1]:
        raise ImageError(
            "prints another signature each time it gets the same data",
            "sign with Ed25519 as in RFC 8032, and let the comments have no time in them",
            subject=f"signing command {signer.command[0]}",
        )
    return identity.digest_key(signatures[0])


def _signatures(signer: Signer, messages: Sequence[bytes]) -> list[bytes]:
    """Return the messages' signatures, all made at once: with a password, each call takes about a second."""
    signatures = signer.sign(messages, identity.COMMENTS)
    for signature in signatures:
        if (comment := trusted_comment(signature)) != identity.COMMENTS.trusted:
            raise ImageError(
                f"signs with the trusted comment {comment!r}, and nodes take only {identity.COMMENTS.trusted!r}",
                f"let it sign with the comment in {TRUSTED_COMMENT} of its environment",
                subject=f"signing command {signer.command[0]}",
            )
    return signatures


def _bundles(nodes: Sequence[BundleInputs], digests: Mapping[str, str], signer: Signer) -> dict[str, bytes]:
    if not nodes:
        return {}
    signed = []
    for node in nodes:
        key = os.urandom(KEY_BYTES)
        bundle = identity.Bundle(
            node=node.name,
            ek=identity.ek_digest(node.ek),
            digest=digests[node.name],
            credential=wrap(key, node.ek, identity.activated_name(node.policy), node.subject),
            secrets=encrypt(identity.payload(node.secrets), key, node.subject),
            bound=bool(node.policy),
        )
        signed.append(identity.render(bundle))
    signatures = _signatures(signer, signed)
    bundles = {node.name: text + signature for node, text, signature in zip(nodes, signed, signatures)}
    for node in nodes:
        if len(bundles[node.name]) > identity.LARGEST_BUNDLE_BYTES:
            raise ImageError(
                f"its bundle has {len(bundles[node.name])} bytes, the maximum is {identity.LARGEST_BUNDLE_BYTES}",
                "give it fewer or smaller secrets",
                subject=node.subject,
            )
    return bundles


def _apply(
    store: Store, bundles: Mapping[str, bytes], signers: Mapping[str, bytes | None], removed: Sequence[str]
) -> None:
    with store.reported():
        folder = store.place(IDENTITY)
        if not os.path.isdir(folder):
            make_folder(folder)
        for name in store.entries(IDENTITY):
            if LEFT_BEHIND.fullmatch(name):
                remove_if_there(os.path.join(folder, name))
        for name, data in bundles.items():
            signer = signers[name]
            if signer:
                write_atomic(os.path.join(folder, _signer_of(name)), signer)
            else:
                remove_if_there(os.path.join(folder, _signer_of(name)))
            # Last, so that the next run completes one that was killed in between.
            write_atomic(os.path.join(folder, name), data)
        for name in removed:
            remove_if_there(os.path.join(folder, _signer_of(name)))
            remove_if_there(os.path.join(folder, name))
        if removed:
            sync_directory(folder)
