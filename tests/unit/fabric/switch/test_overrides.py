# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A statement beside the policy that can undo it is named by the path and the proof.

One file because the examples are the cases of the tests.
"""

from __future__ import annotations

import json
import re
from xml.sax.saxutils import escape

import pytest
from proof_requests import judged, params
from switches import PORTS

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import Script
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.overrides import OVERRIDDEN
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax import overrides

DROPS = "random-detect minimum-threshold 1 kbytes maximum-threshold 2 kbytes drop-probability 100 weight 0"
LAG = {"lag_interfaces": [{"name": "PortChannel1", "members": {"interfaces": [{"member": "PORT"}]}}]}
EGRESS_LOSSLESS = {"name": "egress_lossless_profile", "pool": "egress_lossless_pool"}
OTHER = {"pool": "egress_lossy_pool", "dynamic_th": "3"}  # of a pool that is not for lossless packets
JUNOS_VLAN = """\
set interfaces PORT unit 0 family ethernet-switching vlan members 5-10
set vlans V vlan-id 10
set vlans V l3-interface irb.10
"""
BRIDGED = {"bridge": {"domain": {"br_default": {"vlan": {"5-10": {}}}}}}  # a port


def with_pause(reading, rx=False, pfc=None):
    """Add what ethtool and dcb show of the first port: link-level pause, and PFC of one priority."""
    port = reading["links"][0]["ifname"]
    reading["ethtool --json -a"] = {port: [{"ifname": port, "autonegotiate": False, "rx": rx, "tx": False}]}
    reading["dcb -j pfc show dev"] = {port: {"pfc_cap": 8, "prio_pfc": [priority == pfc for priority in range(8)]}}


# Each is a change of spine1's configuration, and the statement as the system's table has it, or, without a row of the
# table, the last words of what is seen. A change is lines ("PORT: " as the first word:
# below the port), a tree (PORT: the port), or a change of what a Linux machine shows.
EXAMPLES = {
    "eos": {
        "port down": ("PORT: shutdown", "shutdown"),
        "pauses": ("priority-flow-control all no-drop", "priority-flow-control all no-drop"),
        "drop precedence": (
            "policy-map type quality-of-service P\n   class class-default\n      set drop-precedence 2\n"
            "PORT: service-policy type qos input P",
            "class class-default set drop-precedence 2",
        ),
        "policy of a VLAN": (
            "interface Vlan10\n   service-policy type qos input P",
            "interface Vlan10 service-policy type qos input P",
        ),
        "port speed": ("PORT: speed 100g-1", "100 Gbit/s"),
        "member of a port channel": (
            "PORT: channel-group 7 mode active\ninterface Ethernet9/1\n   channel-group 7 mode active",
            "Ethernet9/1",
        ),
        "port channel's profile": (
            "PORT: channel-group 7 mode active\ninterface Port-Channel7\n   qos trust cos",
            "qos trust cos",
        ),
        "port shaper": ("PORT: shape rate 100 gbps", "shape rate 100 gbps"),
        "queue shaper": ("PROFILE: uc-tx-queue 3\n      shape rate 50 percent", "uc-tx-queue 3 shape rate 50 percent"),
        "queue limit": ("PROFILE: uc-tx-queue 3\n      queue-limit 10 kbytes", "uc-tx-queue 3 queue-limit 10 kbytes"),
        "multicast queue": ("PROFILE: mc-tx-queue 3\n      priority strict", "mc-tx-queue 3 priority strict"),
        "storm control": ("PORT: storm-control broadcast level 1", "storm-control broadcast level 1"),
        "traffic policy": ("PORT: traffic-policy input MARK", "traffic-policy input MARK"),
        "policer": (
            "class-map type qos match-any ROCE\n   match dscp 26\n"
            "policy-map type quality-of-service P\n   class ROCE\n      set traffic-class 3\n"
            "      police rate 10 gbps burst-size 1 mbytes\n"
            "PORT: service-policy type qos input P",
            "class ROCE police rate 10 gbps burst-size 1 mbytes",
        ),
        "flow control": ("PORT: flowcontrol receive on", "flowcontrol receive on"),
        "MACsec": ("PORT: mac security profile M", "mac security profile M"),
        "multicast queue map": ("qos map traffic-class 3 to mc-tx-queue 3", "qos map traffic-class 3 to mc-tx-queue 3"),
        "headroom limit": ("platform trident mmu headroom limit 0", "platform trident mmu headroom limit 0"),
        "ECN of the buffer": (
            "qos random-detect ecn global-buffer minimum-threshold 1 bytes maximum-threshold 2 bytes",
            "qos random-detect ecn global-buffer minimum-threshold 1 bytes maximum-threshold 2 bytes",
        ),
        "port channel's MTU": (
            "PORT: channel-group 7 mode active\ninterface Port-Channel7\n   no switchport",
            "Port-Channel7 mtu 1500",
        ),
        "layer 2 MTU": ("PORT: l2 mtu 1500", "l2 mtu 1500"),
        "loopback": ("PORT: traffic-loopback source system device phy", "traffic-loopback source system device phy"),
        "VXLAN": (
            "interface Vxlan1\n   vxlan qos dscp propagation encapsulation",
            "interface Vxlan1 vxlan qos dscp propagation encapsulation",
        ),
        "ports down by default": (
            "interface defaults\n   ethernet\n      shutdown",
            "interface defaults ethernet shutdown",
        ),
        "class by CoS": (
            "class-map type qos match-any COS\n   match cos 3\n"
            "policy-map type quality-of-service P\n   class COS\n      set traffic-class 0\n"
            "PORT: service-policy type qos input P",
            "class COS match cos 3",
        ),
        "class by access list": (
            "ip access-list UDP\n   10 permit udp any any\n"
            "class-map type qos match-any A\n   match ip access-group UDP\n"
            "policy-map type quality-of-service P\n   class A\n      set traffic-class 0\n"
            "PORT: service-policy type qos input P",
            "class A match ip access-group UDP",
        ),
        "VLAN interface's MTU": (
            "PORT: switchport mode trunk\nPORT: switchport trunk allowed vlan 2,10-12\n"
            "interface Vlan11\n   ip address 10.0.0.1/24",
            "interface Vlan11 mtu 1500",
        ),
        "subinterface's MTU": (
            "interface Ethernet1/1.10\n   encapsulation dot1q vlan 10\n   mtu 1500",
            "interface Ethernet1/1.10 mtu 1500",
        ),
        "subinterface's trust": (
            "interface Ethernet1/1.10\n   qos trust cos",
            "interface Ethernet1/1.10 qos trust cos",
        ),
        "subinterface's policy": (
            "policy-map type quality-of-service P\n   class class-default\n      set traffic-class 0\n"
            "interface Ethernet1/1.10\n   service-policy type qos input P",
            "service-policy type qos input P",
        ),
        "subinterface's shaper": ("interface Ethernet1/1.10\n   shape rate 10 gbps", "shape rate 10 gbps"),
        "port channel's subinterface": (
            "PORT: channel-group 7 mode active\ninterface Port-Channel7\n   no switchport\n   mtu 9214\n"
            "interface Port-Channel7.10\n   ip address 10.0.0.1/24",
            "interface Port-Channel7.10 mtu 1500",
        ),
        "hash of port channels": (
            "PORT: channel-group 7 mode active\ninterface Ethernet1/2\n   channel-group 7 mode active\n"
            "port-channel load-balance trident fields ip mac-header",
            "port-channel load-balance trident fields ip mac-header",
        ),
        "profile of hashes": (
            "load-balance policies\n   load-balance sand profile P\n      fields udp dst-port 4791",
            "load-balance policies load-balance sand profile P fields udp dst-port 4791",
        ),
        "ECMP's hash by a profile": ("ip load-sharing fm6000 profile P", "ip load-sharing fm6000 profile P"),
        "dynamic load balancing": (
            "ip hardware fib load-balance distribution dynamic",
            "ip hardware fib load-balance distribution dynamic",
        ),
        "hash of IPv6": ("ip load-sharing trident fields ipv6 source-ip destination-ip", "'source_ip']"),
        "cluster load balancing": (
            "load-balance cluster\n   port group host H\n      flow exhaustion action dscp 0 traffic-class 0",
            "load-balance cluster port group host H flow exhaustion action dscp 0 traffic-class 0",
        ),
        "watchdog that looks seldom": (
            "PORT: priority-flow-control pause watchdog port timer timeout 0.2 polling-interval 5 recovery-time 0.2",
            "5000 ms, 5000 ms, drop",
        ),
    },
    "nxos": {
        "port down": ("PORT: shutdown", "shutdown"),
        "ports down by default": ("system default switchport shutdown", "system default switchport shutdown"),
        "no bursts of buffer": ("PORT: no buffer-boost", "no buffer-boost"),
        "multicast first": ("hardware high-multicast-priority", "hardware high-multicast-priority"),
        "jumbo MTU": ("system jumbomtu 1500", "system jumbomtu 1500"),
        "approximate fair drop": (
            "QUEUING: afd queue-desired 150 kbytes",
            "class c-out-8q-q3 afd queue-desired 150 kbytes",
        ),
        "queues on ingress": (
            "PORT: service-policy type queuing input IN",
            "service-policy type queuing input IN",
        ),
        "port speed": ("PORT: speed 100000", "100 Gbit/s"),
        "member of a port channel": (
            "PORT: channel-group 7 mode active\ninterface Ethernet1/9\n  channel-group 7 mode active",
            "Ethernet1/9",
        ),
        "port channel's policy": ("PORT: channel-group 7 mode active\ninterface port-channel7\n  mtu 1500", "mtu 1500"),
        "port channel's MTU": (
            "PORT: channel-group 7 mode active\ninterface port-channel7\n  no switchport",
            "port-channel7 mtu 1500",
        ),
        **{
            f"{words} of CNPs": (f"CNPS: {words}", f"class c-out-8q-q6 {words}")
            for words in (f"{DROPS} non-ecn", "random-detect non-ecn", "random-detect")
        },
        "WRED that drops CNPs": (
            f"CNPS: {DROPS}",
            f"class c-out-8q-q6 {DROPS}",
        ),
        "storm control": ("PORT: storm-control broadcast level 1.00", "storm-control broadcast level 1.00"),
        "flow control": ("PORT: flowcontrol receive on", "flowcontrol receive on"),
        "MACsec": ("PORT: macsec keychain K policy P", "macsec keychain K policy P"),
        "queue shaper": ("QUEUING: shape min 1 gbps max 10 gbps", "class c-out-8q-q3 shape min 1 gbps max 10 gbps"),
        "queue limit": ("QUEUING: queue-limit 10 kbytes", "class c-out-8q-q3 queue-limit 10 kbytes"),
        "policer": (
            "QOS: police cir 10 gbps bc 1 mbytes conform transmit violate drop",
            "class sailloft-tc3-4b37f631 police cir 10 gbps bc 1 mbytes conform transmit violate drop",
        ),
        "policy of a VLAN": (
            "vlan configuration 10\n  service-policy type qos input P",
            "vlan configuration 10 service-policy type qos input P",
        ),
        "buffers": ("hardware qos min-buffer qos-group 3 none", "hardware qos min-buffer qos-group 3 none"),
        "class by CoS": (
            "class-map type qos match-any COS\n  match cos 3\nPOLICY: class COS\n      set qos-group 0",
            "class COS match cos 3",
        ),
        "class by precedence": (
            "class-map type qos match-any P3\n  match precedence 3\nPOLICY: class P3\n      set qos-group 0",
            "0",
        ),
        "class by access list": (
            "ip access-list UDP\n  10 permit udp any any\n"
            "class-map type qos match-all A\n  match access-group name UDP\n"
            "POLICY: class A\n      set qos-group 0",
            "class A match access-group name UDP",
        ),
        "RoCE's class by CoS": ("ROCE: match cos 3", "match cos 3"),
        "other packets in RoCE's class": (
            "ip access-list TCP\n  10 permit tcp any any\nROCE: match access-group name TCP",
            "match access-group name TCP",
        ),
        "VLAN interface's MTU": (
            "PORT: switchport access vlan 10\ninterface Vlan10\n  ip address 10.0.0.1/24",
            "interface Vlan10 mtu 1500",
        ),
        "subinterface's MTU": ("interface Ethernet1/1.10\n  mtu 1500", "interface Ethernet1/1.10 mtu 1500"),
        "subinterface's policy": (
            "policy-map type qos P\n  class class-default\n    set qos-group 0\n"
            "interface Ethernet1/1.10\n  service-policy type qos input P",
            "service-policy type qos input P",
        ),
        "port channel's subinterface": (
            "PORT: channel-group 7 mode active\ninterface port-channel7\n  mtu 9216\n"
            "interface port-channel7.10\n  ip address 10.0.0.1/24",
            "interface port-channel7.10 mtu 1500",
        ),
        "hash of port channels": (
            "PORT: channel-group 7 mode active\ninterface Ethernet1/2\n  channel-group 7 mode active\n"
            "port-channel load-balance src-dst mac",
            "port-channel load-balance src-dst mac",
        ),
        "policy of routing": ("PORT: ip policy route-map R", "ip policy route-map R"),
        "hash of packets": ("ip load-sharing per-packet", "ip load-sharing per-packet"),
        "PFC off everywhere": (
            "priority-flow-control override-interface mode off",
            "priority-flow-control override-interface mode off",
        ),
        "split port": ("interface breakout module 1 port 1-2,7 map 100g-4x", "module 1 port 1-2,7 map 100g-4x"),
        "packets of a flow on several ways": (
            "hardware profile dlb\n  dlb-interface Eth1/1\n  mode per-packet",
            "hardware profile dlb mode per-packet",
        ),
        "pauses that are only obeyed": ("NETWORK: pause pfc-cos 3 receive", "[]"),
    },
    "junos": {
        "port down": ("set interfaces PORT disable", "interfaces et-0/0/1 disable"),
        "pauses by 802.1p": (
            "set class-of-service congestion-notification-profile CNP input ieee-802.1 code-point 011 pfc",
            "class-of-service congestion-notification-profile CNP input ieee-802.1 code-point 011 pfc",
        ),
        "exact rate": (
            "set class-of-service schedulers SCHEDULER transmit-rate percent 50 exact",
            "class-of-service schedulers SCHEDULER transmit-rate percent 50 exact",
        ),
        "queue's buffer": (
            "set class-of-service schedulers SCHEDULER buffer-size percent 1",
            "class-of-service schedulers SCHEDULER buffer-size percent 1",
        ),
        "forwarding policy": (
            "set class-of-service forwarding-policy class X discard",
            "class-of-service forwarding-policy class X discard",
        ),
        "port speed": ("set interfaces PORT speed 100g", "100 Gbit/s"),
        "chassis' port speed": ("set chassis fpc 0 pic 0 port 1 speed 100g", "100 Gbit/s"),
        "member of a port channel": (
            "set interfaces PORT ether-options 802.3ad ae0\nset interfaces et-0/0/9 ether-options 802.3ad ae0",
            "et-0/0/9",
        ),
        "port channel's MTU": ("set interfaces PORT ether-options 802.3ad ae0", "ae0 mtu 1500"),
        "port channel's smaller MTU": (
            "set interfaces PORT ether-options 802.3ad ae0\nset interfaces ae0 mtu 1514\n"
            "set interfaces ae0 unit 0 family inet mtu 1400",
            "ae0 mtu 1400",
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
            "class-of-service interfaces et-0/0/1 unit * classifiers dscp-ipv6 v6",
        ),
        "filter with a class": (
            "set firewall family inet filter F term T then forwarding-class sailloft-tc0-pri0\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "firewall family inet filter F term T then forwarding-class sailloft-tc0-pri0",
        ),
        "filter with a policer": (
            "set firewall family inet filter F term T then policer P\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "firewall family inet filter F term T then policer P",
        ),
        "filter with a DSCP": (
            "set firewall family inet filter F term T then dscp 0\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "firewall family inet filter F term T then dscp 0",
        ),
        "filter of a filter": (
            "set firewall family inet filter G term T filter F\n"
            "set firewall family inet filter F term T then policer P\n"
            "set interfaces PORT unit 0 family inet filter input G",
            "firewall family inet filter F term T then policer P",
        ),
        "filter with another way": (
            "set firewall family inet filter F term T then routing-instance R\n"
            "set interfaces PORT unit 0 family inet filter input F",
            "firewall family inet filter F term T then routing-instance R",
        ),
        "lossy part without buffer": (
            "set class-of-service shared-buffer ingress buffer-partition lossy percent 0",
            "class-of-service shared-buffer ingress buffer-partition lossy percent 0",
        ),
        "policer": (
            "set interfaces PORT unit 0 family inet policer input P",
            "interfaces et-0/0/1 unit 0 family inet policer input P",
        ),
        "storm control": (
            "set interfaces PORT unit 0 family ethernet-switching storm-control S",
            "interfaces et-0/0/1 unit 0 family ethernet-switching storm-control S",
        ),
        "shaper of all ports": (
            "set class-of-service interfaces all shaping-rate 10g",
            "class-of-service interfaces all shaping-rate 10g",
        ),
        "port shaper": (
            "set class-of-service interfaces PORT shaping-rate 10g",
            "class-of-service interfaces et-0/0/1 shaping-rate 10g",
        ),
        "fixed class": (
            "set class-of-service interfaces PORT unit 0 forwarding-class sailloft-tc0-pri0",
            "class-of-service interfaces et-0/0/1 unit 0 forwarding-class sailloft-tc0-pri0",
        ),
        "group": (
            "set groups G class-of-service interfaces <*> unit <*> classifiers dscp default\nset apply-groups G",
            "groups G class-of-service",
        ),
        "group with an MTU": (
            "set groups G interfaces <*> mtu 1500\nset apply-groups G",
            "groups G interfaces <*> mtu 1500",
        ),
        "group with a speed": (
            "set groups G interfaces <*> speed 100g\nset apply-groups G",
            "groups G interfaces <*> speed 100g",
        ),
        "group with a hash": (
            "set groups G forwarding-options enhanced-hash-key inet no-l4-source-port\nset apply-groups G",
            "groups G forwarding-options enhanced-hash-key inet no-l4-source-port",
        ),
        "group with a filter": (
            "set groups G interfaces <*> unit 0 family inet filter input F\n"
            "set firewall family inet filter F term T then accept\nset interfaces PORT apply-groups G",
            "groups G interfaces <*> unit 0 family inet filter input F",
        ),
        "group with a port that is down": (
            "set groups G interfaces PORT disable\nset apply-groups G",
            "interfaces et-0/0/1 disable",
        ),
        "range with an MTU": (
            "set interfaces interface-range R member-range et-0/0/0 to et-0/0/9\n"
            "set interfaces interface-range R mtu 1500",
            "interfaces interface-range R mtu 1500",
        ),
        "range with flow control": (
            "set interfaces interface-range R member PORT\nset interfaces interface-range R ether-options flow-control",
            "interfaces R ether-options flow-control",
        ),
        "class of service of a range": (
            "set interfaces interface-range R member PORT\n"
            "set class-of-service interfaces R unit * classifiers dscp default",
            "class-of-service interfaces R unit * classifiers dscp default",
        ),
        "expanded range with an MTU": (
            "set interfaces interface-range R member PORT\nset interfaces interface-range R mtu 1500\n"
            "EXPANDED: set interfaces PORT mtu 1500",
            "1486",
        ),
        "filter of a VLAN": (
            "set firewall family ethernet-switching filter F term T then forwarding-class sailloft-tc0-pri0\n"
            "set vlans V forwarding-options filter input F",
            "firewall family ethernet-switching filter F term T then forwarding-class sailloft-tc0-pri0",
        ),
        "filter of all that is forwarded": (
            "set firewall family inet filter F term T then policer P\n"
            "set forwarding-options family inet filter input F",
            "firewall family inet filter F term T then policer P",
        ),
        "filter between VLANs": (
            "set firewall family inet filter F term T then dscp 0\n"
            "set interfaces irb unit 10 family inet filter input F",
            "firewall family inet filter F term T then dscp 0",
        ),
        "class of service between VLANs": (
            "set class-of-service interfaces irb unit 10 rewrite-rules dscp default",
            "class-of-service interfaces irb unit 10 rewrite-rules dscp default",
        ),
        "chassis' speed of several ports": ("set chassis fpc 0 pic 0 port-range 0 3 speed 100g", "100 Gbit/s"),
        "flow control": (
            "set interfaces PORT ether-options flow-control",
            "interfaces et-0/0/1 ether-options flow-control",
        ),
        "multicast": (
            "set class-of-service multi-destination classifiers dscp default",
            "class-of-service multi-destination classifiers dscp default",
        ),
        "MTU between VLANs": (
            f"{JUNOS_VLAN}set interfaces irb mtu 9192\nset interfaces irb unit 10 family inet mtu 1500",
            "interfaces irb unit 10 family inet mtu 1500",
        ),
        "default MTU between VLANs": (
            f"{JUNOS_VLAN}set interfaces irb unit 10 family inet address 10.0.0.1/24",
            "interfaces irb unit 10 without mtu 1500",
        ),
        "MTU between VLANs of a port channel": (
            "set interfaces PORT ether-options 802.3ad ae0\nset interfaces ae0 mtu 9192\n"
            f"{JUNOS_VLAN.replace('PORT', 'ae0')}set interfaces irb mtu 1514\nset interfaces irb unit 10 family inet",
            "interfaces irb mtu 1514",
        ),
        "MTU of a unit": ("set interfaces PORT unit 0 family inet mtu 1499", "1499"),
        "scheduler map of a unit": (
            "set class-of-service interfaces PORT unit 0 scheduler-map M\n"
            "set class-of-service scheduler-maps M forwarding-class sailloft-tc3-pri3 scheduler SCHEDULER",
            "class-of-service interfaces et-0/0/1 unit 0 scheduler-map M",
        ),
        "schedulers of units": ("set interfaces PORT per-unit-scheduler", "interfaces et-0/0/1 per-unit-scheduler"),
        "split port": (
            "set interfaces PORT number-of-sub-ports 4",
            "interfaces et-0/0/1 number-of-sub-ports 4",
        ),
        "port split by the chassis": (
            "set chassis fpc 0 pic 0 port 1 channel-speed 25g",
            "chassis fpc 0 pic 0 port 1 channel-speed 25g",
        ),
        "unused port": ("set interfaces PORT unused", "interfaces et-0/0/1 unused"),
        "loopback": ("set interfaces PORT ether-options loopback", "interfaces et-0/0/1 ether-options loopback"),
        "egress part below the ingress part": (
            "set class-of-service shared-buffer ingress buffer-partition lossless percent 66\n"
            "set class-of-service shared-buffer ingress buffer-partition lossless-headroom percent 24\n"
            "set class-of-service shared-buffer egress buffer-partition lossless percent 50",
            "class-of-service shared-buffer egress buffer-partition lossless percent 50",
        ),
        "threshold of lossless queues": (
            "set class-of-service shared-buffer egress buffer-partition lossless dynamic-threshold 3",
            "class-of-service shared-buffer egress buffer-partition lossless dynamic-threshold 3",
        ),
        "egress buffer": (
            "set class-of-service shared-buffer egress percent 20",
            "class-of-service shared-buffer egress percent 20",
        ),
        "translation of DSCPs": (
            "set class-of-service translation-table to-dscp-from-dscp T to-code-point 0 from-code-points 011010",
            "class-of-service translation-table to-dscp-from-dscp T to-code-point 0 from-code-points 011010",
        ),
        "routing instance": (
            "set class-of-service routing-instances R classifiers dscp default",
            "class-of-service routing-instances R classifiers dscp default",
        ),
        "packets of a flow on several ways": (
            "set forwarding-options enhanced-hash-key ecmp-dlb per-packet",
            "forwarding-options enhanced-hash-key ecmp-dlb per-packet",
        ),
        "packets of a flow on several members": (
            "set interfaces PORT ether-options 802.3ad ae0\nset interfaces ae0 mtu 9192\n"
            "set interfaces ae0 aggregated-ether-options load-balance per-packet",
            "interfaces ae0 aggregated-ether-options load-balance per-packet",
        ),
        "MACsec": (
            "set security macsec interfaces PORT connectivity-association C",
            "security macsec interfaces et-0/0/1 connectivity-association C",
        ),
    },
    "sonic": {
        "port down": ({"PORT": {"PORT": {"admin_status": "down"}}}, "PORT admin_status down"),
        "port speed": ({"PORT": {"PORT": {"speed": "100000"}}}, "100 Gbit/s"),
        "negotiated speed": ({"PORT": {"PORT": {"autoneg": "on"}}}, "PORT autoneg on"),
        "lower advertised speed": (
            {"PORT": {"PORT": {"autoneg": "on", "adv_speeds": ["100000", "400000"]}}},
            "PORT autoneg on",
        ),
        "asymmetric PFC": ({"PORT": {"PORT": {"pfc_asym": "on"}}}, "PORT pfc_asym on"),
        "lossless queues in the lossy pool": (
            {"BUFFER_PROFILE": {"egress_lossless_profile": {"pool": "egress_lossy_pool"}}},
            "the pool egress_lossy_pool",
        ),
        "limit of lossless queues": (
            {"BUFFER_PROFILE": {"egress_lossless_profile": {"static_th": "15000000"}}},
            "above 15000000 bytes",
        ),
        "alpha of lossless queues": (
            {"BUFFER_PROFILE": {"egress_lossless_profile": {"dynamic_th": "-1"}}},
            "dynamic_th is -1,",
        ),
        "threshold of lossless queues": (
            {"BUFFER_PROFILE": {"egress_lossless_profile": {"static_th": None}}},
            "dynamic_th nor static_th",
        ),
        "small egress pool": (
            {"BUFFER_POOL": {"egress_lossless_pool": {"size": "15000000"}}},
            "above 15000000 bytes",
        ),
        "pool of another direction": (
            {"BUFFER_POOL": {"ingress_lossless_pool": {"type": "egress"}}},
            "type is 'egress',",
        ),
        "no pool": ({"BUFFER_PROFILE": {"egress_lossless_profile": {"pool": "gone"}}}, "refers to BUFFER_POOL|gone,"),
        "tiny pool": ({"BUFFER_POOL": {"egress_lossy_pool": {"size": "1000"}}}, "BUFFER_POOL size 1000"),
        "lossy groups without buffer": (
            {"BUFFER_PROFILE": {"ingress_lossy_profile": {"dynamic_th": "-8"}}},
            "BUFFER_PROFILE dynamic_th -8",
        ),
        "CNPs' queue without buffer": (
            {
                "BUFFER_PROFILE": {"tiny": {"pool": "egress_lossy_pool", "static_th": "0"}},
                "BUFFER_QUEUE": {"PORT|5-6": {"profile": "tiny"}},
            },
            "BUFFER_PROFILE static_th 0",
        ),
        "port without a share of the lossless pool": (
            {
                "BUFFER_PORT_INGRESS_PROFILE_LIST": {"PORT": {"profile_list": "other"}},
                "BUFFER_PROFILE": {"other": OTHER},
            },
            "BUFFER_PORT_INGRESS_PROFILE_LIST lossy profile_list other",
        ),
        "port's share of the lossless pool": (
            {
                "BUFFER_PORT_INGRESS_PROFILE_LIST": {"PORT": {"profile_list": "ingress_lossy_profile,low"}},
                "BUFFER_PROFILE": {"low": {"pool": "ingress_lossless_pool", "dynamic_th": "-8"}},
            },
            "BUFFER_PROFILE dynamic_th -8",
        ),
        "port's share of the egress pool": (
            {
                "BUFFER_PORT_EGRESS_PROFILE_LIST": {"PORT": {"profile_list": ["egress_lossless_profile", "none"]}},
                "BUFFER_PROFILE": {"none": {"pool": "egress_lossy_pool", "static_th": "0"}},
            },
            "BUFFER_PROFILE static_th 0",
        ),
        "hash of a policy": (
            {
                "PBH_TABLE": {"T": {"interface_list": ["PORT"], "description": "T"}},
                "PBH_RULE": {"T|R": {"priority": "1", "ip_protocol": "0x11", "hash": "H"}},
            },
            "PBH_RULE hash H",
        ),
        "hash of a port channel": (
            {
                "PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}},
                "SWITCH_HASH": {"GLOBAL": {"lag_hash": ["DST_IP", "SRC_IP"]}},
            },
            "SWITCH_HASH lag_hash ['DST_IP', 'SRC_IP']",
        ),
        "random paths": (
            {"SWITCH_HASH": {"GLOBAL": {"ecmp_hash_algorithm": "RANDOM"}}},
            "SWITCH_HASH ecmp_hash_algorithm RANDOM",
        ),
        "adaptive routing": (
            {"ARS_OBJECT": {"A": {"assign_mode": "per_packet_quality"}}},
            "ARS_OBJECT assign_mode per_packet_quality",
        ),
        "watchdog without a storm": (
            {"PFC_WD": {"GLOBAL": {"BIG_RED_SWITCH": "enable"}}},
            "PFC_WD BIG_RED_SWITCH enable",
        ),
        "watchdog without counters": (
            {"FLEX_COUNTER_TABLE": {"PFCWD": {"FLEX_COUNTER_STATUS": "disable"}}},
            "FLEX_COUNTER_TABLE FLEX_COUNTER_STATUS disable",
        ),
        "watchdog with late counters": (
            {"FLEX_COUNTER_TABLE": {"PFCWD": {"POLL_INTERVAL": "60000"}}},
            "FLEX_COUNTER_TABLE POLL_INTERVAL 60000",
        ),
        "MACsec": ({"PORT": {"PORT": {"macsec": "M"}}}, "PORT macsec M"),
        "member of a port channel": (
            {"PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}, "PortChannel1|Ethernet99": {}}},
            "Ethernet99",
        ),
        "port channel down": (
            {
                "PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}},
                "PORTCHANNEL": {"PortChannel1": {"admin_status": "down"}},
            },
            "PORTCHANNEL admin_status down",
        ),
        "port channel's MTU": (
            {"PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}}, "PORTCHANNEL": {"PortChannel1": {"mtu": "1500"}}},
            "PortChannel1 mtu 1500",
        ),
        "MTU of a VLAN": (
            {
                "VLAN": {"Vlan10": {"mtu": "1500"}},
                "VLAN_INTERFACE": {"Vlan10": {}, "Vlan10|10.0.0.1/24": {}},
                "VLAN_MEMBER": {"Vlan10|PORT": {"tagging_mode": "tagged"}},
            },
            "VLAN|Vlan10 mtu 1500",
        ),
        "PCP map": (
            {"DOT1P_TO_TC_MAP": {"A": {"0": "0"}}, "PORT_QOS_MAP": {"PORT": {"dot1p_to_tc_map": "A"}}},
            "PORT_QOS_MAP dot1p_to_tc_map A",
        ),
        "forwarding class map": ({"PORT_QOS_MAP": {"PORT": {"dscp_to_fc_map": "A"}}}, "PORT_QOS_MAP dscp_to_fc_map A"),
        "port shaper": (
            {"SCHEDULER": {"S": {"pir": "1000"}}, "PORT_QOS_MAP": {"PORT": {"scheduler": "S"}}},
            "PORT_QOS_MAP scheduler S",
        ),
        "queue shaper": (
            {
                "SCHEDULER": {"S": {"type": "DWRR", "weight": "1", "pir": "1000"}},
                "QUEUE": {"PORT|7": {"scheduler": "S"}},
            },
            "SCHEDULER pir 1000",
        ),
        "storm control": ({"PORT_STORM_CONTROL": {"PORT|broadcast": {"kbps": "1"}}}, "PORT_STORM_CONTROL kbps 1"),
        "DSCP by access list": (
            {"ACL_TABLE": {"T": {"type": "L3", "ports": ["PORT"]}}, "ACL_RULE": {"T|R": {"DSCP_ACTION": "0"}}},
            "ACL_RULE DSCP_ACTION 0",
        ),
        "DSCP by access list of a VLAN": (
            {"ACL_TABLE": {"T": {"type": "L3", "ports": ["Vlan10"]}}, "ACL_RULE": {"T|R": {"DSCP_ACTION": "0"}}},
            "ACL_RULE DSCP_ACTION 0",
        ),
        "redirection by access list": (
            {
                "ACL_TABLE": {"T": {"type": "L3", "ports": ["PORT"]}},
                "ACL_RULE": {"T|R": {"REDIRECT_ACTION": "Ethernet8"}},
            },
            "ACL_RULE REDIRECT_ACTION Ethernet8",
        ),
        "tunnel": ({"TUNNEL": {"T": {"dscp_mode": "pipe", "tunnel_type": "IPINIP"}}}, "TUNNEL dscp_mode pipe"),
        "alpha of computed headroom": (
            {"DEFAULT_LOSSLESS_BUFFER_PARAMETER": {"AZURE": {"default_dynamic_th": "-8"}}},
            "DEFAULT_LOSSLESS_BUFFER_PARAMETER default_dynamic_th -8",
        ),
        "part of a pool": ({"BUFFER_POOL": {"ingress_lossless_pool": {"percentage": "1"}}}, "BUFFER_POOL percentage 1"),
        "trimming instead of dropping": (
            {"BUFFER_PROFILE": {"egress_lossy_profile": {"packet_discard_action": "trim"}}},
            "BUFFER_PROFILE packet_discard_action trim",
        ),
        "trimming": ({"SWITCH_TRIMMING": {"GLOBAL": {"dscp_value": "48"}}}, "SWITCH_TRIMMING dscp_value 48"),
        "strict multicast queue": (
            {"SCHEDULER": {"S": {"type": "STRICT"}}, "QUEUE": {"PORT|8-9": {"scheduler": "S"}}},
            "QUEUE strict scheduler S",
        ),
    },
    "cumulus": {
        "port down": ({"interface": {"PORT": {"link": {"state": {"down": {}}}}}}, "interface swp1 link state down"),
        "port speed": ({"interface": {"PORT": {"link": {"speed": "100G"}}}}, "100 Gbit/s"),
        "member of a bond": ({"interface": {"bond1": {"bond": {"member": {"PORT": {}, "swp99": {}}}}}}, "swp99"),
        "bond's MTU": (
            {"interface": {"bond1": {"bond": {"member": {"PORT": {}}}, "link": {"mtu": 1500}}}},
            "interface bond1 link mtu 1500",
        ),
        "MTU of a VLAN": (
            {"interface": {"PORT": BRIDGED, "vlan10": {"type": "svi", "vlan": 10, "link": {"mtu": 1500}}}},
            "interface vlan10 link mtu 1500",
        ),
        "MTU of an access VLAN": (
            {
                "interface": {
                    "PORT": {"bridge": {"domain": {"br_default": {"access": 10}}}},
                    "vlan10": {"base-interface": "br_default", "link": {"mtu": 1500}},
                }
            },
            "interface vlan10 link mtu 1500",
        ),
        "MTU of a VLAN of a bond": (
            {
                "interface": {
                    "bond1": {"bond": {"member": {"PORT": {}}}, **BRIDGED},
                    "vlan10": {"link": {"mtu": 1500}},
                }
            },
            "interface vlan10 link mtu 1500",
        ),
        "MTU of a subinterface": (
            {"interface": {"swp1.10": {"type": "sub", "base-interface": "swp1", "link": {"mtu": 1500}}}},
            "interface swp1.10 link mtu 1500",
        ),
        "MTU of a bridge": (
            {"interface": {"PORT": BRIDGED, "br_default": {"link": {"mtu": 1500}}}},
            "interface br_default link mtu 1500",
        ),
        "adaptive routing": (
            {"interface": {"PORT": {"router": {"adaptive-routing": {"enable": "on"}}}}},
            "interface swp1 router adaptive-routing enable on",
        ),
        "policy of routing": (
            {"interface": {"PORT": {"router": {"pbr": {"map": {"M": {}}}}}}},
            "interface swp1 router pbr map M",
        ),
        "MTU of VXLAN": ({"interface": {"PORT": BRIDGED}, "nve": {"vxlan": {"mtu": 1500}}}, "nve vxlan mtu 1500"),
        "split port": (
            {"interface": {"PORT": {"link": {"breakout": {"4x": {"lanes-per-port": 2}}}}}},
            "interface swp1 link breakout 4x",
        ),
        "unused port": ({"interface": {"PORT": {"link": {"breakout": "disabled"}}}}, "link breakout disabled"),
        "speed of an unsplit port": ({"interface": {"PORT": {"link": {"breakout": {"1x100G": {}}}}}}, "100 Gbit/s"),
        "bond's hash": (
            {
                "interface": {"bond1": {"bond": {"member": {"PORT": {}}}}},
                "system": {"forwarding": {"lag-hash": {"source-port": "off"}}},
            },
            "protocol, source_ip",
        ),
        "bond's QoS": (
            {"interface": {"bond1": {"bond": {"member": {"PORT": {}}}, "qos": {"pfc-watchdog": {"state": "disable"}}}}},
            "bond1 qos",
        ),
        "shaper": (
            {
                "qos": {"egress-shaper": {"S": {"port-max-rate": 1000}}},
                "interface": {"PORT": {"qos": {"egress-shaper": {"profile": "S"}}}},
            },
            "interface swp1 qos egress-shaper profile S",
        ),
        "link pause": (
            {
                "qos": {"link-pause": {"P": {"rx": "enable"}}},
                "interface": {"PORT": {"qos": {"link-pause": {"profile": "P"}}}},
            },
            "interface swp1 qos link-pause profile P",
        ),
        "storm control": (
            {"interface": {"PORT": {"storm-control": {"broadcast": 1}}}},
            "interface swp1 storm-control broadcast 1",
        ),
        "DSCP by access list": (
            {
                "acl": {"A": {"type": "ipv4", "rule": {"10": {"action": {"set": {"dscp": 0}}}}}},
                "interface": {"PORT": {"acl": {"A": {"inbound": {}}}}},
            },
            "acl A rule 10 action set dscp 0",
        ),
        "DSCP by access list of a VLAN": (
            {
                "acl": {"A": {"type": "ipv4", "rule": {"10": {"action": {"set": {"dscp": 0}}}}}},
                "interface": {"vlan10": {"type": "svi", "acl": {"A": {"inbound": {}}}}},
            },
            "acl A rule 10 action set dscp 0",
        ),
        "class by access list": (
            {
                "acl": {"A": {"type": "ipv4", "rule": {"10": {"action": {"set": {"class": 1}}}}}},
                "interface": {"PORT": {"acl": {"A": {"inbound": {}}}}},
            },
            "acl A rule 10 action set class 1",
        ),
        "lossy headroom": (
            {"interface": {"PORT": {"qos": {"headroom": {"lossy": {"extra-threshold": 50000}}}}}},
            "interface swp1 qos headroom lossy extra-threshold 50000",
        ),
        "policer": (
            {
                "acl": {"A": {"type": "ipv4", "rule": {"10": {"action": {"police": {"rate": 1}}}}}},
                "interface": {"PORT": {"acl": {"A": {"inbound": {}}}}},
            },
            "acl A rule 10 action police rate 1",
        ),
        "pools": (
            {
                "qos": {
                    "advance-buffer-config": {"default-global": {"egress-lossless-buffer": {"shared-alpha": "alpha_1"}}}
                }
            },
            "qos advance-buffer-config default-global egress-lossless-buffer shared-alpha alpha_1",
        ),
        "pool of other traffic": (
            {"qos": {"traffic-pool": {"default-lossy": {"switch-priority": {"0-3": {}}}}}},
            "default-lossy switch-priority 0-3",
        ),
        "lossless pool with other traffic": (
            {"qos": {"traffic-pool": {"default-lossless": {"switch-priority": ["3", "5"]}}}},
            "default-lossless switch-priority 3,5",
        ),
        "lossless pool without RoCE": (
            {"qos": {"traffic-pool": {"default-lossless": {"switch-priority": 4}}}},
            "default-lossless switch-priority 4",
        ),
        "watchdog": ({"qos": {"pfc-watchdog": {"action": "forward"}}}, "qos pfc-watchdog action forward"),
        "trimming": (
            {"system": {"forwarding": {"packet-trim": {"state": "enabled"}}}},
            "system forwarding packet-trim state enabled",
        ),
        "VXLAN": (
            {"nve": {"vxlan": {"encapsulation": {"dscp": {"action": "set", "value": 0}}}}},
            "nve vxlan encapsulation dscp value 0",
        ),
    },
    "dell_sonic": {
        "port down": ({"interfaces": [{"name": "PORT", "enabled": False}]}, "interfaces enabled False"),
        "port speed": ({"interfaces": [{"name": "PORT", "speed": "SPEED_100GB"}]}, "100 Gbit/s"),
        "speed in Mbit/s": ({"interfaces": [{"name": "PORT", "speed": "SPEED_2500MB"}]}, "2.5 Gbit/s"),
        "MTU of a subinterface": (
            {"interfaces": [{"name": "Eth1/1.10", "mtu": 1500}]},
            "interfaces Eth1/1.10 mtu 1500",
        ),
        "MTU between VLANs": ({"interfaces": [{"name": "Vlan10", "mtu": 1500}]}, "interfaces Vlan10 mtu 1500"),
        "asymmetric PFC": (
            {"qos_interfaces": [{"name": "PORT", "pfc": {"asymmetric": True}}]},
            "qos_interfaces pfc asymmetric True",
        ),
        "PCP map": (
            {"qos_interfaces": [{"name": "PORT", "qos_maps": {"dot1p_fwd_group": "A"}}]},
            "qos_interfaces qos_maps dot1p_fwd_group A",
        ),
        "port shaper": (
            {"qos_scheduler": [{"name": "POLICY", "schedulers": [{"sequence": 255, "pir": 1000}]}]},
            "qos_scheduler pir 1000",
        ),
        "strict queue beyond the classes": (
            {"qos_scheduler": [{"name": "POLICY", "schedulers": [{"sequence": 9, "scheduler_type": "strict"}]}]},
            "qos_scheduler strict sequence 9",
        ),
        "WRED that drops CNPs": (
            {
                "qos_wred": [{"name": "DROP", "green": {"enable": True, "min_threshold": 1000, "max_threshold": 2000}}],
                "qos_interfaces": [{"name": "PORT", "queues": [{"id": 6, "wred_profile": "DROP"}]}],
            },
            "qos_wred green enable True",
        ),
        "negotiated speed": (
            {"interfaces": [{"name": "PORT", "auto_negotiate": True}]},
            "interfaces auto_negotiate True",
        ),
        "buffer profile": (
            {"qos_buffer": {"buffer_profiles": [{"name": "P", "pool": "egress_lossless_pool", "size": 1}]}},
            "qos_buffer P egress_lossless_pool",
        ),
        "limit of lossless queues": (
            {"qos_buffer": {"buffer_profiles": [{**EGRESS_LOSSLESS, "static_threshold": 1000}]}},
            "qos_buffer egress_lossless_profile egress_lossless_pool static_threshold 1000",
        ),
        "alpha of lossless queues": (
            {"qos_buffer": {"buffer_profiles": [{**EGRESS_LOSSLESS, "dynamic_threshold": -6}]}},
            "qos_buffer egress_lossless_profile egress_lossless_pool dynamic_threshold -6",
        ),
        **{
            f"{option} of {name}": (
                {
                    "qos_buffer": {
                        "buffer_profiles": [{"name": name, "pool": "ingress_lossless_pool", "size": 1, option: limit}]
                    }
                },
                f"{option} {limit}",
            )
            for name, option, limit in (
                ("pg_lossless_400000_40m_profile", "dynamic_threshold", -6),
                ("pg_lossless_400000_40m_profile", "static_threshold", 1000),
                ("pg_lossless_400000_40m_profile", "pause_threshold", 46080),
                ("ingress_lossy_profile", "dynamic_threshold", -6),
                ("egress_lossy_profile", "static_threshold", 1000),
            )
        },
        "shared headroom": (
            {"qos_buffer": {"buffer_pools": [{"name": "ingress_lossless_pool", "xoff": 1}]}},
            "qos_buffer ingress_lossless_pool xoff 1",
        ),
        "policy of flows": (
            {
                "fbs_policies": [
                    {"policy_name": "P", "sections": [{"class": "C", "qos": {"remark": {"set_dscp": "af41"}}}]}
                ]
            },
            "fbs_policies sections qos remark set_dscp af41",
        ),
        "redirection of flows": (
            {
                "fbs_policies": [
                    {
                        "policy_name": "P",
                        "sections": [{"class": "C", "forwarding": {"next_hops": [{"address": "10.0.0.1"}]}}],
                    }
                ]
            },
            "fbs_policies sections forwarding next_hops address 10.0.0.1",
        ),
        "queue of flows": (
            {"fbs_policies": [{"policy_name": "P", "sections": [{"class": "C", "qos": {"output_queue_index": 1}}]}]},
            "fbs_policies sections qos output_queue_index 1",
        ),
        "policer of flows": (
            {"fbs_policies": [{"policy_name": "P", "sections": [{"class": "C", "qos": {"policer": {"cir": "1"}}}]}]},
            "fbs_policies sections qos policer cir 1",
        ),
        "member of a port channel": (
            {
                "lag_interfaces": [
                    {"name": "PortChannel1", "members": {"interfaces": [{"member": "PORT"}, {"member": "Eth1/99"}]}}
                ]
            },
            "Eth1/99",
        ),
        "port channel's MTU": ({**LAG, "interfaces": [{"name": "PortChannel1", "mtu": 1500}]}, "PortChannel1 mtu 1500"),
        "port channel that leaves its peer": (
            {"lag_interfaces": [{**LAG["lag_interfaces"][0], "graceful_shutdown": True}]},
            "lag_interfaces graceful_shutdown True",
        ),
        "port channel's maps": (
            {**LAG, "qos_interfaces": [{"name": "PortChannel1", "qos_maps": {"dscp_fwd_group": "A"}}]},
            "qos_maps dscp_fwd_group A",
        ),
    },
    "linux": {
        "link-level pause": (lambda reading: with_pause(reading, rx=True), "link pause rx"),
        "pause of one priority": (lambda reading: with_pause(reading, pfc=3), "link pfc 3"),
        "port down": (lambda reading: reading["links"][0].update(flags=["BROADCAST"]), "link down"),
        "classifier on ingress": (
            lambda reading: reading["qdiscs"].append(
                {"kind": "clsact", "handle": "ffff:", "parent": "ffff:fff1", "dev": reading["links"][0]["ifname"]}
            ),
            "qdisc clsact",
        ),
        "shaper": (
            lambda reading: reading["qdiscs"].append(
                {"kind": "tbf", "handle": "9:", "parent": "1:1", "dev": reading["links"][0]["ifname"]}
            ),
            "qdisc tbf",
        ),
        "policer": (lambda reading: with_action(reading, "police"), "filter action police"),
        "class by an action": (lambda reading: with_action(reading, "skbedit"), "filter action skbedit"),
        "DSCP by nftables": (
            lambda reading: with_rule(
                reading, {"mangle": {"key": {"payload": {"protocol": "ip", "field": "dscp"}}, "value": "cs1"}}
            ),
            "nftables postrouting set ip dscp",
        ),
        "DSCP by iptables": (
            lambda reading: with_rule(reading, {"xt": {"type": "target", "name": "DSCP"}}),
            "nftables postrouting xt DSCP",
        ),
        "class by nftables": (
            lambda reading: with_rule(reading, {"mangle": {"key": {"meta": {"key": "priority"}}, "value": "1:3"}}),
            "nftables postrouting set meta priority",
        ),
        "rate by nftables": (
            lambda reading: with_rule(reading, {"limit": {"rate": 10, "per": "second", "inv": True}}, {"drop": None}),
            "nftables postrouting limit drop",
        ),
        "acceptance up to a rate": (
            lambda reading: with_rules(reading, [LIMIT, {"accept": None}], [{"drop": None}]),
            "nftables postrouting limit drop",
        ),
        "rate by a policy": (
            lambda reading: with_rules(reading, [LIMIT, {"accept": None}], policy="drop"),
            "nftables postrouting limit drop",
        ),
        "rate by another chain": (
            lambda reading: with_rules(reading, [LIMIT, {"jump": {"target": "d"}}], other=[{"drop": None}]),
            "nftables postrouting limit drop",
        ),
        "rate in another chain": (
            lambda reading: with_rules(
                reading,
                [{"vmap": {"key": {"meta": {"key": "oif"}}, "data": {"set": [["eth0", {"goto": {"target": "d"}}]]}}}],
                [{"drop": None}],
                other=[LIMIT, {"accept": None}],
            ),
            "nftables postrouting limit drop",
        ),
        "rate by iptables": (
            lambda reading: with_rules(reading, [extension("match", "hashlimit"), {"drop": None}]),
            "nftables postrouting limit drop",
        ),
        "quota by iptables": (
            lambda reading: with_rules(
                reading, [extension("match", "quota"), {"accept": None}], [extension("target", "REJECT")]
            ),
            "nftables postrouting limit drop",
        ),
        "rate of a bridge": (
            lambda reading: with_rules(reading, [LIMIT, {"drop": None}], hook="input", family="bridge"),
            "nftables bridge_input limit drop",
        ),
        "DSCP on the bridge of a port": (
            lambda reading: [
                reading["links"][0].update(master="br0"),
                reading["links"].append({"ifname": "br0", "mtu": 9100, "flags": ["UP"]}),
                with_rule(
                    reading,
                    {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "br0"}},
                    {"mangle": {"key": {"payload": {"protocol": "ip", "field": "dscp"}}, "value": "cs1"}},
                ),
            ],
            "nftables postrouting set ip dscp",
        ),
        "shaper between VLANs": (
            lambda reading: [
                reading["links"][0].update(master="br0"),
                reading["links"].append({"ifname": "br0", "mtu": 9100, "flags": ["UP"]}),
                reading["links"].append({"ifname": "vlan10", "link": "br0", "mtu": 9100, "flags": ["UP"]}),
                reading["qdiscs"].append({"kind": "tbf", "handle": "9:", "root": True, "dev": "vlan10"}),
            ],
            "qdisc tbf",
        ),
        "nftables, which are not read": (
            lambda reading: reading.update(nftables=None),
            "nftables: not read, because the command nft is missing",
        ),
        "old iptables": (lambda reading: reading.update(tables="ip_tables_names:mangle"), "ip_tables mangle"),
        "filter of old iptables": (
            lambda reading: reading.update(tables="ip6_tables_names:filter"),
            "ip6_tables filter",
        ),
        "member of a bond": (
            lambda reading: [
                link.update(flags=["UP", "SLAVE"], master="bond0")
                for link in (reading["links"][0], reading["links"][-1])
            ],
            "eth9",
        ),
        "bond's MTU": (lambda reading: with_bond(reading, 1500), "bond0 mtu 1500"),
        "team's MTU": (lambda reading: with_bond(reading, 1500, "team"), "bond0 mtu 1500"),
        "team's hash": (lambda reading: with_bond(reading, 9216, "team"), "team"),
        "bond's hash": (
            lambda reading: with_bond(reading, 9216, xmit_hash_policy="layer2+3"),
            "destination_ip, source_ip",
        ),
        "bond that takes turns": (lambda reading: with_bond(reading, 9216, mode="balance-rr"), "bond balance-rr"),
        "bridge's MTU": (lambda reading: with_vlan(reading, 10, bridge_mtu=1500), "link br0 mtu 1500"),
        "VLAN's MTU": (lambda reading: with_vlan(reading, 10, mtu=1500), "link vlan10 mtu 1500"),
        "tag of a VLAN": (lambda reading: with_vlan(reading, 10, flags=()), "tagged"),
        "VLAN's device": (
            lambda reading: reading["links"].append(
                {**device("eth0.10", "vlan", id=10), "link": reading["links"][0]["ifname"]}
            ),
            "link eth0.10 tagged",
        ),
        "macvlan's MTU": (
            lambda reading: reading["links"].append(
                {**device("mv0", "macvlan", 1500), "link": reading["links"][0]["ifname"]}
            ),
            "link mv0 mtu 1500",
        ),
        "bond with an idle member": (
            lambda reading: with_bond(reading, 9216, mode="active-backup"),
            "bond0: none",
        ),
        "bond of an unknown mode": (lambda reading: with_bond(reading, 9216, mode=""), "bond"),
        "bond that moves flows": (lambda reading: with_bond(reading, 9216, mode="balance-tlb"), "bond balance-tlb"),
        "MTU of a VLAN of an unknown port": (
            lambda reading: [with_vlan(reading, 20, mtu=1500), reading.pop("vlans")],
            "link vlan10 mtu 1500",
        ),
        "rate behind a named map": (
            lambda reading: [
                with_rules(
                    reading,
                    [{"vmap": {"key": {"meta": {"key": "oif"}}, "data": "@m"}}],
                    [{"drop": None}],
                    other=[LIMIT, {"accept": None}],
                ),
                reading["nftables"]["nftables"].append(
                    {
                        "map": {
                            "family": "inet",
                            "table": "t",
                            "name": "m",
                            "type": "ifname",
                            "map": "verdict",
                            "elem": [["eth0", {"goto": {"target": "d"}}]],
                        }
                    }
                ),
            ],
            "nftables postrouting limit drop",
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
        "PORT: switchport access vlan 10\ninterface Vlan11\n   ip address 10.0.0.1/24",
        "PORT: switchport access vlan 10\ninterface Vlan10\n   ip address 10.0.0.1/24\n   mtu 9214",
        "PORT: switchport access vlan 10\ninterface Vlan10\n   description no address",
        "PORT: no switchport\ninterface Vlan10\n   ip address 10.0.0.1/24",
        "interface Ethernet1/1.10\n   qos trust dscp\n   mtu 9214\n   ip address 10.0.0.1/24",
        "interface Ethernet1/1.10\n   shutdown\n   qos trust cos\n   mtu 1500",
        "interface Ethernet9/1\ninterface Ethernet9/1.10\n   mtu 1500",
        "port-channel load-balance trident fields ip mac-header",
        "PORT: channel-group 7 mode active\ninterface Ethernet1/2\n   channel-group 7 mode active\n"
        "port-channel load-balance trident fields ip ip-tcp-udp-header",
        "ip load-sharing trident fields ipv6 source-ip destination-ip source-port destination-port flow-label",
        "load-balance cluster\n   load-balance method flow round-robin",
        "interface defaults\n   ethernet\n      shutdown\nPORT: no shutdown\ninterface Ethernet1/2\n   no shutdown",
    ],
    "nxos": [
        "PORT: no shutdown",
        "PORT: speed 400000",
        "interface breakout module 1 port 7 map 100g-4x",
        "hardware profile dlb\n  dlb-interface Eth1/1\n  mode flowlet",
        "interface mgmt0\n  shutdown",
        "policy-map type qos UNUSED\n  class class-default\n    police cir 1 gbps",
        f"OTHERS: {DROPS}",
        "PORT: channel-group 7 mode active\ninterface port-channel7\n  no switchport\n  mtu 9216",
        "class-map type qos match-any A\n  match protocol arp\nPOLICY: class A\n      set qos-group 0",
        "class-map type qos match-any P0\n  match precedence routine\nPOLICY: class P0\n      set qos-group 0",
        "ip access-list T\n  statistics per-entry\n  10 permit tcp any any\n  20 deny udp any any\n"
        "class-map type qos match-all A\n  match access-group name T\nPOLICY: class A\n      set qos-group 0",
        "PORT: switchport access vlan 10\ninterface Vlan11\n  ip address 10.0.0.1/24",
        "PORT: no switchport\ninterface Vlan10\n  ip address 10.0.0.1/24",
        "interface Ethernet1/1.10\n  mtu 9216\n  ip address 10.0.0.1/24",
        "port-channel load-balance src-dst mac",
        "PORT: channel-group 7 mode active\ninterface Ethernet1/2\n  channel-group 7 mode active\n"
        "port-channel load-balance src-dst ip-l4port rotate 3",
        "priority-flow-control override-interface mode on",
        "system default switchport shutdown\nPORT: no shutdown\ninterface Ethernet1/2\n  no switchport",
    ],
    "junos": [
        "set interfaces PORT speed 400g",
        "set forwarding-options enhanced-hash-key ecmp-dlb flowlet inactivity-interval 16",
        "set interfaces PORT description disable",
        "set groups G class-of-service interfaces <*> shaping-rate 1g",
        "set groups G system host-name x\nset apply-groups G",
        "set firewall family inet filter F term T then forwarding-class sailloft-tc0-pri0",
        "set firewall family inet filter F term T then accept\nset interfaces PORT unit 0 family inet filter input F",
        "set class-of-service host-outbound-traffic forwarding-class best-effort",
        "set interfaces et-0/0/9 disable",
        "set interfaces PORT ether-options 802.3ad ae0\nset interfaces ae0 mtu 9192",
        "set groups re0 interfaces em0 unit 0 family inet mtu 1500\nset apply-groups re0",
        "set interfaces interface-range R member PORT\nset interfaces interface-range R description mtu",
        "set interfaces irb unit 10 family inet address 10.0.0.1/24\nset interfaces irb disable",
        "set chassis fpc 0 pic 0 port-range 4 9 speed 100g\nset chassis fpc 0 pic 0 port-range 0 3 speed 400g",
        f"{JUNOS_VLAN}set interfaces irb mtu 9192\nset interfaces irb unit 10 family inet mtu 9100",
        f"{JUNOS_VLAN}set vlans V20 l3-interface irb.20\nset interfaces irb unit 20 family inet mtu 1500",
        "set interfaces et-0/0/9 number-of-sub-ports 4\nset interfaces et-0/0/9 speed 100g",
        "set class-of-service shared-buffer egress buffer-partition lossless dynamic-threshold 10",
        "set class-of-service shared-buffer ingress buffer-partition lossy dynamic-threshold 10",
        "set class-of-service shared-buffer egress buffer-partition lossy dynamic-threshold 7",
        # Statements that act are in the second part only, with the groups and ranges that they are from.
        "set groups G interfaces <*> mtu 1500\nset apply-groups G\nset interfaces interface-range R mtu 1500\n"
        "EXPANDED: set interfaces et-0/0/9 mtu 1500",
    ],
    "sonic": [
        {"PORT": {"PORT": {"pfc_asym": "off", "fec": "rs", "description": "shutdown"}}},
        {"PORT": {"PORT": {"autoneg": "on", "adv_speeds": "400000"}}},
        {"VLAN": {"Vlan10": {"mtu": "1500"}}, "VLAN_MEMBER": {"Vlan10|PORT": {"tagging_mode": "tagged"}}},
        {"VLAN": {"Vlan10": {"mtu": "1500"}}, "VLAN_INTERFACE": {"Vlan10": {}}},
        {"BUFFER_PROFILE": {"egress_lossless_profile": {"dynamic_th": "0"}, "UNUSED": {"dynamic_th": "-8"}}},
        {"PFC_WD": {"GLOBAL": {"BIG_RED_SWITCH": "disable"}}},
        {
            "BUFFER_PORT_INGRESS_PROFILE_LIST": {"PORT": {"profile_list": ["other", "ingress_lossy_profile"]}},
            "BUFFER_PORT_EGRESS_PROFILE_LIST": {
                "PORT": {"profile_list": "egress_lossy_profile,egress_lossless_profile"}
            },
            "BUFFER_PROFILE": {"other": OTHER},
        },
        {  # as in 18 images
            "BUFFER_PROFILE": {"small": {**OTHER, "dynamic_th": "-7"}},
            "BUFFER_QUEUE": {"PORT|7": {"profile": "small"}},
        },
        {
            "FLEX_COUNTER_TABLE": {
                "PFCWD": {"FLEX_COUNTER_STATUS": "enable"},
                "QUEUE": {"FLEX_COUNTER_STATUS": "disable", "POLL_INTERVAL": "10000"},
            }
        },
        {
            "PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}},
            "PORTCHANNEL": {"PortChannel1": {"admin_status": "up", "mtu": "9100"}},
        },
        {"SCHEDULER": {"UNUSED": {"pir": "1000"}}},
        {"DEFAULT_LOSSLESS_BUFFER_PARAMETER": {"AZURE": {"default_dynamic_th": "0"}}},
        {"SWITCH_HASH": {"GLOBAL": {"lag_hash": ["DST_IP"], "ecmp_hash_algorithm": "CRC"}}},  # no port channel
        {
            "PORTCHANNEL_MEMBER": {"PortChannel1|PORT": {}},
            "SWITCH_HASH": {"GLOBAL": {"lag_hash": ["DST_IP", "SRC_IP", "L4_SRC_PORT"]}},
        },
        {"PBH_RULE": {"T|R": {"hash": "H"}}, "PBH_TABLE": {"T": {"interface_list": ["Ethernet99"]}}},
        {
            "ACL_TABLE": {"T": {"type": "L3", "ports": ["PORT"]}},
            "ACL_RULE": {"T|R": {"PACKET_ACTION": "FORWARD", "DSCP": "26"}},
        },
        {"TUNNEL": {"T": {"dscp_mode": "uniform", "ecn_mode": "copy_from_outer"}}},
        {"QUEUE": {"PORT|8-9": {"scheduler": "scheduler.0"}, "CPU|0-47": {"scheduler": "scheduler.0"}}},
        {"COPP_GROUP": {"queue4_group1": {"queue": "4", "cir": "6000"}}},
    ],
    "cumulus": [
        {"interface": {"PORT": {"router": {"adaptive-routing": {"enable": "off"}, "ospf": {"area": "0"}}}}},
        {
            "interface": {
                "PORT": {"link": {"state": {"up": {}}, "speed": "400G", "fec": "rs"}, "acl": {"A": {"inbound": {}}}}
            }
        },
        {"acl": {"UNUSED": {"rule": {"10": {"action": {"set": {"dscp": 0}}}}}}},
        {"qos": {"egress-shaper": {"UNUSED": {"port-max-rate": 1000}}}},
        {"interface": {"bond1": {"bond": {"member": {"PORT": {}}}}}},
        {
            "qos": {
                "traffic-pool": {
                    "default-lossless": {"switch-priority": {"3": {}}},
                    "default-lossy": {"switch-priority": {"0-2": {}, "4-7": {}}},
                }
            }
        },
        {"interface": {"bond1": {"bond": {"member": {"PORT": {}}}, "link": {"mtu": 9216}}}},
        {
            "interface": {
                "PORT": {**BRIDGED, "link": {"breakout": "1x"}},
                "vlan10": {"link": {"mtu": 9216}},
                "vlan11": {"link": {"mtu": 1500}},
                "swp9.10": {"link": {"mtu": 1500}},
                "eth0": {"link": {"mtu": 1500}},
            },
            "nve": {"vxlan": {"mtu": 9216}},
            "system": {"forwarding": {"lag-hash": {"source-port": "off"}}},
        },
    ],
    "dell_sonic": [
        {"interfaces": [{"name": "PORT", "enabled": True, "speed": "SPEED_400GB", "description": "shutdown"}]},
        {**LAG, "interfaces": [{"name": "PortChannel1", "mtu": 9100}]},
        {"lag_interfaces": [{**LAG["lag_interfaces"][0], "graceful_shutdown": False, "min_links": 1}]},
        {
            "interfaces": [
                {"name": "PORT", "auto_negotiate": True, "speed": "SPEED_400GB", "advertised_speed": ["400000"]}
            ]
        },
        {
            "qos_buffer": {
                "buffer_pools": [{"name": "ingress_lossless_pool", "xoff": 6000000}],
                "buffer_profiles": [
                    {**EGRESS_LOSSLESS, "static_threshold": 33417216},
                    {"name": "pg_lossless_400000_40m_profile", "pool": "ingress_lossless_pool", "size": 1270},
                    {
                        "name": "pg_lossless_100000_5m_profile",
                        "pool": "ingress_lossless_pool",
                        "dynamic_threshold": -2,
                        "pause_threshold": 90000,
                    },
                    {"name": "ingress_lossy_profile", "pool": "ingress_lossless_pool", "dynamic_threshold": 3},
                    {"name": "egress_lossy_profile", "pool": "egress_lossy_pool", "dynamic_threshold": 1},
                ],
            }
        },
        {
            "qos_wred": [{"name": "DROP", "green": {"enable": True, "min_threshold": 1000, "max_threshold": 2000}}],
            "qos_interfaces": [{"name": "PORT", "queues": [{"id": 0, "wred_profile": "DROP"}]}],
        },
        {"fbs_policies": [{"policy_name": "P", "sections": [{"class": "C", "forwarding": {"ars_disable": True}}]}]},
    ],
    "linux": [
        lambda _reading: None,
        with_pause,
        lambda reading: reading.update({"ethtool --json -a": {"eth9": None}, "dcb -j pfc show dev": {"eth9": None}}),
        lambda reading: with_bond(reading, 9216),
        lambda reading: with_vlan(reading, 20, mtu=1500),
        lambda reading: reading["links"].append(
            {**device("vxlan1", "vxlan", mtu=1450), "link": reading["links"][0]["ifname"]}
        ),
        lambda reading: with_action(reading, "gact"),
        lambda reading: with_rule(reading, {"counter": {"packets": 0, "bytes": 0}}, {"accept": None}),
        lambda reading: with_rule(reading, {"limit": {"rate": 1, "per": "second"}}, {"accept": None}),
        lambda reading: with_rule(reading, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}),
        lambda reading: with_rule(
            reading,
            {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "eth9"}},
            {"mangle": {"key": {"payload": {"protocol": "ip", "field": "dscp"}}, "value": "cs1"}},
        ),
        lambda reading: with_rule(reading, {"xt": {"type": "target", "name": "DSCP"}}, hook="output"),
        lambda reading: with_rules(reading, [LIMIT, {"log": None}], [{"drop": None}]),
        lambda reading: with_rules(reading, [LIMIT, {"accept": None}], other=[{"drop": None}]),
        lambda reading: with_rules(
            reading, [{"jump": {"target": "d"}}], other=[LIMIT, {"drop": None}], hook="input", policy="drop"
        ),
        lambda reading: with_rules(
            reading,
            [
                {
                    "match": {
                        "op": "==",
                        "left": {"payload": {"protocol": "icmp", "field": "type"}},
                        "right": "echo-request",
                    }
                },
                LIMIT,
                {"accept": None},
            ],
            policy="drop",
        ),
        lambda reading: reading["links"].append({"ifname": "br0", "mtu": 1500, "flags": ["BROADCAST"]}),
    ],
}


def with_lines(system, statements):
    """Return a configuration with statements, each at its place."""
    text, port = params(system)["running"]["spine1"], next(iter(PORTS[system]))
    if system == "junos":
        statements, _mark, expanded = named(statements).replace("PORT", port).partition("EXPANDED: ")
        written = f"{text}{statements}\n"
        return f"{written}# inherit\n{answered(f'{text}{expanded}')}" if expanded else written
    places = {
        "PORT": f"interface {port}",
        "PROFILE": "qos profile ",
        "QUEUING": "  class type queuing c-out-8q-q3",
        "CNPS": "  class type queuing c-out-8q-q6",
        "NETWORK": "  class type network-qos c-8q-nq3",
        "POLICY": "policy-map type qos sailloft-",
        "ROCE": "class-map type qos match-any sailloft-tc3-",
        "OTHERS": "  class type queuing c-out-8q-q-default",
        "QOS": next((line for line in text.splitlines() if line.startswith("  class sailloft-tc3")), ""),
    }
    added_at_end = []
    lines = text.splitlines()
    for statement in statements.splitlines():
        place, colon, line = statement.partition(": ")
        if colon and place in places:
            index = next(index for index, other in enumerate(lines) if other.startswith(places[place]))
            lines.insert(
                index + 1, f"{'    ' if place in ('QUEUING', 'CNPS', 'OTHERS', 'QOS', 'NETWORK') else '   '}{line}"
            )
            inserted = index + 1
        elif not added_at_end and statement.startswith("      ") and colon == "":
            lines.insert(inserted + 1, statement)
        else:
            added_at_end.append(statement)
    return "\n".join([*added_at_end, *lines, ""])


def answered(text):
    """Return NETCONF's answer with a configuration as set lines."""
    lines = f"<configuration-set>\n{escape(text)}\n</configuration-set>"
    return f'<rpc-reply message-id="urn:uuid:1">{lines}</rpc-reply>'


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
                same = [other for other in listed if "name" in replaced and other.get("name") == replaced["name"]]
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


