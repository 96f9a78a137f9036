# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The counters of a port of each system, in the form of the sources that counters/systems.py names.

Each answer has, of priority and queue 3: 31 pauses received and 32 sent, 33 marks, 34 drops, and one storm.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import COUNTERS, read_counters
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

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
READABLE = sorted(SHOWN)


def read(system: str, shown: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    table = SYSTEMS[system].counters
    assert table is not None
    return read_counters(table, shown)


def test_every_system_but_dells_has_counters():
    assert sorted(name for name, system in SYSTEMS.items() if system.counters) == READABLE


@pytest.mark.parametrize("system", READABLE)
def test_counters_are_read_by_priority_and_queue(system):
    ports, reasons = read(system, SHOWN[system])
    port = ports[PORTS[system]]
    expected = {"pause_received": 31, "pause_sent": 32, "ecn_marked": 33, "dropped": 34, "watchdog": 1}
    assert port["up"] is True
    known = {counter: port[counter][3] for counter in COUNTERS if counter not in reasons}
    assert known == {counter: value for counter, value in expected.items() if counter not in reasons}
    assert {counter for counter in COUNTERS if port[counter] == [None] * 8} == set(reasons)
    assert len(reasons) <= 3


@pytest.mark.parametrize("system", READABLE)
def test_text_of_json_is_read_as_its_value(system):
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in SHOWN[system].items()}
    assert read(system, texts) == read(system, SHOWN[system])


def test_a_watchdog_without_an_event_has_counted_0_and_one_that_is_not_shown_nothing():
    quiet = {**SHOWN["eos"], "show priority-flow-control counters watchdog": {"interfaces": {}}}
    assert read("eos", quiet)[0]["Ethernet1/1"]["watchdog"] == [0] * 8
    for refused in (None, "", {}, {"errors": ["x"]}, {"interfaces": None}):
        ports, reasons = read("eos", {**quiet, "show priority-flow-control counters watchdog": refused})
        assert ports["Ethernet1/1"]["watchdog"] == [None] * 8
        assert "watchdog" in reasons


def test_links_that_are_down_are_told_from_unknown_ones():
    shown = json.loads(json.dumps(SHOWN["nxos"]))
    shown["show interface status"]["TABLE_interface"]["ROW_interface"]["state"] = "notconnec"
    assert read("nxos", shown)[0]["Ethernet1/1"]["up"] is False
    del shown["show interface status"]
    assert read("nxos", shown)[0]["Ethernet1/1"]["up"] is None
    assert read("linux", SHOWN["linux"])[0]["p2"]["up"] is False


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value of a tree."""
    yield path
    for key, below in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(below, (*path, key))


def damaged(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(tree)
    changed[path[0]] = damaged(tree[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("system", sorted(set(READABLE) - {"junos"}))
def test_a_damaged_answer_is_never_a_count_of_its_own(system):
    whole = read(system, SHOWN[system])[0][PORTS[system]]
    for path in list(places(SHOWN[system]))[1:]:
        for value in (None, True, -1, "n/a", "9" * 30, [], [None], {"3": None}):
            ports, _reasons = read(system, damaged(SHOWN[system], path, value))
            port = ports.get(PORTS[system])
            for counter in COUNTERS if port else ():
                for seen, real in zip(port[counter], whole[counter]):
                    # A watchdog that has not the port in its table has seen no event there. The handle of a Linux qdisc
                    # gives the number of its queue, so another handle moves a count.
                    counts = (None, *whole[counter]) if system == "linux" else (None, real)
                    assert seen in counts or (counter == "watchdog" and seen == 0), (path, value, counter)


@pytest.mark.parametrize("cut", range(0, len(JUNOS), 137))
def test_truncated_xml_is_no_answer(cut):
    ports, reasons = read("junos", {"show interfaces extensive": JUNOS[:cut]})
    assert ports == {}
    assert set(reasons) >= set(COUNTERS)


@pytest.mark.parametrize("text", ["<a/>", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "error: syntax", 5, {"a": 1}])
def test_other_xml_is_no_answer(text):
    assert read("junos", {"show interfaces extensive": text})[0] == {}


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "", "٣", "<b>3</b>"])
def test_a_count_in_xml_that_is_no_number_is_not_known(text):
    damaged_text = JUNOS.replace(">34<", f">{text}<").replace(">31<", f">{text}<")
    port = read("junos", {"show interfaces extensive": damaged_text})[0]["et-0/0/24"]
    assert (port["dropped"][3], port["pause_received"][3], port["pause_sent"][3]) == (None, None, 32)
