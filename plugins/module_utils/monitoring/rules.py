# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The recording and alerting rules of Prometheus, from the table of alerts and the limits of the site. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import GROUPS, LIMITS, RECORDINGS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import Alert

# The limits of the site: of a name by group, ALL for the hosts of no other group.
ALL = "all"
GroupLimits = Mapping[str, Mapping[str, float]]
RUNBOOKS = "docs/reference/runbooks.md"


def rules(limits: GroupLimits, disabled: Iterable[str] = (), runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """Return the file of all rules but the ``disabled`` alerts. ``runbooks``: where the page of runbooks is."""
    disabled = set(disabled)
    recordings = [{"record": recording.name, "expr": recording.expr} for recording in RECORDINGS]
    groups = [{"name": "sailloft_recording", "rules": recordings}]
    for name, alerts in GROUPS.items():
        enabled = [_rule(alert, limits, runbooks) for alert in alerts if alert.name not in disabled]
        if enabled:
            groups.append({"name": f"sailloft_{name}", "rules": enabled})
    return {"groups": groups}


def _rule(alert: Alert, limits: GroupLimits, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": _expression(alert, limits),
        **({"for": f"{alert.minutes}m"} if alert.minutes else {}),
        "labels": {"severity": alert.severity, "owner": alert.owner, "level": alert.level},
        "annotations": {
            "summary": alert.summary,
            "cause": alert.cause,
            "first_step": alert.step,
            "runbook_url": f"{runbooks}#{alert.runbook}",
        },
    }


def _expression(alert: Alert, limits: GroupLimits) -> str:
    """Return the expression with the limit, or with that of each group, which hosts have in the label "limits"."""
    if not alert.limit:
        return alert.expr
    by_group = {ALL: LIMITS[alert.limit].value, **limits.get(alert.limit, {})}
    groups = [group for group in by_group if group != ALL]
    if not groups:
        return alert.expr.replace(",OF", "").replace("LIMIT", f"{by_group[ALL]:g}")
    # Of several groups of a host, the first one counts.
    has = [f'limits{{}}".*,{group},.*"' for group in groups]
    matchers = {ALL: ",".join(matcher.format("!~") for matcher in has)}
    for index, group in enumerate(groups):
        matchers[group] = ",".join([has[index].format("=~"), *(matcher.format("!~") for matcher in has[:index])])
    parts = [alert.expr.replace("OF", matchers[group]).replace("LIMIT", f"{by_group[group]:g}") for group in by_group]
    return " or ".join(f"({part})" for part in parts)