def with_action(reading, kind):
    """Give the first filter of the first port an action, in the form of tc -j."""
    filters = reading["filters"][reading["links"][0]["ifname"]]
    filters[0]["options"]["actions"] = [{"order": 1, "kind": kind}]


def device(name, kind, mtu=9100, **data):
    """Return a device as ip -d -j link shows it."""
    return {"ifname": name, "mtu": mtu, "flags": ["UP"], "linkinfo": {"info_kind": kind, "info_data": data}}


def with_bond(reading, mtu, kind="bond", mode="802.3ad", xmit_hash_policy="layer3+4"):
    """Make the first port the member of a bond, or of a team."""
    flags = ["UP", "SLAVE"] if kind == "bond" else ["UP"]
    reading["links"][0].update(flags=flags, master="bond0", linkinfo={"info_slave_kind": kind})
    data = {"mode": mode, "xmit_hash_policy": xmit_hash_policy} if kind == "bond" else {}
    reading["links"].append(device("bond0", kind, mtu, **data))
    reading["filters"]["bond0"] = []


def with_vlan(reading, carried, mtu=9100, bridge_mtu=9100, flags=("Egress Untagged",)):
    """Put the first port into a bridge, in the VLAN ``carried``, and give the bridge an interface of VLAN 10."""
    port = reading["links"][0]
    port.update(master="br0", linkinfo={"info_slave_kind": "bridge"})
    reading["links"].append(device("br0", "bridge", bridge_mtu, vlan_filtering=1))
    reading["links"].append({**device("vlan10", "vlan", mtu, id=10), "link": "br0"})
    vlans = [{"vlan": 1}, {"vlan": carried - 2, "vlanEnd": carried}]
    reading["vlans"] = [{"ifname": port["ifname"], "vlans": [{**vlan, "flags": [*flags]} for vlan in vlans]}]


