# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Render the QoS of a switch as an NVUE document. Sources: ``systems.cumulus``."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, PortQos, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.cumulus import (
    ALL_PORTS,
    ALPHAS,
    ECMP,
    ECMP_HASH,
    HALF_PERCENT,
    OURS,
    POLLING_MS,
    ROBUSTNESS,
    Tree,
)


def render(switch: Switch) -> str:
    """Return the document of ``switch``; see the module. Raises FabricError for what NVUE cannot hold."""
    return text_of(tree_of(switch))


def text_of(tree: Tree) -> str:
    """Return JSON with one line for each port and for each kind of profile, so that a reader can compare.

    json's own indentation would take longer than the rest of this function.
    """
    text_of_settings: dict[int, str] = {}  # ports that are alike share one tree
    sections = []
    for key, section in tree.items():
        lines = []
        for name, settings in section.items():
            if id(settings) not in text_of_settings:
                text_of_settings[id(settings)] = json.dumps(settings)
            lines.append(f"  {json.dumps(name)}: {text_of_settings[id(settings)]}")
        sections.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
    return '[{"set": {\n' + ",\n".join(sections) + "\n}}]\n"


def tree_of(switch: Switch) -> Tree:
    qos: Tree = {}
    interfaces: Tree = {}
    by_port: dict[int, Tree] = {}
    for port, wanted in switch.ports.items():
        settings = by_port.get(id(wanted))
        if settings is None:
            settings = by_port[id(wanted)] = _port_tree(f"{switch.name}: {port}", wanted, qos)
        interfaces[port] = settings
    tree: Tree = {"interface": interfaces}
    _add_switch_settings(switch, qos)
    if qos:
        tree["qos"] = {key: qos[key] for key in sorted(qos)}
    if switch.ecmp_fields is not None:
        fields = {key: "on" if field in switch.ecmp_fields else "off" for field, key in ECMP.items()}
        tree["system"] = {"forwarding": {ECMP_HASH: fields}}
    return tree


def _port_tree(subject: str, wanted: PortQos, qos: Tree) -> Tree:
    """Return a port's own settings; its profiles are added to ``qos``."""
    _check_one_number(subject, wanted)
    contents: dict[str, Tree] = {}
    if any(entry is not None for entry in wanted.dscp_to_class):
        if None in wanted.dscp_to_class:
            raise FabricError("only some DSCPs have a class", "give every DSCP a class, as NVUE does", subject=subject)
        dscps = {str(dscp): {"switch-priority": entry} for dscp, entry in enumerate(wanted.dscp_to_class)}
        contents["mapping"] = {"trust": "l3", "dscp": dscps}
    queues = {str(number): queue for number, queue in enumerate(wanted.queues) if queue is not None}
    if queues:
        contents["egress-scheduler"] = {
            "traffic-class": {
                number: {"mode": "strict"}
                if queue.strict
                else {"mode": "dwrr", "bw-percent": _percent(subject, queue.bandwidth_percent)}
                for number, queue in queues.items()
            }
        }
        # Only with queues: a profile without a queue would mark nothing, but default-global marks queue 0.
        contents["congestion-control"] = {
            "traffic-class": {number: _ecn_tree(queue.ecn) for number, queue in queues.items()}
        }
    if wanted.pfc:
        contents["pfc"] = _pfc_tree(wanted)
    settings: Tree = {}
    for section, content in contents.items():
        profile = OURS + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
        qos.setdefault(section, {})[profile] = content
        settings[section] = {"profile": profile}
    if wanted.watchdog is not None:
        settings["pfc-watchdog"] = {"state": "enable"}
    port_tree: Tree = {"qos": settings} if settings else {}
    if wanted.ip_mtu_bytes is not None:
        port_tree["link"] = {"mtu": wanted.ip_mtu_bytes}
    return port_tree


def _check_one_number(subject: str, wanted: PortQos) -> None:
    queue_numbers = tuple(number if queue is not None else None for number, queue in enumerate(wanted.class_to_queue))
    if wanted.class_to_priority != queue_numbers or wanted.priority_to_queue != wanted.class_to_queue:
        raise FabricError(
            "a class's traffic class differs from its priority, but NVUE has one number for both, the switch priority",
            "give each class of roce_policy the same traffic_class and priority",
            subject=subject,
        )


