# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Render the QoS of a switch as arguments of Dell's modules. Sources: ``systems.dell_sonic``."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, PortQos, Queue, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.dell_sonic import (
    CABLES_M,
    DSCP_MAP,
    ECN_BYTES,
    GROUP_MAP,
    HASH,
    PFC_QUEUE_MAP,
    QUEUE_MAP,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import OWN, name_from_content

MOST_PFC = 2
POLL_INTERVAL_MS = 100  # the minimum, so that the watchdog's shortest time is possible
PFC_MAP = f"{OWN}PFC"
_KINDS = {"dscp_maps": "DSCP", "fwd_group_queue_maps": "QUEUE", "fwd_group_pg_maps": "TCPG"}


def held_cable_m(cable_m: int) -> int:
    """Return the length given to the system for a cable; a cable longer than all of CABLES_M keeps its own length."""
    return next((length_m for length_m in CABLES_M if cable_m <= length_m), cable_m)


def render(switch: Switch) -> str:
    """Return the arguments of all modules, keys sorted. Raises FabricError for what this system cannot have."""
    distinct = switch.distinct_ports()
    index = {id(qos): position for position, qos in enumerate(distinct)}
    kinds = tuple(index[id(qos)] for qos in switch.ports.values())
    for qos in distinct:
        port = next(name for name, port_qos in switch.ports.items() if port_qos is qos)
        _check(switch.name, port, qos)
    if len({qos.priority_to_queue for qos in distinct}) > 1:
        raise FabricError(
            "its ports differ in the queues of their priorities, but it has one map for all",
            "give all ports the same queues",
            subject=switch.name,
        )
    return text_of_ports(tuple(switch.ports), kinds, tuple(distinct), switch.ecmp_fields)


def _check(name: str, port: str, qos: PortQos) -> None:
    subject = f"{name}: {port}"
    if len(qos.pfc) > MOST_PFC:
        raise FabricError(
            f"PFC is on for priorities {', '.join(map(str, qos.pfc))}, but this system supports {MOST_PFC} per port",
            "make another class lossy",
            subject=subject,
        )
    for queue in qos.queues:
        for threshold_bytes in (queue.ecn.minimum_bytes, queue.ecn.maximum_bytes) if queue and queue.ecn else ():
            if not ECN_BYTES[0] <= threshold_bytes <= ECN_BYTES[1]:
                raise FabricError(
                    f"an ECN threshold of {threshold_bytes} bytes, but this system supports {ECN_BYTES[0]} to "
                    f"{ECN_BYTES[1]}",
                    "set the class's thresholds in this range",
                    subject=subject,
                )
    if qos.cable_m is not None and qos.cable_m > CABLES_M[-1]:
        raise FabricError(
            f"a cable of {qos.cable_m} m, but this system has headroom for at most {CABLES_M[-1]} m",
            "use a shorter one",
            subject=subject,
        )


@lru_cache(maxsize=64)
def text_of_ports(
    ports: tuple[str, ...], kinds: tuple[int, ...], distinct: tuple[PortQos, ...], ecmp: tuple[str, ...] | None
) -> str:
    """Return the text of all switches whose ports have these names and these kinds."""
    maps: dict[str, dict[str, Any]] = {}
    wred: dict[str, Any] = {}
    schedulers: dict[str, Any] = {}
    interfaces = [_interface(qos, maps, wred, schedulers) for qos in distinct]
    lossless = any(qos.pfc for qos in distinct)
    config: dict[str, Any] = {
        "sonic_qos_buffer": {"buffer_init": True} if lossless else None,
        "sonic_qos_maps": {kind: _by_name(entries) for kind, entries in maps.items()},
        "sonic_qos_wred": _by_name(wred),
        "sonic_qos_scheduler": _by_name(schedulers),
        "sonic_qos_pfc": {"counter_poll": True, "poll_interval": POLL_INTERVAL_MS}
        if any(qos.watchdog for qos in distinct)
        else None,
        "sonic_qos_interfaces": [{"name": port, **interfaces[kind]} for port, kind in zip(ports, kinds)],
        "sonic_interfaces": [
            {"name": port, "mtu": distinct[kind].ip_mtu_bytes}
            for port, kind in zip(ports, kinds)
            if distinct[kind].ip_mtu_bytes is not None
        ],
        "sonic_ecmp_load_share": None if ecmp is None else _hash(ecmp),
    }
    arguments = {module: {"config": content, "state": "merged"} for module, content in config.items() if content}
    return json.dumps(arguments, indent=2, sort_keys=True) + "\n"


