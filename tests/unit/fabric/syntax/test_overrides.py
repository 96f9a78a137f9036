# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A statement beside the policy that can undo it is named by the path and the proof, on systems with lines.

Statements of the same sections that have no such effect change neither.
"""

from __future__ import annotations

import pytest
from proof_requests import judged, params
from switches import PORTS

# The statements to add to spine1's configuration: lines ("PORT: " as the first word: below the port), or tables.
LINES = {
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


@pytest.mark.parametrize(("system", "name"), [(system, name) for system, cases in LINES.items() for name in cases])
def test_a_statement_that_can_undo_the_policy_is_named_by_the_path_and_the_proof(system, name):
    statement, key = LINES[system][name]
    faults, failed, first = judged(system, with_lines(system, statement))
    assert any(key in str(fault["seen"]) and fault["where"].startswith("spine1") for fault in faults), faults
    assert any(key in str(claim.seen) and claim.claim.startswith("spine1") for claim in failed), failed
    assert first.startswith("spine1: ")


@pytest.mark.parametrize(
    ("system", "index"), [(system, index) for system, cases in HARMLESS.items() for index in range(len(cases))]
)
def test_other_statements_change_nothing(system, index):
    assert judged(system, with_lines(system, HARMLESS[system][index])) == ([], [], "")
