# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The panels of Grafana's dashboards: expressions of metrics that the plan's jobs scrape, and of its rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.hosts import UP
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import GROUPS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.dcgm import FIELDS

STAT, LINES, BARS, TABLE = "stat", "lines", "bars", "table"
WIDTHS = {STAT: 4, LINES: 8, BARS: 8, TABLE: 24}  # of 24
FIRING = 'ALERTS{alertstate="firing"'


@dataclass(frozen=True)
class Panel:
    """A panel. ``expressions``: legend by expression, with Grafana's $ variables and {{label}}."""

    kind: str
    title: str
    expressions: Mapping[str, str]
    unit: str = ""  # Grafana's name of it
    description: str = ""
    none: str = ""  # shown where there is no series, if that is a good sign
    value: str = ""  # the title of a table's column of values; without it there is none

    @property
    def width(self) -> int:
        """The columns of 24."""
        return WIDTHS[self.kind]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values of a metric's label."""

    name: str
    title: str
    metric: str
    label: str
    several: bool = False


@dataclass(frozen=True)
class Board:
    """A dashboard: rows of panels by title. ``text``: Markdown above them."""

    name: str
    title: str
    description: str
    rows: Mapping[str, tuple[Panel, ...]]
    variables: tuple[Variable, ...] = ()
    text: str = ""


def _lines(title: str, expression: str, legend: str, unit: str = "", description: str = "", none: str = "") -> Panel:
    return Panel(LINES, title, {expression: legend}, unit, description, none)


def _number(title: str, expression: str, unit: str = "", description: str = "", none: str = "") -> Panel:
    return Panel(STAT, title, {expression: ""}, unit, description, none)


def _firing(title: str, matchers: str = "", by: str = "") -> Panel:
    """Return the table of firing alerts, or its count over time."""
    series = f"{FIRING}{matchers}}}"
    if by:
        return _lines(title, f"count by ({by}) ({series})", f"{{{{{by}}}}}", "short", none="none fires")
    return Panel(TABLE, title, {series: ""}, none="none fires")


def _of_group(group: str) -> Panel:
    """Return the firing alerts of a group of the table of alerts, over time."""
    names = "|".join(alert.name for alert in GROUPS[group])
    return _firing(f"Alerts of {group}", f',alertname=~"{names}"', by="alertname")


# Grafana's unit, and the factor to it, by the unit in the help text of a field.
UNITS = {
    "C": ("celsius", ""),
    "W": ("watt", ""),
    "%": ("percent", ""),
    "MiB": ("mbytes", ""),
    "MHz": ("hertz", " * 1e6"),
}
REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"


def _of_field(name: str, kind: str, text: str, of: str) -> Panel:
    """Return the panel of a metric of dcgm-exporter on the nodes of a matcher."""
    title, _bracket, unit = text.rstrip(".").partition(" (in ")
    grafana_unit, factor = UNITS.get(unit.rstrip(")"), ("short", ""))
    series = f"{name}{{{of}}}"
    if name == REASONS:
        bits = {
            f"floor({series} / {bit}) % 2": f"{word}, GPU {{{{gpu}}}}" for word, bit in (("heat", 64), ("power", 128))
        }
        return Panel(LINES, "Clocks slow for heat or the power brake (1: yes)", bits, "short")
    expression = f"increase({series}[$__rate_interval])" if kind == "counter" else f"{series}{factor}"
    return _lines(title, expression, "GPU {{gpu}}", grafana_unit)


def _rate(metric: str, of: str, factor: str = "") -> str:
    return f"rate({metric}{{{of}}}[$__rate_interval]){factor}"


def _gpu_rows(of: str) -> dict[str, tuple[Panel, ...]]:
    return {"GPUs": tuple(_of_field(*each, of) for each in FIELDS)}


IN_ROLE, IN_RACK = 'role=~"$role"', 'rack=~"$rack"'
ON_NODE, ON_NODES = 'instance="$instance"', 'instance=~"$instance"'
IDLE = f'mode="idle",{ON_NODE}'
HEALTHY = f"(count(sailloft_health_status{{{IN_ROLE}}} == 0) or vector(0))"
ETHERNET = 'device!~"lo|ib.*|docker.*|veth.*|virbr.*|vnet.*"'
NOT_OF_MEMORY = 'fstype!~"tmpfs|ramfs|squashfs|overlay|iso9660"'

