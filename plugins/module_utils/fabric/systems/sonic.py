# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC (community): ConfigDB as JSON, as in `config load`, `config apply-patch` and /etc/sonic/config_db.json.

Tables and fields are those of SONiC's models (sonic-buildimage, src/sonic-yang-models/yang-models). Two settings are
not in the terms of ``qos``, but are rendered, and changed by ``remediation``: the egress buffer of each queue
(BUFFER_QUEUE), without which a lossless queue drops at egress, and the WRED thresholds of yellow and red packets.

A policy's strict class is strict here, although SONiC's default gives it a weight. ``pfc_enable`` is always written, as
"" where nothing pauses; otherwise the earlier value would stay.
"""

from __future__ import annotations

import copy
import json
import re
from functools import lru_cache
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.systems import SONIC_COUNTERS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic import SYSTEM, read
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import EGRESS_LOSSLESS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import ConfigDb, without_dump
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_patch import patches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_restoration import (
    restoring_patches,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import (
    EGRESS_LOSSY,
    hash_fields,
    paused_ranges,
    range_text,
    wanted_port,
)


def render(switch: Switch) -> str:
    """Return the QoS tables of ``switch``, keys sorted, with headroom in the form for the planned pools.

    Objects that the tables refer to but do not contain are the image's own: ``remediation`` checks that they exist.
    """
    distinct = switch.distinct_ports()
    index = {id(qos): position for position, qos in enumerate(distinct)}
    kinds = tuple(index[id(qos)] for qos in switch.ports.values())
    return text_of_ports(tuple(switch.ports), kinds, tuple(distinct), switch.ecmp_fields, not switch.own_headroom)


@lru_cache(maxsize=64)
def text_of_ports(
    ports: tuple[str, ...],
    kinds: tuple[int, ...],
    distinct: tuple[PortQos, ...],
    ecmp: tuple[str, ...] | None,
    pools_headroom: bool,
) -> str:
    """Return the text of all switches whose ports have these names and these kinds."""
    tables: dict[str, dict[str, Any]] = {}

    def put(table: str, key: str, entry: dict[str, Any]) -> None:
        tables.setdefault(table, {})[key] = entry

    for qos in distinct:
        for (table, name), entry in wanted_port(qos, pools_headroom=pools_headroom).shared.items():
            put(table, name, entry)
    for port, kind in zip(ports, kinds):
        wanted = wanted_port(distinct[kind], pools_headroom=pools_headroom)
        put("PORT_QOS_MAP", port, wanted.maps)
        for number, entry in wanted.queues.items():
            put("QUEUE", f"{port}|{number}", entry)
            profile = EGRESS_LOSSLESS if number in wanted.lossless_queues else EGRESS_LOSSY
            put("BUFFER_QUEUE", f"{port}|{number}", {"profile": profile})
        paused = {numbers[0]: range_text(numbers) for numbers in paused_ranges(distinct[kind].pfc)}
        for number, name in wanted.groups.items():
            if number in paused or number not in distinct[kind].pfc:
                put("BUFFER_PG", f"{port}|{paused.get(number, number)}", {"profile": name})
        if wanted.watchdog:
            put("PFC_WD", port, wanted.watchdog)
        if wanted.mtu is not None:
            put("PORT", port, {"mtu": wanted.mtu})
        if wanted.cable is not None:
            tables.setdefault("CABLE_LENGTH", {}).setdefault("AZURE", {})[port] = wanted.cable
    if ecmp is not None:
        put("SWITCH_HASH", "GLOBAL", {"ecmp_hash": hash_fields(ecmp)})
    return json.dumps(tables, indent=2, sort_keys=True) + "\n"


def parse(text: str, name: str) -> Switch:
    """Parse the QoS of all ports of any ConfigDB, whole or in part.

    A queue's share is its weight in percent of the sum of its port's weights. Headroom that the switch computes itself
    (a profile "NULL") is read from the dump of APPL_DB after the ConfigDB, if there is one. Raises FabricError for the
    first error.
    """
    return read(ConfigDb(text, name))


def remediation(running: str, wanted: Switch) -> str:
    """Return the JSON patches (RFC 6902) for `config apply-patch` that change ``running`` to ``wanted``.

    ``parse`` reads the result as ``wanted``; the patches are "" where it already reads ``running`` so. There is one
    operation per line, and an empty line between two patches, which are to be applied in order. Raises FabricError as
    ``sonic_patch.patches`` does.
    """
    return _patches_text(patches(running, wanted))


def restoration(backup: str, running: str, name: str) -> str:
    """Return the patches, in the form of remediation's, from ``running`` back to ``backup``; "" if equal."""
    return _patches_text(restoring_patches(backup, running, name))


def applied(running: str, change: str) -> str:
    """Return ``running`` after the patches of ``change``."""
    tables = copy.deepcopy(ConfigDb(running, "").tables)
    for operation in (operation for patch in change.split("\n\n") for operation in json.loads(patch)):
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        holder = tables
        for parent in parents:
            holder = holder[parent]
        if operation["op"] == "remove":
            del holder[last]
        else:
            holder[last] = operation["value"]
    return json.dumps(tables)


def _patches_text(patches_found: list[list[dict[str, Any]]]) -> str:
    return "\n".join(
        "[\n" + ",\n".join(json.dumps(operation, sort_keys=True) for operation in operations) + "\n]\n"
        for operations in patches_found
    )


SONIC = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    configuration=without_dump,
    applied=applied,
    port=re.compile(r"Ethernet(0|[1-9][0-9]{0,3})"),  # sonic-port.yang
    port_example="Ethernet0",
    asics=tuple(name for name in ASICS if name != "jericho2"),
    not_asics={"jericho2": "SONiC has the queues of Jericho 2 as virtual output queues, which are not rendered"},
    # PFC that the first patch ends and a later one sets again, and keys that are removed before the last patch
    # (sonic_difference).
    interruptions={
        r"(?s)pfc_enable.*\n\n.*pfc_enable": "lossless packets can be lost until its last patch is applied",
        r'(?s)"remove", "path": "/(QUEUE|BUFFER_QUEUE|PORT_QOS_MAP)/.*\n\n': "queues lose their settings, and packets "
        "can be lost, until its last patch is applied",
        r'(?s)"remove", "path": "/\w+/[^"/|]*,.*\n\n': "ports that share a key with others, also those without a "
        "policy, lose what the key sets until its last patch is applied",
    },
    counters=SONIC_COUNTERS,
)
