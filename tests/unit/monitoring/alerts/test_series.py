# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each series that an alert uses is written by this collection, or by an exporter that it plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.metrics import NAME as FABRIC_COUNTER
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import Look
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.metrics import boot_server_metrics, fleet_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import Counters
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.metrics import link_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import LinkTable
from ansible_collections.sailloft.fleet.plugins.module_utils.logs.counts import METRICS as LOG_COUNTS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS, RECORDINGS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.dcgm import FIELDS
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import READ_AT
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

WRITTEN = {
    READ_AT,
    FABRIC_COUNTER,
    *(metric.name for metric in drift.metrics(Proof("a", "", "", []), {})),
    *(metric.name for metric in fleet_metrics(Look((), {}, 0.0))),
    *(metric.name for metric in boot_server_metrics({})),
    *(metric.name for metric in link_metrics("a", LinkTable(), Counters(0.0, {}, frozenset()))),
    *(f"sailloft_logs_{name}" for name in LOG_COUNTS),
    # Of the node's own check.
    *re.findall(
        r"# TYPE (\w+) ",
        (Path(__file__).parents[4] / "plugins/module_utils/health/verdict.py").read_text(encoding="utf-8"),
    ),
}
# The names of Prometheus 2.42, Alertmanager 0.25, node_exporter 1.5 and blackbox_exporter 0.23, as their own /metrics.
OF_EXPORTERS = {
    *("up", "probe_success", "node_boot_time_seconds", "node_time_seconds", "node_textfile_mtime_seconds"),
    *("node_textfile_scrape_error", "node_scrape_collector_success", "node_filesystem_avail_bytes"),
    *("node_filesystem_size_bytes", "prometheus_rule_evaluation_failures_total"),
    *("prometheus_config_last_reload_successful", "prometheus_notifications_alertmanagers_discovered"),
    *("prometheus_notifications_dropped_total", "alertmanager_config_last_reload_successful"),
    *("alertmanager_notifications_failed_total", "alertmanager_cluster_members"),
}
KNOWN = {*WRITTEN, *OF_EXPORTERS, *(name for name, _kind, _help in FIELDS), *(each.name for each in RECORDINGS)}
WORDS = {"and", "or", "unless", "by", "on", "without", "offset", "bool", "group_left", "group_right", "LIMIT", "OF"}


def series(expr):
    """Return the names of series in an expression."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", bare)
    bare = re.sub(r"\b(by|on|without|group_left|group_right)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\boffset\s+\w+", " ", bare)
    return {name for name, call in re.findall(r"\b([a-zA-Z_][\w:]*)(\s*\()?", bare) if not call and name not in WORDS}


@pytest.mark.parametrize("each", [*ALERTS.values(), *RECORDINGS], ids=lambda each: each.name)
def test_somebody_writes_each_series_of_an_expression(each):
    assert series(each.expr), each.expr
    assert series(each.expr) <= KNOWN


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ('max by (job) (up{job="a"} == 1) > bool 0', {"up"}),
        ("a_b:c unless on (instance) increase(x_total[5m] offset 1h) > LIMIT", {"a_b:c", "x_total"}),
        ("count(nobody_writes_this)", {"nobody_writes_this"}),
    ],
)
def test_the_names_of_an_expression_are_found(expr, names):
    assert series(expr) == names
    assert (names <= KNOWN) == (names == {"up"})
