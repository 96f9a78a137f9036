# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of ports, of lossless queues and of fabrics' settings. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at, fault_alert
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    GONE,
    NETWORK,
    PART,
    PLATFORM,
    PORT,
    SWITCH,
    WARNING,
    Alert,
    Case,
)

DEVICE = f'device="leaf1",kind="switch",job="node",{at("control", role="monitoring")}'
PORT_DOWN = 'check="port_down",kind="port",layer="hardware",action="drain",job="node"'

ALERTS = (
    Alert(
        "RackPortsDown",
        'count by (rack, place) (sailloft_health_fault{check="port_down"}) > 2',
        minutes=1,
        severity=WARNING,
        owner=NETWORK,
        level=SWITCH,
        summary="the port {{ $labels.place }} of several hosts in the rack {{ $labels.rack }} is down",
        cause="their switch, or a change of its ports",
        step="look at the far switch of this port",
        runbook="port-down",
        place=("rack", "place"),
        cases=(
            Case(
                {
                    f'sailloft_health_fault{{{PORT_DOWN},place="mlx5_0/1",{at(name)}}}': (GONE, 1)
                    for name in ("n1", "n2", "n3")
                }
            ),
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
        "FabricDriftOld",
        'time() - node_textfile_mtime_seconds{file=~".*/fabric_drift[.]prom",OF} > LIMIT',
        minutes=5,
        severity=WARNING,
        owner=PLATFORM,
        level=PART,
        summary="nobody compared the fabric with its policy on {{ $labels.instance }} for too long",
        cause="the timer of playbooks/fabric_drift.yml, or a run that fails before the comparison",
        step="run it by hand",
        runbook="fabric-drift",
        place=("instance",),
        cases=(
            Case(
                {f'node_textfile_mtime_seconds{{file="/x/fabric_drift.prom",job="node",{at()}}}': ("now", "+0")},
                delay_m=120,
            ),
        ),
        limit="fabric_drift_age_seconds",
    ),
)
