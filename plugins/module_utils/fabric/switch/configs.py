# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Implement the module roce_switch_config, for all switches of an inventory at once; it contacts no switch."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.diff import (
    Difference,
    differences,
    to_data,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Buffers, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import (
    Inventory,
    read_inventory,
    read_switches,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.overrides import problems
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import (
    plan,
    plan_possible,
    remarks,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import statements
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files

# The form of a file's name.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
READABLE = "its configuration can be read"
PLANNABLE = "the policy can be planned for it"


class FabricReadings(NamedTuple):
    """A fabric as the policy wants it, as read, and what describes it.

    ``seen``: the switches that were read, ``unread``: why others were not. ``refused``: why the policy cannot be
    planned for some of ``seen``, or their inventory is not valid.
    """

    wanted: dict[str, Switch]
    seen: dict[str, Switch]
    unread: dict[str, FabricError]
    refused: dict[str, FabricError]
    policy: Policy
    inventory: Inventory

    @property
    def comparable(self) -> dict[str, Switch]:
        """Return the switches that were read and planned, as read."""
        return {name: switch for name, switch in self.seen.items() if name in self.wanted}


def rendered(params: Mapping[str, Any], check_mode: bool, diff_mode: bool) -> dict[str, Any]:
    """Render configurations from the policy. Return them, or write them to ``path`` after all are rendered.

    ``table`` has a line for each file that differs, and the plan's remarks; the diff shows files that existed.

    Raises FabricError before anything is written, ProofError where a file cannot be read or written.
    """
    path = params["path"]
    texts: dict[str, str] = {}
    wanted = wanted_switches(params)
    for switch in wanted.values():
        name = file_of(path, switch) if path else switch.name
        texts[name] = SYSTEMS[switch.system].render(switch)
    if not path:
        return {"changed": False, "rendered": texts}
    old_texts = {name: files.read(name) for name in texts}
    differing = [name for name, text in texts.items() if old_texts[name] != text]
    if not check_mode:
        for name in differing:
            files.write(name, texts[name])
    rows = [(os.path.basename(name), _lines_changed(old_texts[name], texts[name])) for name in differing]
    width = max((len(name) for name, _change in rows), default=0)
    summary = f"{path}: {len(texts)} switches, {len(differing)} files {'to write' if check_mode else 'written'}"
    result: dict[str, Any] = {
        "changed": bool(differing),
        "files": list(texts),
        "written": differing,
        "table": [summary, *(f"  {name:<{width}}  {change}" for name, change in rows), *remarks(wanted)],
    }
    if diff_mode:
        # A new file is shown by the table: nobody reads thousands of lines before they are written.
        result["diff"] = [
            {"before_header": name, "after_header": name, "before": old_texts[name], "after": texts[name]}
            for name in differing
            if old_texts[name] is not None
        ]
    return result


def _lines_changed(old_text: str | None, new_text: str) -> str:
    """Return how a file changes, in words. Lines that only move are not counted: a fabric has thousands of files."""
    if old_text is None:
        return f"new, {len(new_text.splitlines())} lines"
    old, new = Counter(old_text.splitlines()), Counter(new_text.splitlines())
    return f"+{sum((new - old).values())} -{sum((old - new).values())} lines"


def file_of(folder: str, switch: Switch) -> str:
    """Return a switch's file in ``folder``. Raises FabricError where the switch's name is not valid for a file."""
    if not FILE_NAME.fullmatch(switch.name):
        raise FabricError(
            "the name is not a valid file name",
            "use letters, digits, '.', '_' and '-'",
            subject=f"switch {switch.name}",
        )
    return os.path.join(folder, f"{switch.name}.{switch.system}")


def parsed(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return running configurations as data. Raises FabricError."""
    parsed_switches = parse_running(running_texts(params["running"]), params["switches"])
    return {"changed": False, "parsed": {name: to_data(switch) for name, switch in parsed_switches.items()}}


def parse_running(running: Mapping[str, Any], switches: Mapping[str, Any]) -> dict[str, Switch]:
    """Parse running configurations by switch, each for its system in ``switches``. Raises FabricError."""
    parsed_switches, unread = parse_readable(running, switches)
    for error in unread.values():
        raise error
    return parsed_switches


def parse_readable(
    running: Mapping[str, Any], switches: Mapping[str, Any]
) -> tuple[dict[str, Switch], dict[str, FabricError]]:
    """Parse running configurations as ``parse_running``; return those that can be read, and why the others cannot.

    Raises FabricError for a switch that is not in ``switches``.
    """
    parsed_switches: dict[str, Switch] = {}
    unread: dict[str, FabricError] = {}
    for name, running_text in running.items():
        if name not in switches:
            raise FabricError("it is in running, but not in switches", "add it there", subject=f"switch {name}")
        try:
            settings = Settings(FabricError, f"switch {name}", switches[name]).data
            system = _system(settings.get("system"), name)
            text, buffer = _text(name, running_text), settings.get("queue_buffer_bytes")
            if system.parse_sized is not None and isinstance(buffer, int):
                parsed_switches[name] = system.parse_sized(text, name, buffer)
            else:
                parsed_switches[name] = system.parse(text, name)
        except FabricError as error:
            unread[name] = error
    return parsed_switches, unread


def compared(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences between each running configuration and the policy. Raises FabricError."""
    return compare(wanted_and_seen(params))


def compare(readings: FabricReadings) -> dict[str, Any]:
    """Return the differences of the switches that were given, in the form of ``compared``."""
    differences_found: dict[str, list[dict[str, Any]]] = {
        name: [{"ports": [], "what": source, "wanted": wanted, "seen": error.cause, "message": str(error)}]
        for errors, source, wanted in (
            (readings.unread, READABLE, "all of it"),
            (readings.refused, PLANNABLE, "a plan"),
        )
        for name, error in errors.items()
    }
    for name, seen_switch in readings.comparable.items():
        switch = readings.wanted[name]
        system = SYSTEMS[switch.system]
        undoing = [Difference(*problem[:4]) for problem in problems(seen_switch, switch.speeds_gbit_s, switch)]
        differences_found[name] = [
            {
                "ports": list(difference.ports),
                "what": difference.what,
                "wanted": difference.wanted,
                "seen": difference.seen,
                "message": f"{name}: {difference}",
            }
            for difference in [*differences(switch, seen_switch, system.not_held), *undoing]
        ]
    return {
        "changed": False,
        "differences": differences_found,
        "as_wanted": not any(differences_found.values()),
        "not_held": {name: dict(SYSTEMS[switch.system].not_held) for name, switch in readings.comparable.items()},
    }


def left_to_change(wanted: Mapping[str, Switch], running: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    """Return what the policy would still change in a running configuration that has no ``differences``.

    These are settings that the terms of ``qos`` do not distinguish. At most one is returned, in the form of
    ``compared``'s results.
    """
    try:
        text = SYSTEMS[wanted[name].system].remediation(running[name], wanted[name])
    except FabricError as error:
        text = str(error)
    if not text:
        return []
    line = next(line.strip() for line in text.splitlines() if line.strip() not in ("", "[", "#!/bin/sh", "set -eu"))
    if line in ("{", '[{"set": {'):  # a document (cumulus, dell_sonic)
        line = next(statements(json.loads(text, object_pairs_hook=_with_removals), "")).strip()
    change = {"ports": [], "what": "what the policy would still change", "wanted": "nothing", "seen": line}
    return [{**change, "message": f"{name}: {change['what']}: wanted nothing, seen {line}"}]


def _with_removals(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a document, in which null removes a setting, as one with words for null."""
    return {key: "removed" if value is None else value for key, value in pairs}


def wanted_switches(params: Mapping[str, Any]) -> dict[str, Switch]:
    """Return the QoS that the policy gives all switches, by name. Raises FabricError."""
    return plan(read_policy(params["policy"]), read_switches(params["switches"], params["hosts"], params["asics"]))


def wanted_and_seen(params: Mapping[str, Any]) -> FabricReadings:
    """Return what ``read_fabric`` returns. Raises FabricError, also without any running configuration."""
    return read_fabric({**params, "running": running_texts(params["running"])})


def read_fabric(params: Mapping[str, Any]) -> FabricReadings:
    """Return the QoS that the policy gives all switches, and that of the running configurations. Raises FabricError."""
    policy = read_policy(params["policy"])
    inventory = read_inventory(params["switches"], params["hosts"], params["asics"])
    seen, unread = parse_readable(params["running"], params["switches"])
    wanted, unplanned = plan_possible(policy, inventory.specs, buffers_of(seen))
    refused = {name: error for name, error in {**inventory.refused, **unplanned}.items() if name in seen}
    return FabricReadings(wanted, seen, unread, refused, policy, inventory)


def buffers_of(seen: Mapping[str, Switch]) -> dict[str, Buffers]:
    """Return the buffers of the switches that show them, by name."""
    return {name: switch.buffers for name, switch in seen.items() if switch.buffers is not None}


def running_texts(running: Mapping[str, Any] | None) -> dict[str, str]:
    """Return running configurations as texts, by switch. Raises FabricError."""
    if not running:
        raise FabricError("it is empty", "give each switch's running configuration as text, by name", subject="running")
    return {str(name): _text(name, running_text) for name, running_text in running.items()}


def _text(name: Any, running_text: Any) -> str:
    if isinstance(running_text, (dict, list)):  # Ansible before 2.19 converts text that is JSON to data
        return json.dumps(running_text)
    if not isinstance(running_text, str):
        raise FabricError(
            "its running configuration is not a string", "give it as it was read", subject=f"switch {name}"
        )
    return running_text


def _system(system: Any, name: str) -> SwitchSystem:
    switch_system = SYSTEMS.get(system) if isinstance(system, str) else None
    if switch_system is None:
        raise FabricError(
            f"system {system!r} is unknown",
            f"valid values: {', '.join(sorted(SYSTEMS)) or 'none'}",
            subject=f"switch {name}",
        )
    return switch_system
