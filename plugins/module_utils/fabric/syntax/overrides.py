# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The statements of each system that can change a packet's class, queue, DSCP, rate, pause or buffer and are not read.

A table has a row for each kind of statement, in the order of precedence: a regular expression for its beginning, and
what it can change, or None where it has no such effect or is read elsewhere. Statements that no row names have no such
effect. The rows were made from the data models and references below; ``tests/overrides`` lists what a model has and
neither a reader nor a row knows.

Sources: sonic-buildimage 086b03bd70 (src/sonic-yang-models), sonic-swss (aclorch.h: rule actions); the schema of pyavd
6.4 (eos_cli_config_gen) and the Arista user manual, "Quality of Service" and "Traffic Policy"; CiscoDevNet's
terraform-provider-nxos 43d0c254 (gen/definitions; from memory: the words of its high_multicast_priority) and the Nexus
9000 NX-OS QoS guide 10.5; Juniper/yang 24.4R1 (junos-qfx-conf-class-of-service, -interfaces, -firewall, and those of
Junos Evolved); Cumulus Linux 5.14 user guide, "Quality of Service", and NVUE reference, "QoS" and "Packet Trimming";
the options of dellemc.enterprise_sonic 3.2.0; tc(8), iproute2 ee2a4a86 (tc/q_*.c, m_*.c), libnftables-json(5),
iptables-extensions(8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

CLASS, QUEUE, DSCP, RATE, PAUSE, BUFFER = "class", "queue", "DSCP", "rate", "pause", "buffer"
LINK = "link"  # whether packets pass at all
SIZE = "size"  # the largest packet that passes
PATH = "path"  # which of equal links packets take


class OverrideRules:
    """The rows of one system."""

    def __init__(self, *rows: tuple[str, str | None]) -> None:
        self.rows = [(re.compile(pattern), effect) for pattern, effect in rows]
        self._effects: dict[str, str | None] = {}  # most switches have the same statements

    def effect(self, statement: str) -> str | None:
        """Return what a statement can change, or None."""
        if statement not in self._effects:
            self._effects[statement] = next((effect for pattern, effect in self.rows if pattern.match(statement)), None)
        return self._effects[statement]


def statements(node: Any, path: str) -> Iterator[str]:
    """Return each setting below a node of a tree as its path with the value; none where there is no such node."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from statements(value, f"{path} {key}")
    elif isinstance(node, list):
        for element in node:
            yield from statements(element, path)
    elif node is not None:
        yield path if node == {} else f"{path} {node}"


EOS = OverrideRules(
    (r"shutdown$|traffic-loopback |interface defaults ethernet shutdown", LINK),
    (r"shape rate|storm-control |mac security profile|(uc-|mc-)?tx-queue \d+ shape|class \S+ (police|shape)", RATE),
    (r"flowcontrol (send|receive) (on|desired)", PAUSE),
    (r"priority-flow-control pause watchdog", None),
    (r"priority-flow-control ", PAUSE),
    (r"l2 m[rt]u ", SIZE),
    (r"(uc-)?tx-queue \d+ random-detect ecn count|(uc-|mc-)?tx-queue \d+ comment", None),
    (r"(uc-|mc-)?tx-queue \d+ ", QUEUE),
    (r"class \S+ (set (cos|traffic-class|dscp)|description|comment)", None),  # set dscp: PortQos.rewrites_dscp
    (r"class \S+ ", CLASS),
    (r"(traffic|service)-policy ", CLASS),
    # The last two have an effect only with "qos rewrite", and the first two only where the CoS is trusted.
    (r"qos (profile|trust|cos|dscp|map (cos|exp)|map traffic-class .* to (cos|dscp|exp)|rewrite cos)\b", None),
    (r"qos rewrite|interface Vxlan\S+ vxlan qos", DSCP),
    (r"qos (map traffic-class .* to mc-tx-queue|random-detect|tx-queue|scheduling)", QUEUE),
    (r"qos |interface Vlan\S+ (traffic|service)-policy|platform \S+ qos ", CLASS),
    (r"(platform|hardware)\b.*\b(mmu|headroom|queue|qos-map|buffer(ing)?|voq)\b", BUFFER),
    # Of port channels with several members. The fields that ECMP hashes are read.
    (r"port-channel load-balance \S+ fields (ip|ipv6) (.* )?(source-port|ip-tcp-udp-header)\b", None),
    (r"port-channel load-balance (\d|\S+ (hash|fields mac)\b)", None),
    (r"(ip load-sharing \S+ hash|ip load-sharing \d)", None),
    (
        r"(ingress |port-channel )load-balance |load-balance policies load-balance \S+ profile \S+ |ip load-sharing ",
        PATH,
    ),
    (r"load-balance cluster .*\baction ", CLASS),
    # From memory: dynamic and random distribution, which can send the packets of one flow on several ways.
    (r"ip hardware fib load-balance distribution ", PATH),
)
NXOS = OverrideRules(
    (r"shutdown$|system default switchport shutdown", LINK),
    (r"storm-control |macsec |class \S+ (police|shape)", RATE),
    (r"flowcontrol (send|receive) (on|desired)", PAUSE),
    (r"class c-out-(8q-)?q-default (queue-limit|random-detect)", None),  # of other traffic
    (r"class \S+ random-detect(?!.* ecn$)", QUEUE),  # it drops
    (r"class \S+ match ", CLASS),
    (r"class \S+ (pause (no-drop )?buffer-size|queue-limit)", BUFFER),
    (r"class \S+ (set (qos-group|dscp|precedence|cos)|pause|mtu|priority|bandwidth|random-detect)\b", None),
    (r"class \S+ ", QUEUE),
    (r"service-policy (type \S+ )?(input|output) default-", None),
    (r"service-policy type queuing", QUEUE),
    (r"service-policy |(vlan configuration|interface) \S+ service-policy |qos ", CLASS),
    (r"hardware qos burst-detect", None),
    (r"no buffer-boost$", BUFFER),
    (r"hardware .*multicast-priority", QUEUE),
    (r"system jumbomtu (?!9216$)", SIZE),
    (r"hardware profile dlb mode (policy-driven )?per-packet", PATH),
    (r"hardware (qos|profile (buffer|pfc|burst))|congestion-control ", BUFFER),
    (r"priority-flow-control (override-interface mode on$|watch-dog internal-)", None),
    (r"priority-flow-control ", PAUSE),
    # Of port channels with several members. The fields that ECMP hashes are read.
    (r"port-channel load-balance ((src|src-dst) (ip-)?l4port|resilient)", None),
    (r"port-channel load-balance |ip(v6)? load-sharing |(interface Vlan\S+ )?ip(v6)? policy route-map ", PATH),
)
# In the form of "set" lines.
JUNOS = OverrideRules(
    (r"class-of-service (interfaces|schedulers)( \S+){0,2}$", None),  # no setting
    (r"class-of-service congestion-notification-profile \S+ (input ieee-802.1|.* xon )", PAUSE),
    (r"class-of-service congestion-notification-profile ", None),
    (r"class-of-service schedulers \S+ (shaping-rate|transmit-rate .*\bexact)", RATE),
    (r"class-of-service schedulers \S+ (buffer|shared-buffer)", BUFFER),
    (r"class-of-service schedulers \S+ (priority|transmit-rate|explicit-congestion|drop-profile-map) ?", None),
    (r"class-of-service interfaces \S+ unit \S+ scheduler-map |interfaces \S+ \S+-scheduler$", QUEUE),
    # Packet by packet: those of one flow arrive in another order.
    (r"forwarding-options enhanced-hash-key (ecmp-dlb|fabric-load-balance) per-packet", PATH),
    (r"interfaces \S+ aggregated-ether-options load-balance per-packet", PATH),
    (r"class-of-service interfaces \S+ (unit \S+ )?(scheduler-map |classifiers dscp |rewrite-rules )", None),
    (r"class-of-service interfaces \S+ congestion-notification-profile ", None),
    (r"class-of-service interfaces \S+ (unit \S+ )?(classifiers|forwarding-class) ", CLASS),
    (r"class-of-service interfaces \S+ (unit \S+ )?(input-|output-)?(shaping-rate|traffic-control-profile)", RATE),
    (r"class-of-service shared-buffer (in|e)gress buffer-partition lossy percent 0$", BUFFER),  # CNPs are lossy
    (r"class-of-service shared-buffer (in|e)gress (buffer-partition \S+ percent (\d{1,2}|100)|percent 100)$", None),
    # A threshold that is read, and those that are not below the default.
    (r"class-of-service shared-buffer ingress buffer-partition lossless dynamic-threshold (\d|10)$", None),
    (r"class-of-service shared-buffer (in|e)gress buffer-partition \S+ dynamic-threshold 10$", None),
    (r"class-of-service shared-buffer egress buffer-partition (lossy|multicast) dynamic-threshold [789]$", None),
    (r"class-of-service (shared|dedicated)-buffer", BUFFER),
    (r"class-of-service (forwarding-policy|(traffic-class|forwarding-class|policy)-map)", CLASS),
    (r"class-of-service routing-instances ", CLASS),
    (r"class-of-service translation-table |interfaces .* translation-table ", DSCP),
    (r"class-of-service (host-outbound-traffic|system-defaults|traceoptions|options|monitoring-profile)\b", None),
    (r"class-of-service ", QUEUE),
    (r"interfaces \S+ (unit \S+ )?disable$|interfaces \S+ \S+-options loopback$", LINK),
    (r"interfaces \S+ \S+-options (flow-control|configured-flow-control .* on)", PAUSE),
    (r"interfaces \S+ (unit \S+ .*(storm-control|policer)|layer2-policer )|security macsec interfaces ", RATE),
    (r"firewall .* then .*policer", RATE),
    (r"firewall .* then (next-interface|next-ip6?|routing-instance) ", PATH),
    (r"firewall .* then (dscp|traffic-class)", DSCP),
    (r"firewall .* then (forwarding-class|loss-priority)", CLASS),
    # What ports can inherit, where the switch was not asked to expand it.
    (r"interfaces interface-range \S+ (member|member-range|description) ", None),
    (r"groups \S+ interfaces .*(description|address) ", None),
    (r"(groups \S+ interfaces|interfaces interface-range) .*mtu ", SIZE),
    (r"(groups \S+ (interfaces|chassis)|interfaces interface-range) .*(speed|sub-ports) ", RATE),
    (r"groups \S+ class-of-service", QUEUE),
    (r"groups \S+ forwarding-options .*hash-key ", PATH),
    (r"groups \S+ interfaces |interfaces interface-range |groups \S+ .* filter ", CLASS),
)
# "TABLE field value" of ConfigDB.
SONIC = OverrideRules(
    (r"(PORT|PORTCHANNEL|VLAN_SUB_INTERFACE) admin_status (?!up$)", LINK),
    (r"PORT pfc_asym on|LLR_PORT ", PAUSE),
    (r"PFC_WD BIG_RED_SWITCH enable", PAUSE),  # of earlier images: acts as if all lossless queues had a storm
    (r"FLEX_COUNTER_TABLE (FLEX_COUNTER_STATUS disable|POLL_INTERVAL [1-9]\d{3})", PAUSE),  # the watchdog's counters
    (r"BUFFER_PORT_\w+ lossy |BUFFER_POOL percentage ", BUFFER),  # percentage: the image sizes the pool by it
    (r"DEFAULT_LOSSLESS_BUFFER_PARAMETER default_dynamic_th (?!0$)", BUFFER),  # the alpha of computed headroom
    (r"BUFFER_PROFILE packet_discard_action trim", DSCP),
    # Below what any image of 086b03bd70 has: an alpha of 1/128, 9,497,600 bytes.
    (r"BUFFER_PROFILE (dynamic_th -8|static_th \d{1,6}$)|BUFFER_POOL size \d{1,6}$", BUFFER),
    (r"PORT autoneg on|PORT macsec |PORT_STORM_CONTROL |SCHEDULER ([cp]ir|[cp]bs) [1-9]|PORT_QOS_MAP scheduler ", RATE),
    (r"PORT_QOS_MAP (tc_to_pg|tc_to_queue|pfc_to_queue|pfc_to_pg|dscp_to_tc|tc_to_dscp|tc_to_dot1p)_map ", None),
    (r"PORT_QOS_MAP (pfc_enable|pfcwd_sw_enable) ", None),
    (r"PORT_QOS_MAP |TUNNEL (de|en)cap_tc_", CLASS),
    (r"TUNNEL (dscp_mode pipe|ecn_mode (?!copy_from_outer)|encap_ecn_mode (?!standard)|decap_dscp_)", DSCP),
    (r"SRV6_MY_SIDS decap_dscp_mode pipe|SWITCH_TRIMMING ", DSCP),
    (r"ACL_RULE (?!PACKET_|MIRROR_|INNER_SRC_MAC)\w*DSCP\w*_ACTION ", DSCP),
    (r"ACL_RULE (?!PACKET_|MIRROR_|INNER_SRC_MAC)\w*_ACTION |ACL_TABLE type UNDERLAY_SET_DSCP", CLASS),
    (r"QUEUE (scheduler|wred_profile) ", None),
    (r"QUEUE ", QUEUE),
    # Whatever packets a rule of PBH matches: none is compared with those of RoCE.
    (r"PBH_RULE hash |ARS_OBJECT assign_mode |SWITCH_HASH \w+_algorithm RANDOM", PATH),
    (r"SWITCH_HASH lag_hash(_ipv[46](_rdma)?)? (?!.*L4_SRC_PORT)", PATH),  # one member for all flows of two hosts
)
# Paths of NVUE's tree, with the value last.
CUMULUS = OverrideRules(
    (r"(interface \S+ )?qos [a-z-]+$", None),  # a section without settings
    (r"interface \S+ link (state down|protodown (on|enabled?|true)$)", LINK),
    (r"interface \S+ router (adaptive-routing (enable on|state enabled)$|pbr map )", PATH),
    (r"interface \S+ storm-control |(qos egress-shaper default-global|interface \S+ qos egress-shaper) ", RATE),
    (r"(qos link-pause default-global|interface \S+ qos link-pause) ", PAUSE),
    (r"qos (egress-shaper|link-pause) ", None),  # profiles, which have an effect where an interface refers to them
    (r"acl .* action (police|rate)", RATE),
    (r"acl .* action set dscp|nve vxlan (en|de)capsulation dscp", DSCP),
    (r"system (forwarding )?packet-trim (state (on|enabled?)$|profile )", DSCP),
    (r"acl .* action (set|dest-nat|source-nat) ?(class|cos)", CLASS),
    (r"qos mapping \S+ (trust|port-default-sp|dscp|pcp)\b", None),
    (r"qos remark \S+ (rewrite|switch-priority)", None),
    (r"qos egress-queue-mapping default-global switch-priority ", None),
    (r"qos egress-scheduler \S+ traffic-class \S+ (mode|bw-percent) ", None),
    (r"qos congestion-control \S+ traffic-class \S+ (ecn|red|min-threshold|max-threshold|probability) ", None),
    (r"qos pfc \S+ (switch-priority|rx|tx|port-buffer|xoff-threshold|xon-threshold|cable-length)\b", None),
    (r"(interface \S+ )?qos pfc-watchdog (?!(polling-interval|robustness|state) |\S+$)", PAUSE),
    (r"qos (roce|pfc-watchdog)\b", None),
    (r"qos traffic-pool \S+ (memory-percent|switch-priority) ", None),
    (r"qos advance-buffer-config default-global ingress-lossless-buffer shared-alpha ", None),
    (r"qos (advance-buffer-config|traffic-pool|buffer)", BUFFER),
    (r"interface \S+ qos (mapping|remark|egress-scheduler|congestion-control|pfc) profile ", None),
    (r"interface \S+ qos (pfc-watchdog|counters?)\b", None),
    (r"(interface \S+ )?qos ", QUEUE),
)
# "module option value" of dellemc.enterprise_sonic.
DELL_SONIC = OverrideRules(
    # graceful_shutdown: the port channel leaves its peer, and packets take other paths.
    (r"interfaces enabled False|lag_interfaces graceful_shutdown True", LINK),
    (r"interfaces auto_negotiate ", RATE),
    (r"qos_interfaces pfc asymmetric True", PAUSE),
    (r"qos_interfaces qos_maps dot1p_fwd_group ", CLASS),
    (r"qos_scheduler ([cp]ir|[cp]bs) [1-9]", RATE),
    (r"qos_scheduler strict sequence (8|9|[1-9]\d)$", QUEUE),  # a queue beyond those of classes
    (r"qos_wred green enable True", QUEUE),  # of a strict queue, without ECN: it drops CNPs
    # The system's own profiles, with the thresholds of sonic-buildimage 086b03bd70, device/dell. 0 is not shown.
    (r"qos_buffer ingress_lossless_pool( xoff \d{6,})?$", None),
    (
        r"qos_buffer pg_lossless_\w+ ingress_lossless_pool( dynamic_threshold (-[23]|1)| pause_threshold \d+)?$",
        None,
    ),
    (r"qos_buffer ingress_lossy_profile ingress_lossless_pool( static_threshold \d{8,}| dynamic_threshold 3)?$", None),
    (r"qos_buffer egress_lossy_profile egress_loss(y|less)_pool( dynamic_threshold [1-3])?$", None),
    (
        r"qos_buffer egress_lossless_profile egress_lossless_pool (static_threshold \d{8,}|dynamic_threshold \d)$",
        None,
    ),
    (r"qos_buffer ", BUFFER),
    (r"fbs_policies .*policer", RATE),
    (r"fbs_policies .*set_dscp", DSCP),
    (r"fbs_policies .*output_queue_index", QUEUE),
    (r"fbs_policies .*forwarding (egress_interfaces|next_hop\w*|replication_groups) ", PATH),
)
LINUX = OverrideRules(
    (r"link (down|xdp)$", LINK),
    (r"link (pause|pfc) ", PAUSE),
    (r"link \S+ tagged$", CLASS),
    # A team's hash is not shown; these modes have none, or move flows between members; a bond of no mode was not read.
    (r"(team|bond)$|bond (balance-rr|broadcast|balance-tlb|balance-alb)$", PATH),
    (r"qdisc (noqueue|noop|mq|pfifo\w*|bfifo|fq|fq_codel|ets|prio|red)$", None),
    (r"qdisc (ingress|clsact)", CLASS),
    (r"qdisc ", RATE),
    (r"filter action (police|gate)$", RATE),
    (r"filter action (gact|sample|simple|csum|connmark|ctinfo)$", None),  # a gact that drops loses its own packets only
    (r"filter action ", CLASS),
    (r"nftables (input|output|arp) ", None),  # packets of the switch itself
    (r"nftables \S+ (set (ip6? (dscp|ecn)|@\S+ )|xt (DSCP|TOS|ECN)$)", DSCP),
    (r"nftables \S+ (set meta priority|xt CLASSIFY$)", CLASS),
    (r"nftables \S+ limit drop", RATE),
    (r"nftables \S+ ", None),
    (r"nftables: ", CLASS),
    (r"ip6?_tables mangle", CLASS),
    (r"ip6?_tables (filter|raw|security)", RATE),
)