LIMIT = {"limit": {"rate": 10, "per": "second"}}


def extension(kind, name):
    """Return an extension of iptables as nft shows it."""
    return {"xt": {"type": kind, "name": name}}


def with_rule(reading, *expressions, hook="postrouting"):
    """Add a rule in the form of nft -j list ruleset."""
    with_rules(reading, list(expressions), hook=hook)


def with_rules(reading, *rules, other=(), hook="postrouting", family="inet", policy="accept"):
    """Add the rules of a chain with a hook, and the rule of the chain d without one."""
    place = {"family": family, "table": "t"}
    chain = {**place, "name": "c", "type": "filter", "hook": hook, "prio": -150, "policy": policy}
    listed = [{"rule": {**place, "chain": "c", "expr": rule}} for rule in rules]
    listed.append({"rule": {**place, "chain": "d", "expr": list(other)}})
    reading["nftables"] = {"nftables": [{"metainfo": {}}, {"chain": chain}, {"chain": {**place, "name": "d"}}, *listed]}


def with_reading(change):
    """Return what a Linux machine with the policy shows, with a change; eth9 is none of the inventory."""
    model = Script(params("linux")["running"]["spine1"], "spine1").model
    links = [{"ifname": port, "mtu": mtu, "flags": ["UP"]} for port, mtu in model["links"].items()]
    reading = {
        "links": [*links, {"ifname": "eth9", "mtu": 1500, "flags": ["UP"]}],
        "qdiscs": [qdisc for listed in model["qdiscs"].values() for qdisc in listed],
        "filters": {"eth9": [], **model["filters"]},
        "sysctl": model["sysctl"],
        "nftables": {},
    }
    change(reading)
    return json.dumps(reading)


