# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tables of counters of each switch system. Only Linux's was ever seen on a device.

Sources, all read in November 2026:

- SONiC: sonic-utilities 691b1bbc4f: scripts/pfcstat, queuestat, wredstat and pfcwd/main.py name the fields of
  COUNTERS_DB, tests/mock_tables/counters_db.json has their form. sonic-db-dump prints {key: {"value": {field: text}}}.
- EOS: Arista's network-test-automation (anta, tests/interfaces.py) for queues, marks and links; Meta's tests of EOS
  switches (taac, health_checks) for PFC by priority and the watchdog, which lists an interface after its first event.
  Drops are by traffic class, which is the queue unless a line maps it elsewhere.
- NX-OS: Cisco, Nexus 9000 show commands 9.3(x), "show queuing", for the names of tables and fields; the texts of
  eq-stat-type from Cisco employees' scripts (nxapi_interface_egress_queuing.py). A queue is a qos-group.
- Junos: Juniper's recording of `show interfaces extensive` of a QFX with 22.4R0 (Apstra telemetry, "Interface Flap").
- Cumulus: user guide 5.x, "nv show interface <interface-id> counters qos"; the JSON from scripts that read an SN5600.
  There, tx-uc-buffer-discards is a number of frames, which the guide's tables show with the unit Bytes.
