# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A statement beside the policy that can undo it is named by the path and the proof, on systems with tables or trees.

Statements of the same tables that have no such effect change neither.
"""

from __future__ import annotations

import json

import pytest
from proof_requests import judged, params
from switches import PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import Script

# Changes of a tree: path and value; PORT is the port's name.
TREES = {
    "sonic": {
        "port down": ({"PORT": {"PORT": {"admin_status": "down"}}}, "admin_status down"),
        "port speed": ({"PORT": {"PORT": {"speed": "100000"}}}, "100 Gbit/s"),
        "asymmetric PFC": ({"PORT": {"PORT": {"pfc_asym": "on"}}}, "pfc_asym"),
        "MACsec": ({"PORT": {"PORT": {"macsec": "M"}}}, "macsec"),
        "member of a port channel": (
            {"PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}, "PortChannel1|Ethernet99": {}}},
            "Ethernet99",
        ),
        "port channel down": (
            {
                "PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}},
                "PORTCHANNEL": {"PortChannel1": {"admin_status": "down"}},
            },
            "PortChannel1",
        ),
        "PCP map": (
            {"DOT1P_TO_TC_MAP": {"A": {"0": "0"}}, "PORT_QOS_MAP": {"PORT": {"dot1p_to_tc_map": "A"}}},
            "dot1p_to_tc_map",
        ),
        "forwarding class map": ({"PORT_QOS_MAP": {"PORT": {"dscp_to_fc_map": "A"}}}, "dscp_to_fc_map"),
        "port shaper": (
            {"SCHEDULER": {"S": {"pir": "1000"}}, "PORT_QOS_MAP": {"PORT": {"scheduler": "S"}}},
            "scheduler",
        ),
        "queue shaper": (
            {
                "SCHEDULER": {"S": {"type": "DWRR", "weight": "1", "pir": "1000"}},
                "QUEUE": {"PORT|7": {"scheduler": "S"}},
            },
            "pir 1000",
        ),
        "storm control": ({"PORT_STORM_CONTROL": {"PORT|broadcast": {"kbps": "1"}}}, "kbps"),
        "DSCP by access list": (
            {"ACL_TABLE": {"T": {"type": "L3", "ports": ["PORT"]}}, "ACL_RULE": {"T|R": {"DSCP_ACTION": "0"}}},
            "DSCP_ACTION",
        ),
        "tunnel": ({"TUNNEL": {"T": {"dscp_mode": "pipe", "tunnel_type": "IPINIP"}}}, "dscp_mode pipe"),
        "trimming": ({"SWITCH_TRIMMING": {"GLOBAL": {"dscp_value": "48"}}}, "dscp_value"),
        "strict multicast queue": (
            {"SCHEDULER": {"S": {"type": "STRICT"}}, "QUEUE": {"PORT|8-9": {"scheduler": "S"}}},
            "8-9",
        ),
    },
    "cumulus": {
        "port down": ({"interface": {"PORT": {"link": {"state": {"down": {}}}}}}, "state down"),
        "port speed": ({"interface": {"PORT": {"link": {"speed": "100G"}}}}, "100 Gbit/s"),
        "member of a bond": ({"interface": {"bond1": {"bond": {"member": {"PORT": {}, "swp99": {}}}}}}, "swp99"),
        "bond's QoS": (
            {"interface": {"bond1": {"bond": {"member": {"PORT": {}}}, "qos": {"pfc-watchdog": {"state": "disable"}}}}},
            "bond1 qos",
        ),
        "shaper": (
            {
                "qos": {"egress-shaper": {"S": {"port-max-rate": 1000}}},
                "interface": {"PORT": {"qos": {"egress-shaper": {"profile": "S"}}}},
            },
            "egress-shaper",
        ),
        "link pause": (
            {
                "qos": {"link-pause": {"P": {"rx": "enable"}}},
                "interface": {"PORT": {"qos": {"link-pause": {"profile": "P"}}}},
            },
            "link-pause",
        ),
        "storm control": ({"interface": {"PORT": {"storm-control": {"broadcast": 1}}}}, "storm-control"),
        "DSCP by access list": (
            {
                "acl": {"A": {"type": "ipv4", "rule": {"10": {"action": {"set": {"dscp": 0}}}}}},
                "interface": {"PORT": {"acl": {"A": {"inbound": {}}}}},
            },
            "set dscp",
        ),
        "policer": (
            {
                "acl": {"A": {"type": "ipv4", "rule": {"10": {"action": {"police": {"rate": 1}}}}}},
                "interface": {"PORT": {"acl": {"A": {"inbound": {}}}}},
            },
            "police",
        ),
        "pools": (
            {
                "qos": {
                    "advance-buffer-config": {"default-global": {"egress-lossless-buffer": {"shared-alpha": "alpha_1"}}}
                }
            },
            "egress-lossless-buffer",
        ),
        "VXLAN": ({"nve": {"vxlan": {"encapsulation": {"dscp": {"action": "set", "value": 0}}}}}, "vxlan"),
    },
    "dell_sonic": {
        "port down": ({"interfaces": [{"name": "PORT", "enabled": False}]}, "enabled False"),
        "port speed": ({"interfaces": [{"name": "PORT", "speed": "SPEED_100GB"}]}, "100 Gbit/s"),
        "asymmetric PFC": ({"qos_interfaces": [{"name": "PORT", "pfc": {"asymmetric": True}}]}, "asymmetric"),
        "PCP map": ({"qos_interfaces": [{"name": "PORT", "qos_maps": {"dot1p_fwd_group": "A"}}]}, "dot1p_fwd_group"),
        "port shaper": (
            {"qos_scheduler": [{"name": "POLICY", "schedulers": [{"sequence": 255, "pir": 1000}]}]},
            "pir 1000",
        ),
        "policy of flows": (
            {
                "fbs_policies": [
                    {"policy_name": "P", "sections": [{"class": "C", "qos": {"remark": {"set_dscp": "af41"}}}]}
                ]
            },
            "set_dscp",
        ),
        "policer of flows": (
            {"fbs_policies": [{"policy_name": "P", "sections": [{"class": "C", "qos": {"policer": {"cir": "1"}}}]}]},
            "policer",
        ),
        "member of a port channel": (
            {
                "lag_interfaces": [
                    {"name": "PortChannel1", "members": {"interfaces": [{"member": "PORT"}, {"member": "Eth1/99"}]}}
                ]
            },
            "Eth1/99",
        ),
    },
}
HARMLESS_TREES = {
    "sonic": [
        {"PORT": {"PORT": {"pfc_asym": "off", "fec": "rs", "description": "shutdown"}}},
        {
            "PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}},
            "PORTCHANNEL": {"PortChannel1": {"admin_status": "up", "mtu": "9100"}},
        },
        {"SCHEDULER": {"UNUSED": {"pir": "1000"}}},
        {
            "ACL_TABLE": {"T": {"type": "L3", "ports": ["PORT"]}},
            "ACL_RULE": {"T|R": {"PACKET_ACTION": "FORWARD", "DSCP": "26"}},
        },
        {"TUNNEL": {"T": {"dscp_mode": "uniform", "ecn_mode": "copy_from_outer"}}},
        {"QUEUE": {"PORT|8-9": {"scheduler": "scheduler.0"}, "CPU|0-47": {"scheduler": "scheduler.0"}}},
        {"COPP_GROUP": {"queue4_group1": {"queue": "4", "cir": "6000"}}},
    ],
    "cumulus": [
        {
            "interface": {
                "PORT": {"link": {"state": {"up": {}}, "speed": "400G", "fec": "rs"}, "acl": {"A": {"inbound": {}}}}
            }
        },
        {"acl": {"UNUSED": {"rule": {"10": {"action": {"set": {"dscp": 0}}}}}}},
        {"qos": {"egress-shaper": {"UNUSED": {"port-max-rate": 1000}}}},
        {"interface": {"bond1": {"bond": {"member": {"PORT": {}}}}}},
    ],
    "dell_sonic": [
        {"interfaces": [{"name": "PORT", "enabled": True, "speed": "SPEED_400GB", "description": "shutdown"}]},
        {"lag_interfaces": [{"name": "PortChannel1", "members": {"interfaces": [{"member": "PORT"}]}}]},
        {"fbs_policies": [{"policy_name": "P", "sections": [{"class": "C", "forwarding": {"ars_disable": True}}]}]},
    ],
}
LINUX = {
    "port down": (lambda reading: reading["links"][0].update(flags=["BROADCAST"]), "link down"),
    "classifier on ingress": (
        lambda reading: reading["qdiscs"].append(
            {"kind": "clsact", "handle": "ffff:", "parent": "ffff:fff1", "dev": reading["links"][0]["ifname"]}
        ),
        "clsact",
    ),
    "member of a bond": (
        lambda reading: [
            link.update(flags=["UP", "SLAVE"], master="bond0") for link in (reading["links"][0], reading["links"][-1])
        ],
        "eth9",
    ),
}


def merged(node, added, names):
    """Add a tree to ``node``. A list's elements are merged by their names."""
    for key, value in added.items():
        name = names.get(key, key.replace("|PORT", f"|{names['PORT']}").replace("PORT|", f"{names['PORT']}|"))
        if isinstance(value, dict):
            merged(node.setdefault(name, {}), value, names)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            listed = node.setdefault(name, []) or []
            node[name] = listed
            for element in value:
                replaced = json.loads(
                    json.dumps(element)
                    .replace('"PORT"', f'"{names["PORT"]}"')
                    .replace("POLICY", names.get("POLICY", ""))
                )
                same = [other for other in listed if other.get("name") == replaced.get("name") is not None]
                if same and "schedulers" in replaced:
                    same[0]["schedulers"] += replaced["schedulers"]
                elif same:
                    merged(same[0], replaced, names)
                else:
                    listed.append(replaced)
        else:
            node[name] = [names.get(element, element) for element in value] if isinstance(value, list) else value


