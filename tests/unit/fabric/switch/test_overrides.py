# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A statement beside the policy that can undo it is named by the path and the proof.

One file because the examples are the cases of the tests.
"""

from __future__ import annotations

import json

import pytest
from proof_requests import judged, params
from switches import PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import Script

# Each is a change of spine1's configuration, and a part of what is seen. A change is lines ("PORT: " as the first word:
# below the port), a tree (PORT: the port), or a change of what a Linux machine shows.
EXAMPLES = {
    "eos": {
        "port down": ("PORT: shutdown", "shutdown"),
        "port speed": ("PORT: speed 100g-1", "100 Gbit/s"),
        "member of a port channel": (
            "PORT: channel-group 7 mode active\ninterface Ethernet9/1\n   channel-group 7 mode active",
            "Ethernet9/1",
        ),
        "port channel's profile": (
            "PORT: channel-group 7 mode active\ninterface Port-Channel7\n   qos trust cos",
            "qos trust cos",
        ),
        "port shaper": ("PORT: shape rate 100 gbps", "shape rate"),
        "queue shaper": ("PROFILE: uc-tx-queue 3\n      shape rate 50 percent", "shape rate"),
        "queue limit": ("PROFILE: uc-tx-queue 3\n      queue-limit 10 kbytes", "queue-limit"),
        "multicast queue": ("PROFILE: mc-tx-queue 3\n      priority strict", "mc-tx-queue 3 priority"),
        "storm control": ("PORT: storm-control broadcast level 1", "storm-control"),
        "traffic policy": ("PORT: traffic-policy input MARK", "traffic-policy"),
        "policer": (
            "class-map type qos match-any ROCE\n   match dscp 26\n"
            "policy-map type quality-of-service P\n   class ROCE\n      set traffic-class 3\n"
            "      police rate 10 gbps burst-size 1 mbytes\n"
            "PORT: service-policy type qos input P",
            "police rate",
        ),
        "flow control": ("PORT: flowcontrol receive on", "flowcontrol"),
        "MACsec": ("PORT: mac security profile M", "mac security"),
        "multicast queue map": ("qos map traffic-class 3 to mc-tx-queue 3", "mc-tx-queue"),
        "headroom limit": ("platform trident mmu headroom limit 0", "headroom"),
        "ECN of the buffer": (
            "qos random-detect ecn global-buffer minimum-threshold 1 bytes maximum-threshold 2 bytes",
            "global-buffer",
        ),
        "layer 2 MTU": ("PORT: l2 mtu 1500", "l2 mtu"),
        "VXLAN": ("interface Vxlan1\n   vxlan qos dscp propagation encapsulation", "vxlan qos"),
        "ports down by default": ("interface defaults\n   ethernet\n      shutdown", "shutdown"),
    },
    "nxos": {
        "port down": ("PORT: shutdown", "shutdown"),
        "port speed": ("PORT: speed 100000", "100 Gbit/s"),
        "member of a port channel": (
            "PORT: channel-group 7 mode active\ninterface Ethernet1/9\n  channel-group 7 mode active",
            "Ethernet1/9",
        ),
        "port channel's policy": ("PORT: channel-group 7 mode active\ninterface port-channel7\n  mtu 1500", "mtu 1500"),
        "storm control": ("PORT: storm-control broadcast level 1.00", "storm-control"),
        "flow control": ("PORT: flowcontrol receive on", "flowcontrol"),
        "MACsec": ("PORT: macsec keychain K policy P", "macsec"),
        "queue shaper": ("QUEUING: shape min 1 gbps max 10 gbps", "shape"),
        "queue limit": ("QUEUING: queue-limit 10 kbytes", "queue-limit"),
        "policer": ("QOS: police cir 10 gbps bc 1 mbytes conform transmit violate drop", "police"),
        "policy of a VLAN": ("vlan configuration 10\n  service-policy type qos input P", "service-policy"),
        "buffers": ("hardware qos min-buffer qos-group 3 none", "min-buffer"),
    },
    "junos": {
        "port down": ("set interfaces PORT disable", "disable"),
        "port speed": ("set interfaces PORT speed 100g", "100 Gbit/s"),
        "chassis' port speed": ("set chassis fpc 0 pic 0 port 1 speed 100g", "100 Gbit/s"),
        "member of a port channel": (
            "set interfaces PORT ether-options 802.3ad ae0\nset interfaces et-0/0/9 ether-options 802.3ad ae0",
            "et-0/0/9",
        ),
        "port channel's class of service": (
            "set interfaces PORT ether-options 802.3ad ae0\nset class-of-service interfaces ae0 scheduler-map M\n"
            "set class-of-service scheduler-maps M forwarding-class sailloft-tc3-pri3 scheduler S\n"
            "set class-of-service schedulers S priority low",
            "ae0 scheduler-map M",
        ),
        "IPv6 classifier": (
            "set class-of-service classifiers dscp-ipv6 v6 forwarding-class sailloft-tc0-pri0 loss-priority low "
            "code-points 011010\nset class-of-service interfaces PORT unit * classifiers dscp-ipv6 v6",
            "dscp-ipv6",
        ),
        "filter with a class": (
            "set firewall family inet filter F term T then forwarding-class sailloft-tc0-pri0\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "forwarding-class",
        ),
        "filter with a policer": (
            "set firewall family inet filter F term T then policer P\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "policer P",
        ),
        "filter with a DSCP": (
            "set firewall family inet filter F term T then dscp 0\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "dscp 0",
        ),
        "policer": ("set interfaces PORT unit 0 family inet policer input P", "policer"),
        "storm control": ("set interfaces PORT unit 0 family ethernet-switching storm-control S", "storm-control"),
        "shaper of all ports": ("set class-of-service interfaces all shaping-rate 10g", "shaping-rate"),
        "port shaper": ("set class-of-service interfaces PORT shaping-rate 10g", "shaping-rate"),
        "fixed class": (
            "set class-of-service interfaces PORT unit 0 forwarding-class sailloft-tc0-pri0",
            "forwarding-class",
        ),
        "group": (
            "set groups G class-of-service interfaces <*> unit <*> classifiers dscp default\nset apply-groups G",
            "groups G class-of-service",
        ),
        "flow control": ("set interfaces PORT ether-options flow-control", "flow-control"),
        "multicast": ("set class-of-service multi-destination classifiers dscp default", "multi-destination"),
        "egress buffer": ("set class-of-service shared-buffer egress percent 20", "shared-buffer egress"),
        "translation of DSCPs": (
            "set class-of-service translation-table to-dscp-from-dscp T to-code-point 0 from-code-points 011010",
            "translation-table",
        ),
        "routing instance": ("set class-of-service routing-instances R classifiers dscp default", "routing-instances"),
        "MACsec": ("set security macsec interfaces PORT connectivity-association C", "macsec"),
    },
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
    "linux": {
        "port down": (lambda reading: reading["links"][0].update(flags=["BROADCAST"]), "link down"),
        "classifier on ingress": (
            lambda reading: reading["qdiscs"].append(
                {"kind": "clsact", "handle": "ffff:", "parent": "ffff:fff1", "dev": reading["links"][0]["ifname"]}
            ),
            "clsact",
        ),
        "member of a bond": (
            lambda reading: [
                link.update(flags=["UP", "SLAVE"], master="bond0")
                for link in (reading["links"][0], reading["links"][-1])
            ],
            "eth9",
        ),
    },
}
HARMLESS = {
    "eos": [
        "PORT: no shutdown",
        "PORT: description a shutdown of traffic",
        "PORT: speed 400g-8",
        "PORT: ip access-group A in",
        "PORT: no switchport",
        "qos map cos 3 to traffic-class 3",
        "policy-map type quality-of-service UNUSED\n   class X\n      police rate 1 gbps burst-size 1 mbytes",
        "interface Management1\n   shutdown",
        "PORT: channel-group 7 mode active\ninterface Port-Channel7\n   no switchport\n   mtu 9214",
    ],
    "nxos": [
        "PORT: no shutdown",
        "PORT: speed 400000",
        "interface mgmt0\n  shutdown",
        "policy-map type qos UNUSED\n  class class-default\n    police cir 1 gbps",
        "PORT: channel-group 7 mode active\ninterface port-channel7\n  no switchport\n  mtu 9216",
    ],
    "junos": [
        "set interfaces PORT speed 400g",
        "set interfaces PORT description disable",
        "set groups G class-of-service interfaces <*> shaping-rate 1g",
        "set groups G system host-name x\nset apply-groups G",
        "set firewall family inet filter F term T then forwarding-class sailloft-tc0-pri0",
        "set firewall family inet filter F term T then accept\nset interfaces PORT unit 0 family inet filter input F",
        "set class-of-service host-outbound-traffic forwarding-class best-effort",
        "set interfaces et-0/0/9 disable",
    ],
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
    "linux": [lambda _reading: None],
}


def with_lines(system, statements):
    """Return a configuration with statements, each at its place."""
    text, port = params(system)["running"]["spine1"], next(iter(PORTS[system]))
    if system == "junos":
        return text + statements.replace("PORT", port) + "\n"
    places = {
        "PORT": f"interface {port}",
        "PROFILE": "qos profile ",
        "QUEUING": "  class type queuing c-out-8q-q3",
        "QOS": next((line for line in text.splitlines() if line.startswith("  class sailloft-tc3")), ""),
    }
    added_at_end = []
    lines = text.splitlines()
    for statement in statements.splitlines():
        place, colon, line = statement.partition(": ")
        if colon and place in places:
            index = next(index for index, other in enumerate(lines) if other.startswith(places[place]))
            lines.insert(index + 1, f"{'    ' if place in ('QUEUING', 'QOS') else '   '}{line}")
            inserted = index + 1
        elif not added_at_end and statement.startswith("      ") and colon == "":
            lines.insert(inserted + 1, statement)
        else:
            added_at_end.append(statement)
    return "\n".join([*added_at_end, *lines, ""])


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
    """Return spine1's configuration with a change."""
    if isinstance(change, str):
        return with_lines(system, change)
    return with_tree(system, change) if isinstance(change, dict) else with_reading(change)


@pytest.mark.parametrize(("system", "name"), [(system, name) for system in EXAMPLES for name in EXAMPLES[system]])
def test_a_statement_that_can_undo_the_policy_is_named_by_the_path_and_the_proof(system, name):
    change, statement = EXAMPLES[system][name]
    faults, failed, first = judged(system, changed(system, change))
    assert any(statement in str(fault["seen"]) and fault["where"].startswith("spine1") for fault in faults), faults
    assert any(statement in str(claim.seen) and claim.claim.startswith("spine1") for claim in failed), failed
    assert first.startswith("spine1: ")


@pytest.mark.parametrize(
    ("system", "index"), [(system, index) for system in HARMLESS for index in range(len(HARMLESS[system]))]
)
def test_other_statements_change_nothing(system, index):
    assert judged(system, changed(system, HARMLESS[system][index])) == ([], [], "")
