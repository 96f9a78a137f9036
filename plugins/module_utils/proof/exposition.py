# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write what a run has read as metrics, for the textfile collector of node_exporter.

The text is Prometheus' format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/). Samples have no
time, which the collector refuses; READ_AT has that of the whole reading, so that an old file is alerted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

GAUGE, COUNTER = "gauge", "counter"
READ_AT = "sailloft_reading_timestamp_seconds"


class MetricsError(SailloftError):
    """A file of metrics that cannot be written: "SUBJECT: CAUSE; NEXT STEP"."""


@dataclass(frozen=True)
class Metric:
    """A metric and its samples: labels and value. ``kind``: GAUGE or COUNTER."""

    name: str
    text: str
    samples: Iterable[tuple[Mapping[str, str], float]]
    kind: str = GAUGE


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics as text."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{_braces(labels)} {_number(value)}" for labels, value in metric.samples]
    return "".join(f"{line}\n" for line in lines)


def _braces(labels: Mapping[str, str]) -> str:
    escaped = (
        f'{name}="{value}"'
        for name, text in labels.items()
        for value in [text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")]
    )
    return f"{{{','.join(escaped)}}}" if labels else ""


def _number(value: float) -> str:
    """Return all digits of a counter of 64 bits."""
    return str(int(value)) if value == int(value) else repr(value)


def publish(folder: str, reading: str, metrics: Iterable[Metric], now_s: float, check_mode: bool) -> tuple[str, bool]:
    """Replace sailloft_READING.prom in a directory; return its path, and whether more than its time differs.

    ``now_s``: the time of the reading, in seconds since 1970. Raises MetricsError if the system refuses.
    """
    path = os.path.join(folder, f"sailloft_{reading}.prom")
    text = exposition(metrics)
    read_at = Metric(READ_AT, "When this was read.", [({"reading": reading}, round(now_s))])
    try:
        changed = _without_time(path) != text
        if not check_mode:
            os.makedirs(folder, exist_ok=True)
            disk.write_atomic(path, (text + exposition([read_at])).encode("utf-8", "replace"))
    except OSError as error:
        raise MetricsError(
            f"cannot write it: {error.strerror}", "give a directory that you own in metrics_path", subject=path
        ) from error
    return path, changed


def _without_time(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().partition(f"# HELP {READ_AT} ")[0]
    except FileNotFoundError:
        return None
