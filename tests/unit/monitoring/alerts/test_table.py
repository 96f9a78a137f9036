# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each alert, with the real promtool: it fires on its fault in time, not before, and ends with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from alert_tests import healthy_fleet, run_promtool

from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS, LIMITS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.dcgm import FIELDS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import LEVELS, OWNERS, SEVERITIES

RUNBOOKS = Path(__file__).parents[4] / "docs/reference/runbooks.md"


def test_each_alert_fires_in_time_and_ends_and_none_fires_on_a_healthy_fleet(tmp_path):
    done = run_promtool(tmp_path, extra=healthy_fleet(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("HostDown", 'instance:sailloft_host_up:max{role="nodes"} == 0'),
        ("GpuPowerBrake", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS == 128"),
        ("FilesystemFull", "node_filesystem_avail_bytes > 0"),
        ("GpuRowRemapPending", "DCGM_FI_DEV_ROW_REMAP_PENDING >= 0"),
    ],
)
def test_a_wrong_expression_is_found(tmp_path, name, wrong):
    done = run_promtool(tmp_path, [ALERTS[name]], **{name: wrong})
    assert done.returncode == 1
    assert name in done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_a_row_of_the_table_is_complete(alert):
    assert (alert.severity in SEVERITIES, alert.owner in OWNERS, alert.level in LEVELS) == (True, True, True)
    assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= {*alert.place, "kind", "place"}
    assert ("LIMIT" in alert.expr) == ("OF" in alert.expr.replace("OFF", "")) == (alert.limit in LIMITS)
    assert alert.cases
    assert f"\n## {alert.runbook}\n" in RUNBOOKS.read_text(encoding="utf-8")
    assert set(re.findall(r"DCGM_FI_\w+", alert.expr)) <= {name for name, _kind, _help in FIELDS}


def test_each_fault_of_the_health_check_has_one_alert():
    by_check = {
        check: [alert.name for alert in ALERTS.values() if alert.checks and re.fullmatch(alert.checks, check)]
        for check in (*RULES, "xid_unknown")
    }
    assert {check: names for check, names in by_check.items() if len(names) > 1} == {"xid_79": ["GpuLost", "GpuXid"]}
    for alert in ALERTS.values():
        for part in alert.checks.split("|") if alert.checks and "(" not in alert.checks else []:
            assert [check for check in by_check if re.fullmatch(part, check)], f"{alert.name}: {part}"
