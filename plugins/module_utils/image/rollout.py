# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a rollout does next: which nodes boot the new image now, when it stops, what goes back. Pure.

It keeps no state: what nodes run and what the channel names say how far it is, so a rollout whose controller died goes
on where it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.image.error import ImageError

# What comes next. "stopped" and "rollback" both end a rollout that failed; only "rollback" has something to undo.
CANARY, PROMOTE, WAVE, DONE, STOPPED, ROLLBACK = "canary", "promote", "wave", "done", "stopped", "rollback"

_SHARE = re.compile(r"([0-9]{1,3})%")


@dataclass(frozen=True)
class Node:
    """A node as it was last seen.

    ``running`` is the digest that it runs, empty for none of Sailloft's. ``holds`` says whether it is proven, its
    health gate included. ``tried`` says that this run had it boot the target.
    """

    name: str
    running: str = ""
    holds: bool = True
    reachable: bool = True
    canary: bool = False
    tried: bool = False


@dataclass(frozen=True)
class Rules:
    """``waves``: how many nodes boot together, in order, the last repeated. ``budget``: failures to live with."""

    waves: tuple[int, ...]
    budget: int

    def __post_init__(self) -> None:
        """Raise ImageError for a budget that is no number of nodes."""
        if self.budget < 0:
            raise ImageError(f"budget {self.budget}", "is no number of nodes", "give 0 or more")


@dataclass(frozen=True)
class Channel:
    """What the boot servers' copies of the channel name. Two differ only where a run died between two servers.

    ``pinned``: whether a node that follows the channel is pinned to the target, as canaries are before the promotion.
    """

    digests: tuple[str, ...]
    pinned: bool = False

    def everywhere(self, target: str) -> bool:
        """Whether all name ``target``."""
        return all(digest == target for digest in self.digests)

    def anywhere(self, target: str) -> bool:
        """Whether one names ``target``."""
        return target in self.digests


@dataclass(frozen=True)
class Step:
    """What comes next: its ``kind``, the nodes that it is for, and why.

    For ``rollback``, ``channel`` says whether the channel goes back too, and ``nodes`` boot the image from before.
    """

    kind: str
    nodes: tuple[str, ...] = ()
    why: str = ""
    channel: bool = False