def changed(system, change):
    """Return spine1's configuration with a change."""
    if isinstance(change, str):
        return with_lines(system, change)
    return with_tree(system, change) if isinstance(change, dict) else with_reading(change)


def named(text):
    """Return ``text`` with the names of the objects that spine1 has on Junos."""
    lines = params("junos")["running"]["spine1"]
    for placeholder, section in (("SCHEDULER", "schedulers"), ("CNP", "congestion-notification-profile")):
        text = text.replace(placeholder, re.search(rf"class-of-service {section} (\S+)", lines)[1])
    return text


def row(system, statement):
    """Return the index and effect of the first row of the system's table for a statement, or None."""
    rows = getattr(overrides, system.upper()).rows
    return next(((index, effect) for index, (pattern, effect) in enumerate(rows) if pattern.match(statement)), None)


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_row_of_a_table_has_an_example(system):
    rows = {index for index, (_row, effect) in enumerate(getattr(overrides, system.upper()).rows) if effect}
    matched = [row(system, statement) for _change, statement in EXAMPLES[system].values()]
    assert rows - {match[0] for match in matched if match} == set()


@pytest.mark.parametrize(("system", "name"), [(system, name) for system in EXAMPLES for name in EXAMPLES[system]])
def test_a_statement_that_can_undo_the_policy_is_named_by_the_path_and_the_proof(system, name):
    change, statement = EXAMPLES[system][name]
    faults, failed, first = judged(system, changed(system, change))
    # What is seen has also the statement's place.
    words = " ".join(named(statement).split()[-2:])
    of_path = [fault["what"] for fault in faults if words in str(fault["seen"]) and fault["where"].startswith("spine1")]
    of_proof = [claim.claim for claim in failed if words in str(claim.seen) and claim.claim.startswith("spine1")]
    assert of_path, faults
    assert of_proof, failed
    if row(system, statement) and row(system, statement)[1]:
        claim = OVERRIDDEN.format(row(system, statement)[1])
        assert claim in of_path
        assert claim in "".join(of_proof)
    assert first.startswith("spine1: ")


