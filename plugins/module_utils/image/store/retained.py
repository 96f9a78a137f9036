# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide which images stay in all stores of a site: those that nodes run or that anything names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_digest, listed


@dataclass(frozen=True)
class NodeAnswer:
    """A node and its answer.

    ``running`` is the digest that it runs, empty if it runs no Sailloft image; ``silence`` is the reason why it did
    not answer, empty if it did; ``pinned`` is the digest that the inventory names for it, or empty.
    """

    name: str
    running: str = ""
    silence: str = ""
    pinned: str = ""


@dataclass(frozen=True)
class Named:
    """An image that a store has, or lacks, and the reasons why it stays there (``garbage.reasons``)."""

    store: str
    digest: str
    name: str
    reasons: tuple[str, ...]


def kept(nodes: Sequence[NodeAnswer], images: Iterable[Named], without: Iterable[str]) -> dict[str, list[str]]:
    """Return digest -> reasons why it stays, sorted by digest.

    A node that did not answer may run any image, so nothing is decided without its answer. ``without`` are nodes that
    need not answer, at the operator's responsibility. Raises ImageError.
    """
    left_out = set(without)
    unknown = sorted(left_out - {node.name for node in nodes})
    if unknown:
        raise ImageError(
            "is to be left out, but is not a node of the inventory", "correct its name", subject=f"node {unknown[0]}"
        )
    silent = [node for node in nodes if node.silence and node.name not in left_out]
    if silent:
        raise ImageError(
            f"{listed([node.name for node in silent])} did not report; {silent[0].name}: {silent[0].silence}",
            "bring them up, or name those that may lose their images in node_boot_collect_without",
            subject="what the nodes run",
        )
    reasons: dict[str, list[str]] = {}
    for image in images:
        for reason in image.reasons:
            reasons.setdefault(image.digest, []).append(f"{reason} ({image.store})")
    for node in nodes:
        if node.pinned:
            checked_digest(node.pinned, f"node {node.name}")
    for sentence, of in (("the inventory names it for", "pinned"), ("it runs on", "running")):
        by_digest: dict[str, list[str]] = {}
        for node in nodes:
            by_digest.setdefault(getattr(node, of), []).append(node.name)
        for digest, names in by_digest.items():
            if digest:
                reasons.setdefault(digest, []).append(f"{sentence} {listed(names)}")
    return {digest: list(dict.fromkeys(reasons[digest])) for digest in sorted(reasons)}


def table(reasons: dict[str, list[str]], images: Iterable[Named]) -> list[str]:
    """Return the images that stay, with their reasons, as lines for a terminal."""
    names = {image.digest: image.name for image in images if image.name}
    return [
        f"stays {digest[:12]} {names.get(digest, '(in no store)')}: {', '.join(texts)}"
        for digest, texts in reasons.items()
    ]
