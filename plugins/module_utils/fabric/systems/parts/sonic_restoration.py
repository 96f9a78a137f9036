# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the patches that change a ConfigDB back to a backup. Sources: ``systems.parts.sonic_patch``."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import ConfigDb, Entry
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import OWN
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_patch import (
    OF_PORTS,
    SHARED,
    difference,
)

BY_NUMBER = ("BUFFER_PG", "BUFFER_QUEUE", "QUEUE")  # tables whose keys have ports and numbers
BY_PORT = ("PORT_QOS_MAP", "PFC_WD")


def restoring_patches(before: str, now: str, name: str) -> list[list[dict[str, Any]]]:
    """Return the patches, in the form of ``patches``, that change ``now`` back to ``before`` in the tables of QoS.

    Of a port itself only the MTU changes. Maps and profiles that others added since stay. Raises FabricError where one
    of the two is not a ConfigDB, or the switch no longer has a port of the backup.
    """
    backup, running = ConfigDb(before, name), ConfigDb(now, name)
    missing = sorted(backup.table("PORT").keys() - running.table("PORT").keys())
    if missing:
        raise FabricError(
            f"{name}: {missing[0]}",
            "the backup has this port, and the switch no longer has it",
            "restore the port first",
        )
    tables = dict(running.tables)
    for table in (*SHARED, *OF_PORTS):
        there, former = running.table(table), backup.table(table)
        if table in SHARED:
            entries = {**{key: each for key, each in there.items() if not key.startswith(OWN)}, **former}
        elif table == "PORT":
            entries = {port: _with_mtu(each, former.get(port, each)) for port, each in there.items()}
        else:
            entries = dict(former)
        if table == "PFC_WD" and "GLOBAL" in there:
            entries.setdefault("GLOBAL", there["GLOBAL"])  # the updater never removes it
        tables[table] = entries
    tables = {table: entries for table, entries in tables.items() if entries or table not in (*SHARED, *OF_PORTS)}
    return difference(running.tables, tables, _overlapping(running, running.with_tables(tables)))


def _with_mtu(port: Entry, former: Entry) -> Entry:
    """Return ``port`` with the MTU of ``former``."""
    other = {field: value for field, value in port.items() if field != "mtu"}
    return {**other, "mtu": former["mtu"]} if "mtu" in former else other


def _overlapping(now: ConfigDb, target: ConfigDb) -> set[tuple[str, str]]:
    """Return table and key of the entries to remove whose ports and numbers an added entry of another key has."""
    found = set()
    for table in (*BY_NUMBER, *BY_PORT):
        there, wanted = _cells(now, table), _cells(target, table)
        added = set().union(*(cells for key, cells in wanted.items() if key not in there))
        found |= {(table, key) for key, cells in there.items() if key not in wanted and cells & added}
    return found


def _cells(db: ConfigDb, table: str) -> dict[str, set[tuple[str, int]]]:
    """Return the ports, with their queues or groups, that each key stands for."""
    if table in BY_NUMBER:
        return {key: {(port, at) for port in ports for at in numbers} for key, ports, numbers in db.rows(table)}
    cells: dict[str, set[tuple[str, int]]] = {}
    for port, key in db.by_port(table).items():
        cells.setdefault(key, set()).add((port, 0))
    return cells