@pytest.mark.parametrize(
    ("system", "index"), [(system, index) for system in HARMLESS for index in range(len(HARMLESS[system]))]
)
def test_other_statements_change_nothing(system, index):
    assert judged(system, changed(system, HARMLESS[system][index])) == ([], [], "")


def with_port(system, name):
    """Return a request whose spine1 has ``name`` in place of its first port."""
    request, port = params(system), next(iter(PORTS[system]))
    switches = json.dumps(request["switches"]).replace(f'"spine1", "port": "{port}"', f'"spine1", "port": "{name}"')
    request["switches"] = json.loads(switches)
    ports = request["switches"]["spine1"]["ports"]
    request["switches"]["spine1"]["ports"] = {name: ports.pop(port), **ports}
    return request


@pytest.mark.parametrize("place", ["PORT", "member"])
@pytest.mark.parametrize(("system", "lag"), [("eos", "Port-Channel7"), ("nxos", "port-channel7")])
def test_a_port_channel_of_the_inventory_is_checked_with_its_members(system, lag, place):
    """Without the statement it holds: its lines that its member does not have are its policy."""

    def faults(statement):
        request, port = with_port(system, lag), next(iter(PORTS[system]))
        lines = {"PORT": "", "member": "", place: statement}
        request["running"]["spine1"] = (
            request["running"]["spine1"].replace(f"interface {port}\n", f"interface {lag}\n{lines['PORT']}")
            + f"interface Ethernet9/1\n   channel-group 7 mode active\n{lines['member']}"
        )
        path = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})["faults"]
        return [fault["seen"] for fault in path], prove(request)[0].holds

    assert faults("") == ([], True)
    for statement in ("shutdown", "storm-control broadcast level 1"):
        assert faults(f"   {statement}\n") == ([statement], False)


@pytest.mark.parametrize("place", ["ae7", "et-0/0/9"])
def test_an_aggregated_interface_of_the_inventory_is_checked_with_its_members(place):
    """As above, on Junos, whose class of service is of the aggregated interface."""

    def faults(statement):
        request = with_port("junos", "ae7")
        port = next(iter(PORTS["junos"]))
        lines = request["running"]["spine1"].replace(f"interfaces {port} ", "interfaces ae7 ")
        lines += f"set interfaces et-0/0/9 ether-options 802.3ad ae7\n{statement}"
        request["running"]["spine1"] = lines
        path = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})["faults"]
        return [fault["seen"] for fault in path], prove(request)[0].holds

    assert faults("") == ([], True)
    for statement in (f"interfaces {place} disable", f"class-of-service interfaces {place} shaping-rate 1g"):
        assert faults(f"set {statement}\n") == ([statement], False)
