# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute what each remaining stage sends to its switches, from what the stage before leaves. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import stages as migration
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.stages import ORDER, Qos, stages


@dataclass
class StageChange:
    """One remaining stage: the text to send to each of its switches, and the hosts whose NICs change.

    Only the texts of the first stage are sent; those of the others tell what they interrupt.
    """

    stage: str
    texts: dict[str, str]
    hosts: list[str]

    @property
    def devices(self) -> list[str]:
        """Return the names of the switches and hosts that change."""
        return [*self.texts, *self.hosts]

    def interruptions(self, wanted: Mapping[str, Switch]) -> dict[str, list[str]]:
        """Return what the stage interrupts, as far as the vendors say, with the switches."""
        switches: dict[str, list[str]] = {}
        for name, text in self.texts.items():
            for pattern, interruption in SYSTEMS[wanted[name].system].interruptions.items():
                if re.search(pattern, text):
                    switches.setdefault(interruption, []).append(name)
        return switches


def remaining_changes(
    running: Mapping[str, str], now: Qos, goal: Qos, whole_changes: Mapping[str, str]
) -> list[StageChange]:
    """Return the remaining stages in order, each with at least one device."""
    remaining = []
    staged: dict[str, str] = {}  # the configurations of switches after an earlier stage
    for stage in stages(now, goal):
        texts = {}
        for name, state in stage.switches.items():
            if name not in whole_changes:
                continue
            if state != goal.switches[name]:
                text = _intermediate(staged.get(name, running[name]), now.switches[name], state, stage.name)
            else:
                text = _last(staged[name], state) if name in staged else ""
                text = text or whole_changes[name]
            if text:
                texts[name] = text
                staged[name] = _left(staged.get(name, running[name]), text, state)
        hosts = sorted({host for host, _nic in stage.nics})
        if texts or hosts:
            remaining.append(StageChange(stage.name, texts, hosts))
    planned_now = {name for change in remaining for name in change.texts}
    # Settings that the terms of model/qos.py do not distinguish.
    unassigned = {name: text for name, text in whole_changes.items() if name not in planned_now}
    return _with_texts(remaining, migration.SWITCHES_SET, unassigned) if unassigned else remaining


def _intermediate(running: str, now: Switch, state: Switch, stage: str) -> str:
    """Return the change to an intermediate state; "" where the switch skips it."""
    remediation = SYSTEMS[state.system].remediation
    if any(queue and queue.unknown_ecn for qos in state.distinct_ports() for queue in qos.queues):
        return ""  # thresholds that are not known in bytes cannot be kept
    try:
        if stage == migration.SWITCHES_LESS_PFC and remediation(running, now):
            return ""
        return remediation(running, state)
    except FabricError:  # the last stage is the policy itself, whose refusal is reported
        return ""


def _last(running: str, goal: Switch) -> str:
    """Return the change to the policy; "" where it cannot be computed from what an earlier stage may leave."""
    try:
        return SYSTEMS[goal.system].remediation(running, goal)
    except FabricError:
        return ""


def _left(running: str, change: str, state: Switch) -> str:
    """Return a configuration with the settings that a change to ``state`` leaves."""
    system = SYSTEMS[state.system]
    try:
        return system.applied(running, change) if system.applied else system.render(state)
    except FabricError:
        return running


def _with_texts(changes: list[StageChange], stage: str, texts: dict[str, str]) -> list[StageChange]:
    """Return ``left`` with ``texts`` added to ``stage``."""
    for change in changes:
        if change.stage == stage:
            change.texts.update(texts)
            return changes
    return sorted([*changes, StageChange(stage, texts, [])], key=lambda item: ORDER.index(item.stage))
