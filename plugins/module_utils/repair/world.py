# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All that a decision knows: settings, nodes with their readings and proofs, and the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import unknown_reason
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import severity
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import APPLICATION, HARDWARE
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import UNKNOWN
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import RepairCase
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import OURS, NodeService
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import NO_ANSWER

OUT = severity("drain")


@dataclass(frozen=True)
class RepairSettings:
    """The inventory's settings of repairs. Times in seconds, shares in percent."""

    wait_s: int = 4 * 3600  # for jobs, after a drain
    kill_jobs: bool = False  # after that time
    boot_s: int = 3600  # until a node is known again after a step; also until a step without a result is not in work
    most_out: int = 10  # percent of the nodes, without spares, that may be out; spares in reserve count as serving
    domain_most_out: Mapping[str, int] = field(default_factory=dict)  # percent, by kind of domain
    together: int = 3  # nodes with equal faults at once that are one fault of the site
    together_s: int = 900
    most_steps: int = 5  # of a node in the window
    window_s: int = 7 * 24 * 3600
    has_scheduler: bool = True
    evicts: bool = False  # the scheduler asks jobs to leave a drained node


@dataclass(frozen=True)
class NodeProof:
    """A proof of a node that is on the controller."""

    name: str  # of its file
    at_s: float
    holds: bool


@dataclass(frozen=True)
class RepairNode:
    """A node: what the inventory says, what was read, and its proofs."""

    name: str
    answer: Answer | None = None  # None: it was not asked in this run
    asked_s: float = 0.0  # when it was asked, by the controller's clock, or shortly before
    service: NodeService | None = None  # None: the scheduler does not know it
    is_spare: bool = False
    is_guest: bool = False
    boots_image: bool = False
    resets: tuple[str, ...] = ("gpu",)  # kinds of devices that may be reset
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)  # {"rack": ["r1"], "leaf": ["leaf-1"]}
    proofs: tuple[NodeProof, ...] = ()

    @property
    def unknown(self) -> str:
        """The reason why its health is not known; "" if it is."""
        return "it was not asked" if self.answer is None else unknown_reason(self.name, self.answer)

    @property
    def fault(self) -> Complaint | None:
        """The fault that takes it out of service and asks for most."""
        if self.answer is None:
            return None
        if self.unknown:
            is_lost = self.service is not None and self.service.is_absent and self.answer.error.startswith("no answer")
            text = self.answer.error
            return (
                Complaint(NO_ANSWER, "node", "", "no answer", HARDWARE, "reboot", "host-down", seen=text)
                if is_lost
                else None
            )
        faults = [fault for fault in self.answer.faults if fault.layer != APPLICATION and severity(fault.action) >= OUT]
        return max(faults, key=lambda fault: severity(fault.action), default=None)

    @property
    def mild(self) -> Complaint | None:
        """The worst fault that is only reported."""
        faults = self.answer.faults if self.answer and not self.unknown else ()
        return next((fault for fault in faults if severity(fault.action) > severity("note")), None)

    @property
    def unproved(self) -> str:
        """The reason why its readings do not show that it is healthy; "" if they do."""
        if self.unknown:
            return self.unknown
        faults = self.answer.faults if self.answer else ()
        bad = self.fault or next((fault for fault in faults if fault.check in UNKNOWN), None)
        return f"{name_of(bad)}: {bad.title}" if bad else ""

    @property
    def told(self) -> str:
        """A person's word that the node itself keeps; "" for none."""
        answer = self.answer
        if answer and answer.maintenance:
            return f"maintenance: {answer.maintenance}"
        if answer and answer.drain and not answer.drain.startswith(OURS.strip()):
            return f"drained: {answer.drain}"
        return ""

    @property
    def drained(self) -> bool:
        """True if our drain is in force: the scheduler's, or without one the node's own."""
        if self.service:
            return self.service.is_ours
        return bool(self.answer and self.answer.drain.startswith(OURS.strip()))

    @property
    def serves(self) -> bool:
        """True if it takes jobs; not where nobody knows."""
        if self.service:
            return not (self.service.is_out or self.service.is_absent or self.service.is_maintained)
        # Without a scheduler nothing keeps jobs from a node with a fault.
        answer = self.answer
        return not (self.unknown or (answer and (answer.drain or answer.maintenance)))

    @property
    def round_s(self) -> float:
        """The end of its last round of checks, or shortly before, by the controller's clock; 0 if it is not known."""
        answer = self.answer
        return self.asked_s - answer.age_s if answer and answer.age_s is not None and not self.unknown else 0.0


@dataclass(frozen=True)
class RepairWorld:
    """Everything at one time. ``only``: the nodes that may be touched, None for all."""

    nodes: Mapping[str, RepairNode]
    cases: Mapping[str, RepairCase]
    settings: RepairSettings
    now_s: float
    only: frozenset[str] | None = None
    watched: int = 0  # the number of nodes in the log's last line of it
    can_swap: bool = False
    ends_only: bool = False  # no new drain and no new step: the way back only

    def case(self, name: str) -> RepairCase:
        """Return the case of a node."""
        return self.cases.get(name) or RepairCase()

    def word(self, node: RepairNode) -> str:
        """Return a person's word that keeps a node out of service; "" for none.

        A server that somebody has switched off to work in it cannot tell: the log keeps its last word.
        """
        told = self.case(node.name).word if node.unknown else node.told
        return told or (node.service.word if node.service else "")


def name_of(fault: Complaint) -> str:
    """Return the name of a fault, as the node's own health check calls it."""
    return f"{fault.check}@{fault.kind}:{fault.place}" if fault.place else f"{fault.check}@{fault.kind}"


def reading_of(fault: Complaint) -> str:
    """Return what was seen, in words."""
    seen = f": {fault.seen}" if fault.seen else ""
    expected = f", expected {fault.expected}" if fault.expected else ""
    return (
        f"{fault.part or fault.title}: {fault.title}{seen}{expected}"
        if fault.part
        else f"{fault.title}{seen}{expected}"
    )
