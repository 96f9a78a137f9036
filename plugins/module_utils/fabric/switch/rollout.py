# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Take switches from their running configurations to the policy in stages, and back: the text to send to each, by
stage.

It is computed again before every stage, from the configurations read then. So the next run completes one that was
interrupted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.settings import Record
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import stages as migration
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import (
    file_of,
    parse_running,
    running_texts,
    wanted_switches,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import Qos, stages
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files

PORT_FIELDS = [each.name for each in fields(PortQos)]
EMPTY = PortQos()  # of a port that is not configured
RUN = re.compile(r"\d{8}T\d{6}Z")  # the role's name for a run's folder of backups


def planned(params: Mapping[str, Any], check_mode: bool, diff_mode: bool) -> dict[str, Any]:
    """Return the remaining stages, and what the first of them sends to each switch; also backups where requested.

    Raises FabricError, before anything is written, and ProofError where a backup cannot be written.

    A switch's stage is done in a later one where its system cannot hold that stage by itself (NVUE keeps headroom and
    PFC in one profile), and where removing PFC alone would mean rewriting configuration that is not this project's.
    """
    running = running_texts(params["running"])
    wanted = {name: switch for name, switch in wanted_switches(params).items() if name in running}
    for name in running:
        if name not in wanted:
            raise FabricError(f"switch {name}", "it is in running, but not in switches", "add it there")
    parsed = parse_running(running, params["switches"])
    now = {name: _comparable(switch, wanted[name]) for name, switch in parsed.items()}
    whole = {name: SYSTEMS[each.system].remediation(running[name], each) for name, each in wanted.items()}
    goal = Qos(wanted, _nics(params["nics_wanted"]))
    done: list[tuple[str, dict[str, str], list[str]]] = []
    for stage in stages(Qos(now, _nics(params["nics"])), goal):
        texts = {}
        for name, state in stage.switches.items():
            text = whole[name]
            if state != wanted[name]:
                text = _in_between(running[name], now[name], state, stage.name) if text else ""
            if text:
                texts[name] = text
        hosts = sorted({host for host, _nic in stage.nics})
        if texts or hosts:
            done.append((stage.name, texts, hosts))
    reached = {name for _stage, texts, _hosts in done for name in texts}
    rest = {name: text for name, text in whole.items() if text and name not in reached}
    if rest:  # what the terms of state do not distinguish
        done = _with(done, migration.SWITCHES_SET, rest)
    result: dict[str, Any] = {
        "changed": bool(done),
        "stages": [
            {"name": name, "step": migration.STEPS[name], "switches": list(texts), "hosts": hosts}
            for name, texts, hosts in done
        ],
        "table": [f"{at}. {name}: {', '.join([*texts, *hosts])}" for at, (name, texts, hosts) in enumerate(done, 1)]
        or ["all have the policy"],
        "changes": done[0][1] if done else {},
        "whole": {name: text for name, text in whole.items() if text},
        "boot": {
            name: SYSTEMS[each.system].render(each)
            for name, each in wanted.items()
            if getattr(SYSTEMS[each.system], "LOST_AT_BOOT", False)
        },
    }
    folder = params["backup_path"]
    path, names = _unfinished(folder, wanted) if folder else ("", [])
    result["unfinished"] = {"path": path, "switches": names}
    if folder and not check_mode:
        backups = {file_of(folder, wanted[name]): running[name] for name in result["whole"]}
        for path, text in backups.items():
            files.write(path, text, private=True)
    if diff_mode:
        result["diff"] = [
            {"before_header": name, "after_header": name, "before": "", "after": text}
            for name, text in result["whole"].items()
        ]
    return result


def _unfinished(folder: str, wanted: Mapping[str, Switch]) -> tuple[str, list[str]]:
    """Return (folder, switches) of the run before that of ``folder``, where it was not completed (a completed run has a
    file "finished"); the switches are those that it was to change.
    """
    above, own = os.path.split(folder.rstrip("/"))
    try:
        runs = sorted(name for name in os.listdir(above) if RUN.fullmatch(name) and name != own)
    except OSError:  # there was none
        return "", []
    if not runs or os.path.exists(os.path.join(above, runs[-1], "finished")):
        return "", []
    last = os.path.join(above, runs[-1])
    return last, [name for name, each in wanted.items() if os.path.exists(f"{file_of(last, each)}.change")]


def restored(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to send so that each switch is again as in its backup, and whether it is. Raises FabricError.

    Only for systems with a function ``restoration``; the others restore by their own means.
    """
    backup, running = running_texts(params["backup"]), running_texts(params["running"])
    before, now = (parse_running(texts, params["switches"]) for texts in (backup, running))
    changes = {}
    for name in running:
        if name not in backup:
            raise FabricError(f"switch {name}", "it has no backup", "give what was read before the change")
        restoration = getattr(SYSTEMS[now[name].system], "restoration", None)
        if restoration is not None:
            changes[name] = restoration(backup[name], running[name], name)
    return {
        "changed": False,
        "changes": {name: text for name, text in changes.items() if text},
        "as_before": {name: before[name] == now[name] and not changes.get(name) for name in running},
    }


def _comparable(seen: Switch, wanted: Switch) -> Switch:
    """Return ``seen`` on the wanted ports, with the wanted value of each setting its system does not show: no stage
    changes it.

    Used for the stages only. It is no observation, and no proof may be based on it.
    """
    not_held = SYSTEMS[wanted.system].NOT_HELD
    known: dict[tuple[int, int], PortQos] = {}

    def port(name: str) -> PortQos:
        qos, goal = seen.ports.get(name, EMPTY), wanted.ports[name]
        key = id(qos), id(goal)
        if key not in known:
            taken = {field: getattr(goal, field) for field in PORT_FIELDS if field in not_held}
            if qos.cable_m is None:
                taken["cable_m"] = goal.cable_m
            known[key] = replace(qos, **taken)
        return known[key]

    hashed = "ecmp_fields" in not_held
    return replace(
        wanted,
        ports={name: port(name) for name in wanted.ports},
        ecmp_fields=wanted.ecmp_fields if hashed else seen.ecmp_fields,
    )


def _in_between(running: str, now: Switch, state: Switch, stage: str) -> str:
    remediation = SYSTEMS[state.system].remediation
    try:
        if stage == migration.SWITCHES_LESS_PFC and remediation(running, now):
            return ""
        return remediation(running, state)
    except FabricError:  # the last stage is the policy itself, whose refusal is reported
        return ""


def _with(
    done: list[tuple[str, dict[str, str], list[str]]], stage: str, texts: dict[str, str]
) -> list[tuple[str, dict[str, str], list[str]]]:
    order = list(migration.STEPS)
    for name, there, _hosts in done:
        if name == stage:
            there.update(texts)
            return done
    return sorted([*done, (stage, texts, [])], key=lambda each: order.index(each[0]))


def _nics(given: Mapping[str, Any] | None) -> dict[migration.NicName, Nic]:
    known: dict[str, Nic] = {}
    return {
        (host, nic): nic_of(f"host {host}: NIC {nic}", data, known)
        for host, nics in (given or {}).items()
        for nic, data in Record(f"host {host}", nics).data.items()
    }
