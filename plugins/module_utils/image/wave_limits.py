# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits of one wave of a rollout: what it takes of a rack, a leaf switch, a feed, and of the power. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# The limit that is no kind of domain: the sum of what the nodes of a wave draw when they start.
POWER = "power_kw"
REMEDY = 'write {rack: 4, leaf: "25%", power_kw: 300}: nodes or a share of each, and kilowatts'

_SHARE = re.compile(r"([0-9]{1,3})%")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Placed:
    """A node with its domains as (kind, name), such as ("rack", "r01"), and the kilowatts that its start draws."""

    name: str
    domains: tuple[tuple[str, str], ...] = ()
    power_kw: float = 0.0


@dataclass(frozen=True)
class WaveLimits:
    """The limits of a wave: how many nodes of each domain (kind, name), and how many kilowatts; None for any."""

    nodes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    power_kw: float | None = None

    def take(self, pending: Sequence[Placed], size: int) -> list[str]:
        """Return the names of the next wave: the first at most ``size`` nodes of ``pending`` that the limits let
        together.

        A node for which no room is left waits for a later wave; a single node always fits (``read``).
        """
        nodes_by_domain: Counter[tuple[str, str]] = Counter()
        names: list[str] = []
        drawn_kw = 0.0
        for node in pending:
            if len(names) == size:
                break
            fits = all(nodes_by_domain[domain] < self.nodes.get(domain, size) for domain in node.domains)
            if fits and (self.power_kw is None or not names or drawn_kw + node.power_kw <= self.power_kw):
                names.append(node.name)
                nodes_by_domain.update(node.domains)
                drawn_kw += node.power_kw
        return names

    def cut(self, nodes: Sequence[Placed]) -> list[list[str]]:
        """Return all nodes in parts that the limits let together."""
        parts: list[list[str]] = []
        pending = list(nodes)
        while pending:
            parts.append(self.take(pending, len(pending)))
            chosen = set(parts[-1])
            pending = [node for node in pending if node.name not in chosen]
        return parts


def placed(name: str, domains: Mapping[str, Iterable[str]], power_kw: float) -> Placed:
    """Return a node with its domains by kind."""
    return Placed(name, tuple((kind, domain) for kind in sorted(domains) for domain in domains[kind]), power_kw)


def read(limits: Mapping[str, Any], nodes: Sequence[Placed]) -> WaveLimits:
    """Return the limits of the setting node_boot_rollout_limits for the nodes of a rollout.

    A share is of all nodes of a domain, rounded down, at least one. Raises ImageError for a value that is none, a kind
    that no node has, and nodes that a limit cannot count or never lets start.
    """
    sizes = Counter(domain for node in nodes for domain in node.domains)
    limits_of_domains: dict[tuple[str, str], int] = {}
    for kind, value in limits.items():
        subject = f"node_boot_rollout_limits: {kind}"
        if kind == POWER:
            continue
        share, text = _SHARE.fullmatch(str(value)), str(value)
        if not (share and 1 <= int(share[1]) <= 100) and not (_COUNT.fullmatch(text) and int(text) > 0):
            raise ImageError(f"{value!r} is neither a number of nodes nor a share", REMEDY, subject=subject)
        unknown = [node.name for node in nodes if kind not in {present_kind for present_kind, _name in node.domains}]
        if unknown:
            raise ImageError(
                f"{len(unknown)} nodes are in none, the first of them is {unknown[0]}",
                f"give them one in site_domains ({{{kind}: NAME}}), or remove the limit",
                subject=subject,
            )
        for domain in (domain for domain in sizes if domain[0] == kind):
            limits_of_domains[domain] = max(1, sizes[domain] * int(share[1]) // 100) if share else int(text)
    return WaveLimits(limits_of_domains, _power(limits[POWER], nodes) if POWER in limits else None)


def _power(value: Any, nodes: Sequence[Placed]) -> float:
    subject = f"node_boot_rollout_limits: {POWER}"
    try:
        power_kw = float(value)
    except (TypeError, ValueError) as error:
        raise ImageError(f"{value!r} is not a number of kilowatts", REMEDY, subject=subject) from error
    for node in nodes:
        if not 0 < node.power_kw <= power_kw:
            cause = (
                f"{node.name} draws {node.power_kw:g} of {power_kw:g}" if node.power_kw > 0 else f"{node.name} has none"
            )
            raise ImageError(cause, "set node_boot_power_kw of each node, what its start draws", subject=subject)
    return power_kw