- Linux: iproute2 6.1, tc/q_red.c and tc/tc_util.c.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import OF_ALL_PORTS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import (
    UP,
    CounterSource,
    CounterTable,
    RowMatch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux import LinuxPort

PORT = re.compile(r"(.+)")
NUMBER = re.compile(r"([0-7])")
ANY = re.compile(r".+")

# SONiC: the two dumps that counters.yml of the role makes.
_COUNTERS_DB, _APPL_DB = "sonic-db-dump -n COUNTERS_DB -k COUNTERS*", "sonic-db-dump -n APPL_DB -k PORT_TABLE:*"


def _sonic(command: str, output: Any) -> Any:
    """Return {port: {"port": fields, "queues": {number: fields}}}, or {port: fields} of PORT_TABLE."""
    dump = json.loads(output) if isinstance(output, str) else output
    fields = {key: row["value"] for key, row in dump.items()}
    if command == _APPL_DB:
        return {key.partition(":")[2]: value for key, value in fields.items()}
    tree: dict[str, Any] = {
        port: {"port": fields.get(f"COUNTERS:{oid}"), "queues": {}}
        for port, oid in fields["COUNTERS_PORT_NAME_MAP"].items()
    }
    for queue, oid in fields["COUNTERS_QUEUE_NAME_MAP"].items():
        port, _colon, number = queue.rpartition(":")
        if port in tree:
            tree[port]["queues"][number] = fields.get(f"COUNTERS:{oid}")
    return tree


SONIC_COUNTERS = CounterTable(
    (
        CounterSource(UP, _APPL_DB, (PORT, "oper_status")),
        CounterSource("pause_received", _COUNTERS_DB, (PORT, "port", re.compile(r"SAI_PORT_STAT_PFC_([0-7])_RX_PKTS"))),
        CounterSource("pause_sent", _COUNTERS_DB, (PORT, "port", re.compile(r"SAI_PORT_STAT_PFC_([0-7])_TX_PKTS"))),
        CounterSource("ecn_marked", _COUNTERS_DB, (PORT, "queues", NUMBER, "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS")),
        CounterSource("dropped", _COUNTERS_DB, (PORT, "queues", NUMBER, "SAI_QUEUE_STAT_DROPPED_PACKETS")),
        CounterSource("watchdog", _COUNTERS_DB, (PORT, "queues", NUMBER, "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED")),
    ),
    ("up",),
    decode=_sonic,
)

_EOS_STATUS = "show interfaces status"
_EOS_PFC = "show interfaces priority-flow-control counters detail"
_EOS_ECN = "show qos interfaces ecn counters queue"
_EOS_QUEUES = "show interfaces counters queue"
_EOS_WATCHDOG = "show priority-flow-control counters watchdog"
_EOS_CLASS = (PORT, "ucastQueues", "trafficClasses", re.compile(r"TC([0-7])"), "dropPrecedences", ANY, "droppedPackets")
EOS_COUNTERS = CounterTable(
    (
        CounterSource(UP, _EOS_STATUS, ("interfaceStatuses", PORT, "linkStatus")),
        CounterSource("pause_received", _EOS_PFC, ("interfaces", PORT, "priorities", NUMBER, "rxFrames")),
        CounterSource("pause_sent", _EOS_PFC, ("interfaces", PORT, "priorities", NUMBER, "txFrames")),
        CounterSource("ecn_marked", _EOS_ECN, ("intfQueueCounters", PORT, "queueCounters", NUMBER)),
        CounterSource("dropped", _EOS_QUEUES, ("egressQueueCounters", "interfaces", *_EOS_CLASS)),
        CounterSource("watchdog", _EOS_WATCHDOG, ("interfaces", PORT, "txQueues", NUMBER, "stuckCount"), absent=0),
    ),
    ("connected",),
)

_NXOS_STATUS, _NXOS_QUEUING = "show interface status", "show queuing interface"
_NXOS_ROW = (
    *("TABLE_module", "ROW_module", "TABLE_queuing_interface", "ROW_queuing_interface"),
    RowMatch("if_name_str", re.compile(r"(Ethernet[0-9/]+)(?: .*)?")),
)
_NXOS_PAUSES = (*_NXOS_ROW, "TABLE_pfc_stats", "ROW_pfc_stats", RowMatch("cos", NUMBER))
_NXOS_QUEUE = (
    *(*_NXOS_ROW, "TABLE_qosgrp_egress_stats", "ROW_qosgrp_egress_stats", RowMatch("eq-qosgrp", NUMBER)),
    *(
        "TABLE_qosgrp_egress_stats_entry",
        "ROW_qosgrp_egress_stats_entry",
        RowMatch("eq-stat-units", re.compile("Pkts")),
    ),
)
NXOS_COUNTERS = CounterTable(
    (
        CounterSource(UP, _NXOS_STATUS, ("TABLE_interface", "ROW_interface", RowMatch("interface", PORT), "state")),
        CounterSource("pause_received", _NXOS_QUEUING, (*_NXOS_PAUSES, "rx-pause-count")),
        CounterSource("pause_sent", _NXOS_QUEUING, (*_NXOS_PAUSES, "tx-pause-count")),
        CounterSource(
            "ecn_marked", _NXOS_QUEUING, (*_NXOS_QUEUE, RowMatch("eq-stat-type", re.compile("ECN")), "eq-uc-stat-value")
        ),
        CounterSource(
            "dropped",
            _NXOS_QUEUING,
            (*_NXOS_QUEUE, RowMatch("eq-stat-type", re.compile("Dropped|WRED/AFD & Tail Drop")), "eq-uc-stat-value"),
        ),
    ),
    ("connected",),
    {"watchdog": "no document was found that names the fields of `show queuing pfc-queue interface` in JSON"},
)

_JUNOS = "show interfaces extensive"
_JUNOS_PORT = ("physical-interface", RowMatch("name", PORT))


def _junos(_command: str, output: Any) -> Any:
    """Return XML as dictionaries of lists by tag, without namespaces; an element without others is its text."""
    if "<!DOCTYPE" in output:
        raise ValueError("a document type, which may have entities without end")
    try:
        root = ElementTree.fromstring(output)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    tables = [element for element in root.iter() if _tag(element) == "interface-information"]
    return _element(tables[0]) if tables else None


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _element(element: ElementTree.Element) -> Any:
    if not len(element):
        return (element.text or "").strip()
    tree: dict[str, Any] = {}
    for child in element:
        value = _element(child)
        if isinstance(value, str):
            tree[_tag(child)] = value
        else:
            tree.setdefault(_tag(child), []).append(value)
    return tree


JUNOS_COUNTERS = CounterTable(
    (
        CounterSource(UP, _JUNOS, (*_JUNOS_PORT, "oper-status")),
        *(
            CounterSource(
                counter,
                _JUNOS,
                (
                    *_JUNOS_PORT,
                    "ethernet-mac-pfc-statistics",
                    RowMatch("mac-pfc-dot1p", NUMBER),
                    f"{way}-mac-pfc-frames",
                ),
            )
            for counter, way in (("pause_received", "input"), ("pause_sent", "output"))
        ),
        CounterSource(
            "dropped",
            _JUNOS,
            (
                *_JUNOS_PORT,
                "queue-counters",
                "queue",
                RowMatch("queue-number", NUMBER),
                "queue-counters-total-drop-packets",
            ),
        ),
    ),
    ("up",),
    {
        "ecn_marked": "no document was found that names Junos's counter of ECN marks in XML",
        "watchdog": "no document was found that names Junos's counters of the watchdog in XML",
    },
    _junos,
)

# NVUE: the paths below /nvue_v1, of which counters.yml of the role asks the second for each port.
_NVUE_LINKS, _NVUE_QOS = "interface", OF_ALL_PORTS
_NVUE_QUEUE = (PORT, "egress-queue-stats", NUMBER)
CUMULUS_COUNTERS = CounterTable(
    (
        CounterSource(UP, _NVUE_LINKS, (PORT, "link", "oper-status")),
        CounterSource("pause_received", _NVUE_QOS, (PORT, "pfc-stats", NUMBER, "rx-pause-frames")),
        CounterSource("pause_sent", _NVUE_QOS, (PORT, "pfc-stats", NUMBER, "tx-pause-frames")),
        CounterSource("ecn_marked", _NVUE_QOS, (*_NVUE_QUEUE, "ecn-marked-frames")),
        CounterSource("dropped", _NVUE_QOS, (*_NVUE_QUEUE, re.compile("tx-uc-buffer-discards|wred-discards"))),
    ),
    ("up",),
    {"watchdog": "no document was found that shows NVUE's counters of the watchdog in JSON"},
)

_LINUX_LINKS, _LINUX_QDISCS = "ip -j link show", "tc -s -j qdisc show"


def _linux(command: str, output: Any) -> Any:
    """Return the links as they are, or {device: {queue: qdisc}} of the devices whose qdiscs are understood."""
    rows = json.loads(output) if isinstance(output, str) else output
    if command == _LINUX_LINKS:
        return rows
    qdiscs: dict[str, list[Any]] = {}
    for row in rows:
        qdiscs.setdefault(row["dev"], []).append(row)
    tree = {}
    for name in qdiscs:
        port = LinuxPort("", name, {"links": {name: 0}, "qdiscs": qdiscs, "filters": {}})
        with suppress(FabricError):
            tree[name] = _queues(port)
    return tree


def _queues(port: LinuxPort) -> dict[str, Any]:
    root: dict[str, Any] = next((qdisc for qdisc in port.qdiscs if qdisc.get("root")), {})
    if root.get("kind") not in ("ets", "prio"):
        return {}
    count = len(port.bands(root))
    children = port.children(root, count)
    return {str(port.numbers(children, count)[band][0]): child for band, child in children.items()}


LINUX_COUNTERS = CounterTable(
    (
        CounterSource(UP, _LINUX_LINKS, (RowMatch("ifname", PORT), "operstate")),
        CounterSource("ecn_marked", _LINUX_QDISCS, (PORT, NUMBER, "marked")),
        CounterSource("dropped", _LINUX_QDISCS, (PORT, NUMBER, "drops")),
    ),
    ("UP",),
    dict.fromkeys(("pause_received", "pause_sent", "watchdog"), "Linux has no PFC on switches' ports"),
    _linux,
)
