# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the BMCs of many hosts for their firmware in one task, by one call on each host that accesses BMCs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware import baseline
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.nodes import call_limit_s
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_fleet
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import OPTIONS
from ansible_collections.sailloft.fleet.plugins.plugin_utils.node_shells import HostsOfTask, ReachedHost

MODULE = "sailloft.fleet.node_firmware"
KINDS = ("bios", "firmware")
OF_BMC = ("type", "address", "username", "password", "verify_tls", "ca", "system", "timeout_s")
# What a host needs beside the requests: to start Python.
START_S = 60.0


def kinds_of(host: ReachedHost) -> list[str]:
    """Return what is to be set on a host that has baselines: kinds of ``bmc_set``."""
    return sorted(set(host.variables.get("bmc_set") or ()).intersection(KINDS)) if baselines_of(host) else []


def baselines_of(host: ReachedHost) -> dict[str, Any]:
    """Return ``bmc_baselines``."""
    return dict(host.variables.get("bmc_baselines") or {})


def place_of(host: ReachedHost) -> str:
    """Return the name of the host from which the BMC is accessed."""
    return str(host.variables.get("node_boot_bmc_from") or "localhost")


def bmc_of(host: ReachedHost) -> tuple[dict[str, Any], str]:
    """Return ``node_boot_bmc`` and why it cannot be used; empty if it can."""
    try:
        bmc = dict(host.variables.get("node_boot_bmc") or {})
    except AnsibleError as error:
        return {}, f"{host.name}: node_boot_bmc: {error}"
    faults = ArgumentSpecValidator(OPTIONS).validate(bmc).error_messages
    return bmc, f"{host.name}: node_boot_bmc: {'; '.join(faults)}; correct the variable" if faults else ""


def ask_firmware(
    hosts: HostsOfTask, names: Iterable[str], set_kinds: bool, restarted: bool = False
) -> tuple[dict[str, NodeFirmware], list[dict[str, Any]]]:
    """Return what the BMCs of hosts with baselines show, and the diffs of what was sent.

    ``set_kinds``: whether what ``bmc_set`` of each host names is set; or, once ``restarted``, read back.
    """
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    answers: dict[str, NodeFirmware] = {}
    diffs: list[dict[str, Any]] = []
    for name in names:
        host = hosts(name)
        bmc, fault = bmc_of(host)
        kinds, place = kinds_of(host) if set_kinds else [], place_of(host)
        given = {"nodes": [], "set": kinds, "restarted": restarted, "host": place}
        try:
            baseline.read(baselines_of(host), name)
        except baseline.BaselineError as error:
            fault = fault or str(error)
        if fault:
            answers[name] = NodeFirmware(error=fault)
            continue
        own = {key: bmc[key] for key in OF_BMC if key in bmc}
        rows = calls.setdefault(f"{place} {kinds}", (place, given))[1]["nodes"]
        rows.append({"name": name, "bmc": own, "baselines": baselines_of(host)})

    def ended(key: str, outcome: dict[str, Any] | Exception) -> None:
        place, given = calls[key]
        if isinstance(outcome, Exception):
            cause = f"{place}, which accesses its BMC: {boot_fleet.last_line(str(outcome))}"
            answers.update({row["name"]: NodeFirmware(error=cause) for row in given["nodes"]})
            return
        answers.update({name: NodeFirmware.of(row) for name, row in outcome["nodes"].items()})
        if outcome.get("changed"):
            diffs.append(outcome["diff"])

    hosts.call(MODULE, calls, ended, lambda key: START_S + call_limit_s(calls[key][1]["nodes"]))
    return answers, diffs
