# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute what to send to each switch to restore its backup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import backups
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import (
    parse_readable,
    parse_running,
    running_texts,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.rollout import back_up, not_read, refused


def restored(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return what to send to restore each switch to its backup, and whether it is as in the backup.

    With ``restore_path``, the backups are the files of that directory; switches without one stay as they are. An empty
    ``running`` then only checks the backups of all switches. In check mode, ``left_out`` has the refusals of devices
    that cannot be read, and the others are compared. Raises FabricError, before anything is written, and ProofError.
    """
    path, switches = params["restore_path"], params["switches"]
    left_out = not_read(params, check_mode)
    only_checks = path and params["running"] == {}
    running, unread = ({}, {}) if only_checks else _configurations(running_texts(params["running"]), switches)
    left_out += refused(unread, check_mode)
    if path:
        names = switches if only_checks else running
        specs = {name: Settings(FabricError, f"switch {name}", switches[name]).data for name in names}
        backup = backups.read(path, {name: str(spec.get("system")) for name, spec in specs.items()})
    else:
        readings = running_texts(params["backup"])
        for name in running:
            if name not in readings:
                raise FabricError("it has no backup", "give what was read before the change", subject=f"switch {name}")
        former_readings = {name: readings[name] for name in running}
        parse_running(former_readings, switches)  # refuses a backup that cannot be read
        backup, _unread = _configurations(former_readings, switches)
    now = {name: switch for name, switch in parse_running(running, switches).items() if name in backup}
    former = parse_running({name: backup[name] for name in (backup if only_checks else now)}, switches)
    changes = {
        name: SYSTEMS[switch.system].restoration(backup[name], running[name], name) for name, switch in now.items()
    }
    changes = {name: text for name, text in changes.items() if text}
    if not check_mode:
        back_up(params["backup_path"], {name: running[name] for name in changes}, now)
    return {
        "changed": False,
        "changes": changes,
        "as_before": {
            **dict.fromkeys(unread),
            **{name: name not in changes and _matches(switch, former[name]) for name, switch in now.items()},
        },
        "boot": {
            name: boot_configuration(backup[name], name)
            for name, switch in now.items()
            if (boot_configuration := SYSTEMS[switch.system].boot_configuration)
        },
        "left_out": left_out,
    }


def _configurations(
    readings: Mapping[str, str], switches: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, FabricError]]:
    """Return the part of each reading that is the switch's configuration, as a backup has it; and why others have none.

    Raises FabricError for a switch that is not in ``switches``.
    """
    parsed, unread = parse_readable(readings, switches)
    configurations = {name: SYSTEMS[switch.system].configuration(readings[name]) for name, switch in parsed.items()}
    return configurations, unread


def _matches(now: Switch, former: Switch) -> bool:
    """Return true where ``now`` has the settings that ``former`` shows. A change that is empty tells the rest."""
    system = SYSTEMS[former.system]
    shown = [field.name for field in fields(PortQos) if field.name not in system.not_held]
    return now.ecmp_fields == former.ecmp_fields and all(
        port in now.ports and all(getattr(now.ports[port], field) == getattr(qos, field) for field in shown)
        for port, qos in former.ports.items()
    )
