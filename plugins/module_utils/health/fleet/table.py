# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One table of a fleet's health: worst first, equal faults of several nodes folded into one line. Pure.

A node that did not answer, or whose state is old, is named and counts as not known, never as healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import failures
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.outliers import Collection, Outlier, by_node
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import LAYERS, severity
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import APPLICATION, Rule
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import UNKNOWN
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import is_stale, latest_s

RUNBOOKS = "docs/reference/runbooks.md"
# Places whose device a technician calls by a name, which is the first part of Complaint.part.
DEVICES = ("gpu", "nic", "nvme", "nvswitch", "bridge")
SHOWN_DETAILS, SHOWN_OUTLIERS = 6, 20
DETAIL_CHARACTERS = 160


@dataclass
class Table:
    """The table's lines, the nodes by what is known of them, and one sentence."""

    lines: list[str] = field(default_factory=list)
    healthy: list[str] = field(default_factory=list)  # without a fault, and in service as far as a person says
    faulty: list[str] = field(default_factory=list)  # with a fault that a person or the site must act on
    noted: list[str] = field(default_factory=list)  # with an application's faults, or notes, only
    unknown: list[str] = field(default_factory=list)  # without an answer of late, or not measured
    drained: list[str] = field(default_factory=list)
    maintained: list[str] = field(default_factory=list)  # their faults are no failure of the run
    outliers: list[Outlier] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if each node outside of a maintenance is known and has no fault."""
        return not {*self.unknown, *self.faulty} - set(self.maintained)

    @property
    def summary(self) -> str:
        """The table in one sentence."""
        groups = (self.healthy, self.faulty, self.noted, self.unknown, self.drained, self.maintained)
        total = len({node for group in groups for node in group})
        parts = [
            f"{len(names)} {state}"
            for names, state in (
                (self.faulty, "with faults"),
                (self.unknown, "not known"),
                (self.noted, "with notes only"),
                (self.drained, "drained by a person"),
                (self.maintained, "in maintenance"),
                ({outlier.node for outlier in self.outliers}, "unlike their like"),
            )
            if names
        ]
        return f"{len(self.healthy)} of {_nodes(total)} healthy{''.join(f', {part}' for part in parts)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "lines": self.lines,
            "summary": self.summary,
            "holds": self.holds,
            "healthy": self.healthy,
            "faulty": self.faulty,
            "noted": self.noted,
            "unknown": self.unknown,
            "drained": self.drained,
            "maintained": self.maintained,
            "outliers": [{**vars(outlier), "distance": outlier.distance} for outlier in self.outliers],
        }


def table(
    results: Iterable[tuple[str, Any]],
    bmcs: Mapping[str, Any] | None = None,
    rules: Mapping[str, Rule] = RULES,
    spares: frozenset[str] = frozenset(),
) -> Table:
    """Return the table of nodes and their results of node_health_info.

    ``bmcs``: what their BMCs say, by node. ``spares``: the nodes that are spares, by the blueprint.
    """
    gathered = _Gathered()
    for node, result in results:
        of_bmc = answers.read({"health": bmcs[node]}).faults if bmcs and node in bmcs else ()
        gathered.add(node, answers.read(result), of_bmc)
    fleet, faults = gathered.table, gathered.faults
    fleet.outliers = gathered.collection.outliers()
    fleet.lines = [
        *_sorted_lines(gathered.unknown),
        *(line for key in sorted(faults, key=lambda key: _rank(key, faults[key])) for line in _group(key, faults[key])),
        *_outlier_lines(fleet.outliers, rules),
        *_too_few(gathered.collection.too_few()),
        *_sorted_lines(gathered.said),
        *_spare_lines(fleet, spares),
        *([f"{_nodes(len(fleet.healthy))}: healthy: {fold(fleet.healthy)}"] if fleet.healthy else []),
    ]
    return fleet


class _Gathered:
    """The answers of a fleet while they are read: the nodes by what is equal of them."""

    def __init__(self) -> None:
        self.table = Table()
        self.collection = Collection()
        self.unknown: dict[str, list[str]] = {}  # by the reason
        self.faults: dict[tuple[Any, ...], dict[str, list[str]]] = {}  # by what is broken, and by its details
        self.said: dict[str, list[str]] = {}  # by a person's word

    def add(self, node: str, answer: Answer, of_bmc: tuple[Complaint, ...]) -> None:
        """Add a node's answer and what its BMC says."""
        self._say(node, answer)
        reason = unknown_reason(node, answer)
        complaints = of_bmc if reason else (*answer.faults, *of_bmc)
        for fault in complaints:
            self.faults.setdefault(_key(fault), {}).setdefault(_detail(fault), []).append(node)
        if reason:
            self.unknown.setdefault(failures.common(reason, [node]), []).append(node)
            self.table.unknown.append(node)
            return
        self.collection.add(node, answer)
        serious = [fault for fault in complaints if is_serious(fault)]
        if serious:
            is_unknown = all(fault.check in UNKNOWN for fault in serious)
            (self.table.unknown if is_unknown else self.table.faulty).append(node)
        elif complaints:
            self.table.noted.append(node)
        elif not (answer.drain or answer.maintenance):
            self.table.healthy.append(node)

    def _say(self, node: str, answer: Answer) -> None:
        for kind, text, nodes in (
            ("drained", answer.drain, self.table.drained),
            ("in maintenance", answer.maintenance, self.table.maintained),
        ):
            if text and not answer.error:
                self.said.setdefault(f"{kind}: {text}", []).append(node)
                nodes.append(node)


