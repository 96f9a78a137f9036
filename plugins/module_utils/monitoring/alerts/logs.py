# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alerts of logs on their way to Kafka and Elasticsearch. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    NOW,
    PART,
    PLATFORM,
    WARNING,
    Alert,
    Case,
)


def _series(metric: str, labels: str = 'output="kafka"') -> str:
    return f'{metric}{{{labels},job="node",{at()}}}'


def _alert(name: str, expr: str, minutes: int, summary: str, cause: str, case: Case) -> Alert:
    return Alert(
        name,
        expr,
        minutes=minutes,
        severity=WARNING,
        owner=PLATFORM,
        level=PART,
        summary=f"{{{{ $labels.instance }}}}: {summary}",
        cause=cause,
        step="journalctl -u sailloft-logs on the node",
        runbook="logs",
        place=("instance",),
        cases=(case,),
    )


ALERTS = (
    _alert(
        "LogsDropped",
        "increase(sailloft_logs_dropped_total[15m]) > 0",
        1,
        "lines for {{ $labels.output }} are dropped ({{ $labels.reason }})",
        "the receiver is gone for longer than the queue on disk lasts, or cannot store a line",
        Case({_series("sailloft_logs_dropped_total", 'output="kafka",reason="full"'): (0, "+9")}, delay_m=1, ends_m=16),
    ),
    _alert(
        "LogsWait",
        "min_over_time(sailloft_logs_queue_messages[30m]) > 100",
        5,
        "lines for {{ $labels.output }} wait on disk for half an hour",
        "the receiver is gone, refuses the node, or is too slow",
        Case({_series("sailloft_logs_queue_messages"): (0, 500)}, delay_m=30),
    ),
    _alert(
        "LogsUncounted",
        'time() - node_textfile_mtime_seconds{file=~".*/sailloft_logs[.]prom"} > 900',
        5,
        "nobody counts its logs any more",
        "the service of the logs does not run",
        Case(
            {_series("node_textfile_mtime_seconds", 'file="/x/sailloft_logs.prom"'): (NOW, "+0")},
            delay_m=15,
        ),
    ),
)
