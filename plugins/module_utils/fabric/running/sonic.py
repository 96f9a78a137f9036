# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read any SONiC ConfigDB in the terms of ``qos``."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    Ecn,
    Headroom,
    Octet,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import (
    COMPUTED,
    MOST_BYTES,
    computes_headroom,
    read_buffers,
    read_headroom,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_overrides import (
    lags,
    overrides,
    speeds_gbit_s,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import ConfigDb
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import (
    natural_sort_key,
    paused_priorities,
    queues_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import (
    HASH_FIELDS,
    INGRESS_LOSSY,
    MAPS,
    PFC_TO_PG,
    PFC_TO_PG_TABLE,
    REWRITING,
)

SYSTEM = "sonic"
# In order of precedence: the hash of RoCE packets uses the first of these that is set (sonic-hash.yang).
_HASHES = (
    ("ecmp_hash_ipv4_rdma", "ecmp_hash_ipv4", "ecmp_hash"),
    ("ecmp_hash_ipv6_rdma", "ecmp_hash_ipv6", "ecmp_hash"),
)
_MARKS_GREEN = ("ecn_all", "ecn_green", "ecn_green_red", "ecn_green_yellow")


def read(db: ConfigDb) -> Switch:
    """Return the QoS of all ports of a ConfigDB. Raises FabricError for the first error in it."""
    return _SonicReader(db).switch()


class _SonicReader:
    """A reader that reads each profile and map once, and gives ports that are alike one object."""

    def __init__(self, db: ConfigDb) -> None:
        self.db = db
        self.maps = db.by_port("PORT_QOS_MAP")
        self.queues = db.by_port_and_number("QUEUE")
        self.groups = db.by_port_and_number("BUFFER_PG")
        self.watchdogs = db.by_port("PFC_WD")
        self.image_left_out = "BUFFER_POOL" not in db.tables  # the ConfigDB is a part, such as the rendered one
        self.computes_headroom = computes_headroom(db)
        self.cables = next(iter(db.table("CABLE_LENGTH").items()), None)
        self._octets: dict[tuple[str, str, int], Octet] = {}
        self._ecns: dict[str, Ecn | None] = {}
        self._headrooms: dict[str, Headroom | None] = {}

    def switch(self) -> Switch:
        db = self.db
        self._check_lanes()
        ports_named = {*db.table("PORT"), *self.maps, *self.queues, *self.groups, *self.watchdogs}
        distinct: dict[PortQos, PortQos] = {}
        ports = {}
        for port in sorted(ports_named, key=natural_sort_key):
            qos = self._port(port)
            ports[port] = distinct.setdefault(qos, qos)
        return Switch(
            db.name,
            SYSTEM,
            ports,
            self._ecmp_fields(),
            overrides=overrides(db),
            speeds_gbit_s=speeds_gbit_s(db),
            lags=lags(db),
            buffers=read_buffers(db),
        )

    def _check_lanes(self) -> None:
        """Refuse two ports with one lane, such as Ethernet0 of 8 lanes and Ethernet1 of a former breakout.

        Trident 3's SFP+ ports (Ethernet132 or 129) have lane 128 in their vendors' files, as Ethernet124 has.
        """
        port_of_lane: dict[str, str] = {}
        for port in self.db.table("PORT"):
            for lane in self.db.texts("PORT", port, "lanes") or ():
                lane_port = port_of_lane.setdefault(lane, port)
                if lane_port != port and not any(map(self._is_beyond, (port, lane_port), (lane_port, port))):
                    cause = f"lane {lane} is also one of {lane_port}'s"
                    raise self.db.refuse("PORT", port, cause, "set the breakout of one of both again")

    def _is_beyond(self, port: str, other: str) -> bool:
        """Return true for a port of one lane with a number after those of all parts that ``other`` can have."""
        lanes, lanes_of_other = (self.db.texts("PORT", name, "lanes") or () for name in (port, other))
        number, first = (int(re.sub(r"\D", "", name) or 0) for name in (port, other))
        return len(lanes) == 1 and number >= first + len(lanes_of_other)

    def _port(self, port: str) -> PortQos:
        key = self.maps.get(port, port)
        octets = [self._map(key, field, table) for field, table in MAPS.items()]
        if octets[0] is None:  # a port without its own map has the switch's map, if there is one
            octets[0] = self._map("global", "dscp_to_tc_map", MAPS["dscp_to_tc_map"])
        dscps, queues, groups, stops = (
            octet or (None,) * (CLASSES if octet_index else DSCPS) for octet_index, octet in enumerate(octets)
        )
        group_of = self._map(key, PFC_TO_PG, PFC_TO_PG_TABLE) or tuple(range(CLASSES))
        pfc = self.db.numbers("PORT_QOS_MAP", key, "pfc_enable", CLASSES - 1) or ()
        headroom = [self._headroom(self.groups.get(port, {}).get(number)) for number in range(CLASSES)]
        return PortQos(
            dscp_to_class=dscps,
            rewrites_dscp=bool(self.db.text("PORT_QOS_MAP", key, REWRITING)),
            class_to_queue=queues,
            class_to_priority=paused_priorities(groups, group_of, pfc),
            priority_to_queue=stops,
            queues=self._queues(self.queues.get(port, {})),
            pfc=pfc,
            headroom=tuple(None if group is None else headroom[group] for group in group_of),
            watchdog=self._watchdog(port, key, pfc),
            ip_mtu_bytes=self.db.number("PORT", port, "mtu", 68, 9216),  # the range of sonic-port.yang
            cable_m=self._cable_m(port) if self.computes_headroom else None,
        )

    def _map(self, key: str, field: str, table: str) -> Octet | None:
        """Return the map that a field of PORT_QOS_MAP names; None where it names none."""
        name = self.db.reference("PORT_QOS_MAP", key, field, table)
        if name is None:
            return None
        size = DSCPS if table == "DSCP_TO_TC_MAP" else CLASSES
        if (table, name, size) not in self._octets:
            self._octets[table, name, size] = self._octet(table, name, size)
        return self._octets[table, name, size]

    def _octet(self, table: str, name: str, size: int) -> Octet:
        values: list[int | None] = [None] * size
        # SONiC has traffic classes up to 15 (sonic-types.yang). Those above 7 are ignored: a map of a DSCP to one of
        # them is refused.
        highest_key = 15 if table.startswith("TC_") else size - 1
        for key, value in self.db.entry(table, name).items():
            index = self.db.integer(table, name, "key", key, 0, highest_key)
            number = self.db.integer(table, name, f"value of {key}:", value, 0, 15)
            if number >= CLASSES:
                cause = f"value of {key}: {number}, but classes, queues and groups are supported up to {CLASSES - 1}"
                raise self.db.refuse(table, name, cause, "map it to one of those")
            if index < size:
                values[index] = number
        return tuple(values)

    def _queues(self, keys: dict[int, str]) -> tuple[Queue | None, ...]:
        db = self.db
        read: dict[int, tuple[bool, int | None, Ecn | None]] = {}
        for number in range(CLASSES):
            key = keys.get(number)
            if key is None:
                continue
            scheduler = db.reference("QUEUE", key, "scheduler", "SCHEDULER")
            profile = db.reference("QUEUE", key, "wred_profile", "WRED_PROFILE")
            if scheduler is None and profile is None:
                continue
            strict, weight = (False, None) if scheduler is None else self._scheduler(scheduler)
            read[number] = strict, weight, self._ecn(profile)
        return queues_of(read)

    def _scheduler(self, name: str) -> tuple[bool, int | None]:
        kind = self.db.text("SCHEDULER", name, "type") or "WRR"  # defaults of sonic-scheduler.yang
        if kind == "STRICT":
            return True, None
        if kind not in ("DWRR", "WRR"):
            raise self.db.refuse("SCHEDULER", name, f"type {kind!r} is unknown", "valid values: DWRR, WRR, STRICT")
        weight = self.db.number("SCHEDULER", name, "weight", 1, 100)
        return False, 1 if weight is None else weight

    def _ecn(self, name: str | None) -> Ecn | None:
        if name is None:
            return None
        if name not in self._ecns:
            self._ecns[name] = self._read_ecn(name)
        return self._ecns[name]

    def _read_ecn(self, name: str) -> Ecn | None:
        """Return the marking; None where green packets (all that no policer coloured) are not marked."""
        db, table = self.db, "WRED_PROFILE"
        minimum = db.number(table, name, "green_min_threshold", 0, MOST_BYTES)
        maximum = db.number(table, name, "green_max_threshold", 0, MOST_BYTES)
        probability = db.number(table, name, "green_drop_probability", 0, 100)
        if minimum is None or maximum is None:
            return None
        if minimum > maximum:
            raise db.refuse(
                table, name, f"green_min_threshold {minimum} is above green_max_threshold {maximum}", "correct them"
            )
        marks = db.text(table, name, "ecn") in _MARKS_GREEN and db.text(table, name, "wred_green_enable") == "true"
        return Ecn(minimum, maximum, 100 if probability is None else probability) if marks else None

    def _cable_m(self, port: str) -> int | None:
        """Return the cable for which the image computes the headroom of a port; None where it has no length."""
        if self.cables is None or port not in self.cables[1]:
            return None
        table, key = "CABLE_LENGTH", self.cables[0]
        return self.db.integer(table, key, port, str(self.cables[1][port]).removesuffix("m"), 0, 1 << 20)

    def _headroom(self, key: str | None) -> Headroom | None:
        if key is None or self.db.text("BUFFER_PG", key, "profile") == COMPUTED:
            return None
        if self.image_left_out and self.db.text("BUFFER_PG", key, "profile") == INGRESS_LOSSY:
            return None
        name = self.db.reference("BUFFER_PG", key, "profile", "BUFFER_PROFILE")
        if name is None:
            return None
        if name not in self._headrooms:
            self._headrooms[name] = read_headroom(self.db, name, self.image_left_out)
        return self._headrooms[name]

    def _watchdog(self, port: str, key: str, pfc: tuple[int, ...]) -> Watchdog | None:
        """Return the watchdog; None where it does not run, or not on all priorities that pause.

        Images from before 2022 have no ``pfcwd_sw_enable`` and watch all priorities that pause (sonic-swss#2171). Later
        images without it watch none. Here, ``is_old`` (before release 202305) stands for the former.
        """
        db, table = self.db, "PFC_WD"
        if port not in self.watchdogs:
            return None
        own_key = self.watchdogs[port]
        watched = db.numbers("PORT_QOS_MAP", key, "pfcwd_sw_enable", CLASSES - 1)
        detection = db.number(table, own_key, "detection_time", 100, 5000)  # ranges of sonic-pfcwd.yang
        restoration = db.number(table, own_key, "restoration_time", 100, 60000)
        action = db.text(table, own_key, "action") or "drop"
        if action not in ("alert", "drop", "forward"):
            raise db.refuse(table, own_key, f"action {action!r} is unknown", "valid values: drop, forward, alert")
        if watched is None:
            watched = pfc if db.is_old else ()
        if detection is None or restoration is None or not set(pfc) <= set(watched):
            return None
        return Watchdog(detection, restoration, action)

    def _ecmp_fields(self) -> tuple[str, ...] | None:
        """Return the packet fields of the hash for both IP versions; None where the switch leaves it to its ASIC."""
        hashed: set[str] | None = None
        for fields in _HASHES:
            hashes = (self.db.texts("SWITCH_HASH", "GLOBAL", field) for field in fields)
            hash_list = next((field_list for field_list in hashes if field_list is not None), None)
            if hash_list is not None:
                hashed = set(hash_list) if hashed is None else hashed & set(hash_list)
        return (
            None
            if hashed is None
            else tuple(sorted(packet_field for packet_field, word in HASH_FIELDS.items() if word in hashed))
        )