FLEET = Board(
    "fleet",
    "fleet",
    "All hosts of the site: what answers, what may take work, what is wrong.",
    {
        "At a glance": (
            _number("Hosts that answer", f"avg({UP}{{{IN_ROLE}}})", "percentunit"),
            _number(
                "Nodes that may take work", f"{HEALTHY} / count(sailloft_health_status{{{IN_ROLE}}})", "percentunit"
            ),
            _number("Spares that may take work", 'count(sailloft_health_status{spare="true"} == 0)', none="0"),
            _number("GPUs measured", "count(DCGM_FI_DEV_GPU_UTIL)"),
            _number(
                "GPUs in use",
                "(count(DCGM_FI_DEV_GPU_UTIL > 5) or vector(0)) / count(DCGM_FI_DEV_GPU_UTIL)",
                "percentunit",
            ),
            _number("Power of all GPUs", "sum(DCGM_FI_DEV_POWER_USAGE)", "watt"),
        ),
        "For executives": (
            _lines("Hosts that answer, by role", "role:sailloft_host_up:avg", "{{role}}", "percentunit"),
            _lines("Use of GPUs, mean", "avg(DCGM_FI_DEV_GPU_UTIL)", "all GPUs", "percent"),
            Panel(
                BARS,
                "Hosts that answered, mean of the time shown",
                {"avg_over_time(role:sailloft_host_up:avg[$__range])": "{{role}}"},
                "percentunit",
            ),
        ),
        "What is wrong": (
            _firing("Alerts that fire"),
            *(_of_group(group) for group in GROUPS),
            _lines("Alerts by owner", f"count by (owner) ({FIRING}}})", "{{owner}}", "short", none="none fires"),
        ),
        "Nodes and racks": (
            Panel(
                LINES,
                "Nodes by state",
                {
                    f"count(sailloft_health_status{{{IN_ROLE}}} == 0) or vector(0)": "may take work",
                    f"count(sailloft_health_status{{{IN_ROLE}}} == 1) or vector(0)": "may not",
                    f"count(sailloft_health_status{{{IN_ROLE}}} == 2) or vector(0)": "not known",
                },
                "short",
            ),
            Panel(
                BARS,
                "Most frequent faults",
                {f"topk(10, count by (check) (sailloft_health_fault{{{IN_ROLE}}}))": "{{check}}"},
            ),
            Panel(
                BARS,
                "Racks with hosts that do not answer",
                {"bottomk(20, rack:sailloft_host_up:avg < 1)": "{{rack}}"},
                "percentunit",
                none="all hosts of all racks answer",
            ),
            Panel(
                TABLE,
                "Nodes that may not take work (1), or of which it is not known (2)",
                {f"sailloft_health_status{{{IN_ROLE}}} > 0": ""},
                none="none",
                value="state",
            ),
        ),
    },
    (Variable("role", "Role", UP, "role", several=True),),
    text=(
        "**Researchers**: [jobs](/d/sailloft-jobs), the GPUs and networks of the nodes of a job.  \n"
        "**Administrators**: the alerts below, then [node](/d/sailloft-node) and [fabric](/d/sailloft-fabric).  \n"
        "**Executives**: the first two rows: what answers, what may take work, what is used."
    ),
)

