# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the firmware and BIOS settings of many hosts with their baselines in one task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware import baseline, state
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.nodes import call_limit_s
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_fleet
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.shells import HostsOfTask, ReachedHost
from ansible_collections.sailloft.fleet.plugins.plugin_utils.print_lines import print_lines

MODULE = "sailloft.fleet.node_firmware"
KINDS = ("bios", "firmware")
OF_BMC = ("type", "address", "username", "password", "verify_tls", "ca", "system", "timeout_s")
# What a host needs beside the requests: to start Python.
START_S = 60.0


def kinds_of(host: ReachedHost) -> list[str]:
    """Return what is to be set on a host that has baselines: kinds of ``node_bmc_set``. Raises BaselineError."""
    kinds = host.variables.get("node_bmc_set") or []
    if not isinstance(kinds, (list, tuple)) or any(kind not in KINDS for kind in kinds):
        raise baseline.BaselineError(
            f"{kinds!r} is not a list of {' and '.join(KINDS)}", "correct it", subject=f"{host.name}: node_bmc_set"
        )
    return sorted(set(kinds)) if baselines_of(host) else []


def baselines_of(host: ReachedHost) -> Any:
    """Return ``node_bmc_baselines``, not checked."""
    return host.variables.get("node_bmc_baselines") or {}


def has_baselines(host: ReachedHost) -> bool:
    """Return whether a host has baselines, also ones that cannot be read: ``ask_firmware`` tells why."""
    try:
        return bool(baselines_of(host))
    except AnsibleError:
        return True


def place_of(host: ReachedHost) -> str:
    """Return the name of the host from which the BMC is accessed."""
    return str(host.variables.get("node_boot_bmc_from") or "localhost")


def bmc_of(host: ReachedHost) -> tuple[dict[str, Any], str]:
    """Return ``node_boot_bmc`` and why it cannot be used; empty if it can."""
    try:
        bmc = dict(host.variables.get("node_boot_bmc") or {})
    except AnsibleError as error:
        return {}, str(error)
    faults = ArgumentSpecValidator(OPTIONS).validate(bmc).error_messages
    return bmc, f"{host.name}: node_boot_bmc: {'; '.join(faults)}; correct the variable" if faults else ""


def ask_firmware(
    hosts: HostsOfTask, names: Iterable[str], set_kinds: bool, restarted: bool = False
) -> tuple[dict[str, NodeFirmware], list[dict[str, Any]]]:
    """Return what the BMCs of hosts with baselines show, and the diffs of what was sent.

    ``set_kinds``: whether what ``node_bmc_set`` of each host names is set; or, once ``restarted``, read back.
    """
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    answers: dict[str, NodeFirmware] = {}
    diffs: list[dict[str, Any]] = []
    for name in names:
        host = hosts(name)
        bmc, fault = bmc_of(host)
        try:
            kinds, place, baselines = kinds_of(host), place_of(host), baselines_of(host)
            baseline.read(baselines, name)
        except (SailloftError, AnsibleError) as error:
            fault = fault or str(error)
        if fault:
            answers[name] = NodeFirmware(error=boot_fleet.without_name(name, fault))
            continue
        kinds = kinds if set_kinds else []
        request = {"nodes": [], "set": kinds, "restarted": restarted, "host": place}
        account = {key: bmc[key] for key in OF_BMC if key in bmc}
        rows = calls.setdefault(f"{place} {kinds}", (place, request))[1]["nodes"]
        rows.append({"name": name, "bmc": account, "baselines": baselines})

    def ended(key: str, outcome: dict[str, Any] | Exception) -> None:
        place, request = calls[key]
        if isinstance(outcome, Exception):
            cause = f"{place}, which accesses its BMC: {boot_fleet.last_line(str(outcome))}"
            answers.update({row["name"]: NodeFirmware(error=cause) for row in request["nodes"]})
            return
        answers.update({name: NodeFirmware.of(row) for name, row in outcome["nodes"].items()})
        if outcome.get("changed"):
            diffs.append(outcome["diff"])

    hosts.call(MODULE, calls, ended, lambda key: START_S + call_limit_s(calls[key][1]["nodes"]))
    return answers, diffs


class ActionModule(ControllerAction):
    """Take one step with all named hosts."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "step": {"type": "str", "choices": ["compare", "set", "read_back"], "default": "compare"},
        "names": {"type": "list", "elements": "str", "required": True},
        "path": {"type": "path"},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        host = HostsOfTask(self, variables)
        names = [name for name in arguments["names"] if has_baselines(host(name))]
        without = sorted({*arguments["names"]}.difference(names))
        nodes, diffs = ask_firmware(host, names, arguments["step"] != "compare", arguments["step"] == "read_back")
        nodes = {name: nodes[name] for name in names}
        proved: dict[str, Any] = {}
        if arguments["path"]:
            proof = state.proof(nodes)
            proved = written(proof, page(proof), arguments["path"], self._task.check_mode)
        lines = state.lines(nodes)
        if without:
            lines.insert(0, f"{fold(without)}: not compared, without node_bmc_baselines")
        if arguments["step"] != "set":
            print_lines(lines)
        kinds = {name: [] if node.error else kinds_of(host(name)) for name, node in nodes.items()}
        failures = {
            name: node.error if arguments["step"] == "set" else node.why_not(kinds[name])
            for name, node in nodes.items()
        }
        return {
            "changed": bool(diffs or proved.get("changed")),
            "diff": [*diffs, *proved.get("diff", [])],
            "lines": lines,
            "holds": bool(nodes) and all(node.holds for node in nodes.values()),
            "to_set": [name for name, node in nodes.items() if not node.refused and node.to_set(kinds[name])],
            "refused": [name for name, node in nodes.items() if node.refused],
            "failures": {name: cause for name, cause in failures.items() if cause},
        }
