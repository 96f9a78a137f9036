# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the change from a running ConfigDB to the wanted one, as JSON patches (RFC 6902) for `config apply-patch`.

Requirements of SONiC's generic config updater for a patch (sonic-utilities, generic_config_updater/gu_common.py):

- The result holds no empty table, so a table is removed with its last entry.
- /PFC_WD/GLOBAL is never removed.
- The result is valid under the models: no entry refers to a missing one, and a watchdog's times are at least its
  polling interval.
- The updater orders the steps itself, from the difference of before and after. The operations here are nevertheless in
  a correct order: referenced entries, then referring ones, and removals in reverse.

The updater also refuses tables by a list (gcu_field_operation_validators.conf.json). Until early 2026
(sonic-utilities#4219; #4226 for release 202511) it accepted no new entry of WRED_PROFILE or BUFFER_PROFILE on any
platform. On such an image, `config load` must add these entries before the patch.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Headroom, PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic import read
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import (
    COMPUTED,
    EGRESS_LOSSLESS,
    INGRESS_POOL,
    computes_headroom,
    lossless_refusal,
    read_headroom,
    remedy,
    sku_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import (
    ConfigDb,
    Entry,
    references,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import OWN
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_difference import (
    OF_PORTS,
    SHARED,
    difference,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import (
    EGRESS_LOSSY,
    HASH_FIELDS,
    INGRESS_LOSSY,
    MAPS,
    PFC_TO_PG,
    PFC_TO_PG_TABLE,
    REWRITING,
    WantedPort,
    hash_fields,
    paused_ranges,
    priorities_as_groups,
    range_text,
    refer,
    wanted_port,
)

OWNED_FIELDS = (*MAPS, REWRITING, "pfc_enable", "pfcwd_sw_enable")
REFERRING = {*MAPS, "scheduler", "wred_profile", "profile", "pool"}  # fields with a reference
EGRESS_LOSSY_QUEUE = "q_lossy_profile"  # in queue entries on NVIDIA's and some other vendors' platforms
HASH_OVERRIDES = tuple(f"ecmp_hash_ipv{version}{of}" for version in (4, 6) for of in ("", "_rdma"))
PROFILE_LISTS = ("BUFFER_PORT_INGRESS_PROFILE_LIST", "BUFFER_PORT_EGRESS_PROFILE_LIST")


def patches(running: str, wanted: Switch) -> list[list[dict[str, Any]]]:
    """Return the patches, each a list of operations, that change ``running`` to ``wanted`` when applied in order.

    There are at most three, and none where nothing differs. ``parse`` reads the result as ``wanted``.

    All QoS of the wanted ports' eight queues is the policy's. Patches keep other ports' entries, fields that the policy
    does not name (a port's shaper, speed, lanes), queues above 7, and entries without this project's name. Entries with
    this name that nothing refers to any more are removed, as are those of ports that are no longer wanted.

    Raises FabricError where ``running`` is not a ConfigDB, lacks a wanted port, or lacks something that the policy
    needs and that the image has for its platform; and where the result could not be read as ``wanted``.
    """
    db = ConfigDb(running, wanted.name)
    target = _Target(db, wanted)
    target.build()
    _check(db.with_tables(target.tables), wanted)
    return difference(db, target.tables)


def _check(result: ConfigDb, wanted: Switch) -> None:
    ports = read(result).ports
    for port, qos in wanted.ports.items():
        seen, expected = asdict(ports[port]), asdict(qos)
        if qos.cable_m is None:
            seen["cable_m"] = None
        differing = [field for field, value in expected.items() if seen[field] != value]
        if differing:
            raise FabricError(
                f"SONiC would not hold {differing[0]} as wanted: {expected[differing[0]]}, but {seen[differing[0]]}",
                "give what its tables can hold",
                subject=f"{wanted.name}: {port}",
            )


class _Target:
    """The wanted ConfigDB, built from a copy of the running one."""

    def __init__(self, db: ConfigDb, wanted: Switch) -> None:
        self.db = db
        self.wanted = wanted
        for table in (*SHARED, *OF_PORTS, *PROFILE_LISTS, "BUFFER_POOL", "VERSIONS"):
            db.table(table)  # refuses it here if it is not a table
        self.tables: dict[str, Any] = {
            table: copy.deepcopy(entries) if table in SHARED or table in OF_PORTS else entries
            for table, entries in db.tables.items()
        }
        self.parts: dict[tuple[str, str], list[str]] = {}  # keys that were split
        self.headrooms: dict[str, Headroom | None] = {}  # by profile
        self.computes_headroom = computes_headroom(db)
        self.unbuffered = not db.table("BUFFER_POOL")  # the image leaves all buffers to the ASIC's driver
        referring = [
            str(entry[field]).startswith("[")
            for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_PROFILE", "BUFFER_QUEUE")
            for entry in db.table(table).values()
            for field in entry.keys() & REFERRING
        ]
        self.brackets = bool(referring) and all(referring)  # new images read both forms, their models only names
        self.cables = next(iter(db.table("CABLE_LENGTH")), "AZURE")
        pool = db.text("BUFFER_POOL", INGRESS_POOL, "xoff")
        self.pools_headroom = pool is not None and pool != "0"

    def build(self) -> None:
        """Change the copy to the wanted ConfigDB."""
        self._split_ranges()
        mine = set(self.wanted.ports)
        for port, qos in self.wanted.ports.items():
            if port not in self.db.table("PORT"):
                raise self.db.refuse(
                    "PORT", port, "the switch has no such port", "name the ports as `show interfaces status` does"
                )
            unprotected = next((priority for priority in qos.pfc if qos.headroom[priority] is None), None)
            if unprotected is not None and qos.cable_m is None:
                raise FabricError(
                    f"priority {unprotected} pauses and has no headroom, so packets on the cable would be lost",
                    "give the port's speed and cable, from which headroom is compiled",
                    subject=f"{self.wanted.name}: {port}",
                )
            wanted = wanted_port(qos, self.brackets, self.pools_headroom)
            self._check_image(wanted)
            for (table, name), entry in wanted.shared.items():
                self._table(table)[name] = dict(entry)
            self._port(port, wanted, qos)
        self._drop_ports({port for port in self.tables.get("PORT_QOS_MAP", {}) if port not in mine})
        self._polling()
        self._hash()
        self._join_ranges()
        self._join_paused()
        self._drop_unused()
        for table in (*SHARED, *OF_PORTS):
            if table in self.tables and not self.tables[table]:
                del self.tables[table]

    def _table(self, table: str) -> dict[str, Entry]:
        return self.tables.setdefault(table, {})

    def _split_ranges(self) -> None:
        """Split keys that name a wanted port and others, or several queues or groups, into keys of one each."""
        for table in ("PORT_QOS_MAP", "PFC_WD"):
            for port, key in self.db.by_port(table).items():
                if key != port:
                    self._split(table, key, port)
        for table in ("QUEUE", "BUFFER_PG", "BUFFER_QUEUE"):
            self.db.by_port_and_number(table)  # refuses duplicates
            for key, ports, numbers in self.db.rows(table):
                if self.wanted.ports.keys().isdisjoint(ports):
                    continue
                for port in ports:
                    for name in _single_numbers(numbers) if port in self.wanted.ports else [key.split("|")[1]]:
                        if key != f"{port}|{name}":
                            self._split(table, key, f"{port}|{name}")

    def _split(self, table: str, key: str, part: str) -> None:
        self.tables[table].pop(key, None)
        self.tables[table][part] = dict(self.db.entry(table, key))
        self.parts.setdefault((table, key), []).append(part)

    def _join_ranges(self) -> None:
        """Restore the original keys if all their parts are unchanged and no key of the image would overlap."""
        groups = {key: (ports, numbers) for key, ports, numbers in self.db.rows("BUFFER_PG")}
        for (table, key), parts in self.parts.items():
            entry = self.db.entry(table, key)
            if table == "BUFFER_PG" and self._overlaps(*groups[key]):
                continue
            if all(self.tables[table].get(part) == entry for part in parts):
                for part in parts:
                    del self.tables[table][part]
                self.tables[table][key] = entry

    def _overlaps(self, ports: list[str], numbers: range) -> bool:
        """Return whether the image would add a key that overlaps with the one of these ports and groups."""
        for port in ports:
            of_own_key = port in self.wanted.ports and port in self._table("PORT_QOS_MAP")
            pfc = self.wanted.ports[port].pfc if of_own_key and not self.computes_headroom else ()
            if not set(pfc).isdisjoint(numbers) and (ports != [port] or numbers not in paused_ranges(pfc)):
                return True
        return False

    def _join_paused(self) -> None:
        """Give groups of priorities that pause the keys that the image would add."""
        groups = self.tables.get("BUFFER_PG", {})
        for port, qos in self.wanted.ports.items():
            for numbers in paused_ranges(qos.pfc):
                keys = [f"{port}|{number}" for number in numbers]
                if keys[0] in groups and not self.computes_headroom:
                    entry = groups[keys[0]]
                    for key in keys:
                        groups.pop(key, None)
                    groups[f"{port}|{range_text(numbers)}"] = entry

    def _check_image(self, wanted: WantedPort) -> None:
        refusal = lossless_refusal(self.db) if wanted.lossless_queues else None
        if refusal is not None:
            raise refusal
        lossy = refer("BUFFER_PROFILE", INGRESS_LOSSY, self.brackets) in wanted.groups.values()
        if lossy and not self.unbuffered and not self.db.entry("BUFFER_PROFILE", INGRESS_LOSSY):
            cause = f"the policy needs this profile, but {sku_of(self.db)} has none"
            raise self.db.refuse("BUFFER_PROFILE", INGRESS_LOSSY, cause, remedy(self.db))

    def _port(self, port: str, wanted: WantedPort, qos: PortQos) -> None:
        fields = self._table("PORT_QOS_MAP").setdefault(port, {})
        for field in OWNED_FIELDS:
            fields.pop(field, None)
        fields.update(wanted.maps)
        if PFC_TO_PG in fields:  # so this platform has the map, and needs it for the groups of all priorities
            fields[PFC_TO_PG], name, entry = priorities_as_groups(self.brackets)
            self._table(PFC_TO_PG_TABLE)[name] = dict(entry)
        for number in range(CLASSES):
            key = f"{port}|{number}"
            if number in wanted.queues:
                self._table("QUEUE")[key] = dict(wanted.queues[number])
            else:
                self._table("QUEUE").pop(key, None)
            if self.unbuffered:
                continue
            self._group(key, wanted.groups.get(number), qos.headroom[number])
            if number in wanted.queues:
                self._egress(key, number in wanted.lossless_queues)
        if wanted.watchdog:
            self._table("PFC_WD").setdefault(port, {}).update(wanted.watchdog)
        else:
            self._table("PFC_WD").pop(port, None)
        if wanted.mtu is not None:
            self._table("PORT")[port]["mtu"] = wanted.mtu
        if wanted.cable is not None:
            self._table("CABLE_LENGTH").setdefault(self.cables, {})[port] = wanted.cable

    def _group(self, key: str, profile: str | None, headroom: Headroom | None) -> None:
        """Set the profile of a group. Where no class uses the group, remove its headroom, but keep a lossy buffer.

        Another profile with the same headroom stays, and the image's own is taken where it has the same: an image sets
        it again whenever ``pfc_enable`` changes (``paused_ranges``).
        """
        groups = self._table("BUFFER_PG")
        profiles = self.db.table("BUFFER_PROFILE")
        name = next((referred for referred in references(groups.get(key, {})) if referred in profiles), "")
        is_computed = groups.get(key, {}).get("profile") == COMPUTED
        if profile == COMPUTED:
            groups[key] = {"profile": COMPUTED}
        elif profile is not None:
            if headroom is None or not name or self._headroom(name) != headroom:
                imaged = self._image_profile(key.split("|")[0])
                if headroom is not None and imaged in profiles and self._headroom(imaged) == headroom:
                    profile = refer("BUFFER_PROFILE", imaged, self.brackets)
                groups[key] = {**groups.get(key, {}), "profile": profile}
        elif is_computed or "xoff" in self.db.entry("BUFFER_PROFILE", name):
            groups.pop(key, None)

    def _image_profile(self, port: str) -> str:
        """Return the name of the profile that the image gives the lossless groups of a port."""
        speed, cable = self.db.text("PORT", port, "speed"), self.db.text("CABLE_LENGTH", self.cables, port)
        return f"pg_lossless_{speed}_{cable}_profile"

    def _headroom(self, name: str) -> Headroom | None:
        if name not in self.headrooms:
            self.headrooms[name] = read_headroom(self.db, name, False)
        return self.headrooms[name]

    def _egress(self, key: str, lossless: bool) -> None:
        queues = self._table("BUFFER_QUEUE")
        existing = queues.get(key, {})
        if lossless:
            profile = EGRESS_LOSSLESS
        elif existing and EGRESS_LOSSLESS not in references(existing):
            return  # a lossy profile, whatever its name on the platform
        else:
            lossy_profiles = (EGRESS_LOSSY_QUEUE, EGRESS_LOSSY)
            profile = next(
                (lossy_profile for lossy_profile in lossy_profiles if self.db.entry("BUFFER_PROFILE", lossy_profile)),
                "",
            )
            if not profile:
                problem = f"neither {lossy_profiles[0]} nor {lossy_profiles[1]} exists for lossy queues"
                raise self.db.refuse("BUFFER_PROFILE", EGRESS_LOSSY, problem, remedy(self.db))
        queues[key] = {**existing, "profile": refer("BUFFER_PROFILE", profile, self.brackets)}

    def _drop_ports(self, ports: set[str]) -> None:
        """Remove what this project set earlier on ports that are no longer wanted."""
        for port in ports:
            fields = self.tables["PORT_QOS_MAP"][port]
            if not any(OWN in name for name in references(fields)):
                continue
            for field in (*OWNED_FIELDS, PFC_TO_PG):
                fields.pop(field, None)
            if not fields:
                del self.tables["PORT_QOS_MAP"][port]
            self.tables.get("PFC_WD", {}).pop(port, None)
            for table in ("QUEUE", "BUFFER_PG"):
                for key, entry in list(self.tables.get(table, {}).items()):
                    names = [*references(entry)]
                    if key.startswith(f"{port}|") and (COMPUTED in names or any(OWN in name for name in names)):
                        del self.tables[table][key]

    def _polling(self) -> None:
        """Set the watchdog's polling interval to at most its shortest time (a rule of sonic-pfcwd.yang)."""
        interval = self.db.number("PFC_WD", "GLOBAL", "POLL_INTERVAL", 0, 1 << 31)
        watchdogs = [port_qos.watchdog for port_qos in self.wanted.ports.values() if port_qos.watchdog]
        shortest = min((min(watchdog.detection_ms, watchdog.restoration_ms) for watchdog in watchdogs), default=None)
        if interval is not None and shortest is not None and shortest < interval:
            self._table("PFC_WD")["GLOBAL"]["POLL_INTERVAL"] = str(shortest)

    def _hash(self) -> None:
        """Set the hash. Fields outside ECMP_FIELDS stay. Releases before 202305 have no such table (SONiC#1167)."""
        if self.wanted.ecmp_fields is None or (self.db.is_old and "SWITCH_HASH" not in self.db.tables):
            return
        fields = self._table("SWITCH_HASH").setdefault("GLOBAL", {})
        current_fields = self.db.texts("SWITCH_HASH", "GLOBAL", "ecmp_hash") or []
        wanted = hash_fields(self.wanted.ecmp_fields)
        if set(current_fields) & set(HASH_FIELDS.values()) != set(wanted):
            fields["ecmp_hash"] = wanted + [
                field_name for field_name in current_fields if field_name not in HASH_FIELDS.values()
            ]
        for field in HASH_OVERRIDES:
            fields.pop(field, None)

    def _drop_unused(self) -> None:
        used = {
            name_referred
            for table in (*OF_PORTS, *PROFILE_LISTS)
            for entry in self.tables.get(table, {}).values()
            for name_referred in references(entry)
        }
        for table in SHARED:
            for name in list(self.tables.get(table, {})):
                if name.startswith(OWN) and name not in used:
                    del self.tables[table][name]


def _single_numbers(numbers: range) -> list[str]:
    """Return each queue or group below CLASSES separately, and those above together."""
    parts = [str(number) for number in numbers if number < CLASSES]
    high_numbers = [number for number in numbers if number >= CLASSES]
    if high_numbers:
        parts.append(range_text(range(high_numbers[0], high_numbers[-1] + 1)))
    return parts
