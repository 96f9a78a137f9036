# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of sailloft-health's verdict, and of its faults that have no alert of their own. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts import gpu, network
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at, fault
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    HARDWARE,
    INFO,
    PART,
    PLATFORM,
    WARNING,
    Alert,
    Case,
)

NAMED = "|".join(alert.checks for alert in (*gpu.ALERTS, *network.ALERTS) if alert.checks)
STATUS = f'sailloft_health_status{{job="node",{at()}}}'


def _others(name: str, layer: str, owner: str, cause: str, step: str, runbook: str, check: str) -> Alert:
    return Alert(
        name,
        f'sailloft_health_fault{{layer="{layer}",action!="note",check!~"{NAMED}"}}',
        minutes=1,
        severity=WARNING,
        owner=owner,
        level=PART,
        summary="{{ $labels.instance }}: {{ $labels.check }} of {{ $labels.kind }} {{ $labels.place }}",
        cause=cause,
        step=step,
        runbook=runbook,
        place=("instance", "check"),
        cases=(fault(check, layer),),
    )


ALERTS = (
    Alert(
        "NodeOutOfService",
        "sailloft_health_status == 1",
        minutes=15,
        severity=INFO,
        owner=HARDWARE,
        level=PART,
        summary="{{ $labels.instance }} may take no work",
        cause="a fault, a person's drain or maintenance",
        step="sailloft-health on the node",
        runbook="node-out-of-service",
        place=("instance",),
        cases=(Case({STATUS: (0, 1)}),),
    ),
    Alert(
        "NodeHealthUnknown",
        "sailloft_health_status == 2",
        minutes=10,
        severity=WARNING,
        owner=PLATFORM,
        level=PART,
        summary="whether {{ $labels.instance }} may take work is not known",
        cause="no round of sailloft-health, or a check that is not measured",
        step="sailloft-health on the node",
        runbook="not-measured",
        place=("instance",),
        cases=(Case({STATUS: (0, 2)}),),
    ),
    _others(
        "HardwareFault",
        "hardware",
        HARDWARE,
        "a part to repair",
        "sailloft-health",
        "node-out-of-service",
        "disk_failed",
    ),
    _others(
        "ConfigurationFault",
        "configuration",
        PLATFORM,
        "a setting",
        "sailloft-health",
        "node-out-of-service",
        "unit_failed",
    ),
)
