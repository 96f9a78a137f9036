#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write Grafana's dashboards from the tables of alerts and of GPU metrics: dashboards.py [--check]

Their panels are in dashboard_panels.py; here they get the form of Grafana 11.6, with grafana-foundation-sdk.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

from dashboard_panels import BARS, DASHBOARDS, LINES, STAT, TABLE, Board, Panel, Variable
from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as query
from grafana_foundation_sdk.models import text as text_model

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "plugins/module_utils/monitoring/dashboards"
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "sailloft"
HEIGHTS = {STAT: 4, LINES: 8, BARS: 8, TABLE: 8}
BUILDERS: dict[str, Any] = {STAT: stat.Panel, LINES: timeseries.Panel, BARS: bargauge.Panel, TABLE: table.Panel}
# Columns of a table that say nothing.
HIDDEN = ("Time", "Value", "__name__", "alertstate", "job", "limits", "level", "host", "role")


def built(board: Board) -> str:
    """Return a dashboard as JSON."""
    made = (
        dashboard.Dashboard(f"Sailloft: {board.title}")
        .uid(f"sailloft-{board.name}")
        .description(board.description)
        .tags([TAG])
        .time("now-6h", "now")
        .timezone("browser")
        .refresh("1m")
        .readonly()
        .link(
            dashboard.DashboardLink("Sailloft").type(model.DashboardLinkType("dashboards")).tags([TAG]).keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in board.variables:
        made.with_variable(_variable(variable))
    numbers = itertools.count(1)
    if board.text:
        panel = text.Panel().mode(text_model.TextMode("markdown")).content(board.text).span(24).height(5)
        made.with_panel(panel.id(next(numbers)))
    for title, panels in board.rows.items():
        made.with_row(dashboard.Row(title).id(next(numbers)))
        for each in panels:
            made.with_panel(_panel(each).id(next(numbers)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    made = (
        dashboard.QueryVariable(variable.name)
        .label(variable.title)
        .query(f"label_values({variable.metric}, {variable.label})")
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )
    return made.multi(True).include_all(True).all_value(".*") if variable.several else made


def _panel(panel: Panel) -> Any:
    made = BUILDERS[panel.kind]().title(panel.title).datasource(SOURCE).span(panel.width).height(HEIGHTS[panel.kind])
    if panel.description:
        made.description(panel.description)
    if panel.unit:
        made.unit(panel.unit)
    if panel.none:
        made.no_value(panel.none)
    for number, (expression, legend) in enumerate(panel.expressions.items()):
        target = prometheus.Dataquery().expr(expression).ref_id(chr(ord("A") + number)).legend_format(legend)
        if panel.kind == TABLE:
            target.format(query.PromQueryFormat.TABLE)
        made.with_target(target.range() if panel.kind == LINES else target.instant())
    if panel.kind == TABLE:
        hidden = dict.fromkeys(HIDDEN, True)
        if panel.value:
            del hidden["Value"]
        options = {"excludeByName": hidden, "renameByName": {"Value": panel.value} if panel.value else {}}
        made.with_transformation(model.DataTransformerConfig(id_val="organize", options=options))
    elif panel.kind in (STAT, BARS):
        made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return made


def main() -> int:
    """Write the dashboards, or with --check say whether they are current; the exit status is 1 if not."""
    is_check = "--check" in sys.argv[1:]
    texts = {f"{board.name}.json": built(board) for board in DASHBOARDS}
    old = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    differing = sorted(name for name in texts.keys() | old.keys() if texts.get(name) != old.get(name))
    if is_check and differing:
        print(f"not current: {', '.join(differing)}; run docs/site/dashboards.py", file=sys.stderr)
        return 1
    for name in () if is_check else differing:
        if name in texts:
            (FOLDER / name).write_text(texts[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
