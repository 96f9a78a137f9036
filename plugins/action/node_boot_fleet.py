# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read, drain, restart, wait for and prove many nodes in one task: no process and no module for each on the controller.

What the inventory says of a node is read from its own variables, as a task on it would. A node that fails has the
reason in its row, and does not stop the others.

One file because all steps reach the nodes and keep their rows in the same way.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.sailloft.fleet.plugins.action import node_boot_scripts
from ansible_collections.sailloft.fleet.plugins.action.node_firmware_fleet import (
    START_S,
    ask_firmware,
    bmc_of,
    kinds_of,
    place_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.tail import LOG_DIR
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.at_once import at_once
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_fleet
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_fleet import (
    DRAIN,
    HEALTH,
    RETURN,
    BootRow,
    BootWait,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_wait import BootAnswer, Limits, summary
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import (
    ExpectedImage,
    Gate,
    SeenNode,
    prove,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.domains import domains_of
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.shells import HostsOfTask, ReachedHost
from ansible_collections.sailloft.fleet.plugins.plugin_utils.print_lines import print_lines

INFO, RESTART = "sailloft.fleet.node_image_info", "sailloft.fleet.node_boot_restart"
CONSOLE = "sailloft.fleet.node_console_info"
MASK = "********"
# A command that drains a node waits for its jobs; a health check measures.
COMMAND_S = 86400.0


@dataclass(frozen=True)
class ProvedImage:
    """The image that a node is to run: its digest, the channel that names it, and what is known of it.

    ``channel`` is empty for a pin; ``manifest`` is the text of manifest.json; ``prediction`` that of pcrs.json, empty
    if there is none.
    """

    digest: str
    channel: str
    manifest: str
    prediction: str


def prove_node(
    name: str,
    variables: Mapping[str, Any],
    image: ProvedImage,
    state: dict[str, Any],
    gate: Gate | None,
    arguments: dict[str, Any],
    check_mode: bool,
) -> dict[str, Any]:
    """Write the proof of a node, and return its result as a module's, also if it does not hold or cannot be made.

    ``arguments``: ``path``, the directory of the proofs; ``sequence``, that of the statement; and whether the node was
    ``booted`` by this run.
    """
    try:
        row, files = node_boot_scripts.node_row(name, variables), node_boot_scripts.files_of(name, variables)
        expected = ExpectedImage.of_text(
            image.digest,
            image.manifest,
            NodePlan.of_options(name, {**row, **arguments, "prediction": image.prediction, "files": files}),
            image.channel,
            row["kernel_arguments"],
            node_boot_scripts.texts(name, "node_boot_units_may_fail", variables),
        )
        proof = prove(name, expected, SeenNode(state, gate))
        return written(proof, page(proof), arguments["path"], check_mode)
    except SailloftError as error:
        return {**error.result(), "failed": True, "msg": f"{name}: {boot_fleet.without_name(name, str(error))}"}
    except AnsibleError as error:
        return {"failed": True, "msg": str(error)}


def slurped(results: list[dict[str, Any]]) -> dict[str, str]:
    """Return the texts of files, by the item of the loop of ansible.builtin.slurp that read them."""
    return {row["item"]: base64.b64decode(row["content"]).decode() for row in results if "content" in row}


class ActionModule(ControllerAction):
    """Take one step with all named nodes."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "step": {
            "type": "str",
            "required": True,
            "choices": ["look", "drain", "drained", "boot", "prove", "return", "returned", "spares"],
        },
        "names": {"type": "list", "elements": "str", "required": True},
        "rows": {"type": "dict", "default": {}},
        "channel": {"type": "str"},
        "manifests": {"type": "list", "elements": "dict", "default": []},
        "predictions": {"type": "list", "elements": "dict", "default": []},
        "sequence": {"type": "int", "default": 0},
        "path": {"type": "path", "default": "proofs"},
        "http_boot": {"type": "bool", "default": True},
        "read_s": {"type": "int", "default": 120},
        "title": {"type": "str", "default": ""},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        self._given = arguments
        self._host = HostsOfTask(self, variables)
        self._programs: dict[str, bytes] = {}
        self._diffs: list[dict[str, Any]] = []
        self._changed = False
        request, names = self._given, self._given["names"]
        self._rows = {name: BootRow.of(request["rows"].get(name, {})) for name in names}
        if request["channel"] is not None:
            for row in self._rows.values():
                row.channel = request["channel"]
        self._manifests, self._predictions = slurped(request["manifests"]), slurped(request["predictions"])
        due: list[str] = getattr(self, f"_{request['step']}")()
        return {
            "changed": self._changed,
            "diff": self._diffs,
            "rows": {name: row.to_dict() for name, row in self._rows.items()},
            "due": due,
            "booting": [name for name, row in self._rows.items() if row.boots],
        }

    # The steps. Each returns the nodes whose hook, a file of tasks, is to run next.

    def _look(self) -> list[str]:
        """Read all nodes, and prove those that run their image."""
        states = self._read(self._rows)
        running = []
        for name, row in self._rows.items():
            if name not in states or not self._given_to(name, row, states[name]):
                row.needed = False
            elif row.needed and (fault := bmc_of(self._host(name))[1]):
                row.needed = False
                row.fails(fault)
            elif row.image and row.running == row.image and not row.forced:
                running.append(name)
        return self._prove_all({name: states[name].state or {} for name in running})

    def _given_to(self, name: str, row: BootRow, answer: BootAnswer) -> bool:
        """Take note of what a node runs, and of its variables. Return False if one is wrong: it is not booted."""
        with self._alone(name):
            variables = self._host(name).variables
            files = node_files.digest_of(node_boot_scripts.files_of(name, variables))
            row.look(answer, self._arguments(name), files, self._flag(name, "node_boot_force"))
            row.tasks = self._tasks_of(name)
            row.mac = str(variables.get("node_boot_mac") or "")
            row.spare = self._flag(name, "site_spare")
            row.domains = domains_of(name, variables)
            row.power_kw = float(variables.get("node_boot_power_kw") or 0)
            self._limits(name)
            return True
        return False

    def _drain(self) -> list[str]:
        """Take the nodes that are to boot out of service."""
        if self._task.check_mode:
            return []
        boots = [name for name, row in self._rows.items() if row.needed]
        for name in boots:
            self._rows[name].begin()
            # A node that is to be erased was not looked at.
            with self._alone(name):
                self._rows[name].tasks = self._tasks_of(name)
        self._commands([name for name in boots if self._rows[name].boots], DRAIN)
        return [name for name in boots if self._rows[name].boots and DRAIN in self._rows[name].tasks]

    def _drained(self) -> list[str]:
        """Take note which nodes the tasks have not taken out of service."""
        for name, row in self._rows.items():
            if row.boots and DRAIN in row.tasks:
                row.failed_if(self._ran(name, DRAIN))
        return []

    def _boot(self) -> list[str]:
        """Restart the nodes, wait until they have booted, and prove them."""
        if self._task.check_mode:
            shown = boot_fleet.would_boot({name: row for name, row in self._rows.items() if row.needed})
            print_lines(shown)
            self._changed = self._changed or bool(shown)
            return []
        self._drained()
        set_on = self._set_firmware([name for name, row in self._rows.items() if row.boots])
        states = self._wait(self._restart([name for name, row in self._rows.items() if row.boots]))
        self._read_back(name for name in set_on if name in states)
        return self._prove_all({name: state for name, state in states.items() if not self._rows[name].why})

    def _prove(self) -> list[str]:
        """Prove the nodes whose health check, a file of tasks, has ended."""
        names = [name for name, row in self._rows.items() if row.unproven]
        for name, answer in self._read(names).items():
            row, failure = self._rows[name], self._ran(name, HEALTH)
            title = str(self._hook(name, HEALTH).get("tasks"))
            if answer.state is None:
                row.fails(f"it does not answer after its health check: {answer.why}")
            else:
                self._write_proof(name, answer.state, Gate(title, not failure, failure))
        return []

    def _return(self) -> list[str]:
        """Return the proven nodes to service."""
        if self._task.check_mode:
            return []
        back = [name for name, row in self._rows.items() if row.returns]
        self._commands(back, RETURN)
        for name in back:
            self._rows[name].out = RETURN in self._rows[name].tasks or not self._rows[name].holds
        return [name for name in back if self._rows[name].returns]

    def _spares(self) -> list[str]:
        """Return spares to service, in place of other nodes."""
        for row in self._rows.values():
            row.out, row.spare = True, False
        return self._return()

    def _returned(self) -> list[str]:
        """Take note which nodes the tasks have returned to service."""
        for name, row in self._rows.items():
            if row.returns and not self._task.check_mode:
                row.failed_if(self._ran(name, RETURN))
                row.out = not row.holds
        return []

    # What the steps share.

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Let a wrong variable of a node fail this node, and no other."""
        try:
            yield
        except (AnsibleError, SailloftError, AttributeError, LookupError, TypeError, ValueError) as error:
            cause = boot_fleet.without_name(name, boot_fleet.last_line(str(error)))
            self._rows[name].fails(f"{name}: its variables: {cause}{'' if '; ' in cause else '; correct them'}")

    def _hook(self, name: str, hook: str) -> dict[str, Any]:
        return dict(self._host(name).variables.get(hook) or {})

    def _tasks_of(self, name: str) -> list[str]:
        """Return the hooks of a node that are files of tasks."""
        return [hook for hook in (DRAIN, HEALTH, RETURN) if "tasks" in self._hook(name, hook)]

    def _limits(self, name: str) -> Limits:
        variables = self._host(name).variables
        return Limits(
            self._rows[name].boot_id,
            float(variables.get("node_boot_restart_timeout_s") or 120),
            float(variables.get("node_boot_timeout_s") or 1800),
        )

    def _reached(self, names: Iterable[str], hook: str, usual: str) -> dict[str, tuple[ReachedHost, list[str]]]:
        """Return the host and the command of a hook for each node that has one; ``usual`` is the host, if it is named.

        Each host's connection is made here, in the main thread.
        """
        reached: dict[str, tuple[ReachedHost, list[str]]] = {}
        for name in names:
            with self._alone(name):
                settings = self._hook(name, hook)
                if "command" in settings:
                    if not isinstance(settings["command"], (list, tuple)):
                        raise ValueError(f"{hook}.command is not a list of words")
                    place = self._host(str(settings.get("host") or usual or name))
                    place.shell  # noqa: B018 see above
                    reached[name] = (place, [str(part) for part in settings["command"]])
        return reached

    def _flag(self, name: str, setting: str) -> bool:
        return bool(boolean(self._host(name).variables.get(setting) or False))

    def _arguments(self, name: str) -> list[str]:
        """Return the kernel arguments that the node is to have."""
        manifest = self._manifests.get(self._rows[name].image)
        of_node = list(self._host(name).variables.get("node_boot_kernel_arguments") or [])
        return [*json.loads(manifest)["kernel_arguments"], *of_node] if manifest else of_node

    def _ran(self, name: str, hook: str) -> str:
        """Return why the tasks of a hook failed on the node; empty if they did not."""
        ran = self._host(name).variables.get("__node_boot_ran") or {}
        if ran.get("hook") != hook:
            return f"the tasks of {hook} have not ended; the node or the host that they run on was lost"
        return str(ran.get("failure") or "")

    def _program(self, host: ReachedHost) -> bytes:
        if host.interpreter not in self._programs:
            self._programs[host.interpreter] = host.shell.program(INFO, {}, host.values)
        return self._programs[host.interpreter]

    def _ask(self, name: str) -> BootAnswer:
        """Return the answer of a node; runs in a thread."""
        host = self._host(name)
        try:
            return BootAnswer(host.shell.module(self._programs[host.interpreter], host.interpreter))
        except AnsibleConnectionFailure as error:
            return BootAnswer(why=boot_fleet.last_line(str(error)))

    def _read(self, names: Iterable[str]) -> dict[str, BootAnswer]:
        """Return the answers of the nodes whose variables say how to reach them."""
        answers: dict[str, BootAnswer] = {}
        chosen: list[str] = []
        for name in names:
            with self._alone(name):
                self._host(name).shell  # noqa: B018 it is made here, in the main thread
                self._program(self._host(name))
                chosen.append(name)
        at_once(chosen, self._ask, lambda name, outcome: answers.update({name: self._answer(outcome)}), self._read_s)
        return {name: answers[name] for name in chosen}

    def _read_s(self, _name: str) -> float:
        return float(self._given["read_s"])

    def _answer(self, outcome: BootAnswer | Exception) -> BootAnswer:
        if isinstance(outcome, BootAnswer):
            return outcome
        if isinstance(outcome, TimeoutError):
            return BootAnswer(why=f"it hangs: no answer in {self._given['read_s']} s")
        return BootAnswer(why=boot_fleet.last_line(f"{type(outcome).__name__}: {outcome}"))

    def _commands(self, names: list[str], hook: str) -> None:
        """Run the command of a hook for each node that has one; a failure is the node's."""
        reached = self._reached(names, hook, "localhost")

        def ended(name: str, outcome: dict[str, Any] | Exception) -> None:
            place, command = reached[name]
            self._rows[name].failed_if(boot_fleet.command_failure(name, command, place.name, outcome))

        at_once(reached, lambda name: reached[name][0].shell.command(reached[name][1]), ended, lambda _name: COMMAND_S)
        self._changed = self._changed or bool(reached)

    def _set_firmware(self, names: list[str]) -> list[str]:
        """Set what differs from the baselines of nodes, for their restart; return the nodes that have one to keep."""
        with_baselines = []
        for name in names:
            with self._alone(name):
                with_baselines += [name] if kinds_of(self._host(name)) else []
        nodes, diffs = ask_firmware(self._host, with_baselines, set_kinds=True)
        self._diffs += diffs
        for name, node in nodes.items():
            self._rows[name].failed_if(node.error and f"{name}: not restarted, because of node_bmc_set: {node.error}")
        return with_baselines

    def _read_back(self, names: Iterable[str]) -> None:
        """Compare nodes with what was set before their restart; one that has something else fails."""
        nodes, _diffs = ask_firmware(self._host, names, set_kinds=True, restarted=True)
        for name, node in nodes.items():
            cause = node.why_not(kinds_of(self._host(name)))
            self._rows[name].failed_if(
                cause and f"{name}: it has booted, and not all is as node_bmc_set wants: {cause}"
            )

    def _restart(self, names: list[str]) -> dict[str, float]:
        """Restart nodes through their BMCs, one call for each host that accesses them; return when each began."""
        by_place: dict[str, list[dict[str, Any]]] = {}
        for name in names:
            bmc, fault = bmc_of(self._host(name))
            if fault:
                self._rows[name].fails(fault)
                continue
            with self._alone(name):
                by_place.setdefault(place_of(self._host(name)), []).append(
                    {"node": name, "bmc": bmc, "http_boot": self._given["http_boot"]}
                )
        began: dict[str, float] = {}

        def ended(place: str, outcome: dict[str, Any] | Exception) -> None:
            now_s = time.monotonic()
            for row in by_place[place]:
                name, node = row["node"], self._rows[row["node"]]
                if isinstance(outcome, Exception):
                    node.fails(boot_fleet.lost_place(name, place, outcome))
                    continue
                told = outcome["nodes"][name]
                node.restarted(told["msg"], told["requested"])
                if told["requested"]:
                    began[name] = now_s - told["since_s"]

        calls = {place: (place, {"nodes": nodes, "host": place}) for place, nodes in by_place.items()}
        self._host.call(RESTART, calls, ended, lambda place: START_S + boot_fleet.restart_limit_s(by_place[place]))
        self._changed = self._changed or bool(names)
        return began

    def _wait(self, began: dict[str, float]) -> dict[str, dict[str, Any]]:
        """Wait until the nodes have booted, and return their states; a node that does not boot fails."""
        waits, states, elapsed = {}, {}, {}
        for name, began_s in began.items():
            host, row = self._host(name), self._rows[name]
            waits[name] = BootWait(name, self._limits(name), began_s, time.monotonic(), host.shell.port(), row.doubt)
            self._program(host)
        shown = boot_fleet.BootProgress(self._given["title"], len(waits), print_lines)
        failed: list[str] = []

        def attempt(name: str) -> BootAnswer | None:
            return self._ask(name) if waits[name].worth_asking() else None

        def ended(name: str, outcome: BootAnswer | Exception | None) -> float | None:
            wait, answer = waits[name], None if outcome is None else self._answer(outcome)
            try:
                state = wait.judge(answer, time.monotonic())
            except SailloftError as error:
                self._rows[name].fails(str(error))
                failed.append(name)
            else:
                shown.tell(wait, time.monotonic())
                if state is None:
                    return wait.pause_s(time.monotonic())
                states[name] = state
                elapsed[name] = time.monotonic() - began[name]
            shown.ended(name, name in states, time.monotonic())
            return None

        shown.begin(waits)
        at_once(waits, attempt, ended, self._read_s)
        if elapsed:
            slowest = max(elapsed, key=lambda name: elapsed[name])
            print_lines([f"{slowest}, the last one: {summary(states[slowest], round(elapsed[slowest], 1))}"])
        self._show_consoles({name: began[name] for name in failed})
        return states

    def _show_consoles(self, began: dict[str, float]) -> None:
        """Show what nodes that did not boot wrote on their consoles, with the last line in their rows.

        Why a node did not boot is the news: that a console cannot be read is no failure of its own.
        """
        calls: dict[str, tuple[str, dict[str, Any]]] = {}
        for name, began_s in began.items():
            variables = self._host(name).variables
            place = str(variables.get("node_bmc_console_server") or "")
            log_dir = str(variables.get("node_bmc_console_dir") or LOG_DIR)
            if place:
                _place, request = calls.setdefault(f"{place} {log_dir}", (place, {"nodes": [], "log_dir": log_dir}))
                request["nodes"].append({"name": name, "since_s": time.monotonic() - began_s})

        def ended(key: str, outcome: dict[str, Any] | Exception) -> None:
            if isinstance(outcome, Exception):
                print_lines([f"{key}: the consoles cannot be read: {boot_fleet.last_line(str(outcome))}"])
                return
            for name, console in outcome["nodes"].items():
                secret = str(bmc_of(self._host(name))[0].get("password") or "")
                lines = [line.replace(secret, MASK) if secret else line for line in console["lines"]]
                print_lines(lines, name)
                self._rows[name].why += f"; {console['msg'] or f'the last line of its console: {lines[-1]}'}"

        self._host.call(CONSOLE, calls, ended, lambda _key: START_S)

    def _prove_all(self, states: dict[str, dict[str, Any]]) -> list[str]:
        """Run the health checks of nodes, and write their proofs; return those whose check is a file of tasks."""
        due = [name for name in states if HEALTH in self._rows[name].tasks]
        for name in due:
            self._rows[name].unproven = True
        running = {name: state for name, state in states.items() if not self._rows[name].unproven}
        reached = self._reached(running, HEALTH, "")

        def ended(name: str, outcome: dict[str, Any] | Exception) -> None:
            place, command = reached[name]
            title = " ".join(command)
            failure = boot_fleet.command_failure(name, command, place.name, outcome)
            output = boot_fleet.command_output(outcome) if isinstance(outcome, dict) else failure
            self._write_proof(name, running[name], Gate(title, not failure, output))

        at_once(reached, lambda name: reached[name][0].shell.command(reached[name][1]), ended, self._health_s)
        for name in running:
            if name not in reached and not self._rows[name].why:
                self._write_proof(name, running[name], None)
        return [] if self._task.check_mode else due

    def _health_s(self, name: str) -> float:
        """Return the time limit of a health check: a node that was not booted has to answer as to a reading."""
        booted = self._rows[name].booted
        return float(self._host(name).variables.get("node_boot_timeout_s") or 1800) if booted else self._read_s(name)

    def _write_proof(self, name: str, state: dict[str, Any], gate: Gate | None) -> None:
        row = self._rows[name]
        arguments = {"booted": row.booted, **{key: self._given[key] for key in ("sequence", "path")}}
        image = ProvedImage(
            row.image,
            row.channel,
            self._manifests.get(row.image, ""),
            self._predictions.get(row.image, ""),
        )
        variables, check_mode = self._host(name).variables, self._task.check_mode
        result = prove_node(name, variables, image, state, gate, arguments, check_mode)
        row.proven_by(state, bool(result.get("holds")), str(result.get("msg") or ""))
        self._changed = self._changed or bool(result.get("changed"))
        self._diffs += result.get("diff") or []