NODE = Board(
    "node",
    "node",
    "One host: its verdict, faults, GPUs, ports and system.",
    {
        "Verdict": (
            _number("May take work: 0 yes, 1 no, 2 not known", f"sailloft_health_status{{{ON_NODE}}}"),
            _number("Last round of checks", f"time() - sailloft_health_round_timestamp_seconds{{{ON_NODE}}}", "s"),
            _number("Running since", f"time() - node_boot_time_seconds{{{ON_NODE}}}", "s"),
            _number("GPUs measured", f"count(DCGM_FI_DEV_GPU_UTIL{{{ON_NODE}}})"),
            _number("Processors", f'count(node_cpu_seconds_total{{mode="idle",{ON_NODE}}})'),
            _number("Memory", f"node_memory_MemTotal_bytes{{{ON_NODE}}}", "bytes"),
            Panel(TABLE, "Faults", {f"sailloft_health_fault{{{ON_NODE}}}": ""}, none="none"),
            Panel(TABLE, "Not measured", {f"sailloft_health_unmeasured{{{ON_NODE}}}": ""}, none="none", value="rounds"),
            _firing("Alerts that fire", f",{ON_NODE}"),
        ),
        **_gpu_rows(ON_NODE),
        "Measured by the health check": (
            _lines("Values", f'sailloft_health_value{{check=~"$check",{ON_NODE}}}', "{{check}} {{place}}"),
        ),
        "System": (
            _lines("Processors", f"100 - 100 * avg({_rate('node_cpu_seconds_total', IDLE)})", "busy", "percent"),
            Panel(
                LINES,
                "Memory",
                {
                    f"node_memory_MemTotal_bytes{{{ON_NODE}}} - node_memory_MemAvailable_bytes{{{ON_NODE}}}": "used",
                    f"node_memory_MemTotal_bytes{{{ON_NODE}}}": "all",
                },
                "bytes",
            ),
            _lines(
                "File systems",
                f"100 - 100 * node_filesystem_avail_bytes{{{NOT_OF_MEMORY},{ON_NODE}}} / node_filesystem_size_bytes",
                "{{mountpoint}}",
                "percent",
            ),
            _lines("Load", f"node_load5{{{ON_NODE}}}", "5 minutes"),
            _lines("Disks", _rate("node_disk_written_bytes_total", ON_NODE), "{{device}}, written", "Bps"),
            Panel(
                LINES,
                "Logs",
                {
                    f"sailloft_logs_queue_messages{{{ON_NODE}}}": "wait for {{output}}",
                    f"increase(sailloft_logs_dropped_total{{{ON_NODE}}}[$__rate_interval])": "dropped, {{output}}",
                },
            ),
            _lines("Files of metrics: age", f"time() - node_textfile_mtime_seconds{{{ON_NODE}}}", "{{file}}", "s"),
        ),
        "Ports": (
            Panel(
                LINES,
                "InfiniBand",
                {
                    _rate("node_infiniband_port_data_received_bytes_total", ON_NODE, " * 8"): "{{device}}/{{port}} in",
                    _rate(
                        "node_infiniband_port_data_transmitted_bytes_total", ON_NODE, " * 8"
                    ): "{{device}}/{{port}} out",
                },
                "bps",
            ),
            Panel(
                LINES,
                "Ethernet",
                {
                    _rate("node_network_receive_bytes_total", f"{ETHERNET},{ON_NODE}", " * 8"): "{{device}} in",
                    _rate("node_network_transmit_bytes_total", f"{ETHERNET},{ON_NODE}", " * 8"): "{{device}} out",
                },
                "bps",
            ),
            _lines(
                "InfiniBand: links lost",
                f"increase(node_infiniband_link_downed_total{{{ON_NODE}}}[1h])",
                "{{device}}/{{port}}",
            ),
        ),
    },
    (
        Variable("instance", "Host", UP, "instance"),
        Variable("check", "Check", "sailloft_health_value", "check", several=True),
    ),
)

