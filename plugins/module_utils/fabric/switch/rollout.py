# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute what to send to each switch, stage by stage, to change it to the policy.

The stages are computed again before each stage, from the configurations read at that time. So the next run completes an
interrupted one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End, buffer_cycle
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import check_name, nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import backups
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import stages as migration
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import (
    file_of,
    running_texts,
    wanted_and_seen,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.overrides import problems
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import remarks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stage_changes import (
    StageChange,
    remaining_changes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import ORDER, Qos

PORT_FIELDS = [port_field.name for port_field in fields(PortQos)]
EMPTY = PortQos()  # of a port that is not configured
RUN = re.compile(r"\d{8}T\d{6}Z")  # the role's name for a run's directory of backups


def planned(params: Mapping[str, Any], check_mode: bool, diff_mode: bool) -> dict[str, Any]:
    """Return the remaining stages, and what the first of them sends to each switch; write backups where requested.

    Raises FabricError, before anything is written, and ProofError where a backup cannot be written.

    A switch's stage is done together with a later one where its system cannot hold that stage alone (NVUE keeps
    headroom and PFC in one profile), and where removing PFC alone would rewrite configuration that is not this
    project's.

    In check mode, the other switches are planned where a device was not read, or the configuration of a switch cannot
    be read or changed to the policy; ``left_out`` has the refusals. Otherwise they are raised: a stage is safe only if
    the state of all devices is known, because the next one pauses what they must be able to hold.
    """
    left_out = not_read(params, check_mode)
    readings = wanted_and_seen(params)
    seen = readings.comparable
    _check_cycles(readings.policy, readings.inventory.fabric)
    running = running_texts(params["running"])
    whole_changes, unchangeable = _whole_changes(running, {name: readings.wanted[name] for name in seen})
    left_out += refused({**readings.unread, **readings.refused, **unchangeable}, check_mode)
    wanted = {name: readings.wanted[name] for name in seen if name not in unchangeable}
    now = Qos({name: comparable_switch(seen[name], switch) for name, switch in wanted.items()}, _nics(params["nics"]))
    goal = Qos(wanted, _nics(params["nics_wanted"]))
    remaining = remaining_changes(running, now, goal, whole_changes)
    _check_progress(params.get("done"), remaining)
    result = {
        "changed": bool(remaining),
        **_summary(remaining, wanted, bool(goal.nics), is_part=len(wanted) < len(params["switches"])),
        "left_out": left_out,
        "whole": whole_changes,
        "boot": _boot_configurations(wanted),
        "unfinished": _unfinished(params["backup_path"], wanted),
    }
    unchanged = {name: switch for name, switch in wanted.items() if name not in whole_changes}
    result["table"] += [*_remaining_problems(seen, unchanged), *remarks(wanted)]
    result["table"] += _unlinked_nics(readings.inventory.fabric, params["hosts"] or {})
    if not check_mode:
        back_up(params["backup_path"], {name: running[name] for name in whole_changes}, wanted)
    if diff_mode:
        result["diff"] = [
            {"before_header": name, "after_header": name, "before": "", "after": text}
            for name, text in whole_changes.items()
        ]
    return result


def not_read(params: Mapping[str, Any], check_mode: bool) -> list[str]:
    """Return a sentence about the devices in ``unread``, none without any.

    Raises FabricError instead, except in check mode if a switch was read.
    """
    names = params.get("unread") or []
    if not names:
        return []
    count = sum(len(params.get(option) or ()) for option in ("unread", "running", "nics"))
    without = ":".join(f"!{name}" for name in names)
    error = FabricError(
        ", ".join(names),
        f"correct the causes above, or leave these devices out: --limit 'all:{without}'",
        subject=f"{len(names)} of {count} devices were not read",
    )
    if check_mode and params["running"]:
        return [str(error)]
    raise error


def refused(errors: Mapping[str, FabricError], check_mode: bool) -> list[str]:
    """Return a sentence about the switches that cannot be read or changed, none without any.

    Raises FabricError instead, except in check mode.
    """
    if not errors:
        return []
    reasons = "; ".join(str(error) for error in errors.values())
    without = ":".join(f"!{name}" for name in errors)
    error = FabricError(
        f"not changed, because the configuration cannot be read or changed: {reasons}",
        f"or change only the other switches: --limit 'all:{without}'",
        subject=", ".join(errors),
    )
    if check_mode:
        return [str(error)]
    raise error


def _check_cycles(policy: Policy, fabric: Cabling) -> None:
    """Refuse a lossless class on links whose pauses can wait for each other in a circle."""
    lossless = policy.lossless
    cycle = buffer_cycle(fabric) if lossless else []
    if cycle:
        raise FabricError(
            f"these links form a circle, in which pauses of class {lossless[0].name} can wait for each other for ever",
            "remove a link of the circle, or make the class lossy",
            subject=" -> ".join([cycle[0][0], *(switch for _switch, switch in cycle)]),
        )


def _whole_changes(
    running: Mapping[str, str], wanted: Mapping[str, Switch]
) -> tuple[dict[str, str], dict[str, FabricError]]:
    """Return the change to the policy, all stages in one, where one is needed; and why others cannot be changed."""
    texts: dict[str, str] = {}
    refused: dict[str, FabricError] = {}
    for name, switch in wanted.items():
        try:
            texts[name] = SYSTEMS[switch.system].remediation(running[name], switch)
        except FabricError as error:
            refused[name] = error
    return {name: text for name, text in texts.items() if text}, refused


def _check_progress(last_stage: str | None, remaining: list[StageChange]) -> None:
    """Refuse to repeat a stage. Otherwise, a device that accepts a change without making it would get it repeatedly."""
    if last_stage is None:
        return
    if last_stage not in ORDER:
        raise FabricError(f"there is no stage {last_stage!r}", f"the stages are: {', '.join(ORDER)}", subject="done")
    if remaining and ORDER.index(remaining[0].stage) <= ORDER.index(last_stage):
        raise FabricError(
            f"the change was sent, but is missing when read back ({remaining[0].stage})",
            "check what the device logged, and whether something else configures it",
            subject=", ".join(remaining[0].devices),
        )


def _summary(
    remaining: list[StageChange], wanted: Mapping[str, Switch], has_nics: bool, is_part: bool
) -> dict[str, Any]:
    """Return the remaining stages in the module's terms."""
    first = ORDER.index(remaining[0].stage) if remaining else len(ORDER)
    return {
        "stages": [
            {
                "name": change.stage,
                "step": migration.STEPS[change.stage],
                "switches": list(change.texts),
                "hosts": change.hosts,
                "interruptions": change.interruptions(wanted),
            }
            for change in remaining
        ],
        # Sending one stage can make a later stage possible that is refused now, so the run goes through all of these.
        "possible_stages": [name for name in ORDER[first:] if has_nics or name not in migration.NIC_STAGES],
        "table": [
            line
            for number, change in enumerate(remaining, 1)
            for line in (
                f"{number}. {change.stage}: {', '.join(change.devices)}",
                *(f"   {fold(names)}: {text}" for text, names in change.interruptions(wanted).items()),
            )
        ]
        or [f"all {'that were read and planned ' if is_part else ''}have the policy"],
        "changes": remaining[0].texts if remaining else {},
    }


def _remaining_problems(seen: Mapping[str, Switch], wanted: Mapping[str, Switch]) -> list[str]:
    """Return a line for each finding about switches that have the policy, with their names; no run changes it."""
    names: dict[str, set[str]] = {}
    for name, switch in wanted.items():
        for _ports, claim, goal, value, _consequence in problems(seen[name], switch.speeds_gbit_s, switch):
            names.setdefault(f"{claim}: wanted {goal}, seen {value}", set()).add(name)
    return [f"not held, and not changed: {text}: {fold(sorted(switches))}" for text, switches in names.items()]


def _unlinked_nics(fabric: Cabling, hosts: Mapping[str, Any]) -> list[str]:
    """Return a line for each NIC of roce_host_nics, with its hosts, that is the peer of no switch's port."""
    hosts_by_nic: dict[str, list[str]] = {}
    for host, nics in hosts.items():
        names = Settings(FabricError, f"host {host}: roce_host_nics", {} if nics is None else nics).data
        for nic in names:
            if End(host, nic) not in fabric.peer:
                hosts_by_nic.setdefault(nic, []).append(host)
    return [
        f"warning: no port of roce_switch_ports has NIC {nic} as its peer, so nothing is planned for its link (a guest "
        f"needs none): {fold(names)}"
        for nic, names in hosts_by_nic.items()
    ]


def _boot_configurations(wanted: Mapping[str, Switch]) -> dict[str, str]:
    """Return the whole configuration of each switch whose system keeps nothing over a reboot."""
    volatile = {name: switch for name, switch in wanted.items() if SYSTEMS[switch.system].boot_configuration}
    return {name: SYSTEMS[switch.system].render(switch) for name, switch in volatile.items()}


def _unfinished(folder: str | None, wanted: Mapping[str, Switch]) -> dict[str, Any]:
    """Return the run before the one of ``folder``, if it was not completed (a completed run has a file "finished").

    ``path`` is the run's directory, "" where there is none; ``switches`` are those that it was to change and to save.
    """
    nothing: dict[str, Any] = {"path": "", "switches": []}
    if not folder:
        return nothing
    parent, run_name = os.path.split(folder.rstrip("/"))
    try:
        runs = sorted(name for name in os.listdir(parent) if RUN.fullmatch(name) and name != run_name)
    except OSError:  # there was no earlier run
        return nothing
    if not runs or os.path.exists(os.path.join(parent, runs[-1], "finished")):
        return nothing
    last = os.path.join(parent, runs[-1])
    unsaved = {name: switch for name, switch in wanted.items() if not SYSTEMS[switch.system].saves_with_change}
    touched = [name for name, switch in unsaved.items() if os.path.exists(f"{file_of(last, switch)}.change")]
    return {"path": last, "switches": touched}


def back_up(folder: str | None, texts: Mapping[str, str], switches: Mapping[str, Switch]) -> None:
    """Write the configurations of the switches that change, by name. Raises ProofError."""
    if folder and texts:
        systems = {name: SYSTEMS[switches[name].system] for name in texts}
        backups.write(
            folder, {file_of("", switches[name]): systems[name].configuration(text) for name, text in texts.items()}
        )


def comparable_switch(seen: Switch, wanted: Switch) -> Switch:
    """Return ``seen`` on the wanted ports, with the wanted value of each setting that its system does not show.

    So no stage changes such a setting. The result is for the stages only: it is not an observation, and no proof may be
    based on it.
    """
    not_held = SYSTEMS[wanted.system].not_held
    comparable: dict[tuple[int, int], PortQos] = {}

    def port(name: str) -> PortQos:
        qos, goal = seen.ports.get(name, EMPTY), wanted.ports[name]
        key = id(qos), id(goal)
        if key not in comparable:
            wanted_values = {field: getattr(goal, field) for field in PORT_FIELDS if field in not_held}
            if qos.cable_m is None:
                wanted_values["cable_m"] = goal.cable_m
            comparable[key] = replace(qos, **wanted_values)
        return comparable[key]

    hashed = "ecmp_fields" in not_held
    return replace(
        wanted,
        ports={name: port(name) for name in wanted.ports},
        ecmp_fields=wanted.ecmp_fields if hashed else seen.ecmp_fields,
    )


def _nics(nics_by_host: Mapping[str, Any] | None) -> dict[migration.NicName, Nic]:
    distinct: dict[str, Nic] = {}
    nics_read = {}
    for host, nics in (nics_by_host or {}).items():
        for nic, data in Settings(FabricError, f"host {host}", nics).data.items():
            subject = f"host {host}: NIC {nic}"
            nics_read[host, nic] = nic_of(subject, data, distinct)
            check_name(subject, nics_read[host, nic], nic)
    return nics_read