def is_serious(fault: Complaint) -> bool:
    """Return True if a fault makes a run fail: an application's faults and notes do not."""
    return fault.layer != APPLICATION and severity(fault.action) > severity("note")


def unknown_reason(node: str, answer: Answer) -> str:
    """Return why a node's answer says nothing about its health now; "" if it does."""
    return answer.error or _other(node, answer) or _stale(answer) or ""


def _other(node: str, answer: Answer) -> str | None:
    """Return the reason why an answer is not the node's, or None: two names of one machine, or a copied disk."""
    if answer.host in ("", node):
        return None
    return f"it answers as {answer.host}: two names lead to one machine, or playbooks/node_health.yml must run for it"


def _stale(answer: Answer) -> str | None:
    """Return the reason why a state is too old to be known, equal on nodes with equal periods, or None."""
    if answer.age_s is None or is_stale(answer.age_s, answer.period_s):
        return (
            f"its state is not of the last {latest_s(answer.period_s):g} s: see systemctl status sailloft-health.timer"
        )
    return None


def _key(fault: Complaint) -> tuple[Any, ...]:
    """Return what is equal for a folded fault: what it asks for, and what is broken."""
    name = fault.part.partition(", ")[0] if fault.kind in DEVICES and fault.part else f"{fault.kind} {fault.place}"
    layer = LAYERS.index(fault.layer) if fault.layer in LAYERS else -1
    return (-severity(fault.action), layer, name.strip(), fault.title, fault.action, fault.runbook)


def _detail(fault: Complaint) -> str:
    """Return what a technician needs: what was seen, the slot, the cable."""
    _name, _comma, place = fault.part.partition(", ")
    part = place if fault.kind in DEVICES else fault.part
    seen = f"{fault.seen}, expected {fault.expected}" if fault.expected else fault.seen
    address = fault.place if fault.kind in DEVICES else ""
    text = "; ".join(filter(None, (address, part, seen)))
    return text if len(text) <= DETAIL_CHARACTERS else f"{text[: DETAIL_CHARACTERS - 3]}..."


def _rank(key: tuple[Any, ...], details: Mapping[str, list[str]]) -> tuple[Any, ...]:
    return (key[0], key[1], -len({node for nodes in details.values() for node in nodes}), key)


def _group(key: tuple[Any, ...], details: Mapping[str, list[str]]) -> Iterable[str]:
    """Yield the line of a fault, its action, and what differs between its nodes."""
    *_rank, name, title, action, runbook = key
    nodes = {node for group in details.values() for node in group}
    yield f"{_nodes(len(nodes))}: {name}: {title}: {fold(nodes)}"
    yield f"    {action.replace('_', ' ')}: {RUNBOOKS}#{runbook}"
    ordered = sorted(details.items(), key=lambda item: (-len(item[1]), item[0]))
    for text, group in ordered[:SHOWN_DETAILS]:
        if text:
            yield f"    {text}" if len(details) == 1 else f"    {fold(group)}: {text}"
    if len(ordered) > SHOWN_DETAILS:
        hidden = {node for _text, group in ordered[SHOWN_DETAILS:] for node in group}
        yield f"    and {_nodes(len(hidden))} more with other details"


def _outlier_lines(outliers: list[Outlier], rules: Mapping[str, Rule]) -> list[str]:
    lines = []
    for (node, check), group in by_node(outliers).items():
        worst, rule = group[0], rules.get(check)
        title, unit = (rule.title, rule.unit) if rule else (check.replace("_", " "), "")
        remainder = f" and {len(group) - 1} more" if len(group) > 1 else ""
        side = "below" if worst.value < worst.median else "above"
        lines.append(
            f"1 node: {worst.name}{remainder}: {title} {worst.value:g} {unit}".rstrip()
            + f", {abs(worst.distance):.0%} {side} the median {worst.median:g} of {worst.nodes} like nodes"
            + f" (score {worst.score:.1f}): {node}"
        )
    hidden = len(lines) - SHOWN_OUTLIERS
    return [*lines[:SHOWN_OUTLIERS], *([f"and {hidden} more outliers"] if hidden > 0 else [])]


def _too_few(nodes: set[str]) -> list[str]:
    return [f"{_nodes(len(nodes))}: not compared, too few are like them: {fold(nodes)}"] if nodes else []


def _spare_lines(result: Table, spares: frozenset[str]) -> list[str]:
    """Return which spares can replace a node that is faulty or not known."""
    if not spares or not {*result.faulty, *result.unknown} - spares:
        return []
    fit = [node for node in result.healthy if node in spares]
    return [f"{len(fit)} of {_spares(len(spares))} healthy{f': {fold(fit)}' if fit else ''}"]


def _spares(count: int) -> str:
    return "1 spare" if count == 1 else f"{count} spares"


def _sorted_lines(groups: Mapping[str, list[str]]) -> list[str]:
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{_nodes(len(nodes))}: {text}: {fold(nodes)}" for text, nodes in ordered]


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
