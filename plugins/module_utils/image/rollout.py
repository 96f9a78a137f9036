# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide the next step of a rollout: the nodes that boot the new image now, its end, or the nodes to roll back. Pure.

A rollout keeps no state: the images that nodes run and that the channel names show its progress. So if the controller
dies, the next run continues the rollout where it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import listed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.wave_limits import Placed, WaveLimits

# The kinds of a step. "stopped" and "rollback" both end a failed rollout; only "rollback" has something to undo.
CANARY, PROMOTE, WAVE, DONE, STOPPED, ROLLBACK = "canary", "promote", "wave", "done", "stopped", "rollback"

_SHARE = re.compile(r"([0-9]{1,3})%")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class RolloutNode:
    """A node as it was last seen.

    ``running`` is the digest that it runs, empty if it runs no Sailloft image. ``holds``: whether it is proven,
    including its health check. ``tried``: whether this run made it boot the target. ``spare``: whether it is in service
    only in place of another node. ``domains`` and ``power_kw``: see Placed.
    """

    name: str
    running: str = ""
    holds: bool = True
    reachable: bool = True
    canary: bool = False
    tried: bool = False
    spare: bool = False
    domains: tuple[tuple[str, str], ...] = ()
    power_kw: float = 0.0

    @property
    def placed(self) -> Placed:
        """Return where the node is."""
        return Placed(self.name, self.domains, self.power_kw)


@dataclass(frozen=True)
class Rules:
    """The rules of a rollout.

    ``waves``: numbers of nodes that boot together, in order, the last repeated. ``budget``: accepted failures.
    ``limits``: what a wave may take of a rack and the like.
    """

    waves: tuple[int, ...]
    budget: int
    limits: WaveLimits = field(default_factory=WaveLimits)

    def __post_init__(self) -> None:
        """Raise ImageError if the budget is not a number of nodes."""
        if self.budget < 0:
            raise ImageError("is not a number of nodes", "give 0 or more", subject=f"budget {self.budget}")


@dataclass(frozen=True)
class ChannelCopies:
    """The digests that the boot servers' copies of the channel name, empty for a copy that does not exist yet.

    Two copies differ only if a run died between two servers.

    ``pinned``: whether a node that follows the channel is pinned to the target, as canaries are before the promotion.
    ``with_history``: the hosts whose copy named another image before, and so can be rolled back. ``back``: the
    digests that the copies name once those that name the target are rolled back.
    """

    digests: tuple[str, ...]
    pinned: bool = False
    with_history: tuple[str, ...] = ()
    back: tuple[str, ...] = ()

    def everywhere(self, target: str) -> bool:
        """Return whether all copies name ``target``."""
        return all(digest == target for digest in self.digests)

    def anywhere(self, target: str) -> bool:
        """Return whether at least one copy names ``target``."""
        return target in self.digests

    def is_new(self, target: str) -> bool:
        """Return whether no copy ever named another image than ``target``."""
        return not self.with_history and not set(self.digests) - {"", target}

    def can_go_back(self, step: RolloutStep) -> bool:
        """Return whether the channel names an image from before the rollout, once ``step`` is done."""
        return any(self.digests) and (not step.channel or bool(self.with_history))

    def back_to(self, step: RolloutStep, target: str) -> str:
        """Return the digest that the copies name once ``step``, a rollback, is done; "" if they have none or differ."""
        earlier = set(self.back) - {"", target}
        return earlier.pop() if step.kind == ROLLBACK and len(earlier) == 1 else ""


@dataclass(frozen=True)
class RolloutStep:
    """The next step: its ``kind``, its nodes, and the reason.

    For ``rollback``, ``channel`` says whether the channel is rolled back too, and ``nodes`` boot the previous image.
    """

    kind: str
    nodes: tuple[str, ...] = ()
    why: str = ""
    channel: bool = False


