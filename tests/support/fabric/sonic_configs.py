"""Configurations like those of SONiC's images, for tests: the default QoS and buffers of a switch with a few ports.

The values are those of sonic-buildimage, files/build_templates/qos_config.j2 and buffers_config.j2 (2026); the sizes of
pools and of pg_lossless_* are examples, as each platform has its own.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic

PORTS = ("Ethernet0", "Ethernet4", "Ethernet8")
DSCP_AZURE = {str(dscp): {3: "3", 4: "4", 5: "2", 8: "0", 46: "5", 48: "6"}.get(dscp, "1") for dscp in range(64)}
COLOURS = ("green", "yellow", "red")
# The ASIC of a switch with the pools of default_config, for roce_asics.
ASICS = {
    "as_imaged": {
        "like": "spectrum4",
        "source": "default_config",
        "pool_bytes": 32_689_152,
        "headroom_pool_bytes": 2_058_240,
        "lossy_pool_bytes": 0,
    }
}


def default_config(ports: tuple[str, ...] = PORTS) -> dict[str, Any]:
    """Return the configuration of a switch after `config qos reload`, including tables that are not about QoS."""
    lossless = ("3", "4")
    identity = {str(at): str(at) for at in range(8)}
    return {
        "DEVICE_METADATA": {"localhost": {"hostname": "leaf1", "type": "LeafRouter", "mac": "00:11:22:33:44:55"}},
        "VERSIONS": {"DATABASE": {"VERSION": "version_202511_01"}},
        "LOOPBACK_INTERFACE": {"Loopback0": {}, "Loopback0|10.0.0.1/32": {}},
        "CABLE_LENGTH": {"AZURE": dict.fromkeys(ports, "5m")},
        "PORT": {
            port: {
                "admin_status": "up",
                "alias": f"etp{at}",
                "lanes": ",".join(str(4 * at + lane) for lane in range(4)),
                "mtu": "9100",
                "speed": "400000",
            }
            for at, port in enumerate(ports)
        },
        "DSCP_TO_TC_MAP": {"AZURE": dict(DSCP_AZURE)},
        "TC_TO_QUEUE_MAP": {"AZURE": identity},
        "TC_TO_PRIORITY_GROUP_MAP": {"AZURE": {**{str(at): "0" for at in range(8)}, "3": "3", "4": "4", "7": "7"}},
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": dict(identity)},
        "SCHEDULER": {
            "scheduler.0": {"type": "DWRR", "weight": "14"},
            "scheduler.1": {"type": "DWRR", "weight": "15"},
        },
        "WRED_PROFILE": {
            "AZURE_LOSSLESS": {
                "ecn": "ecn_all",
                **{f"wred_{colour}_enable": "true" for colour in COLOURS},
                **{f"{colour}_min_threshold": "1048576" for colour in COLOURS},
                **{f"{colour}_max_threshold": "2097152" for colour in COLOURS},
                **{f"{colour}_drop_probability": "5" for colour in COLOURS},
            }
        },
        "PORT_QOS_MAP": {
            "global": {"dscp_to_tc_map": "AZURE"},
            **{
                port: {
                    "dscp_to_tc_map": "AZURE",
                    "tc_to_queue_map": "AZURE",
                    "tc_to_pg_map": "AZURE",
                    "pfc_to_queue_map": "AZURE",
                    "pfc_enable": "3,4",
                    "pfcwd_sw_enable": "3,4",
                }
                for port in ports
            },
        },
        "QUEUE": {
            f"{port}|{queue}": {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}
            if queue in lossless
            else {"scheduler": "scheduler.0"}
            for port in ports
            for queue in "0123456"
        },
        "BUFFER_POOL": {
            "ingress_lossless_pool": {"mode": "dynamic", "size": "32689152", "type": "ingress", "xoff": "2058240"},
            "egress_lossless_pool": {"mode": "static", "size": "33417216", "type": "egress"},
            "egress_lossy_pool": {"mode": "dynamic", "size": "24709632", "type": "egress"},
        },
        "BUFFER_PROFILE": {
            "ingress_lossy_profile": {"dynamic_th": "3", "pool": "ingress_lossless_pool", "size": "0"},
            "egress_lossless_profile": {"pool": "egress_lossless_pool", "size": "0", "static_th": "33417216"},
            "egress_lossy_profile": {"dynamic_th": "3", "pool": "egress_lossy_pool", "size": "1518"},
            "pg_lossless_100000_5m_profile": {
                "dynamic_th": "-3",
                "pool": "ingress_lossless_pool",
                "size": "1248",
                "xoff": "96928",
                "xon": "1248",
                "xon_offset": "2496",
            },
        },
        "BUFFER_PG": {
            **{f"{port}|0": {"profile": "ingress_lossy_profile"} for port in ports},
            **{f"{port}|3-4": {"profile": "pg_lossless_100000_5m_profile"} for port in ports},
        },
        "BUFFER_QUEUE": {
            f"{port}|{queues}": {"profile": profile}
            for port in ports
            for queues, profile in (
                ("0-2", "egress_lossy_profile"),
                ("3-4", "egress_lossless_profile"),
                ("5-6", "egress_lossy_profile"),
            )
        },
        "PFC_WD": {
            "GLOBAL": {"POLL_INTERVAL": "200"},
            **{port: {"action": "drop", "detection_time": "200", "restoration_time": "200"} for port in ports},
        },
    }


def dynamic_config(ports: tuple[str, ...] = PORTS, cable: str = "5m") -> dict[str, Any]:
    """Return ``default_config`` as of an image that computes headroom and the sizes of ingress pools (buffer_model)."""
    config = default_config(ports)
    config["DEVICE_METADATA"]["localhost"]["buffer_model"] = "dynamic"
    config["CABLE_LENGTH"]["AZURE"] = dict.fromkeys(ports, cable)
    config["BUFFER_POOL"] = {
        "ingress_lossless_pool": {"type": "ingress", "mode": "dynamic"},
        "egress_lossless_pool": {"type": "egress", "mode": "dynamic", "size": "60817392"},
        "egress_lossy_pool": {"type": "egress", "mode": "dynamic"},
    }
    del config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]
    groups = {key: entry for key, entry in config["BUFFER_PG"].items() if key.endswith("|0")}
    config["BUFFER_PG"] = {**groups, **{f"{port}|3-4": {"profile": "NULL"} for port in ports}}
    return config


def with_brackets(config: dict[str, Any]) -> dict[str, Any]:
    """Return ``config`` as in images before sonic-swss#1754 (2021): "[TABLE|name]", and several ports in a key."""
    old = copy.deepcopy(config)
    fields = {
        "dscp_to_tc_map": "DSCP_TO_TC_MAP",
        "tc_to_queue_map": "TC_TO_QUEUE_MAP",
        "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
        "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
        "scheduler": "SCHEDULER",
        "wred_profile": "WRED_PROFILE",
        "profile": "BUFFER_PROFILE",
        "pool": "BUFFER_POOL",
    }
    for entries in old.values():
        for entry in entries.values():
            for field, table in fields.items():
                if field in entry and entry[field] != "NULL":
                    entry[field] = f"[{table}|{entry[field]}]"
    ports = ",".join(old["PORT"])
    first = next(iter(old["PORT"]))
    for table in ("QUEUE", "BUFFER_PG", "BUFFER_QUEUE"):
        old[table] = {
            key.replace(first, ports): entry for key, entry in old[table].items() if key.split("|")[0] == first
        }
    old["PORT_QOS_MAP"] = {ports: old["PORT_QOS_MAP"][first]}
    old["VERSIONS"]["DATABASE"]["VERSION"] = "version_1_0_6"
    return old


def read(config: dict) -> Switch:
    return sonic.parse(json.dumps(config), "leaf1")