def with_tree(system, added):
    """Return a configuration with a tree added."""
    names = {"PORT": next(iter(PORTS[system]))}
    data = json.loads(params(system)["running"]["spine1"])
    if system == "sonic":
        # PORT is both a table and the name of a port.
        table = added.get("PORT")
        merged(data, {name: entries for name, entries in added.items() if name != "PORT"}, names)
        merged(data["PORT"], table or {}, names)
    elif system == "cumulus":
        merged(data[0]["set"], added, names)
    else:
        policy = data["sonic_qos_interfaces"]["config"][0]["scheduler_policy"]
        for resource, value in added.items():
            holder, name = (
                (data.get(f"sonic_{resource}"), "config") if f"sonic_{resource}" in data else (data, resource)
            )
            merged(holder, {name: value}, {**names, "POLICY": policy})
    return json.dumps(data)


def with_reading(change):
    """Return what a Linux machine with the policy shows, with a change; eth9 is none of the inventory."""
    model = Script(params("linux")["running"]["spine1"], "spine1").model
    links = [{"ifname": port, "mtu": mtu, "flags": ["UP"]} for port, mtu in model["links"].items()]
    reading = {
        "links": [*links, {"ifname": "eth9", "mtu": 1500, "flags": ["UP"]}],
        "qdiscs": [qdisc for listed in model["qdiscs"].values() for qdisc in listed],
        "filters": {"eth9": [], **model["filters"]},
        "sysctl": model["sysctl"],
    }
    change(reading)
    return json.dumps(reading)


def changed(system, change):
    return with_reading(change) if system == "linux" else with_tree(system, change)


WRONG, RIGHT = {**TREES, "linux": LINUX}, {**HARMLESS_TREES, "linux": [lambda _reading: None]}


@pytest.mark.parametrize(("system", "name"), [(system, name) for system, cases in WRONG.items() for name in cases])
def test_a_statement_that_can_undo_the_policy_is_named_by_the_path_and_the_proof(system, name):
    statement, key = WRONG[system][name]
    faults, failed, first = judged(system, changed(system, statement))
    assert any(key in str(fault["seen"]) and fault["where"].startswith("spine1") for fault in faults), faults
    assert any(key in str(claim.seen) and claim.claim.startswith("spine1") for claim in failed), failed
    assert first.startswith("spine1: ")


@pytest.mark.parametrize(
    ("system", "index"), [(system, index) for system, cases in RIGHT.items() for index in range(len(cases))]
)
def test_other_statements_change_nothing(system, index):
    assert judged(system, changed(system, RIGHT[system][index])) == ([], [], "")