def sizes(waves: list[int | str], nodes: int) -> tuple[int, ...]:
    """Wave sizes in nodes from numbers and shares ("25%", rounded down, at least one) of ``nodes``.

    Raises ImageError for what is neither, and where a wave is smaller than the one before it.
    """
    subject, mend = f"waves {waves!r}", 'give numbers of nodes or shares of them, growing: [1, 4, "25%"]'
    found: list[int] = []
    for wave in waves:
        share = _SHARE.fullmatch(str(wave))
        size = max(1, nodes * int(share[1]) // 100) if share else int(wave) if str(wave).isdigit() else 0
        if size < 1 or (share and not 1 <= int(share[1]) <= 100):
            raise ImageError(subject, f"{wave!r} is no size of a wave", mend)
        # A share of a small fleet may be less than the number before it: then it is that number.
        if found and size < found[-1]:
            if not share:
                raise ImageError(subject, f"{wave!r} is smaller than the wave before it", mend)
            size = found[-1]
        found.append(size)
    if not found:
        raise ImageError(subject, "there is none", mend)
    return tuple(found)


def canaries(names: list[str], chosen: list[str]) -> tuple[str, ...]:
    """The canaries: those ``chosen``, or the first node where none is. Raises ImageError for one that is no node."""
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise ImageError(f"canary {unknown[0]}", "is none of the rollout's nodes", f"choose of {', '.join(names)}")
    return tuple(name for name in names if name in chosen) or tuple(names[:1])


def failed(nodes: list[Node], target: str) -> tuple[str, ...]:
    """The nodes that count against the budget, in order.

    Those that do not answer, those that run the target and are not proven, and those that were to boot it and do not.
    """
    return tuple(node.name for node in nodes if _failed(node, target))


def planned(nodes: list[Node], target: str, promoted: bool, rules: Rules) -> tuple[tuple[str, ...], ...]:
    """The waves that are left if nothing fails, in order; canaries are in none but where the channel is promoted."""
    pending = [node.name for node in nodes if _pending(node, target) and (promoted or not node.canary)]
    past = sum(not node.canary and not _pending(node, target) for node in nodes)
    waves = []
    while pending:
        size = _next_size(past, rules.waves)
        waves.append(tuple(pending[:size]))
        pending, past = pending[size:], past + size
    return tuple(waves)


def decide(nodes: list[Node], target: str, channel: Channel, rules: Rules) -> Step:
    """The next step to have all ``nodes`` run ``target``.

    No node boots the target while more than ``rules.budget`` nodes have failed, and none but a canary before all
    canaries hold; so at most the budget and one wave are ever lost.
    """
    promoted = channel.everywhere(target)
    lost = failed(nodes, target)
    bad_canaries = [] if promoted else [node.name for node in nodes if node.canary and node.name in lost]
    if bad_canaries or len(lost) > rules.budget:
        why = (
            f"canaries failed: {', '.join(bad_canaries)}"
            if bad_canaries
            else f"{len(lost)} failed ({', '.join(lost)}), and the budget is {rules.budget}"
        )
        # Before anything was to boot the target, a node that does not answer is not the image's doing.
        by_servers = channel.pinned or channel.anywhere(target)
        begun = by_servers or any(node.tried or node.running == target for node in nodes)
        return Step(ROLLBACK, lost, why, channel.anywhere(target)) if begun else Step(STOPPED, (), why)
    if not promoted:
        waiting = tuple(node.name for node in nodes if node.canary and _pending(node, target))
        return Step(CANARY, waiting, "canaries first") if waiting else Step(PROMOTE, (), "all canaries hold")
    waves = planned(nodes, target, promoted, rules)
    if waves:
        return Step(WAVE, waves[0], f"{sum(len(wave) for wave in waves)} to go")
    return Step(DONE, (), f"{len(nodes) - len(lost)} of {len(nodes)} nodes run it")


def _failed(node: Node, target: str) -> bool:
    if not node.reachable:
        return True
    return not node.holds if node.running == target else node.tried


def _pending(node: Node, target: str) -> bool:
    return node.reachable and node.running != target and not node.tried


def _next_size(past: int, waves: tuple[int, ...]) -> int:
    """How many nodes complete the wave that ``past`` nodes are in."""
    end = 0
    for size in waves:
        end += size
        if past < end:
            return end - past
    last = waves[-1]
    return last - (past - end) % last


def table(nodes: list[Node], target: str, step: Step, waves: tuple[tuple[str, ...], ...], rules: Rules) -> list[str]:
    """The rollout as lines for a terminal: what comes next, and who boots when."""
    lost = failed(nodes, target)
    there = [node.name for node in nodes if node.running == target and node.name not in lost]
    lines = [f"rollout of {target[:12]}: {step.kind}, {step.why}"]
    if there:
        lines.append(f"  run it       {_names(there)}")
    # Not this rollout's doing, and yet they leave less of the budget for it.
    silent = [node.name for node in nodes if not node.reachable and not node.tried]
    if silent:
        left = max(0, rules.budget - len(silent))
        lines.append(f"  no answer    {_names(silent)} (before they were to boot; of the budget {left} is left)")
    if lost:
        lines.append(f"  failed       {_names(lost)} ({len(lost)}, budget {rules.budget})")
    if step.kind in (CANARY, PROMOTE, WAVE):
        if step.kind == CANARY:
            lines.append(f"  canaries     {_names(step.nodes)}")
        lines.extend(f"  wave {number:<7} {_names(wave)}" for number, wave in enumerate(waves, 1))
    if step.kind == ROLLBACK:
        lines.append(f"  go back      {'the channel; ' if step.channel else ''}{_names(step.nodes)}")
    return lines


def _names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) or "none"