def _by_name(entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [entries[name] for name in sorted(entries)]


def _interface(
    qos: PortQos, maps: dict[str, dict[str, Any]], wred: dict[str, Any], schedulers: dict[str, Any]
) -> dict[str, Any]:
    """Return one port's options of sonic_qos_interfaces, and add to the other modules what they refer to."""
    bound = {}
    for (kind, key, value, option), octet in (
        (DSCP_MAP, qos.dscp_to_class),
        (QUEUE_MAP, qos.class_to_queue),
        (GROUP_MAP, qos.class_to_priority),
        (PFC_QUEUE_MAP, qos.priority_to_queue),
    ):
        entries = [_entry(key, index, value, number) for index, number in enumerate(octet) if number is not None]
        if entries:
            name = name_from_content(_KINDS[kind], entries) if kind in _KINDS else PFC_MAP
            maps.setdefault(kind, {})[name] = {"name": name, "entries": entries}
            bound[option] = name
    queues = []
    policy = []
    for number, queue in enumerate(qos.queues):
        if queue is None:
            continue
        if queue.ecn:
            profile = _wred(queue.ecn)
            wred[profile["name"]] = profile
            queues.append({"id": number, "wred_profile": profile["name"]})
        if queue.strict or queue.bandwidth_percent is not None:
            policy.append(_scheduler(number, queue))
    interface: dict[str, Any] = {"pfc": _pfc(qos), "qos_maps": bound, "queues": queues}
    if policy:
        name = name_from_content("SCHEDULER", policy)
        schedulers[name] = {"name": name, "schedulers": policy}
        interface["scheduler_policy"] = name
    if qos.cable_m is not None:
        interface["cable_length"] = f"{held_cable_m(qos.cable_m)}m"
    return {option: value for option, value in interface.items() if value}


def _entry(key: str, index: int, value: str, number: int) -> dict[str, Any]:
    """Return one entry of a map. Forwarding groups are text in the modules; all other values are numbers."""
    return {
        option: str(content) if option == "fwd_group" else content
        for option, content in ((key, index), (value, number))
    }


def _wred(ecn: Ecn) -> dict[str, Any]:
    green = {
        "enable": True,
        "min_threshold": ecn.minimum_bytes,
        "max_threshold": ecn.maximum_bytes,
        "drop_probability": ecn.probability_percent,
    }
    return {"name": name_from_content("ECN", green), "ecn": "green", "green": green}


def _scheduler(number: int, queue: Queue) -> dict[str, Any]:
    if queue.strict:
        return {"sequence": number, "scheduler_type": "strict"}
    return {"sequence": number, "scheduler_type": "dwrr", "weight": queue.bandwidth_percent}


def _pfc(qos: PortQos) -> dict[str, Any]:
    pfc: dict[str, Any] = {}
    if qos.pfc:
        pfc = {"asymmetric": False, "priorities": [{"dot1p": priority, "enable": True} for priority in qos.pfc]}
    if qos.watchdog:
        pfc["watchdog_action"] = qos.watchdog.action
        pfc["watchdog_detect_time"] = qos.watchdog.detection_ms
        pfc["watchdog_restore_time"] = qos.watchdog.restoration_ms
    return pfc


def _hash(ecmp: tuple[str, ...]) -> dict[str, Any]:
    """Return all five options, on or off: an omitted option would stay as it is."""
    return {
        family: {f"{family}_{options[family_index]}": field in ecmp for field, options in HASH.items()}
        for family_index, family in enumerate(("ipv4", "ipv6"))
    }
