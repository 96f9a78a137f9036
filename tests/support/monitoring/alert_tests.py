# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tests of alerts for promtool, from the sick and healthy series in the table of alerts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import GONE, NOW, Alert, Case, Value
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.rules import rules

# The fault begins after this many minutes: an hour is the longest time that an expression looks back.
BEGIN_M = 65
# How long it lasts after the alert must have fired.
LASTS_M = 5
EVERY = ALERTS.values()


def run_promtool(
    folder: Path, alerts: Iterable[Alert] = EVERY, extra: Iterable[str] = (), **wrong: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of alerts and ``extra`` files; ``wrong``: expressions to test instead, by alert."""
    text = rules({})
    for group in text["groups"]:
        for rule in group["rules"]:
            rule["expr"] = wrong.get(rule.get("alert", ""), rule["expr"])
    (folder / "rules.yml").write_text(json.dumps(text), encoding="utf-8")
    names = []
    for alert in alerts:
        for number, case in enumerate(alert.cases):
            names.append(f"{alert.name}-{number}.yml")
            (folder / names[-1]).write_text(json.dumps(_file(folder, alert, case)), encoding="utf-8")
    return promtool("test", "rules", *names, *extra, cwd=folder)


def promtool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    command = ["promtool", *arguments]
    return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _file(folder: Path, alert: Alert, case: Case) -> dict[str, object]:
    """Return a test's file, with the alert's group and the recording rules only: promtool evaluates each rule."""
    all_rules = json.loads((folder / "rules.yml").read_text())
    kept = [group for group in all_rules["groups"] if group["name"] == "sailloft_recording"]
    kept += [
        {"name": "tested", "rules": [rule for rule in group["rules"] if rule.get("alert") == alert.name]}
        for group in all_rules["groups"]
    ]
    groups = [group for group in kept if group["rules"]]
    own = f"rules-{alert.name}.yml"
    (folder / own).write_text(json.dumps({"groups": groups}), encoding="utf-8")
    fires = BEGIN_M + case.delay_m + alert.minutes
    ends = fires + LASTS_M
    series = [
        {"series": name, "values": values(healthy, sick, ends, ends + case.ends_m + 2)}
        for name, (healthy, sick) in case.series.items()
    ]
    times = {BEGIN_M - 1: False, fires - 1: False, fires: True, ends - 1: True, ends + case.ends_m: False}
    with_place = "".join(f',{label}!=""' for label in alert.place)
    query = f'count(ALERTS{{alertname="{alert.name}",alertstate="firing"{with_place}}}) > bool 0'
    return {
        "rule_files": [own],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [_check(query, *time) for time in times.items()],
            }
        ],
    }


def healthy_fleet(folder: Path) -> list[str]:
    """Write the test that no alert fires, nor is pending, while all series of all alerts are healthy."""
    series: dict[str, str] = {}
    for alert in EVERY:
        for case in alert.cases:
            series.update({name: values(healthy, healthy, 80, 100) for name, (healthy, _sick) in case.series.items()})
    checks = [{"expr": "count(ALERTS)", "eval_time": f"{minute}m", "exp_samples": []} for minute in (1, 30, 90)]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": checks,
    }
    text = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "healthy.yml").write_text(json.dumps(text), encoding="utf-8")
    return ["healthy.yml"]


def _check(query: str, minute: int, fire: bool) -> dict[str, object]:
    samples = [{"labels": "{}", "value": 1}] if fire else []
    return {"expr": query, "eval_time": f"{minute}m", "exp_samples": samples}


def values(healthy: Value, sick: Value, ends: int, last: int) -> str:
    """Return a series in promtool's notation: healthy, sick from BEGIN_M, and healthy again from ``ends``."""
    parts = []
    level = 0.0
    for value, begin, end in ((healthy, 0, BEGIN_M), (sick, BEGIN_M, ends), (healthy, ends, last)):
        number = end - begin
        if value == GONE:
            parts.append("stale" if number == 1 or begin == 0 else f"stale _x{number - 1}")
            if begin == 0:
                parts[-1] = f"_x{number}"
        elif value == NOW:
            level = 60.0 * begin
            parts.append(f"{level:g}+60x{number - 1}")
            level += 60.0 * (number - 1)
        elif isinstance(value, str):
            parts.append(f"{level:g}{value}x{number - 1}")
            level += float(value) * (number - 1)
        else:
            level = float(value)
            parts.append(f"{level:g}x{number - 1}")
    return " ".join(parts)
