# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a ConfigDB has beside the terms of ``qos``: overrides, speeds and port channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Override
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import (
    EGRESS_LOSSLESS,
    INGRESS_POOL,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import (
    NOT_PORTS,
    RANGE,
    ConfigDb,
    listed,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import LINK, SIZE, SONIC

# The tables of sonic-yang-models that can change what packets get, with the fields of PORT that can; no other table
# can, except for those that the reader of ``qos`` reads wholly.
_TABLES = (
    "ACL_RULE",
    "ACL_TABLE",
    "ARS_OBJECT",
    "BUFFER_POOL",
    "BUFFER_PORT_EGRESS_PROFILE_LIST",
    "BUFFER_PORT_INGRESS_PROFILE_LIST",
    "BUFFER_PROFILE",
    "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
    "FLEX_COUNTER_TABLE",
    "LLR_PORT",
    "PBH_RULE",
    "PFC_WD",
    "PORTCHANNEL",
    "PORT_QOS_MAP",
    "PORT_STORM_CONTROL",
    "QUEUE",
    "SCHEDULER",
    "SRV6_MY_SIDS",
    "SWITCH_HASH",
    "SWITCH_TRIMMING",
    "TUNNEL",
    "VLAN_SUB_INTERFACE",
)
_POOL = "BUFFER_POOL"
_DEFAULT_LAG_MTU_BYTES = 9100  # sonic-swss, cfgmgr/teammgr.cpp
_PORT_FIELDS = ("admin_status", "autoneg", "macsec", "pfc_asym")
# Table -> the tables whose entries are of ports and refer to it, with the field.
_REFERENCES = {
    "BUFFER_PROFILE": (
        ("BUFFER_PG", "profile"),
        ("BUFFER_QUEUE", "profile"),
        ("BUFFER_PORT_INGRESS_PROFILE_LIST", "profile_list"),
        ("BUFFER_PORT_EGRESS_PROFILE_LIST", "profile_list"),
    ),
    "SCHEDULER": (("QUEUE", "scheduler"),),
}


def overrides(db: ConfigDb) -> tuple[Override, ...]:
    """Return the entries that can change what packets get. Raises FabricError where a table is invalid."""
    causes = [
        Override(f"PORT|{port} {field} {entry[field]}", effect, (port,))
        for port, entry in db.table("PORT").items()
        for field in _PORT_FIELDS
        if field in entry and (effect := SONIC.effect(f"PORT {field} {entry[field]}"))
        # A port that advertises only its own speed has no other.
        if field != "autoneg" or db.texts("PORT", port, "adv_speeds") != [db.text("PORT", port, "speed")]
    ]
    causes += [  # sonic-port.yang: a port is down unless it is set up. A part of a ConfigDB has no lanes.
        Override(f"PORT|{port} has no admin_status up", LINK, (port,))
        for port, entry in db.table("PORT").items()
        if "lanes" in entry and "admin_status" not in entry
    ]
    causes += _upper_mtus(db)
    pausing = {port for port, key in db.by_port("PORT_QOS_MAP").items() if db.text("PORT_QOS_MAP", key, "pfc_enable")}
    for table in _TABLES:
        for key, entry in db.table(table).items() if table in db.tables else ():
            for field, value in entry.items():
                effect = SONIC.effect(f"{table} {_kind(db, table, key, entry, pausing)}{field} {value}")
                ports = _ports(db, table, key, field) if effect else None
                if effect and ports is not None:
                    causes.append(Override(f"{table}|{key} {field} {value}", effect, ports))
    return tuple(causes)


def _upper_mtus(db: ConfigDb) -> Iterator[Override]:
    """Yield the MTU of each port channel, which its members have, too, and of each VLAN that has an interface."""
    for lag in lags(db):
        mtu = db.number("PORTCHANNEL", lag, "mtu", 1, 9216) or _DEFAULT_LAG_MTU_BYTES
        yield Override(f"{lag} mtu {mtu}", SIZE, (lag,), mtu)
    for vlan in dict.fromkeys(key.partition("|")[0] for key in db.table("VLAN_INTERFACE")):
        vlan_mtu = db.number("VLAN", vlan, "mtu", 1, 9216) if vlan in db.table("VLAN") else None
        members = [key.partition("|") for key in db.table("VLAN_MEMBER")]
        ports = tuple(port for name, _bar, port in members if name == vlan)
        if vlan_mtu is not None and ports:
            yield Override(f"VLAN|{vlan} mtu {vlan_mtu}", SIZE, ports, vlan_mtu)


def _kind(db: ConfigDb, table: str, key: str, entry: dict[str, Any], pausing: set[str]) -> str:
    """Return "strict " for a queue that no class has (a multicast queue) and that comes before all others, or "".

    Return "lossy " for the profiles of a port in ``pausing``, if none of them is in the pool of its lossless packets.
    """
    if table.startswith("BUFFER_PORT_"):
        pool = INGRESS_POOL if "_INGRESS_" in table else db.reference("BUFFER_PROFILE", EGRESS_LOSSLESS, "pool", _POOL)
        pools = {db.reference("BUFFER_PROFILE", name, "pool", _POOL) for name in listed(entry.get("profile_list"))}
        return "lossy " if pool not in pools and not pausing.isdisjoint(key.split(",")) else ""
    match = RANGE.fullmatch(key.split("|")[-1]) if table == "QUEUE" else None
    if not match or int(match[2] or match[1]) < CLASSES or key.startswith(NOT_PORTS):
        return ""
    name = db.reference(table, key, "scheduler", "SCHEDULER")
    return "strict " if name and db.text("SCHEDULER", name, "type") == "STRICT" else ""


def _ports(db: ConfigDb, table: str, key: str, field: str) -> tuple[str, ...] | None:
    """Return the ports that a field of an entry concerns, () for the whole switch; None where nothing refers to it."""
    names = key.split("|")
    if table in _REFERENCES:
        referring = [
            name
            for referring_table, field in _REFERENCES[table]
            for name, entry in db.table(referring_table).items()
            if key in listed(entry.get(field))
        ]
        return tuple(port for name in referring for port in name.split("|")[0].split(",")) or None
    if table == "BUFFER_POOL":
        return () if any(key in listed(entry.get("pool")) for entry in db.table("BUFFER_PROFILE").values()) else None
    if table == "FLEX_COUNTER_TABLE":
        return () if key == "PFCWD" else None
    if table == "VLAN_SUB_INTERFACE":
        return (names[0].partition(".")[0],)
    if table in ("ACL_RULE", "ACL_TABLE"):
        return tuple(db.texts("ACL_TABLE", names[0], "ports") or ()) or None
    if table == "PBH_RULE":
        return tuple(db.texts("PBH_TABLE", names[0], "interface_list") or ()) or None
    if table == "SWITCH_HASH":
        return () if field.startswith("ecmp_") else tuple(lags(db)) or None
    if table in ("PORT_QOS_MAP", "PORTCHANNEL", "PORT_STORM_CONTROL", "QUEUE", "LLR_PORT") or "_PROFILE_LIST" in table:
        return () if names[0].lower() == "global" else tuple(names[0].split(","))
    return ()


def speeds_gbit_s(db: ConfigDb) -> dict[str, float]:
    """Return the configured speeds of ports."""
    speeds = {port: db.number("PORT", port, "speed", 1, 1_600_000) for port in db.table("PORT")}
    return {port: speed / 1000 for port, speed in speeds.items() if speed is not None}


def lags(db: ConfigDb) -> dict[str, tuple[str, ...]]:
    """Return the members of each port channel."""
    members: dict[str, tuple[str, ...]] = {}
    for key in db.table("PORTCHANNEL_MEMBER"):
        lag, _bar, port = key.partition("|")
        members[lag] = (*members.get(lag, ()), port)
    return members
