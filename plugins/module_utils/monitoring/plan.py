# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan the monitoring of a site: the files of Prometheus, Alertmanager, Grafana and the exporters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring import dcgm, grafana, retention
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alertmanager import alertmanager
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.prometheus import BLACKBOX, Peers, prometheus
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.request import OWN_RULES, read_request
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.rules import ALL, rules
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import target_files, unmonitored


@dataclass(frozen=True)
class MonitoringPlan:
    """The files by name, as text or as data of YAML, and lines for people."""

    texts: dict[str, str]
    documents: dict[str, Any]
    summary: list[str]
    unmonitored: list[str]


def plan(settings: Mapping[str, Any], hosts: Sequence[MonitoredHost], groups: Collection[str]) -> MonitoringPlan:
    """Return the plan. ``groups``: all groups of the inventory. Raises MonitoringError."""
    request = read_request(settings, groups)
    limit_groups = dict.fromkeys(group for by_group in request.limits.values() for group in by_group if group != ALL)
    targets = target_files(hosts, request.jobs, limit_groups)
    if not targets:
        raise MonitoringError(
            "no host of the inventory is in a group of a job", "name groups of the inventory", subject="jobs"
        )
    blocks = list(dict.fromkeys(kind for host in hosts for kind in host.blocks if kind != "rack"))
    # Both servers of a site's own pair have these files: the service's variable REPLICA tells their series apart.
    replica = request.replica or ("${REPLICA}" if request.thanos else "")
    peers = Peers(request.blackbox, request.alertmanagers, request.client, replica)
    configuration = prometheus(request.site, request.timing.evaluation_s, request.jobs, targets, peers)
    texts = {
        **{f"targets/{name}.json": text for name, text in targets.items()},
        "dcgm-counters.csv": dcgm.counters(),
        **{f"dashboards/{name}": text for name, text in grafana.dashboards().items()},
        **retention.argument_files(request.retention, request.thanos),
    }
    documents = {
        "prometheus.yml": configuration,
        f"rules/{OWN_RULES}.yml": rules(request.limits, request.disabled, request.runbooks),
        **{f"rules/{name}.yml": {"groups": groups} for name, groups in request.rules.items()},
        "blackbox.yml": BLACKBOX,
        **grafana.provisioning(f"http://127.0.0.1:{retention.QUERY_PORT if request.thanos else 9090}"),
    }
    if request.thanos:
        documents["thanos/objstore.yml"] = retention.objstore(request.thanos)
    if request.routes:
        documents["alertmanager.yml"] = alertmanager(request.receivers, request.routes, blocks, request.timing)
    counts = ", ".join(f"{text.count(chr(10)) - 2} {name}" for name, text in targets.items())
    alerts = f"{len(ALERTS) - len(request.disabled)} of {len(ALERTS)} alerts"
    summary = [f"{len(hosts)} hosts; targets: {counts}", alerts]
    return MonitoringPlan(texts, documents, summary, unmonitored(hosts, request.jobs))
