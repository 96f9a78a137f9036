# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of ports, of lossless queues and of fabrics' settings. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at, fault_alert
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    GONE,
    NETWORK,
    PART,
    PORT,
    SWITCH,
    WARNING,
    Alert,
    Case,
)

CONTROL = f'job="node",{at("control", role="monitoring")}'
DEVICE = f'device="leaf1",kind="switch",{CONTROL}'
DROPS = f'device="leaf1",port="swp1",counter="dropped",class="roce",{CONTROL}'
LINK = f'fabric="compute",link="a ib1 - b ib2",part="cable",check="port_rate",{CONTROL}'
DOWN = 'sailloft_health_fault{check="port_down"'
UPLINKS = ',uplinks="leaf1"'


def _port_down(of: str) -> str:
    labels = 'kind="port",place="mlx5_0/1",layer="hardware",action="drain",job="node"'
    return f'sailloft_health_fault{{check="port_down",{labels},{of}}}'


ALERTS = (
    Alert(
        "RackPortsDown",
        # Hosts with the same leaves may stand in several racks; without the blueprint's cables, those of a rack count.
        f'count by (uplinks, place) ({DOWN},uplinks!=""}}) > 2'
        f' or count by (rack, place) ({DOWN},uplinks="",rack!=""}}) > 2',
        minutes=1,
        severity=WARNING,
        owner=NETWORK,
        level=SWITCH,
        summary="the port {{ $labels.place }} of several hosts is down: {{ $labels.rack }}{{ $labels.uplinks }}",
        cause="their switch, or a change of its ports",
        step="look at the far switch of this port",
        runbook="port-down",
        place=("place",),
        cases=(
            Case({_port_down(at(name)): (GONE, 1) for name in ("n1", "n2", "n3")}),
            Case({_port_down(at(f"n{rack}", rack=f"r{rack}") + UPLINKS): (GONE, 1) for rack in range(3)}),
        ),
        hides=True,
    ),
    fault_alert(
        "PortDown",
        "port_down|port_missing",
        PORT,
        NETWORK,
        ("a planned port is down", "cable, transceiver or far port", "compare both ends"),
        "port-down",
    ),
    fault_alert(
        "PortSlow",
        "port_rate",
        PORT,
        NETWORK,
        ("a port is slower than planned", "a lane is lost, or a setting of the far port", "compare both ends"),
        "port-slow",
    ),
    fault_alert(
        "PortErrors",
        "port_symbol_errors|port_(link_downs|link_recoveries|receive_errors|send_discards|integrity_errors)"
        "|port_buffer_overruns|ethernet_(crc_errors|symbol_errors|module)|rdma_(timeouts|sequence_errors)|nic_.*",
        PORT,
        NETWORK,
        ("errors of a port", "cable, transceiver or far port", "clean and seat the cable, then swap it"),
        "port-errors",
    ),
    fault_alert(
        "PauseStorm",
        "ethernet_pause_storm|ethernet_pause_storm_warning",
        PORT,
        NETWORK,
        ("a port sends pauses without end", "the host is too slow for its NIC", "drain it: it stops its whole rail"),
        "pause-storm",
    ),
    fault_alert(
        "LosslessDrops",
        "ethernet_discards|rdma_slow_restarts",
        PORT,
        NETWORK,
        ("packets of a lossless queue are lost", "a hop without the policy", "run playbooks/fabric_drift.yml"),
        "roce-loss",
    ),
    Alert(
        "FabricDrift",
        "sailloft_fabric_drift_differences > 0",
        minutes=1,
        severity=WARNING,
        owner=NETWORK,
        level=PART,
        summary="{{ $labels.device }} differs from the RoCE policy",
        cause="a change by hand, a restart without the saved settings, a new device",
        step="read proofs/fabric_drift.html, then run playbooks/fabric_qos.yml",
        runbook="fabric-drift",
        place=("device",),
        cases=(Case({f"sailloft_fabric_drift_differences{{{DEVICE}}}": (0, 2)}),),
    ),
    Alert(
        "FabricUnread",
        "sailloft_fabric_drift_device_read == 0",
        minutes=1,
        severity=WARNING,
        owner=NETWORK,
        level=PART,
        summary="the settings of {{ $labels.device }} could not be read: whether it keeps the RoCE policy is not known",
        cause="it does not answer, or its password changed",
        step="run playbooks/fabric_drift.yml, which gives the reason",
        runbook="fabric-drift",
        place=("device",),
        cases=(Case({f"sailloft_fabric_drift_device_read{{{DEVICE}}}": (1, 0)}),),
    ),
    Alert(
        "SwitchDrops",
        # A reading an hour, or more often.
        'increase(sailloft_fabric_counter_total{counter=~"dropped|watchdog"}[3h]) > 0',
        minutes=0,
        severity=WARNING,
        owner=NETWORK,
        level=PART,
        summary="{{ $labels.device }} {{ $labels.port }}: {{ $labels.counter }} of {{ $labels.class }} has grown",
        cause="a queue of RoCE that is not lossless, or a pause storm",
        step="run playbooks/fabric_drift.yml with fabric_drift_traffic_s",
        runbook="roce-loss",
        place=("device", "port", "counter", "class"),
        cases=(Case({f"sailloft_fabric_counter_total{{{DROPS}}}": (5, "+1")}, delay_m=1, ends_m=181),),
    ),
    Alert(
        "InfinibandLinkFault",
        "sailloft_ib_link_fault == 1",
        minutes=1,
        severity=WARNING,
        owner=NETWORK,
        level=PART,
        summary="{{ $labels.fabric }}: the link {{ $labels.link }} has a fault: {{ $labels.check }}",
        cause="the {{ $labels.part }} at this link",
        step="run playbooks/ib_health.yml, which names what to repair or to isolate",
        runbook="port-errors",
        place=("fabric", "link", "check"),
        cases=(Case({f"sailloft_ib_link_fault{{{LINK}}}": (GONE, 1)}),),
    ),
)
