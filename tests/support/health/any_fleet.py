# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Any fleet, with any faults, persons' words, jobs, and runs of a repair that overlap and are killed.

The decisions are the real ones. After each effect the truth is compared with what a repair must never do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from repaired_fleet import IN_SERVICE, SPARE, START_S, complaint

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.repair import log
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import cases_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.decide import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import OURS, NodeService
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import (
    DRAIN,
    PROVE,
    REBOOT,
    REIMAGE,
    REPAIRS,
    RETURN,
    SWAP,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.words import ended, repaired
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import (
    RepairNode,
    RepairSettings,
    RepairWorld,
)

PERSONS_REASON, MAINTENANCE = "ticket 7", "sailloft: under maintenance: riser"
# Check, action, layer and kind of place.
FAULTS = (
    ("xid_79", "reboot", "hardware", "gpu"),
    ("gpu_row_remap_pending", "reset_gpu", "hardware", "gpu"),
    ("pcie_link_width", "drain", "hardware", "nic"),
    ("gpu_driver_fails", "drain", "configuration", "node"),
    ("xid_151", "restart_vm", "hardware", "gpu"),
    ("gpu_row_remap_failure", "person", "hardware", "gpu"),
    ("disk_wear", "watch", "hardware", "nvme"),
    ("reader_failed", "watch", "hardware", "node"),
)
WATCHED = {check for check, action, _layer, _kind in FAULTS if action == "watch"}
WAITS_S = (30, 300, 900, 3700, 5 * 3600, 86400, 2 * 86400)
MOST_OF_A_STEP = 2  # "2 reboots, then a person"


class BrokenRuleError(AssertionError):
    """A repair has done what it must never do."""


@dataclass
class Server:
    """The truth of a node."""

    facts: dict[str, Any]
    service: NodeService | None
    faults: list[tuple[Complaint, list[str]]] = field(default_factory=list)  # each with the steps that end it
    seen: tuple[Complaint, ...] = ()  # in its last round
    round_s: float = START_S
    drain: str = ""  # the node's own
    maintenance: str = ""
    is_lost: bool = False  # it does not answer
    is_known: bool = False  # a run has read the person's word

    @property
    def is_spare(self) -> bool:
        """Return True for a spare."""
        return bool(self.facts.get("is_spare"))

    @property
    def serves(self) -> bool:
        """Return True if it takes jobs."""
        if self.service:
            return not (self.service.is_out or self.service.is_absent)
        return not (self.is_lost or self.drain or self.maintenance)

    @property
    def is_reserve(self) -> bool:
        """Return True for a spare that can be taken."""
        return bool(self.service and self.service.is_reserve and not self.is_lost)

    def serve(self, **changes: Any) -> None:
        """Change how the scheduler sees it, if there is one."""
        if self.service:
            self.service = replace(self.service, **changes)


class AnyFleet:
    """A fleet that follows from a number. ``live`` runs it."""

    def __init__(self, seed: int) -> None:
        self.random = choose = Random(seed)
        has_scheduler = choose.random() < 0.8
        racks = choose.randint(1, 4)
        self.servers = {}
        for number in range(choose.randint(4, 12)):
            feeds = {f"f{number % 2}", f"f{choose.randint(0, 1)}"}
            facts = {"domains": {"rack": (f"r{number % racks}",), "feed": tuple(sorted(feeds))}}
            facts |= {"boots_image": choose.random() < 0.5, "is_guest": choose.random() < 0.2}
            self.servers[f"n{number:02}"] = Server(facts, IN_SERVICE if has_scheduler else None)
        for number in range(choose.randint(0, 2)):
            facts = {"is_spare": True, "boots_image": True, "domains": {"rack": (f"r{number % racks}",)}}
            self.servers[f"s{number}"] = Server(facts, SPARE if has_scheduler else None)
        self.settings = RepairSettings(
            most_out=choose.choice([0, 10, 25, 34, 50, 100]),
            domain_most_out=choose.choice([{}, {"rack": 50}, {"rack": 34, "feed": 50}, {"feed": 20}]),
            together=choose.choice([2, 3, 5, 1000]),
            kill_jobs=choose.random() < 0.3,
            wait_s=choose.choice([0, 3600, 4 * 3600]),
            has_scheduler=has_scheduler,
        )
        self.lines: list[log.RepairLine] = []
        self.now_s = START_S
        self.steps: list[tuple[str, str, str, float]] = []  # node, fault, step and time of what changed a node
        self.repaired_s: dict[str, float] = {}  # when a person has said so
        self.unknown: set[tuple[str, str, str]] = set()  # node, fault and step whose outcome is not known

    def live(self, events: int, overlap: bool) -> None:
        """Let so many events happen: runs go on, are killed, and between them persons and faults come."""
        runs: list[Iterator[None]] = []
        for _event in range(events):
            if not runs:
                for _change in range(self.random.randint(0, 4)):
                    self.change(self.random.choice(list(self.servers)))
            if not runs or (overlap and len(runs) < 2 and self.random.random() < 0.1):
                runs.append(self.run())
            run = self.random.choice(runs)
            is_killed = self.random.random() < 0.03
            if is_killed or next(run, self) is self:
                runs.remove(run)

    def change(self, name: str) -> None:
        """Let something happen to a node, or time pass."""
        server, choose = self.servers[name], self.random
        kind = choose.choices(
            (
                "fault",
                "well",
                "lost",
                "drain",
                "resume",
                "maintenance",
                "own drain",
                "job",
                "free",
                "spare",
                "word",
                "time",
            ),
            (25, 7, 2, 10, 8, 4, 4, 6, 8, 3, 3, 9),
        )[0]
        if kind == "fault":
            check, action, layer, place = choose.choice(FAULTS)
            fault = complaint(
                action, check, layer=layer, kind=place, place=choose.choice("ab"), since_unix_s=self.now_s
            )
            server.faults.append((fault, choose.sample(REPAIRS, choose.randint(0, 3))))
        elif kind == "well":
            server.faults = []
        elif kind == "lost":
            server.is_lost = not server.is_lost
            self._notice(server)
        elif kind == "drain":
            server.serve(is_out=True, reason=PERSONS_REASON)
        elif kind == "resume":
            server.serve(is_out=False, reason="")
        elif kind == "maintenance":
            self._maintain(server)
        elif kind == "own drain" and not server.drain.startswith(OURS.strip()):
            server.drain, server.is_known = "" if server.drain else PERSONS_REASON, False
        elif kind in ("job", "free") and (server.serves or kind == "free"):
            server.serve(is_busy=kind == "job")
        elif kind == "spare" and server.is_reserve:
            server.service = IN_SERVICE
        elif kind == "word":
            self._say(name)
        elif kind == "time":
            self.now_s += choose.choice(WAITS_S)
        for other in self.servers.values():
            if choose.random() < 0.9:
                self._round(other)

    @staticmethod
    def _notice(server: Server) -> None:
        """Let the scheduler notice that a node does not answer, or answers again."""
        server.serve(is_absent=server.is_lost)
        if server.service and server.is_lost and not server.service.is_out:
            server.serve(is_out=True, reason="Not responding", is_busy=False)
        if server.service and not server.is_lost and server.service.reason == "Not responding":
            server.serve(is_out=False, reason="")

    def _maintain(self, server: Server) -> None:
        """Begin or end a maintenance by the node's own health check, which mostly tells Slurm."""
        server.maintenance, server.is_known = "" if server.maintenance else "riser", False
        is_told = server.service is not None and server.service.reason == MAINTENANCE
        if server.maintenance and server.serves is False and server.service and not server.service.is_out:
            return
        if server.maintenance and server.service and not server.service.is_out and self.random.random() < 0.7:
            server.serve(is_out=True, reason=MAINTENANCE)
        elif not server.maintenance and is_told:
            server.serve(is_out=False, reason="")

    def _say(self, name: str) -> None:
        """Say that a node is repaired, if it waits for that."""
        try:
            self.lines += repaired(cases_of(self.lines, 0), [name], self.now_s)
        except RepairError:
            return
        self.repaired_s[name] = self.now_s
        self.unknown = {each for each in self.unknown if each[0] != name}
        if self.random.random() < 0.7:
            self.servers[name].faults = []

    def _round(self, server: Server) -> None:
        """Make a round of a node's health check."""
        if not server.is_lost:
            server.round_s, server.seen = self.now_s, tuple(fault for fault, _cures in server.faults)

    def _node(self, name: str, is_asked: bool) -> RepairNode:
        """Return what a run reads of a node."""
        server = self.servers[name]
        answer = Answer(name, error="no answer: no route")
        if not server.is_lost:
            age_s = self.now_s - server.round_s
            words = {"drain": server.drain, "maintenance": server.maintenance}
            answer = Answer(name, age_s, 60.0, faults=server.seen, **words)
        return RepairNode(name, answer if is_asked else None, self.now_s, server.service, **server.facts)

    def run(self) -> Iterator[None]:
        """Make a run of the playbook; where it yields, it may be killed, and another one may go on."""
        choose = self.random
        only = None if choose.random() < 0.8 else frozenset(choose.sample(list(self.servers), 2))
        is_limited, can_swap = choose.random() < 0.5, choose.random() < 0.5
        for number in range(4):
            nodes = {name: self._node(name, not (only and is_limited) or name in only) for name in self.servers}
            yield
            watched = next((line.nodes for line in reversed(self.lines) if line.step == log.WATCH), 0)
            cases = cases_of(self.lines, self.now_s - self.settings.window_s)
            world = RepairWorld(nodes, cases, self.settings, self.now_s, only, watched, can_swap, number > 1)
            lines = log.parse(log.dump(decide(world)).encode(), "log")
            self.lines += lines
            for line in lines:
                if line.result == log.UNKNOWN:
                    self.unknown.add((line.node, line.fault, line.step))
                elif line.step == log.WORD:
                    self.servers[line.node].is_known = line.result == log.FOUND
            yield
            begun = [line for line in lines if line.result == log.BEGUN]
            choose.shuffle(begun)
            for line in begun:
                yield from self._carry_out(line)
            self.now_s += choose.choice([1, 20, 90])

    def _carry_out(self, line: log.RepairLine) -> Iterator[None]:
        choose = self.random
        if choose.random() < 0.04:
            self._end(line, is_well=False)
            return
        yield
        self.now_s += choose.choice([0, 1, 5, 60])
        self._effect(line)
        yield
        self.now_s += choose.choice([0, 1, 30])
        self._end(line, is_well=choose.random() < 0.9)
        if choose.random() < 0.8:
            self.now_s += 5
            self._round(self.servers[line.node])
        yield

    def _end(self, line: log.RepairLine, is_well: bool) -> None:
        results = (log.NOT_HELD, log.HELD) if line.step == PROVE else (log.FAILED, log.DONE)
        try:
            done = ended(cases_of(self.lines, 0), line.node, line.step, results[is_well], "", self.now_s)
        except RepairError:
            # Another run has gone on with the node since.
            return
        self.lines.append(done)

    def _effect(self, line: log.RepairLine) -> None:
        """Do a step, and check that it may be done."""
        server = self.servers[line.node]
        if line.step in (DRAIN, RETURN, *REPAIRS):
            self._check_word(line, server)
        if line.step == DRAIN:
            served = server.serves
            server.serve(is_out=True, reason=f"{OURS}{line.reading}")
            server.drain = server.drain if server.service else f"{OURS}x"
            if served:
                self._check_redundancy(line.node)
        elif line.step == RETURN:
            if any(fault.check not in WATCHED for fault in server.seen):
                raise BrokenRuleError(f"{line.node} is returned with {server.seen}")
            before = cases_of(self.lines, 0)[line.node].before
            is_kept = before.startswith(("sailloft-spare:", "sailloft-gate:"))
            server.serve(is_out=is_kept, reason=before if is_kept else "")
            server.drain = server.drain if server.service else ""
            self.unknown = {each for each in self.unknown if each[0] != line.node}
        elif line.step in REPAIRS:
            self._check_step(line, server)
            self.steps.append((line.node, line.fault, line.step, self.now_s))
            self._repair(line.step, server)

    def _repair(self, step: str, server: Server) -> None:
        if step == SWAP:
            return
        server.faults = [(fault, cures) for fault, cures in server.faults if step not in cures]
        server.serve(is_busy=False)
        if step in (REBOOT, REIMAGE):
            server.is_lost = self.random.random() < 0.1
            self._notice(server)
        if step == REIMAGE and server.service is None and self.random.random() < 0.5:
            server.drain = ""  # its state had no disk

    @staticmethod
    def _check_word(line: log.RepairLine, server: Server) -> None:
        """Check that no person keeps the node out, as far as anybody could know."""
        word = server.service.word if server.service else ""
        told = server.maintenance or ("" if server.drain.startswith(OURS.strip()) else server.drain)
        if word or (told and server.is_known):
            raise BrokenRuleError(f"{line.step} of {line.node}, which is out for {word or told}")

    def _check_step(self, line: log.RepairLine, server: Server) -> None:
        service = server.service
        is_drained = service.is_ours if service else server.drain.startswith(OURS.strip())
        if not is_drained and not server.is_lost:
            raise BrokenRuleError(f"{line.step} of {line.node}, which is not drained by us")
        if service and service.is_busy and not self.settings.kill_jobs:
            raise BrokenRuleError(f"{line.step} of {line.node} kills jobs")
        if (line.node, line.fault, line.step) in self.unknown:
            raise BrokenRuleError(f"{line.step} of {line.node} is repeated, and its outcome is not known")
        since_s = max(self.now_s - self.settings.window_s, self.repaired_s.get(line.node, 0.0))
        tried = [(fault, step) for node, fault, step, at_s in self.steps if node == line.node and at_s > since_s]
        if len(tried) >= self.settings.most_steps or tried.count((line.fault, line.step)) >= MOST_OF_A_STEP:
            raise BrokenRuleError(f"{line.step} of {line.node} is beyond its budget: {tried}")

    def _check_redundancy(self, drained: str) -> None:
        """Check that enough nodes are left after the drain of one that served."""
        servers = self.servers.values()
        if not self.servers[drained].is_spare:
            others = [server for server in servers if not server.is_spare]
            serving = sum(server.serves for server in others)
            spares = sum(server.serves or server.is_reserve for server in servers if server.is_spare)
            if serving + spares < len(others) - len(others) * self.settings.most_out // 100:
                raise BrokenRuleError(f"after the drain of {drained}, {serving} nodes and {spares} spares are left")
        for kind, most_out in self.settings.domain_most_out.items():
            for name in self.servers[drained].facts["domains"].get(kind, ()):
                members = [server for server in servers if name in server.facts["domains"].get(kind, ())]
                serving = sum(server.serves for server in members)
                if serving < len(members) - len(members) * most_out // 100:
                    raise BrokenRuleError(f"after the drain of {drained}, {serving} of {kind} {name} are left")
