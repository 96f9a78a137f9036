# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The dashboards: current, and each of their expressions returns data on series of real exporters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from alert_tests import promtool
from measured_series import scraped, series

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.grafana import dashboards
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.rules import rules

ROOT = Path(__file__).parents[3]
BOARDS = {name: json.loads(text) for name, text in dashboards().items()}
# The time after which each alert of the sick fleet has fired, in minutes.
WHEN_M = 40
MACROS = {"$__rate_interval": "5m", "$__range": "30m"}


def panels():
    return [(name, panel) for name, board in BOARDS.items() for panel in board["panels"] if panel.get("targets")]


def expressions():
    """Return all expressions of panels, and of the variables' choices, as Grafana sends them with all chosen."""
    found = {
        f"{name}: {panel['title']} {target['refId']}": target["expr"]
        for name, panel in panels()
        for target in panel["targets"]
    }
    for name, board in BOARDS.items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
                found[f"{name}: ${variable['name']}"] = f'group by ({label}) ({metric}{{{label}!=""}})'
    for place, expression in found.items():
        for macro, value in MACROS.items():
            expression = expression.replace(macro, value)
        found[place] = re.sub(r"\$\w+", lambda name: "n1" if name.group() == "$instance" else ".*", expression)
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return series(scraped(tmp_path_factory.mktemp("exporter")))


def without_data(folder, measured, asked):
    """Return the places of the expressions that return nothing."""
    (folder / "rules.json").write_text(json.dumps(rules({})))
    used = set(re.findall(r"\w+", json.dumps([*asked.values(), rules({})])))
    stored = [
        {"series": name, "values": f"{value:f}{'+60' if grows else '+0'}x{WHEN_M + 1}"}
        for name, (value, grows) in measured.items()
        if name.partition("{")[0] in used
    ]
    checks = [
        {
            "expr": f'label_replace(count({expression}) > bool 0, "place", "{number}", "", "")',
            "eval_time": f"{WHEN_M}m",
            "exp_samples": [{"labels": f'{{place="{number}"}}', "value": 1}],
        }
        for number, expression in enumerate(asked.values())
    ]
    test = {"interval": "1m", "input_series": stored, "promql_expr_test": checks}
    text = {"rule_files": ["rules.json"], "evaluation_interval": "5m", "tests": [test]}
    (folder / "test.json").write_text(json.dumps(text))
    run = promtool("test", "rules", "test.json", cwd=folder)
    numbers = {int(number) for number in re.findall(r'exp: {place="(\d+)"}', run.stdout + run.stderr)}
    assert bool(numbers) == bool(run.returncode), run.stdout + run.stderr
    return [place for number, place in enumerate(asked) if number in numbers]


def test_the_dashboards_are_those_of_the_tables():
    pytest.importorskip("grafana_foundation_sdk")
    command = [sys.executable, ROOT / "docs/site/dashboards.py", "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_each_expression_returns_data_of_the_real_exporters(tmp_path, measured):
    assert without_data(tmp_path, measured, expressions()) == []


def test_a_wrong_name_is_found(tmp_path, measured):
    wrong_names = {
        "node_infiniband_link_downed_total": "node_infiniband_link_down_total",
        "DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USAGE",
        "sailloft_health_unmeasured": "sailloft_health_not_measured",
        "role:sailloft_host_up:avg": "role:sailloft_up:avg",
        'result="held"': 'result="holds"',
    }
    changed = {
        f"{place} {right}": text.replace(right, wrong)
        for place, text in expressions().items()
        for right, wrong in wrong_names.items()
        if right in text
    }
    assert len(changed) > len(wrong_names)
    assert without_data(tmp_path, measured, changed) == list(changed)


def test_panels_do_not_overlap_and_have_numbers_and_titles_of_their_own():
    for name, board in BOARDS.items():
        taken = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, (name, panel["title"])
            assert max(x for x, _y in cells) < 24
            taken |= cells
        numbers = [panel["id"] for panel in board["panels"]]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_links_lead_to_dashboards():
    links = {link for board in BOARDS.values() for link in re.findall(r"/d/([\w-]+)", json.dumps(board))}
    assert links
    assert links <= {board["uid"] for board in BOARDS.values()}
