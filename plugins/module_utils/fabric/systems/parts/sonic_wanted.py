# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The content that a SONiC ConfigDB is to have for one port, in SONiC's tables and fields.

Profiles and maps are named after their content. Ports (and switches) that are alike share them. A changed one is a new
entry beside the old one, and references move to the new one, so that no profile changes while a port uses it. The
objects that SONiC's images have for each platform are referred to, but not changed: the buffer pools, which depend on
the switch's memory, and the profiles of lossy groups and of egress (sonic-buildimage,
files/build_templates/buffers_config.j2 and each platform's buffers_defaults_*.j2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    Ecn,
    Headroom,
    Octet,
    PortQos,
    Queue,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import (
    COMPUTED,
    INGRESS_POOL,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import Entry
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import OWN, name_from_content

INGRESS_LOSSY = "ingress_lossy_profile"
EGRESS_LOSSY = "egress_lossy_profile"

# Field of PORT_QOS_MAP -> the table that it refers to.
MAPS = {
    "dscp_to_tc_map": "DSCP_TO_TC_MAP",
    "tc_to_queue_map": "TC_TO_QUEUE_MAP",
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
}
REWRITING = "tc_to_dscp_map"  # a field of PORT_QOS_MAP, too: packets leave with the DSCP of their class
PFC_TO_PG, PFC_TO_PG_TABLE = "pfc_to_pg_map", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"

# ECMP_FIELDS -> SONiC's word (sonic-hash.yang).
HASH_FIELDS = {
    "destination_ip": "DST_IP",
    "destination_port": "L4_DST_PORT",
    "protocol": "IP_PROTOCOL",
    "source_ip": "SRC_IP",
    "source_port": "L4_SRC_PORT",
}
_SHORT = {
    "DSCP_TO_TC_MAP": "DSCP",
    "TC_TO_QUEUE_MAP": "QUEUE",
    "TC_TO_PRIORITY_GROUP_MAP": "TCPG",
    "MAP_PFC_PRIORITY_TO_QUEUE": "PFC",
    PFC_TO_PG_TABLE: "PFCPG",
    "WRED_PROFILE": "ECN",
    "BUFFER_PROFILE": "PG",
}


@dataclass(frozen=True)
class WantedPort:
    """One port's part of each table, and the profiles and maps that it refers to, as ``(table, name) -> entry``.

    ``queues`` and ``groups`` are by number. A group's profile is its own, COMPUTED or INGRESS_LOSSY. ``cable``: the
    length from which the image computes headroom. ``lossless_queues`` are those of priorities with PFC or headroom.
    """

    shared: dict[tuple[str, str], Entry]
    maps: dict[str, str]  # fields of PORT_QOS_MAP
    queues: dict[int, Entry]
    groups: dict[int, str]
    lossless_queues: frozenset[int]
    watchdog: Entry | None
    mtu: str | None
    cable: str | None


@lru_cache(maxsize=256)
def wanted_port(qos: PortQos, brackets: bool = False, pools_headroom: bool = True) -> WantedPort:
    """Return the entries of a port that is to have ``qos``.

    ``brackets``: references have the form of images before sonic-swss#1754 (2021). ``pools_headroom``: the ingress pool
    holds the headroom of all groups (its ``xoff``); where it does not, a group's own buffer includes its headroom.
    """
    shared: dict[tuple[str, str], Entry] = {}

    def share(table: str, entry: Entry, name: str | None = None) -> str:
        name = name or name_from_content(_SHORT[table], entry)
        shared[table, name] = entry
        return refer(table, name, brackets)

    maps: dict[str, str] = {}
    octets = (qos.dscp_to_class, qos.class_to_queue, qos.class_to_priority, qos.priority_to_queue)
    for (field, table), octet in zip(MAPS.items(), octets):
        if any(value is not None for value in octet):
            maps[field] = share(table, _map(octet))
    maps["pfc_enable"] = _numbers(qos.pfc)
    maps["pfcwd_sw_enable"] = _numbers(qos.pfc) if qos.watchdog else ""
    queues: dict[int, Entry] = {}
    for number, queue in enumerate(qos.queues):
        if queue is not None:
            queues[number] = entry = {}
            scheduler = _scheduler(queue)
            if scheduler:
                entry["scheduler"] = share("SCHEDULER", scheduler[1], scheduler[0])
            if queue.ecn:
                entry["wred_profile"] = share("WRED_PROFILE", _wred(queue.ecn))
    groups: dict[int, str] = {}
    for number in range(CLASSES):
        headroom = qos.headroom[number]
        if number in qos.pfc and qos.cable_m is not None:
            groups[number] = COMPUTED
        elif headroom is not None:
            groups[number] = share("BUFFER_PROFILE", _buffer(headroom, brackets, pools_headroom))
        elif number in qos.class_to_priority and number not in qos.pfc:
            groups[number] = refer("BUFFER_PROFILE", INGRESS_LOSSY, brackets)
    lossless = frozenset(
        queue
        for priority, queue in enumerate(qos.priority_to_queue)
        if queue is not None and (priority in qos.pfc or qos.headroom[priority] is not None)
    )
    watchdog = None if qos.watchdog is None else _watchdog(qos.watchdog)
    mtu = None if qos.ip_mtu_bytes is None else str(qos.ip_mtu_bytes)
    cable = None if qos.cable_m is None else f"{qos.cable_m}m"
    return WantedPort(shared, maps, queues, groups, lossless, watchdog, mtu, cable)


@lru_cache(maxsize=16)
def priorities_as_groups(brackets: bool) -> tuple[str, str, Entry]:
    """Return reference, name and entry of the map that puts each priority into the group of the same number."""
    entry = _map(tuple(range(CLASSES)))
    name = name_from_content(_SHORT[PFC_TO_PG_TABLE], entry)
    return refer(PFC_TO_PG_TABLE, name, brackets), name, entry


def paused_ranges(pfc: tuple[int, ...]) -> list[range]:
    """Return the ranges of adjacent priorities that pause, each of which has one key of BUFFER_PG.

    An image adds just these keys whenever ``pfc_enable`` changes or a port comes up, and removes none (sonic-swss
    029506c5ad, cfgmgr/buffermgr.cpp, doSpeedUpdateTask). Any other key with one of their groups would then overlap.
    """
    ranges: list[range] = []
    for priority in pfc:
        if ranges and ranges[-1].stop == priority:
            ranges[-1] = range(ranges[-1].start, priority + 1)
        else:
            ranges.append(range(priority, priority + 1))
    return ranges


def range_text(numbers: range) -> str:
    """Return a range of queues or groups as keys have it: "3", "3-4"."""
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def refer(table: str, name: str, brackets: bool) -> str:
    """Return a reference to an entry, in the form of new images or of those before sonic-swss#1754 (2021)."""
    return f"[{table}|{name}]" if brackets else name


def hash_fields(fields: tuple[str, ...]) -> list[str]:
    """Return ECMP_FIELDS in SONiC's words, sorted."""
    return sorted(HASH_FIELDS[field] for field in fields)


def _map(octet: Octet) -> Entry:
    return {str(key): str(value) for key, value in enumerate(octet) if value is not None}


def _numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _scheduler(queue: Queue) -> tuple[str, Entry] | None:
    if queue.strict:
        return f"{OWN}STRICT", {"type": "STRICT"}
    if queue.bandwidth_percent is None:
        return None
    return f"{OWN}DWRR_{queue.bandwidth_percent}", {"type": "DWRR", "weight": str(queue.bandwidth_percent)}


def _wred(ecn: Ecn) -> Entry:
    """Return the WRED profile, which marks packets of all colours alike, as SONiC's own profile does.

    Packets are green unless a policer colours them. ``wred_green_enable`` must be set: without it, SAI ignores green
    packets, with or without ECN (sonic-net/sonic-buildimage#4545).
    """
    entry = {"ecn": "ecn_all"}
    for colour in ("green", "yellow", "red"):
        entry[f"wred_{colour}_enable"] = "true"
        entry[f"{colour}_min_threshold"] = str(ecn.minimum_bytes)
        entry[f"{colour}_max_threshold"] = str(ecn.maximum_bytes)
        entry[f"{colour}_drop_probability"] = str(ecn.probability_percent)
    return entry


def _watchdog(watchdog: Watchdog) -> Entry:
    return {
        "action": watchdog.action,
        "detection_time": str(watchdog.detection_ms),
        "restoration_time": str(watchdog.restoration_ms),
    }


def _buffer(headroom: Headroom, brackets: bool, pools_headroom: bool) -> Entry:
    """Return the buffer profile.

    A pause ends when the group's use is down to max(``xon``, limit - ``xon_offset``) (sonic-buffer-profile.yang). The
    tables of NVIDIA's platforms (pg_profile_lookup.ini) have no ``xon_offset``, because their pause ends at ``xon``. It
    is not written where ``xon`` means the same.
    """
    size = headroom.reserved_bytes if pools_headroom else headroom.reserved_bytes + headroom.xoff_bytes
    entry = {
        "dynamic_th": str(headroom.alpha_exponent),
        "pool": refer("BUFFER_POOL", INGRESS_POOL, brackets),
        "size": str(size),
        "xoff": str(headroom.xoff_bytes),
        "xon": str(headroom.xon_bytes),
    }
    if headroom.xon_bytes + headroom.xon_offset_bytes != headroom.reserved_bytes:
        entry["xon_offset"] = str(headroom.xon_offset_bytes)
    return entry
