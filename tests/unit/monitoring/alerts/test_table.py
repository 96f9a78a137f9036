# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each alert, with the real promtool: it fires on its fault in time, not before, and ends with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from alert_tests import healthy_fleet, promtool, run_promtool

from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.series import at, down, up
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS, LIMITS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.dcgm import FIELDS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import LEVELS, OWNERS, SEVERITIES
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.rules import rules

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
    assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= {
        *alert.place,
        *("kind", "place", "rack", "uplinks"),
    }
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


def test_a_host_that_goes_down_with_its_guests_is_neither_a_rack_nor_a_site(tmp_path):
    guests = [at(f"vm{number}", role="guest", host="hv1") for number in range(20)]
    others = {up("ssh", at(f"n{number}", rack="r2")): "1x20" for number in range(2)}
    gone = dict.fromkeys(down(at("hv1", role="hypervisor"), *guests), "1x5 0x15")
    assert fired(tmp_path, {**gone, **others}) == {"HostDown", "GuestDown"}


def test_a_rack_with_two_feeds_is_down_if_both_are(tmp_path):
    one = dict.fromkeys(down(at("n1", feed="a"), at("n2", feed="a")), "1x5 0x15")
    others = {up("ssh", at(f"m{number}", rack="r9", feed=feed)): "1x20" for number, feed in enumerate("ab")}
    assert "RackDown" not in fired(tmp_path, {**one, up("ssh", at("n3", feed="b")): "1x20", **others})
    assert "RackDown" in fired(tmp_path, {**one, up("ssh", at("n3", feed="b")): "1x5 0x15", **others})


def test_a_restart_that_took_half_an_hour_is_one(tmp_path):
    series = f'node_boot_time_seconds{{job="node",{at()}}}'
    assert fired(tmp_path, {series: "1000x10 _x30 5000x10"}, minute=45) == {"HostRestarted"}


def fired(folder, series, minute=20):
    """Return the alerts that fire at a time of series in promtool's notation."""
    text = rules({})
    (folder / "rules.yml").write_text(json.dumps(text), encoding="utf-8")
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        # Nothing is expected, and promtool prints what it got instead.
        "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{minute}m"}],
    }
    order = [group["name"] for group in text["groups"]]
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "group_eval_order": order, "tests": [test]}
    (folder / "fired.yml").write_text(json.dumps(tests), encoding="utf-8")
    done = promtool("test", "rules", "fired.yml", cwd=folder)
    return set(re.findall(r'alertname=\\*"(\w+)', (done.stdout + done.stderr).partition("got:")[2]))
