# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Turn rsyslogd's counters (impstats, one JSON object a line on standard input) into metrics for node exporter.

rsyslogd starts this program (omprog) and sends all counters every half minute; they begin at 0 when it starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic

QUEUE, KAFKA = "core.queue", "omkafka"
OUTPUTS = ("kafka", "elasticsearch")
# By metric: kind, help text, and the counters by origin, with the value of its label "reason".
METRICS: dict[str, tuple[str, str, dict[str, dict[str, tuple[str, ...]]]]] = {
    "queue_messages": ("gauge", "Lines that wait on disk for a receiver.", {QUEUE: {"": ("size",)}}),
    "received_total": (
        "counter",
        "Lines for a receiver, with those that its queue dropped.",
        {QUEUE: {"": ("enqueued",)}},
    ),
    "dropped_total": (
        "counter",
        "Lines that a receiver will not get: the queue on disk was full, or the receiver cannot store them.",
        {QUEUE: {"full": ("discarded.full", "discarded.nf")}, KAFKA: {"refused": ("failures_msg_too_large",)}},
    ),
}


def head(name: str) -> str:
    """Return the lines before the samples of a metric."""
    kind, text, _origins = METRICS[name]
    return f"# HELP sailloft_logs_{name} {text}\n# TYPE sailloft_logs_{name} {kind}\n"


def metrics(counters: Iterable[Mapping[str, object]]) -> str:
    """Return the text of the metrics' file. ``counters``: the last object of each name and origin."""
    samples: dict[str, list[str]] = {name: [] for name in METRICS}
    for counter in counters:
        origin = str(counter.get("origin"))
        output = "kafka" if origin == KAFKA else str(counter.get("name"))
        for name, (_kind, _help, by_origin) in METRICS.items():
            for reason, fields in by_origin.get(origin, {}).items() if output in OUTPUTS else ():
                label = f',reason="{reason}"' if reason else ""
                total = sum(int(str(counter.get(field, 0))) for field in fields)
                samples[name].append(f'sailloft_logs_{name}{{output="{output}"{label}}} {total}\n')
    return "".join(f"{head(name)}{''.join(sorted(lines))}" for name, lines in samples.items() if lines)


def main(arguments: list[str]) -> int:
    """Write the metrics to the file in the first argument, anew for each line of counters."""
    (path,) = arguments
    os.makedirs(os.path.dirname(path), exist_ok=True)
    counters: dict[tuple[object, object], Mapping[str, object]] = {}
    for line in sys.stdin:
        try:
            counter = json.loads(line)
        except ValueError:
            continue  # a line that was cut
        if isinstance(counter, dict) and counter.get("origin") in (QUEUE, KAFKA):
            counters[counter.get("name"), counter["origin"]] = counter
            write_atomic(path, metrics(counters.values()).encode())
    return 0
