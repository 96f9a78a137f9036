# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the patches between two ConfigDBs of one switch. Requirements of the updater: ``systems.parts.sonic_patch``.

No headroom is removed while its priority pauses: a patch before all others ends the PFC of each priority whose group
one of them removes. The last patch sets it again where the target has it, together with the group: an image sets its
own profile for the group whenever ``pfc_enable`` changes. Until then the class can lose packets.

Keys that overlap with a new one ("3-4" with "3", "Ethernet0,Ethernet4" with "Ethernet0") are removed in a patch before
the last, because the updater does not know that they must be removed first. Until then their ports lack what they set.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import COMPUTED
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import (
    ConfigDb,
    Entry,
    references,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import (
    MAPS,
    PFC_TO_PG,
    PFC_TO_PG_TABLE,
)

# In the order of references: tables that others refer to come first.
SHARED = (*MAPS.values(), PFC_TO_PG_TABLE, "SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE")
BY_NUMBER = ("BUFFER_PG", "BUFFER_QUEUE", "QUEUE")  # tables whose keys have ports and numbers
BY_PORT = ("PORT_QOS_MAP", "PFC_WD")
OF_PORTS = ("PORT", "CABLE_LENGTH", "PORT_QOS_MAP", "BUFFER_PG", "BUFFER_QUEUE", "QUEUE", "PFC_WD", "SWITCH_HASH")


def difference(running: ConfigDb, target: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the patches from ``running`` to the tables ``target``, in order.

    The first ends the PFC of priorities whose headroom is removed, even if it is then added again; the next removes the
    keys that overlap with new ones.
    """
    removed_first = _overlapping(running, running.with_tables(target))
    unpaused = _unpaused(running, running.with_tables(target))
    maps = {**running.table("PORT_QOS_MAP"), **unpaused}
    now = {**running.tables, "PORT_QOS_MAP": maps} if unpaused else running.tables
    pauses = _entries("PORT_QOS_MAP", running.table("PORT_QOS_MAP"), maps)
    first: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    removals: list[dict[str, Any]] = []
    for table in (*SHARED, *OF_PORTS):
        old_entries, new_entries = now.get(table), target.get(table)
        if old_entries == new_entries:
            continue
        if new_entries is None:
            removals.append({"op": "remove", "path": _pointer(table)})
        elif old_entries is None:
            changes.append({"op": "add", "path": _pointer(table), "value": new_entries})
        else:
            changes += _entries(table, old_entries, new_entries)
            for key in sorted(old_entries.keys() - new_entries.keys()):
                removal = {"op": "remove", "path": _pointer(table, key)}
                (first if (table, key) in removed_first else removals).append(removal)
    return [operations for operations in (pauses, first, changes + removals[::-1]) if operations]


def _unpaused(running: ConfigDb, target: ConfigDb) -> dict[str, Entry]:
    """Return the entries of PORT_QOS_MAP, by key, without PFC of the priorities whose headroom ``target`` removes."""
    lossy_groups: dict[str, set[str]] = {}  # port -> groups
    for key, ports, numbers in running.rows("BUFFER_PG"):
        if _has_headroom(running, key) and not _has_headroom(target, key):
            for port in ports:
                lossy_groups.setdefault(port, set()).update(map(str, numbers))
    entries: dict[str, Entry] = {}
    for port, key in running.by_port("PORT_QOS_MAP").items():
        entry = entries.get(key, running.entry("PORT_QOS_MAP", key))
        name = running.reference("PORT_QOS_MAP", key, PFC_TO_PG, PFC_TO_PG_TABLE)
        group_of = running.entry(PFC_TO_PG_TABLE, name) if name else {}
        pfc = [number for number in str(entry.get("pfc_enable", "")).split(",") if number]
        lossless = [number for number in pfc if str(group_of.get(number, number)) not in lossy_groups.get(port, ())]
        if lossless != pfc:
            entries[key] = {**entry, "pfc_enable": ",".join(lossless)}
    return entries


def _overlapping(now: ConfigDb, target: ConfigDb) -> set[tuple[str, str]]:
    """Return table and key of the entries to remove whose ports and numbers an added entry of another key has."""
    overlapping = set()
    for table in (*BY_NUMBER, *BY_PORT):
        existing, wanted = _cells(now, table), _cells(target, table)
        added = set().union(*(cells for key, cells in wanted.items() if key not in existing))
        overlapping |= {(table, key) for key, cells in existing.items() if key not in wanted and cells & added}
    return overlapping


def _cells(db: ConfigDb, table: str) -> dict[str, set[tuple[str, int]]]:
    """Return the ports, with their queues or groups, that each key stands for."""
    if table in BY_NUMBER:
        return {key: {(port, number) for port in ports for number in numbers} for key, ports, numbers in db.rows(table)}
    cells: dict[str, set[tuple[str, int]]] = {}
    for port, key in db.by_port(table).items():
        cells.setdefault(key, set()).add((port, 0))
    return cells


def _has_headroom(db: ConfigDb, key: str) -> bool:
    """Return true where a group's profile has headroom, or the image computes it."""
    names = list(references(db.entry("BUFFER_PG", key)))
    return COMPUTED in names or any("xoff" in db.entry("BUFFER_PROFILE", name) for name in names)


def _entries(table: str, old_entries: dict[str, Entry], new_entries: dict[str, Entry]) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = []
    for key in sorted(new_entries):
        if key not in old_entries:
            changes.append({"op": "add", "path": _pointer(table, key), "value": new_entries[key]})
            continue
        old, new = old_entries[key], new_entries[key]
        for field in sorted({*old, *new}):
            path = _pointer(table, key, field)
            if field not in new:
                changes.append({"op": "remove", "path": path})
            elif field not in old:
                changes.append({"op": "add", "path": path, "value": new[field]})
            elif old[field] != new[field]:
                changes.append({"op": "replace", "path": path, "value": new[field]})
    return changes


def _pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