FABRIC = Board(
    "fabric",
    "fabric",
    "Switches, ports and the RoCE policy.",
    {
        "Alerts": (_firing("Alerts of networks", ',owner="network"'), _of_group("networks")),
        "Switches": (
            _number("Switches that answer", f'avg({UP}{{role="switch"}})', "percentunit"),
            _number("Devices not read", "count(sailloft_fabric_drift_device_read == 0) or vector(0)"),
            _number("Devices that differ", "count(sailloft_fabric_drift_differences > 0) or vector(0)"),
            _number(
                "Last comparison",
                'time() - max(sailloft_reading_timestamp_seconds{reading="fabric_drift"})',
                "s",
            ),
            _number("Claims that fail", 'sum(sailloft_fabric_drift_claims{result="failed"})'),
            _number("Claims that hold", 'sum(sailloft_fabric_drift_claims{result="held"})'),
            Panel(
                TABLE,
                "Devices that differ from the policy",
                {"sailloft_fabric_drift_differences > 0": ""},
                none="none",
                value="differences",
            ),
        ),
        "Ports of hosts": (
            Panel(TABLE, "Faults of ports", {'sailloft_health_fault{kind="port",rack=~"$rack"}': ""}, none="none"),
            _lines(
                "InfiniBand ports that are not active",
                'count by (rack) (node_infiniband_state_id{rack=~"$rack"} != 4)',
                "{{rack}}",
                none="all are active",
            ),
            _lines(
                "InfiniBand: links lost in an hour",
                'topk(20, increase(node_infiniband_link_downed_total{rack=~"$rack"}[1h]) > 0)',
                "{{instance}} {{device}}/{{port}}",
                none="none",
            ),
            _lines(
                "InfiniBand: symbol errors in an hour",
                'topk(20, increase(node_infiniband_symbol_error_total{rack=~"$rack"}[1h]) > 0)',
                "{{instance}} {{device}}/{{port}}",
                none="none",
            ),
            _lines(
                "InfiniBand: most data out",
                f"topk(20, {_rate('node_infiniband_port_data_transmitted_bytes_total', IN_RACK, ' * 8')})",
                "{{instance}} {{device}}/{{port}}",
                "bps",
            ),
            _lines(
                "Ethernet: most data out",
                f"topk(20, {_rate('node_network_transmit_bytes_total', ETHERNET + ',' + IN_RACK, ' * 8')})",
                "{{instance}} {{device}}",
                "bps",
            ),
            _lines(
                "Ethernet: packets dropped",
                f"topk(20, {_rate('node_network_receive_drop_total', ETHERNET + ',' + IN_RACK)} > 0)",
                "{{instance}} {{device}}",
                "pps",
                none="none",
            ),
        ),
    },
    (Variable("rack", "Rack", UP, "rack", several=True),),
)
JOBS = Board(
    "jobs",
    "jobs",
    "The nodes of a job: choose its nodes above, or its number where dcgm-exporter knows it (--hpc-job-mapping-dir).",
    {
        "The slowest node decides": (
            _number("Nodes", f"count(sailloft_health_status{{{ON_NODES}}})"),
            _number("Nodes that may take work", f"count(sailloft_health_status{{{ON_NODES}}} == 0) or vector(0)"),
            _number("GPUs", f"count(DCGM_FI_DEV_GPU_UTIL{{{ON_NODES}}})"),
            _number("Use of GPUs, mean", f"avg(DCGM_FI_DEV_GPU_UTIL{{{ON_NODES}}})", "percent"),
            _number("Use of GPUs, least", f"min(DCGM_FI_DEV_GPU_UTIL{{{ON_NODES}}})", "percent"),
            _number("Hottest GPU", f"max(DCGM_FI_DEV_GPU_TEMP{{{ON_NODES}}})", "celsius"),
        ),
        "GPUs": (
            _lines(
                "Use, by node", f"avg by (instance) (DCGM_FI_DEV_GPU_UTIL{{{ON_NODES}}})", "{{instance}}", "percent"
            ),
            _lines(
                "Clock, slowest GPU by node",
                f"min by (instance) (DCGM_FI_DEV_SM_CLOCK{{{ON_NODES}}}) * 1e6",
                "{{instance}}",
                "hertz",
            ),
            _lines(
                "Memory used, by node",
                f"sum by (instance) (DCGM_FI_DEV_FB_USED{{{ON_NODES}}})",
                "{{instance}}",
                "mbytes",
            ),
            _lines(
                "Power, by node", f"sum by (instance) (DCGM_FI_DEV_POWER_USAGE{{{ON_NODES}}})", "{{instance}}", "watt"
            ),
            _lines(
                "Clocks slow for heat or the power brake: GPUs",
                f"count by (instance) (floor({REASONS}{{{ON_NODES}}} / 64) % 4 > 0)",
                "{{instance}}",
                none="none",
            ),
            _lines(
                "Hottest GPU, by node",
                f"max by (instance) (DCGM_FI_DEV_GPU_TEMP{{{ON_NODES}}})",
                "{{instance}}",
                "celsius",
            ),
        ),
        "Networks and processors": (
            _lines(
                "InfiniBand out, by node",
                f"sum by (instance) ({_rate('node_infiniband_port_data_transmitted_bytes_total', ON_NODES, ' * 8')})",
                "{{instance}}",
                "bps",
            ),
            _lines(
                "Ethernet out, by node",
                f"sum by (instance) ({_rate('node_network_transmit_bytes_total', ETHERNET + ',' + ON_NODES, ' * 8')})",
                "{{instance}}",
                "bps",
            ),
            _lines("Load, by node", f"node_load5{{{ON_NODES}}}", "{{instance}}"),
        ),
        "Faults on these nodes": (
            Panel(TABLE, "Faults", {f"sailloft_health_fault{{{ON_NODES}}}": ""}, none="none"),
            _firing("Alerts that fire", f",{ON_NODES}"),
        ),
        "By number of the job": (
            Panel(
                BARS,
                "GPUs",
                {'topk(20, count by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job=~"$number",hpc_job!=""}))': "{{hpc_job}}"},
            ),
            _lines(
                "Use of GPUs",
                'avg by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{hpc_job=~"$number",hpc_job!=""})',
                "{{hpc_job}}",
                "percent",
            ),
            _lines(
                "Power",
                'sum by (hpc_job) (DCGM_FI_DEV_POWER_USAGE{hpc_job=~"$number",hpc_job!=""})',
                "{{hpc_job}}",
                "watt",
            ),
        ),
    },
    (
        Variable("instance", "Nodes", "DCGM_FI_DEV_GPU_UTIL", "instance", several=True),
        Variable("number", "Job", "DCGM_FI_DEV_GPU_UTIL", "hpc_job", several=True),
    ),
)
DASHBOARDS = (FLEET, NODE, FABRIC, JOBS)
