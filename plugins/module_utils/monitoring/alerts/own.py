# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of the monitoring itself: what is not measured is never taken for healthy. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.hosts import UP
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at, up
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    CRITICAL,
    GONE,
    MONITORING,
    NOW,
    OWN,
    WARNING,
    Alert,
    Case,
    Value,
)

# Collectors that fail where there is no such device, as "bonding", say nothing.
COLLECTORS = "cpu|ethtool|filesystem|infiniband|meminfo|netclass|netdev|stat|textfile|timex"
SERVER = at("mon1", role="monitoring")


def _own(
    name: str,
    expr: str,
    minutes: int,
    text: tuple[str, str, str],
    runbook: str,
    place: tuple[str, ...],
    *cases: Case,
    severity: str = WARNING,
    limit: str = "",
    hides: bool = False,
) -> Alert:
    """Return an alert for those who run the monitoring. ``text``: summary, cause, first step."""
    summary, cause, step = text
    return Alert(
        name, expr, minutes, severity, MONITORING, OWN, summary, cause, step, runbook, place, cases, limit, hides
    )


def _case(
    metric: str, healthy: Value, sick: Value, labels: str = "", of: str = at(), job: str = "node", delay_m: int = 0
) -> Case:
    return Case({f'{metric}{{{labels}{"," if labels else ""}job="{job}",{of}}}': (healthy, sick)}, delay_m=delay_m)


# The targets on hosts that answer.
ANSWERED = f"(up and on (instance) {UP} == 1)"

