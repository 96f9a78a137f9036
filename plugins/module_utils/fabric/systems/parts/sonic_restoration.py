# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the patches that change a ConfigDB back to a backup. Sources: ``systems.parts.sonic_patch``."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import ConfigDb, Entry
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import OWN
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_difference import (
    OF_PORTS,
    SHARED,
    difference,
)


def restoring_patches(backup_text: str, running_text: str, name: str) -> list[list[dict[str, Any]]]:
    """Return the patches, in the form of ``patches``, from ``running_text`` back to ``backup_text`` in the QoS tables.

    Of a port itself only the MTU changes. Maps and profiles that others added since stay. Raises FabricError where one
    of the two is not a ConfigDB, or the switch no longer has a port of the backup.
    """
    backup, running = ConfigDb(backup_text, name), ConfigDb(running_text, name)
    missing = sorted(backup.table("PORT").keys() - running.table("PORT").keys())
    if missing:
        raise FabricError(
            "the backup has this port, and the switch no longer has it",
            "restore the port first",
            subject=f"{name}: {missing[0]}",
        )
    tables = dict(running.tables)
    for table in (*SHARED, *OF_PORTS):
        existing, former = running.table(table), backup.table(table)
        if table in SHARED:
            entries = {**{key: entry for key, entry in existing.items() if not key.startswith(OWN)}, **former}
        elif table == "PORT":
            entries = {port: _with_mtu(entry, former.get(port, entry)) for port, entry in existing.items()}
        else:
            entries = dict(former)
        if table == "PFC_WD" and "GLOBAL" in existing:
            entries.setdefault("GLOBAL", existing["GLOBAL"])  # the updater never removes it
        tables[table] = entries
    tables = {table: entries for table, entries in tables.items() if entries or table not in (*SHARED, *OF_PORTS)}
    return difference(running, tables)


def _with_mtu(port: Entry, former: Entry) -> Entry:
    """Return ``port`` with the MTU of ``former``."""
    without_mtu = {field: value for field, value in port.items() if field != "mtu"}
    return {**without_mtu, "mtu": former["mtu"]} if "mtu" in former else without_mtu