def _percent(subject: str, percent: int | None) -> int:
    if percent is None or not 1 <= percent <= 100:
        raise FabricError(
            f"a queue that is not strict has {percent} as its share",
            "give it bandwidth_percent of 1 to 100",
            subject=subject,
        )
    return percent


def _ecn_tree(ecn: Ecn | None) -> Tree:
    if ecn is None:
        return {"ecn": "disable"}
    return {
        "ecn": "enable",
        "min-threshold": ecn.minimum_bytes,
        "max-threshold": ecn.maximum_bytes,
        "probability": ecn.probability_percent,
    }


def _pfc_tree(wanted: PortQos) -> Tree:
    pfc_tree: Tree = {
        "switch-priority": {str(priority): {} for priority in wanted.pfc},
        "rx": "enable",
        "tx": "enable",
    }
    if wanted.cable_m is not None:
        pfc_tree["cable-length"] = wanted.cable_m
    return pfc_tree


def _add_switch_settings(switch: Switch, qos: Tree) -> None:
    """Add to ``qos`` the settings that NVUE keeps once for all ports."""
    distinct = switch.distinct_ports()
    if not distinct:
        return
    classes = _common_value(switch, "the queue of a class", [port.class_to_queue for port in distinct])
    if any(queue is not None for queue in classes):
        mapping = {
            str(traffic_class): {"traffic-class": queue}
            for traffic_class, queue in enumerate(classes)
            if queue is not None
        }
        qos["egress-queue-mapping"] = {ALL_PORTS: {"switch-priority": mapping}}
    headrooms = [headroom for port in distinct for headroom in port.headroom if headroom is not None]
    if any(port.pfc for port in distinct):
        qos["traffic-pool"] = {
            "default-lossless": {"memory-percent": HALF_PERCENT},
            "default-lossy": {"memory-percent": 100 - HALF_PERCENT},
        }
    if headrooms:
        exponent = _common_value(
            switch, "the alpha of lossless priorities", [headroom.alpha_exponent for headroom in headrooms]
        )
        names = [name for name, alpha in ALPHAS.items() if alpha == exponent]
        if not names:
            raise FabricError(
                f"alpha_exponent {exponent} is not one of NVUE's",
                f"set it from {min(ALPHAS.values())} to {max(ALPHAS.values())}",
                subject=switch.name,
            )
        qos["advance-buffer-config"] = {ALL_PORTS: {"ingress-lossless-buffer": {"shared-alpha": names[0]}}}
    watchdogs = [port.watchdog for port in distinct if port.watchdog is not None]
    if watchdogs:
        qos["pfc-watchdog"] = _watchdog_tree(switch, _common_value(switch, "the PFC watchdog", watchdogs))


def _common_value(switch: Switch, setting: str, values: list[Any]) -> Any:
    if any(value != values[0] for value in values):
        raise FabricError(
            f"{setting} differs between its ports, but NVUE keeps one for the whole switch",
            "give all ports the same value",
            subject=switch.name,
        )
    return values[0]


def _watchdog_tree(switch: Switch, watchdog: Watchdog) -> Tree:
    interval, remainder = watchdog.restoration_ms, watchdog.detection_ms % watchdog.restoration_ms
    robustness = watchdog.detection_ms // interval
    if (
        watchdog.action != "drop"
        or remainder
        or not POLLING_MS[0] <= interval <= POLLING_MS[1]
        or not ROBUSTNESS[0] <= robustness <= ROBUSTNESS[1]
    ):
        raise FabricError(
            f"its PFC watchdog cannot {watchdog.action} after {watchdog.detection_ms} ms and end after "
            f"{watchdog.restoration_ms} ms: Cumulus drops, and ends after one of its polling intervals",
            f"set action to drop, restoration_ms from {POLLING_MS[0]} to {POLLING_MS[1]}, and detection_ms to a "
            "multiple of it",
            subject=switch.name,
        )
    return {"polling-interval": interval, "robustness": robustness}
