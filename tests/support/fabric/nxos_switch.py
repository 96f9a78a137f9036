# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The effect of QoS lines on an NX-OS switch, for tests, by hier-config."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch


def apply(running: str, lines: str) -> str:
    """Apply ``lines`` to ``running`` with hier-config, which is told where else NX-OS allows only one line."""
    hier_config = pytest.importorskip("hier_config")
    driver = told(hier_config)
    before = hier_config.get_hconfig(driver, running)
    sent = hier_config.get_hconfig(driver, lines)
    after = before.future(sent)
    after.set_order_weight()
    return "\n".join(line.cisco_style_text() for line in after.all_children_sorted()) + "\n"


def told(hier_config):
    from hier_config.models import IdempotentCommandsRule, MatchRule, OrderingRule, PerLineSubRule

    driver = hier_config.get_hconfig_driver(hier_config.Platform.CISCO_NXOS)
    for head, line in [
        ("system qos", "service-policy type queuing output"),
        ("system qos", "service-policy type network-qos"),
        ("interface", "priority-flow-control mode"),
        ("interface", "priority-flow-control watch-dog-interval"),
    ]:
        rule = IdempotentCommandsRule(match_rules=(MatchRule(startswith=head), MatchRule(startswith=line)))
        driver.rules.idempotent_commands.append(rule)
    for line in [
        "priority-flow-control watch-dog-interval",
        "priority-flow-control watch-dog interval",
        "priority-flow-control watch-dog shutdown-multiplier",
        "priority-flow-control auto-restore multiplier",
        "ip load-sharing address",
    ]:
        driver.rules.idempotent_commands.append(IdempotentCommandsRule(match_rules=(MatchRule(startswith=line),)))
    for line in ["set qos-group", "mtu", "pause", "bandwidth", "priority", "random-detect"]:
        rule = IdempotentCommandsRule(
            match_rules=(MatchRule(startswith="policy-map"), MatchRule(startswith="class"), MatchRule(startswith=line))
        )
        driver.rules.idempotent_commands.append(rule)
    last = (MatchRule(startswith="policy-map"), MatchRule(endswith=" class-default"))
    driver.rules.ordering.append(OrderingRule(match_rules=last, weight=900))
    driver.rules.per_line_sub.append(PerLineSubRule(search=r"^banner .*|^\^$", replace=""))
    return driver


PORTS = ["Ethernet1/1", "Ethernet1/2", "Ethernet1/33/1"]


REFERENCE = switch("nxos", PORTS, cable_m=30)


def held(wanted: Switch) -> Switch:
    """Return ``wanted`` without what NX-OS's configuration does not hold."""
    ports = {port: replace(qos, headroom=(None,) * 8, cable_m=None) for port, qos in wanted.ports.items()}
    return replace(wanted, ports=ports)


def own(text: str, kind: str) -> set[str]:
    return set(re.findall(rf"policy-map type {kind} (sailloft-\S+)", text))


# The same policy in another style: classes by names and lists of DSCPs, class maps of queues, a range of ports,
# classification and queues at the system level, kbytes, other indentation, and comments.
BY_HAND = """\
!Command: show running-config
!Running configuration last done at: Sat Nov 21 10:00:00 2026
version 10.5(3) Bios:version 01.10
hostname leaf1
vdc leaf1 id 1
  limit-resource vlan minimum 16 maximum 4094
feature lldp
banner motd ^
interface Ethernet1/9
system qos
^
priority-flow-control watch-dog-interval on
priority-flow-control watch-dog interval 100
priority-flow-control watch-dog shutdown-multiplier 2
priority-flow-control auto-restore multiplier 2
class-map type qos match-all RDMA
 ! RoCE
 match dscp af31
class-map match-any CNP
 match dscp cs6
class-map type network-qos NODROP
 match qos-group 3
class-map type queuing STRICT
 match qos-group 6
policy-map CLASSIFY
 class RDMA
  set qos-group 3
 class type qos CNP
  set qos-group 6
policy-map type queuing OUT
 class type queuing c-out-q3
  bandwidth percent 50
  random-detect minimum-threshold 150 kbytes maximum-threshold 1500 kbytes drop-probability 100 weight 0 ecn
 class type queuing STRICT
  priority
 class type queuing c-out-q-default
  bandwidth percent 50
  queue-limit dynamic 3
policy-map type network-qos NQ
 class type network-qos NODROP
  mtu 9216
  pause pfc-cos 3
 class type network-qos c-nq-default
  mtu 9216
policy-map type control-plane copp
 class copp-x
  police cir 100 pps bc 32 packets
system qos
 service-policy type network-qos NQ
 service-policy type queuing output OUT no-stats
 service-policy type qos input CLASSIFY
interface Vlan10
 mtu 1500
interface Ethernet1/1-3, Ethernet1/5
 description to gpu01
 mtu 9100
 priority-flow-control mode on
 priority-flow-control watch-dog-interval on
interface mgmt0
 vrf member management
"""
