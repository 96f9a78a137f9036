# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decide on the controller what is done next with each node, in one call for the fleet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ansible.module_utils.common.validation import check_type_list
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.repair import guards
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.cases import cases_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.decide import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.history import in_words
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log import BEGUN, IDLE, WATCH, RepairLine
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.log_file import LogFile, opened
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.proofs import proof_of
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import (
    COMMAND,
    NONE,
    OURS,
    SCHEDULERS,
    NodeService,
    OwnCommands,
    Scheduler,
    scheduler_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.table import DRAIN, EVICT, RETURN
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.words import repaired
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.world import (
    NodeProof,
    RepairNode,
    RepairSettings,
    RepairWorld,
)
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.domains import domains_of

PERCENT = values.within(0, 100)
NUMBERS = {
    "wait_s": values.within(0, 30 * 86400),
    "most_out": PERCENT,
    "together": values.within(2, 100000),
}
REASON_CHARACTERS = 120


class ActionModule(ControllerAction):
    """Read files and results, decide, and append to the log; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "path": {"type": "path", "required": True},
        "proofs": {"type": "path", "required": True},
        "nodes": {"type": "list", "elements": "str", "required": True},
        "only": {"type": "list", "elements": "str"},
        "scheduler": {"type": "str", "choices": [*SCHEDULERS, COMMAND], "required": True},
        "commands": {"type": "dict", "default": {}},
        "listed": {"type": "str"},
        "settings": {"type": "dict", "default": {}},
        "repaired": {"type": "list", "elements": "str", "default": []},
        "can_swap": {"type": "bool", "default": False},
        "ends_only": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        commands = Settings(RepairError, "node_repair_commands", arguments["commands"])
        commands.only("list", "drain", "return")
        commands_given = OwnCommands(*(commands.value(name, values.texts, []) for name in ("list", "drain", "return")))
        scheduler = scheduler_of(arguments["scheduler"], commands_given)
        if arguments["listed"] is None and scheduler.listing:
            # A first call only asks how to list.
            return {"changed": False, "listing": list(scheduler.listing)}
        services = scheduler.read(arguments["listed"] or "")
        _check_known(arguments["nodes"], [*(arguments["only"] or []), *arguments["repaired"]])
        with opened(arguments["path"], not self._task.check_mode) as log:
            lines = self._lines(log, arguments, scheduler, services, VariablesOfHosts(variables["hostvars"]))
            log.append(lines)
            reports = [in_words(line) for line in lines if line.step != WATCH]
        running = {line.node: line for line in lines if line.result == BEGUN}
        cases = cases_of(log.lines, 0.0)
        return {
            "changed": bool(lines),
            "listing": list(scheduler.listing),
            "lines": reports,
            "decisions": {
                name: {
                    "step": line.step,
                    "fault": line.fault,
                    "place": line.fault.partition(":")[2],
                    "kind": line.fault.partition("@")[2].partition(":")[0],
                    "reason": line.reason,
                    "command": _command(scheduler, line, cases[name].before if name in cases else ""),
                }
                for name, line in running.items()
            },
            "open": sorted(name for name, case in cases.items() if case.is_open),
            "waiting": sorted({line.node for line in lines if line.result in IDLE}),
        }

    def _lines(
        self,
        log: LogFile,
        arguments: dict[str, Any],
        scheduler: Scheduler,
        services: Mapping[str, NodeService],
        hostvars: Mapping[str, Any],
    ) -> list[RepairLine]:
        now_s = time.time()
        nodes = {
            name: _node(name, hostvars[name], services.get(name), arguments["proofs"]) for name in arguments["nodes"]
        }
        settings = _settings(arguments["settings"], arguments["scheduler"] != NONE, scheduler.evict is not None)
        since_s = now_s - settings.window_s
        person_lines = repaired(cases_of(log.lines, since_s), arguments["repaired"], now_s)
        watched = next((line.nodes for line in reversed(log.lines) if line.step == WATCH), 0)
        world = RepairWorld(
            nodes,
            cases_of([*log.lines, *person_lines], since_s),
            settings,
            now_s,
            None if arguments["only"] is None else frozenset(arguments["only"]),
            watched,
            arguments["can_swap"],
            arguments["ends_only"],
        )
        wrong = guards.wrong_clock(world, log.lines)
        if wrong:
            raise RepairError(wrong, "correct the clock, or the times in the log", subject="the controller's clock")
        kinds = sorted({kind for node in nodes.values() for kind in node.domains})
        unknown = sorted(set(settings.domain_most_out) - set(kinds))
        if unknown:
            cause = f"no node has a {unknown[0]!r:.60}; nodes have: {', '.join(kinds) or 'none'}"
            raise RepairError(cause, "correct the name, or set site_domains", subject="node_repair_domain_most_out")
        return [*person_lines, *decide(world)]


def _check_known(nodes: list[str], chosen: list[str]) -> None:
    unknown = sorted(set(chosen) - set(nodes))
    if unknown:
        raise RepairError(f"{unknown[0]!r:.80} is no node of gpu_nodes or gpu_guests", "correct the name")


def _settings(data: Any, has_scheduler: bool, evicts: bool) -> RepairSettings:
    settings = Settings(RepairError, "node_repair", data)
    settings.only(*NUMBERS, "kill_jobs", "domain_most_out")
    numbers = {name: settings.value(name, check) for name, check in NUMBERS.items() if name in settings.data}
    domains = Settings(RepairError, "node_repair_domain_most_out", settings.data.get("domain_most_out", {}))
    shares = {name: domains.value(name, PERCENT) for name in domains.data}
    kill = settings.value("kill_jobs", values.flag, False)
    return RepairSettings(**numbers, kill_jobs=kill, domain_most_out=shares, has_scheduler=has_scheduler, evicts=evicts)


def _node(name: str, variables: Mapping[str, Any], service: NodeService | None, proofs: str) -> RepairNode:
    """Return a node from its variables. A node outside of --limit was not asked."""
    read = variables.get("node_health_read")
    groups = variables.get("group_names") or []
    boots_image = "nodes" in groups and bool(variables.get("node_boot_mac"))
    # The boot of an image makes its own proof, or fails.
    needed: list[tuple[str, ...]] = [] if boots_image else [(f"{name}.json",)]
    # The role has checked their types, but converted them only for itself.
    if boolean(variables.get("node_repair_accept", True)):
        # An acceptance after a repair does not replace the first, with which it was compared.
        needed.append((f"acceptance-{name}.json", f"repaired/acceptance-{name}.json"))
    return RepairNode(
        name,
        None if read is None else answers.read(read),
        float(variables.get("__node_repair_asked_s") or 0),
        service,
        is_spare=variables.get("site_spare") is True,
        is_guest="gpu_guests" in groups,
        boots_image=boots_image,
        resets=tuple(check_type_list(variables.get("node_repair_resets", ["gpu"]))),
        domains=domains_of(name, variables),
        proofs=tuple(_proofs(proofs, needed)),
    )


def _proofs(folder: str, needed: Iterable[Iterable[str]]) -> Iterator[NodeProof]:
    """Yield the newest of the files of each proof, if there is one."""
    for names in needed:
        paths = [os.path.join(folder, name) for name in names]
        proofs = [(os.stat(path).st_mtime, path) for path in paths if os.path.exists(path)]
        if proofs:
            at_s, path = max(proofs)
            text = files.read(path)
            if text is not None:
                yield proof_of(os.path.basename(path), text, at_s)


def _command(scheduler: Scheduler, line: RepairLine, old_reason: str) -> list[str]:
    if line.step == DRAIN:
        return scheduler.drain(line.node, f"{OURS}{line.reading or line.reason}"[:REASON_CHARACTERS])
    if line.step == EVICT and scheduler.evict:
        return scheduler.evict(line.node)
    return scheduler.restore(line.node, old_reason) if line.step == RETURN else []
