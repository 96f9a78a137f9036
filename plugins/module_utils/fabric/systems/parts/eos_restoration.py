# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the lines that change an EOS configuration back to a backup. Sources: ``systems.eos``."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.eos import (
    INPUT,
    OWN_MAP,
    PROFILE,
    ROUTED,
    EosConfiguration,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.eos_settings import EosSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import OWN_NAME, CliLine, numbers

NOTHING = EosSettings(CliLine(0, ""))


def restoration(backup: str, running: str, name: str) -> str:
    """Return the lines that change ``running`` back to ``backup`` in all that a policy can change; "" if equal.

    They have the order of remediation's lines: profiles, maps of the whole switch, ports, and last the removal of this
    project's profiles that ``backup`` lacks. Ports that only ``backup`` has are left out.
    """
    former, model = EosConfiguration(backup, name), EosConfiguration(running, name)
    needed = {port_settings.get(PROFILE) for port_settings in former.ports.values()}
    lines = []
    for profile, settings in former.profiles.items():
        if profile in needed or OWN_NAME.fullmatch(profile):
            existing = model.profiles.get(profile)
            changes = _changes(settings, existing or NOTHING)
            lines += [f"qos profile {profile}", *changes] if changes or existing is None else []
    lines += _of_switch(former, model, backup)
    for port, settings in model.ports.items():
        changes = _changes(former.ports.get(port, NOTHING), settings)
        lines += [f"interface {port}", *changes] if changes else []
    lines += [
        f"no qos profile {profile}"
        for profile in model.profiles
        if OWN_NAME.fullmatch(profile) and profile not in former.profiles
    ]
    return "".join(f"{line}\n" for line in lines)


def _of_switch(former: EosConfiguration, model: EosConfiguration, backup: str) -> list[str]:
    """Return the lines for the settings of the whole switch."""
    lines = []
    former_map, coloured = former.dscp_map, former.coloured
    moved = {
        dscp
        for dscp, traffic_class in enumerate(former_map)
        if model.dscp_map[dscp] != traffic_class or (dscp in model.coloured - coloured)
    }
    for traffic_class in sorted({former_map[dscp] for dscp in moved}):
        dscps = numbers((dscp for dscp in moved if former_map[dscp] == traffic_class), " ")
        lines.append(f"qos map dscp {dscps} to traffic-class {traffic_class}")
    if coloured & moved or coloured - model.coloured:  # the number of the precedence is only in the line
        lines += [
            line for line in backup.splitlines() if line.startswith("qos map dscp ") and " drop-precedence " in line
        ]
    for traffic_class, queue in enumerate(former.queue_map):
        if model.queue_map[traffic_class] != queue:
            lines.append(f"qos map traffic-class {traffic_class} to tx-queue {queue}")
    if former.rewrites_dscp != model.rewrites_dscp:
        lines.append("qos rewrite dscp" if former.rewrites_dscp else "no qos rewrite dscp")
    if former.pfc_off != model.pfc_off:
        lines.append("priority-flow-control all off" if former.pfc_off else "no priority-flow-control all off")
    for family in {**former.hashes, **model.hashes}:
        hashed, present = former.hashes.get(family), model.hashes.get(family)
        if hashed and (not present or present.fields != hashed.fields):
            lines.append(hashed.text)
        elif present and not hashed:
            lines.append(f"no {present.head}")
    return lines


def _changes(wanted: EosSettings, existing: EosSettings) -> list[str]:
    """Return the lines that change a profile or a port from ``existing`` to ``wanted``; whether it is routed stays.

    Its own lines come before those of its queues: lines are sent without indentation, so a line after a queue's lines
    would belong to the queue.
    """
    lines = []
    for key, (_value, line) in existing.values.items():
        if key not in wanted.values and key != ROUTED:
            lines.append(f"   no {line.text}" if key in (INPUT, OWN_MAP, PROFILE) else f"   default {key}")
    for key, (value, line) in wanted.values.items():
        if key != ROUTED and (key not in existing.values or existing.get(key) != value):
            lines.append(f"   {line.text}")
    for queue in sorted({*wanted.queues, *existing.queues}):
        wanted_queue, existing_queue = wanted.queues.get(queue, {}), existing.queues.get(queue, {})
        texts = [f"      default {key}" for key in existing_queue if key not in wanted_queue]
        texts += [
            f"      {line.text}"
            for key, (value, line) in wanted_queue.items()
            if key not in existing_queue or existing_queue[key][0] != value
        ]
        if texts:
            lines += [f"   {wanted.heads.get(queue) or existing.heads[queue]}", *texts]
    return lines
