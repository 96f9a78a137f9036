# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the lines that change an NX-OS configuration back to a backup. Sources: ``systems.nxos``."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.nxos import (
    INPUT,
    NETWORK,
    OUTPUT,
    WATCHDOG,
    NxosConfiguration,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import (
    MTU,
    OWN_NAME,
    CliLine,
    CliSettings,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.nxos_change import (
    Tree,
    object_changes,
)

POLICIES = (INPUT, OUTPUT, NETWORK)
NOTHING = CliSettings()


def restoration(backup: str, running: str, name: str) -> str:
    """Return the lines that change ``running`` back to ``backup`` in all that a policy can change; "" if equal.

    They have the order of remediation's lines: the switch's watchdog and hash, objects, the system's policies, the
    ports, and last the removal of this project's objects that ``backup`` lacks. Ports that only ``backup`` has are left
    out.
    """
    former, model = NxosConfiguration(backup, name), NxosConfiguration(running, name)
    lines = _of_switch(former, model, backup)
    attached = set().union(*(former.names_of(place) for place in (former.system, *former.ports.values())))
    policies = [line for key, line in former.policy_maps.items() if key in attached or OWN_NAME.fullmatch(key[1])]
    matched = {entry.text.split(" ")[-1] for line in policies for entry in line.children}
    class_maps = [line for key, line in former.class_maps.items() if key[1] in matched or OWN_NAME.fullmatch(key[1])]
    for line in (*class_maps, *policies):
        lines += object_changes(model, line.text, _tree(line))
    system = _changes(former.system, model.system)
    lines += ["system qos", *system] if system else []
    for port, settings in model.ports.items():
        changes = _changes(former.ports.get(port, NOTHING), settings)
        lines += [f"interface {port}", *changes] if changes else []
    return "".join(f"{line}\n" for line in [*lines, *_removals(former, model)])


def _of_switch(former: NxosConfiguration, model: NxosConfiguration, backup: str) -> list[str]:
    lines = []
    if former.watchdog_on != model.watchdog_on:
        lines.append(f"{WATCHDOG} {'on' if former.watchdog_on else 'off'}")
    lines += [f"{key} {number}" for key, number in former.watchdog.items() if model.watchdog[key] != number]
    if former.ecmp_fields != model.ecmp_fields:
        hashed = [line for line in backup.splitlines() if line.startswith("ip load-sharing address ")]
        lines += hashed or ["no ip load-sharing"]
    return lines


def _tree(line: CliLine) -> Tree:
    return {child.text: _tree(child) for child in line.children}


def _changes(wanted: CliSettings, existing: CliSettings) -> list[str]:
    """Return the lines that change system or port from ``existing`` to ``wanted``: policies are detached first."""
    lines = []
    for key, (value, line) in existing.values.items():
        if key not in wanted.values or (key in POLICIES and wanted.get(key) != value):
            lines.append(f"  no {MTU if key == MTU else line.text}")
    return [*lines, *(f"  {line.text}" for key, (value, line) in wanted.values.items() if existing.get(key) != value)]


def _removals(former: NxosConfiguration, model: NxosConfiguration) -> list[str]:
    """Return the lines that remove this project's objects that ``former`` lacks: policy maps use class maps."""
    return [
        *(f"no policy-map type {kind} {name}" for kind, name in model.policy_maps
          if OWN_NAME.fullmatch(name) and (kind, name) not in former.policy_maps),
        *(f"no {line.text}" for key, line in model.class_maps.items()
          if OWN_NAME.fullmatch(key[1]) and key not in former.class_maps),
    ]  # fmt: skip