def sizes(waves: list[int | str], nodes: int) -> tuple[int, ...]:
    """Return wave sizes in nodes from numbers and shares ("25%", rounded down, at least one) of ``nodes``.

    Raises ImageError for a value that is neither, and if a wave is smaller than the one before it.
    """
    subject, remedy = f"waves {waves!r}", 'give numbers or percentages of nodes in ascending order: [1, 4, "25%"]'
    wave_sizes: list[int] = []
    for wave in waves:
        share = _SHARE.fullmatch(str(wave))
        size = max(1, nodes * int(share[1]) // 100) if share else int(wave) if _COUNT.fullmatch(str(wave)) else 0
        if size < 1 or (share and not 1 <= int(share[1]) <= 100):
            raise ImageError(f"{wave!r} is not a valid wave size", remedy, subject=subject)
        # A share of a small fleet may be less than the number before it: then that number is used.
        if wave_sizes and size < wave_sizes[-1]:
            if not share:
                raise ImageError(f"{wave!r} is smaller than the wave before it", remedy, subject=subject)
            size = wave_sizes[-1]
        wave_sizes.append(size)
    if not wave_sizes:
        raise ImageError("the list is empty", remedy, subject=subject)
    return tuple(wave_sizes)


def canaries(names: list[str], chosen: list[str]) -> tuple[str, ...]:
    """Return the canaries: those ``chosen``, else the first node. Raises ImageError for a canary that is not a node."""
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise ImageError(
            "is not a node of the rollout", f"choose from {', '.join(names)}", subject=f"canary {unknown[0]}"
        )
    return tuple(name for name in names if name in chosen) or tuple(names[:1])


def read_channel(stores: list[dict[str, Any]], name: str, target: str, macs: list[str]) -> ChannelCopies:
    """Return the channel ``name`` as the boot servers' stores have it.

    ``stores``: results of the module node_image_store, each with its ``host``. ``macs``: the MAC addresses of the nodes
    that follow the channel.
    """
    scripts = {f"node {mac.lower().replace(':', '-')}" for mac in macs}
    digests, with_history, back, pinned = [], [], [], False
    for store in stores:
        copy: dict[str, Any] = next((channel for channel in store["channels"] if channel["name"] == name), {})
        digests.append(copy.get("digest", ""))
        if copy.get("history"):
            with_history.append(store["host"])
        back.append(copy["history"][0] if copy.get("history") and copy["digest"] == target else digests[-1])
        images = [image for image in store["images"] if image["digest"] == target]
        pinned = pinned or any(scripts & set(image["kept_for"]) for image in images)
    return ChannelCopies(tuple(digests), pinned, tuple(with_history), tuple(back))


def without(nodes: list[RolloutNode], names: list[str]) -> list[RolloutNode]:
    """Return the nodes that are not in ``names``.

    Raises ImageError for a name that no node has, and if no node remains that is to be in service.
    """
    unknown = sorted(set(names) - {node.name for node in nodes})
    if unknown:
        raise ImageError(
            "is left out of the rollout, but is not a node of the channel",
            "correct node_boot_rollout_without",
            subject=f"node {unknown[0]}",
        )
    remaining = [node for node in nodes if node.name not in names]
    if not remaining:
        raise ImageError(
            f"all {len(nodes)} nodes of the channel are left out",
            "remove the repaired ones from node_boot_rollout_without",
            subject="rollout",
        )
    if all(node.spare for node in remaining):
        raise ImageError(
            f"has no node to bring into service: {listed([node.name for node in remaining])} are spares",
            "correct site_spare, or node_boot_rollout_without",
            subject="rollout",
        )
    return remaining


def failed(nodes: list[RolloutNode], target: str) -> tuple[str, ...]:
    """Return the nodes that count against the budget, in order.

    These are nodes that do not answer, that run the target and are not proven, or that should have booted the target
    and do not run it.
    """
    return tuple(node.name for node in nodes if _failed(node, target))


def replacements(nodes: list[RolloutNode], target: str, repaired: list[RolloutNode]) -> list[tuple[str, str]]:
    """Return pairs of a node that is out of service and the spare in its place, empty if no spare is left.

    Failed nodes and those that are ``repaired`` are out of service. A spare must be proven to run the target.
    """
    failed_names = failed(nodes, target)
    spares = [node.name for node in nodes if node.spare and node.running == target and node.name not in failed_names]
    replaced = [
        node.name for node in (*repaired, *nodes) if not node.spare and (node in repaired or node.name in failed_names)
    ]
    return [(name, spares[index] if index < len(spares) else "") for index, name in enumerate(replaced)]


def planned(nodes: list[RolloutNode], target: str, promoted: bool, rules: Rules) -> tuple[tuple[str, ...], ...]:
    """Return the remaining waves if nothing fails, in order; they have canaries only if the channel is promoted."""
    pending = [node.placed for node in nodes if _pending(node, target) and (promoted or not node.canary)]
    updated = sum(not node.canary and not _pending(node, target) for node in nodes)
    waves = []
    while pending:
        wave = rules.limits.take(pending, _next_size(updated, rules.waves))
        waves.append(tuple(wave))
        chosen = set(wave)
        pending, updated = [node for node in pending if node.name not in chosen], updated + len(wave)
    return tuple(waves)


def decide(nodes: list[RolloutNode], target: str, channel: ChannelCopies, rules: Rules) -> RolloutStep:
    """Return the next step to make all ``nodes`` run ``target``.

    No node boots the target while more than ``rules.budget`` nodes have failed, and only canaries boot it until all
    canaries are proven. So at most the budget and one wave of nodes can be lost. If all nodes have failed, no budget
    accepts it.
    """
    promoted = channel.everywhere(target)
    failed_names = failed(nodes, target)
    bad_canaries = [] if promoted else [node.name for node in nodes if node.canary and node.name in failed_names]
    accepted = min(rules.budget, len(nodes) - 1)
    if bad_canaries or len(failed_names) > accepted >= 0:
        limit = f"the budget is {rules.budget}" if accepted == rules.budget else "no other is left"
        reason = (
            f"canaries failed: {', '.join(bad_canaries)}"
            if bad_canaries
            else f"{len(failed_names)} failed ({', '.join(failed_names)}), but {limit}"
        )
        # If no node was to boot the target yet, the image cannot be the reason why a node does not answer.
        by_servers = channel.pinned or channel.anywhere(target)
        has_begun = by_servers or any(node.tried or node.running == target for node in nodes)
        return (
            RolloutStep(ROLLBACK, failed_names, reason, channel.anywhere(target))
            if has_begun
            else RolloutStep(STOPPED, (), reason)
        )
    if not promoted:
        pending_canaries = tuple(node.name for node in nodes if node.canary and _pending(node, target))
        if len(rules.limits.cut([node.placed for node in nodes if node.name in pending_canaries])) > 1:
            raise ImageError(
                "start together, and are more than node_boot_rollout_limits lets start at once",
                "choose others in node_boot_rollout_canaries",
                subject=f"canaries {fold(pending_canaries)}",
            )
        return (
            RolloutStep(CANARY, pending_canaries, "canaries first")
            if pending_canaries
            else RolloutStep(PROMOTE, (), "all canaries are proven")
        )
    waves = planned(nodes, target, promoted, rules)
    if waves:
        return RolloutStep(WAVE, waves[0], f"{sum(len(wave) for wave in waves)} nodes remaining")
    return RolloutStep(DONE, (), f"{len(nodes) - len(failed_names)} of {len(nodes)} nodes run it")


def _failed(node: RolloutNode, target: str) -> bool:
    if not node.reachable:
        return True
    return not node.holds if node.running == target else node.tried


def _pending(node: RolloutNode, target: str) -> bool:
    return node.reachable and node.running != target and not node.tried


def _next_size(updated: int, waves: tuple[int, ...]) -> int:
    """Return the number of nodes that complete the current wave after ``updated`` nodes."""
    end = 0
    for size in waves:
        end += size
        if updated < end:
            return end - updated
    last = waves[-1]
    return last - (updated - end) % last


def table(
    nodes: list[RolloutNode], target: str, step: RolloutStep, waves: tuple[tuple[str, ...], ...], rules: Rules
) -> list[str]:
    """Return the rollout as lines for a terminal: the next step, and which nodes boot when."""
    failed_names = failed(nodes, target)
    updated = [node.name for node in nodes if node.running == target and node.name not in failed_names]
    lines = [f"rollout of {target[:12]}: {step.kind}, {step.why}"]
    if updated:
        lines.append(f"  run it       {_names(updated)}")
    # This rollout did not cause these failures, but they use up a part of its budget.
    silent = [node.name for node in nodes if not node.reachable and not node.tried]
    if silent:
        remaining = max(0, rules.budget - len(silent))
        lines.append(f"  no answer    {_names(silent)} (before their boot; remaining budget: {remaining})")
    if failed_names:
        lines.append(f"  failed       {_names(failed_names)} ({len(failed_names)}, budget {rules.budget})")
    if step.kind in (CANARY, PROMOTE, WAVE):
        if step.kind == CANARY:
            lines.append(f"  canaries     {_names(step.nodes)}")
        lines.extend(f"  wave {number:<7} {_names(wave)}" for number, wave in enumerate(waves, 1))
    if step.kind == ROLLBACK:
        lines.append(f"  go back      {'the channel; ' if step.channel else ''}{_names(step.nodes)}")
    return lines


def _names(names: tuple[str, ...] | list[str]) -> str:
    return fold(names) or "none"
