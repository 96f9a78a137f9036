# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one table of alerts, recording rules and limits. Pure.

Each other file of this directory has a tuple ``ALERTS`` of its subject.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts import (
    fleet,
    gpu,
    health,
    hosts,
    logs,
    network,
    own,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import Alert, Limit, Recording

RECORDINGS: tuple[Recording, ...] = hosts.RECORDINGS
GROUPS: dict[str, tuple[Alert, ...]] = {
    "hosts": hosts.ALERTS,
    "gpus": gpu.ALERTS,
    "networks": network.ALERTS,
    "health": health.ALERTS,
    "fleet": fleet.ALERTS,
    "logs": logs.ALERTS,
    "monitoring": own.ALERTS,
}
ALERTS: dict[str, Alert] = {alert.name: alert for alerts in GROUPS.values() for alert in alerts}
LIMITS = {
    "clock_offset_seconds": Limit(5, 0.1, 3600, "s"),  # an estimate; a scrape of 1 s looks like an offset
    "filesystem_used_percent": Limit(90, 50, 99.9, "%"),
    "gpu_temperature_celsius": Limit(90, 40, 110, "C"),  # an estimate; GPUs slow down at 90 to 105
    "health_age_seconds": Limit(900, 120, 86400, "s"),  # three periods of five minutes
    "reading_age_seconds": Limit(7200, 300, 30 * 86400, "s"),  # two periods of an hour
}
