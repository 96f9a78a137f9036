"""Switches as a plan makes them, for the tests of all systems: the reference policy, and any that a policy allows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import sonic_configs
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

# Systems that have none of the table's ASICs: NX-OS has no rows in it, SONiC has its own pools, Linux sends no pauses.
ODD_ASICS = {"linux": None, "nxos": "nexus", "sonic": "as_imaged"}


def asic_of(system: str) -> str | None:
    """Return an ASIC of the table that runs ``system`` and has ports of 400 Gbit/s, or its entry in ODD_ASICS."""
    if system in ODD_ASICS:
        return ODD_ASICS[system]
    names = SYSTEMS[system].asics or ("spectrum3",)
    return next(name for name in names if any(speed == 400 for speed, _cable in ASICS[name].headroom))


def ports_of(system: str) -> tuple[str, str]:
    """Return two port names of ``system``: its example, and the name with the next number."""
    if system == "sonic":
        return "Ethernet0", "Ethernet8"  # ports of sonic_configs
    first = re.split("[,:]", SYSTEMS[system].port_example)[0]
    return first, re.sub(r"\d+$", lambda number: str(int(number[0]) + 1), first)


ASIC_OF = {system: asic_of(system) for system in SYSTEMS}
PORTS = {system: ports_of(system) for system in SYSTEMS}
OWN_ASICS = {
    **sonic_configs.ASICS,
    "nexus": {
        "source": "a test",
        "buffer_bytes": 80_000_000,
        "pool_bytes": 40_000_000,
        "cell_bytes": 208,
        "lossless_classes": 2,
        "alpha_exponent": 0,
    },
}
ECN = Ecn(150_000, 1_500_000, 100)
QUEUE_BUFFER_BYTES = 15_000_000  # ECN's thresholds are 1% and 10% of it; for systems that use percents
NOTHING = (None,) * CLASSES
LOSSY: dict[str, Any] = {"pfc": (), "headroom": NOTHING, "watchdog": None}
# The changes of a port that leave it without settings, except for its MTU.
NO_QOS: dict[str, Any] = {
    "dscp_to_class": (None,) * DSCPS,
    "class_to_queue": NOTHING,
    "class_to_priority": NOTHING,
    "priority_to_queue": NOTHING,
    "queues": NOTHING,
    **LOSSY,
}
HEADROOM = Headroom(reserved_bytes=19_456, xoff_bytes=38_912, xon_offset_bytes=19_456, alpha_exponent=0)


def at(values: tuple[Any, ...], **changes: Any) -> tuple[Any, ...]:
    """Return ``values`` with others at some places: ``at(queues, _3=None)``."""
    return tuple(changes.get(f"_{place}", value) for place, value in enumerate(values))


def port_qos(policy: Policy, ecn: Ecn = ECN, headroom: Headroom = HEADROOM) -> PortQos:
    """Return the settings of one port according to ``policy``, with these thresholds."""
    classes = (*policy.classes, policy.cnp, policy.default)

    def by(key: str, value: str) -> tuple[int | None, ...]:
        table = {getattr(each, key): getattr(each, value) for each in classes}
        return tuple(table.get(at) for at in range(CLASSES))

    queues: list[Queue | None] = [None] * CLASSES
    for each in policy.classes:
        queues[each.queue] = Queue(False, each.bandwidth_percent, each.ecn or ecn)
    queues[policy.cnp.queue] = Queue(True)
    queues[policy.default.queue] = Queue(False, policy.default.bandwidth_percent)
    lossless = sorted(each.priority for each in policy.lossless)
    return PortQos(
        dscp_to_class=policy.dscp_to_class(),
        class_to_queue=by("traffic_class", "queue"),
        class_to_priority=by("traffic_class", "priority"),
        priority_to_queue=by("priority", "queue"),
        queues=tuple(queues),
        pfc=tuple(lossless),
        headroom=tuple(headroom if at in lossless else None for at in range(CLASSES)),
        watchdog=policy.watchdog,
        ip_mtu_bytes=policy.switch_ip_mtu_bytes,
    )


def switch(system: str, ports: list[str], policy: dict[str, Any] | None = None, **changes: Any) -> Switch:
    """Return a switch with the reference policy (or ``policy``) on all ``ports``; ``changes`` apply to each PortQos."""
    read = read_policy(policy)
    qos = port_qos(read)
    if system == "cumulus":  # it computes headroom itself
        qos = replace(qos, headroom=NOTHING, cable_m=5 if qos.pfc else None)
    qos = replace(qos, **changes)
    buffer = QUEUE_BUFFER_BYTES if system == "junos" else None
    return Switch("leaf1", system, dict.fromkeys(ports, qos), read.ecmp_fields, buffer)


def running(planned: Switch) -> str:
    """Return the text of a switch with the configuration of ``planned``; SONiC's also has its image's buffers."""
    text = SYSTEMS[planned.system].render(planned)
    if planned.system == "sonic":
        image, tables = sonic_configs.default_config(), json.loads(text)
        for table in ("BUFFER_POOL", "BUFFER_PROFILE"):
            tables[table] = {**image[table], **tables.get(table, {})}
        return json.dumps(tables)
    return text


def policies() -> st.SearchStrategy[dict[str, Any]]:
    """Return any policy of one or two RoCE classes that read_policy accepts, in the form in which a user writes it."""

    @st.composite
    def draw_policy(draw: Any) -> dict[str, Any]:
        count = draw(st.integers(1, 2))
        numbers = draw(st.permutations(range(CLASSES)))
        dscps = draw(st.lists(st.integers(0, 63), min_size=count + 1, max_size=count + 1, unique=True))
        percents = draw(st.lists(st.integers(1, 45), min_size=count, max_size=count))
        classes = {}
        for at, name in enumerate(("roce", "storage")[:count]):
            classes[name] = {
                "mode": draw(st.sampled_from(["lossless", "lossy"])),
                "dscp": dscps[at],
                "traffic_class": numbers[at],
                "bandwidth_percent": percents[at],
            }
        return {
            "classes": classes,
            "cnp": {"dscp": dscps[-1], "traffic_class": numbers[-1]},
            "default": {"traffic_class": numbers[-2]},
        }

    return draw_policy()
