# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up answers of one port of each switch system, in the form of the sources that counters/systems.py names.

``answered`` makes them the results of a task.

Each has, of priority and queue 3: 31 pauses received and 32 sent, 33 marks, 34 drops, and one storm.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import OF_ALL_PORTS

PORTS = {
    "sonic": "Ethernet0",
    "eos": "Ethernet1/1",
    "nxos": "Ethernet1/1",
    "junos": "et-0/0/24",
    "cumulus": "swp1",
    "linux": "p1",
}


def hashes(tables: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {key: {"expireat": 1.0, "ttl": -0.001, "type": "hash", "value": fields} for key, fields in tables.items()}


def rows(name: str, *values: Any) -> dict[str, Any]:
    """Return a table of NX-OS, which shows one row as itself and several as a list."""
    return {f"TABLE_{name}": {f"ROW_{name}": values[0] if len(values) == 1 else list(values)}}


def statistic(kind: str, packets: str) -> dict[str, str]:
    return {"eq-stat-type": kind, "eq-stat-units": "Pkts", "eq-uc-stat-value": packets, "eq-mc-stat-value": "0"}


def drops(*packets: int) -> dict[str, Any]:
    return {f"DP{number}": {"droppedPackets": count} for number, count in enumerate(packets)}


JUNOS = """<rpc-reply xmlns:junos="http://xml.juniper.net/junos/22.4R0/junos">
<interface-information xmlns="http://xml.juniper.net/junos/22.4R0/junos-interface" junos:style="normal">
<physical-interface><name>gr-0/0/0</name><oper-status>up</oper-status><mtu>Unlimited</mtu></physical-interface>
<physical-interface><name>et-0/0/24</name><admin-status junos:format="Enabled">up</admin-status>
<oper-status>up</oper-status>
<queue-counters junos:style="brief"><interface-cos-short-summary>
<intf-cos-queue-type>Egress queues</intf-cos-queue-type></interface-cos-short-summary>
<queue><queue-number>0</queue-number><queue-counters-total-drop-packets>0</queue-counters-total-drop-packets></queue>
<queue><queue-number>3</queue-number><forwarding-class-name>no-loss</forwarding-class-name>
<queue-counters-queued-packets>99</queue-counters-queued-packets>
<queue-counters-total-drop-packets>34</queue-counters-total-drop-packets></queue></queue-counters>
<ethernet-mac-pfc-statistics junos:style="verbose"><mac-pfc-dot1p>0</mac-pfc-dot1p>
<input-mac-pfc-frames>0</input-mac-pfc-frames><output-mac-pfc-frames>0</output-mac-pfc-frames>
</ethernet-mac-pfc-statistics>
<ethernet-mac-pfc-statistics junos:style="verbose"><mac-pfc-dot1p>3</mac-pfc-dot1p>
<input-mac-pfc-frames>31</input-mac-pfc-frames><output-mac-pfc-frames>32</output-mac-pfc-frames>
</ethernet-mac-pfc-statistics>
<logical-interface><name>et-0/0/24.0</name></logical-interface></physical-interface>
</interface-information></rpc-reply>"""
SHOWN: dict[str, dict[str, Any]] = {
    "sonic": {
        "sonic-db-dump -n COUNTERS_DB -k COUNTERS*": hashes(
            {
                "COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x12"},
                "COUNTERS_QUEUE_NAME_MAP": {"Ethernet0:3": "oid:0x35", "Ethernet0:10": "oid:0x36", "Cpu:3": "oid:0x37"},
                "COUNTERS:oid:0x12": {
                    "SAI_PORT_STAT_PFC_3_RX_PKTS": "31",
                    "SAI_PORT_STAT_PFC_3_TX_PKTS": "32",
                    "EST_PORT_STAT_PFC_3_ON2OFF_RX_PKTS": "99",
                    "SAI_PORT_STAT_IF_IN_DISCARDS": "99",
                },
                "COUNTERS:oid:0x35": {
                    "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "33",
                    "SAI_QUEUE_STAT_DROPPED_PACKETS": "34",
                    "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "1",
                },
                "COUNTERS:oid:0x36": {"SAI_QUEUE_STAT_DROPPED_PACKETS": "99"},
            }
        ),
        "sonic-db-dump -n APPL_DB -k PORT_TABLE:*": hashes(
            {"PORT_TABLE:Ethernet0": {"oper_status": "up", "mtu": "9100"}, "PORT_TABLE:PortInitDone": {"lanes": "0"}}
        ),
    },
    "eos": {
        "show interfaces status": {"interfaceStatuses": {"Ethernet1/1": {"linkStatus": "connected"}}},
        "show interfaces priority-flow-control counters detail": {
            "interfaces": {"Ethernet1/1": {"priorities": {"3": {"rxFrames": 31, "txFrames": 32}}}}
        },
        "show qos interfaces ecn counters queue": {
            "intfQueueCounters": {"Ethernet1/1": {"queueCounters": {"2": "-", "3": "33"}}}
        },
        "show interfaces counters queue": {
            "egressQueueCounters": {
                "interfaces": {
                    "Ethernet1/1": {
                        "ucastQueues": {
                            "trafficClasses": {
                                "TC3": {
                                    "dropPrecedences": {"DP0": {"droppedPackets": 30}, "DP1": {"droppedPackets": 4}}
                                }
                            }
                        },
                        "mcastQueues": {
                            "trafficClasses": {"TC3": {"dropPrecedences": {"DP0": {"droppedPackets": 99}}}}
                        },
                    }
                }
            }
        },
        "show priority-flow-control counters watchdog": {
            "interfaces": {"Ethernet1/1": {"txQueues": {"3": {"stuckCount": 1, "recoveryCount": 1}}}}
        },
    },
    "nxos": {
        "show interface status": rows(
            "interface", {"interface": "Ethernet1/1", "state": "connected", "vlan": "routed"}
        ),
        "show queuing interface": rows(
            "module",
            rows(
                "queuing_interface",
                {
                    "dir": "Egress",
                    "if_name_str": "Ethernet1/1",
                    **rows(
                        "qosgrp_egress_stats",
                        {
                            "eq-qosgrp": "3",
                            **rows(
                                "qosgrp_egress_stats_entry",
                                statistic("Tx", "99"),
                                {**statistic("Tx", "99"), "eq-stat-units": "Byts"},
                                statistic("WRED/AFD & Tail Drop", "34"),
                                {**statistic("WRED/AFD & Tail Drop", "9999"), "eq-stat-units": "Byts"},
                                statistic("ECN", "33"),
                            ),
                        },
                        {"eq-qosgrp": "CONTROL QOS GROUP", **rows("qosgrp_egress_stats_entry", statistic("ECN", "99"))},
                    ),
                    **rows(
                        "pfc_stats",
                        {"cos": "3", "pfc-qosgrp": "3", "tx-pause-count": "32", "rx-pause-count": "31"},
                        {"cos": "4", "pfc-qosgrp": "4", "tx-pause-count": "0", "rx-pause-count": "0"},
                    ),
                },
                {"dir": "Ingress", "if_name_str": "Ethernet1/1"},
            ),
        ),
    },
    "junos": {"show interfaces extensive": JUNOS},
    "cumulus": {
        "interface": {"swp1": {"type": "swp", "link": {"oper-status": "up", "admin-status": "up"}}, "lo": {}},
        "interface/PORT/counters/qos": {
            "swp1": {
                "egress-queue-stats": {
                    "3": {"ecn-marked-frames": 33, "tx-frames": 99, "tx-uc-buffer-discards": 30, "wred-discards": 4}
                },
                "pfc-stats": {"3": {"rx-pause-frames": 31, "rx-pause-duration": 99, "tx-pause-frames": 32}},
            }
        },
    },
    "linux": {
        "ip -j link show": [{"ifname": "p1", "operstate": "UP"}, {"ifname": "p2", "operstate": "DOWN"}],
        "tc -s -j qdisc show": [
            {"kind": "noqueue", "handle": "0:", "dev": "lo", "root": True, "drops": 99},
            {
                "kind": "ets",
                "handle": "1:",
                "dev": "p1",
                "root": True,
                "drops": 99,
                "options": {"bands": 3, "strict": 1, "quanta": [5000, 5000], "priomap": [2] * 16},
            },
            {"kind": "pfifo", "handle": "1066:", "dev": "p1", "parent": "1:1", "options": {}, "drops": 0},
            {"kind": "red", "handle": "1033:", "dev": "p1", "parent": "1:2", "options": {}, "drops": 34, "marked": 33},
            {"kind": "pfifo", "handle": "1000:", "dev": "p1", "parent": "1:3", "options": {}, "drops": 0},
        ],
    },
}


def answered(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a task that asks for ``shown``, as ansible.builtin.command and uri return them."""
    ports = shown.get(OF_ALL_PORTS, {})
    return [
        *(
            {"item": command, "rc": 0, "stdout": output if isinstance(output, str) else json.dumps(output)}
            for command, output in shown.items()
            if command != OF_ALL_PORTS
        ),
        *(
            {"item": OF_ALL_PORTS.replace("PORT", port), "status": 200, "json": output}
            for port, output in ports.items()
        ),
    ]