ALERTS = (
    _own(
        "JobDown",
        f"max by (job) {ANSWERED} == 0 and count by (job) {ANSWERED} > 1",
        3,
        (
            "no target of the job {{ $labels.job }} answers",
            "a firewall, a change of all exporters, or the blackbox exporter",
            "curl of a target's port from the monitoring server",
        ),
        "exporter-down",
        ("job",),
        Case({up(job, at(name)): (1, sick) for name in ("n1", "n2") for job, sick in (("node", 1), ("storage", 0))}),
        severity=CRITICAL,
        hides=True,
    ),
    _own(
        "ExporterDown",
        f"{ANSWERED} == 0",
        5,
        (
            "{{ $labels.instance }} answers, but not its exporter {{ $labels.job }}",
            "the exporter's service, or a firewall",
            "systemctl status on the host, then curl of the port from the monitoring server",
        ),
        "exporter-down",
        ("instance", "job"),
        Case({up("dcgm", at()): (1, 0), up("node", at()): (1, 1)}),
        Case({up("node", at()): (1, 0), up("ssh", at()): (1, 1)}),
    ),
    _own(
        "JobGone",
        "count by (job) (up offset 1h) unless count by (job) (up)",
        5,
        (
            "the job {{ $labels.job }} has no targets any more",
            "its file of targets is missing or empty",
            "run the plan with --diff",
        ),
        "exporter-down",
        ("job",),
        Case({up("dcgm", at()): (1, GONE)}, ends_m=1),
        severity=CRITICAL,
    ),
    _own(
        "ExporterMeasuresNothing",
        'up{job="dcgm"} == 1 unless on (instance) DCGM_FI_DEV_GPU_TEMP',
        5,
        (
            "{{ $labels.instance }}: dcgm-exporter answers, but measures no GPU",
            "DCGM's host engine, the driver, or the list of counters",
            "dcgmi discovery -l on the host",
        ),
        "exporter-silent",
        ("instance",),
        Case({up("dcgm", at()): (1, 1), f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",job="dcgm",{at()}}}': (50, GONE)}),
    ),
    _own(
        "HealthNotReported",
        'up{job="node"} == 1 and on (role) group by (role) (sailloft_health_status)'
        " unless on (instance) sailloft_health_status",
        10,
        (
            "{{ $labels.instance }} reports no health, but others of its role do",
            "sailloft-health is not installed, or its textfile is not written",
            "ls -l in the textfile directory, then playbooks/node_health.yml",
        ),
        "exporter-silent",
        ("instance",),
        Case(
            {
                up("node", at()): (1, 1),
                f'sailloft_health_status{{job="node",{at()}}}': (0, GONE),
                up("node", at("n2")): (1, 1),
                f'sailloft_health_status{{job="node",{at("n2")}}}': (0, 0),
            }
        ),
    ),
    _own(
        "HealthTextfileOld",
        'time() - node_textfile_mtime_seconds{file=~".*/sailloft_health[.]prom",OF} > LIMIT',
        1,
        (
            "{{ $labels.instance }}: the health that node exporter shows is old",
            "the timer that writes the textfile",
            "systemctl list-timers on the node",
        ),
        "exporter-silent",
        ("instance",),
        _case("node_textfile_mtime_seconds", NOW, "+0", 'file="/x/sailloft_health.prom"', delay_m=15),
        limit="health_age_seconds",
    ),
    _own(
        "ReadingOld",
        'time() - sailloft_reading_timestamp_seconds{job="node",OF} > LIMIT',
        5,
        (
            "what a playbook has read is old: {{ $labels.reading }} on {{ $labels.instance }}",
            "the timer of the playbook, or a run that fails before it writes",
            "run it by hand",
        ),
        "reading-old",
        ("instance", "reading"),
        _case("sailloft_reading_timestamp_seconds", NOW, "+0", 'reading="fleet"', delay_m=120),
        limit="reading_age_seconds",
    ),
    _own(
        "ReadingGone",
        "(sailloft_reading_timestamp_seconds offset 1h unless sailloft_reading_timestamp_seconds)"
        f" and on (instance) {UP} == 1",
        5,
        (
            "what a playbook has read is gone: {{ $labels.reading }} on {{ $labels.instance }}",
            "its file in the textfile directory was removed",
            "run the playbook again; if it was removed on purpose, this ends within an hour",
        ),
        "reading-old",
        ("instance", "reading"),
        Case(
            {
                f'sailloft_reading_timestamp_seconds{{reading="fabric_drift",job="node",{at()}}}': (NOW, GONE),
                up("node", at()): (1, 1),
            }
        ),
    ),
    _own(
        "TextfileError",
        "node_textfile_scrape_error == 1",
        5,
        (
            "{{ $labels.instance }}: node exporter cannot read a textfile",
            "a file with a wrong line, with times, or without permission",
            "journalctl -u prometheus-node-exporter",
        ),
        "exporter-silent",
        ("instance",),
        _case("node_textfile_scrape_error", 0, 1),
    ),
    _own(
        "CollectorFails",
        f'node_scrape_collector_success{{collector=~"{COLLECTORS}"}} == 0',
        15,
        (
            "{{ $labels.instance }}: the collector {{ $labels.collector }} of node exporter fails",
            "a device that does not answer; one bad InfiniBand port drops all of them",
            "journalctl -u prometheus-node-exporter",
        ),
        "exporter-silent",
        ("instance", "collector"),
        _case("node_scrape_collector_success", 1, 0, 'collector="infiniband"'),
    ),
    _own(
        "RuleFails",
        "increase(prometheus_rule_evaluation_failures_total[5m]) > 0",
        1,
        (
            "{{ $labels.instance }}: a rule of {{ $labels.rule_group }} fails",
            "series with equal labels, mostly after a change of exporters",
            "read the error on the page Rules of Prometheus",
        ),
        "monitoring",
        ("instance", "rule_group"),
        Case(
            {f'prometheus_rule_evaluation_failures_total{{rule_group="hosts",job="prometheus",{SERVER}}}': (0, "+3")},
            delay_m=1,
            ends_m=6,
        ),
        severity=CRITICAL,
    ),
    _own(
        "ConfigurationRefused",
        "prometheus_config_last_reload_successful == 0 or alertmanager_config_last_reload_successful == 0",
        2,
        (
            "{{ $labels.instance }}: {{ $labels.job }} refused its new configuration and runs with the old one",
            "a file that was changed by hand",
            "promtool check config, amtool check-config",
        ),
        "monitoring",
        ("instance", "job"),
        _case("prometheus_config_last_reload_successful", 1, 0, of=SERVER, job="prometheus"),
        _case("alertmanager_config_last_reload_successful", 1, 0, of=SERVER, job="alertmanager"),
    ),
    _own(
        "AlertmanagerLost",
        "prometheus_notifications_alertmanagers_discovered < 1",
        2,
        (
            "{{ $labels.instance }} knows no Alertmanager: no alert leaves it",
            "the address of Alertmanager",
            "the page Runtime of Prometheus",
        ),
        "monitoring",
        ("instance",),
        _case("prometheus_notifications_alertmanagers_discovered", 2, 0, of=SERVER, job="prometheus"),
        severity=CRITICAL,
    ),
    _own(
        "AlertsDropped",
        "increase(prometheus_notifications_dropped_total[5m]) > 0",
        1,
        (
            "{{ $labels.instance }} could not send alerts to Alertmanager",
            "Alertmanager is down, or not reached",
            "systemctl status prometheus-alertmanager",
        ),
        "monitoring",
        ("instance",),
        Case({f'prometheus_notifications_dropped_total{{job="prometheus",{SERVER}}}': (0, "+3")}, delay_m=1, ends_m=6),
        severity=CRITICAL,
    ),
    _own(
        "NotificationsFail",
        "increase(alertmanager_notifications_failed_total[5m]) > 0",
        5,
        (
            "{{ $labels.instance }}: messages by {{ $labels.integration }} do not arrive",
            "the receiver, its secret, or the way out of the site",
            "journalctl -u prometheus-alertmanager",
        ),
        "monitoring",
        ("instance", "integration"),
        Case(
            {f'alertmanager_notifications_failed_total{{integration="slack",job="alertmanager",{SERVER}}}': (0, "+3")},
            delay_m=1,
            ends_m=6,
        ),
        severity=CRITICAL,
    ),
    _own(
        "AlertmanagerAlone",
        'alertmanager_cluster_members < on () group_left () count(up{job="alertmanager"})',
        5,
        (
            "{{ $labels.instance }}: Alertmanager does not see all others: messages may come twice",
            "the cluster's port 9094 (TCP and UDP)",
            "amtool cluster show",
        ),
        "monitoring",
        ("instance",),
        Case(
            {
                f'alertmanager_cluster_members{{job="alertmanager",{SERVER}}}': (2, 1),
                up("alertmanager", SERVER): (1, 1),
                up("alertmanager", at("mon2", role="monitoring")): (1, 1),
            }
        ),
    ),
)
