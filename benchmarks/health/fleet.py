#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make the table of 10,000 nodes' health, against the limits of 10 s and 500 MiB.

    benchmarks/health/fleet.py [--nodes 10000]

The answers are those of node_health_info as JSON, as they come from the nodes, and are parsed one by one: 8 GPUs with 4
numbers each, one node in fifty with one of a few faults, one in a thousand without an answer, and one with a failed
power feed. Processor time, so that other load does not count; the memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests/support/health")]

from fleet_answers import answer, fault, values

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table

LIMIT_S, LIMIT_MIB = 10.0, 500.0
SICK_EVERY, SILENT_EVERY = 50, 1000


def texts(nodes: int) -> list[str]:
    """Return the answers as JSON."""
    listed = []
    for number in range(nodes):
        result: dict[str, Any] = answer(values=values(number))
        if number % SICK_EVERY == 1:
            gpu = number // SICK_EVERY % 8
            result["health"]["faults"] = [fault(gpu, seen="pending" if gpu % 2 else f"{number} errors")]
        if number % SILENT_EVERY == 2:
            result = {"unreachable": True, "msg": f"Failed to connect to the host gpu-{number:05}: timed out"}
        if number == nodes // 2:
            result = answer(values=values(number, clock=345.0, power=210.0, step=3.6))
        listed.append(json.dumps(result))
    return listed


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    nodes = parser.parse_args().nodes
    listed = texts(nodes)

    def results() -> Iterator[tuple[str, Any]]:
        for number, text in enumerate(listed):
            yield f"gpu-{number:05}", json.loads(text)

    start = time.process_time()
    made = table(results())
    seconds = time.process_time() - start
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    known = {each.node for each in made.outliers}
    assert known == {f"gpu-{nodes // 2:05}"}, sorted(known)[:5]
    print(f"{nodes} nodes, {len(made.lines)} lines: {made.summary}")
    print(f"time {seconds:.1f} s, {seconds / LIMIT_S:.2f} of {LIMIT_S:g} s (the limit)")
    print(f"memory {mib:.0f} MiB, {mib / LIMIT_MIB:.2f} of {LIMIT_MIB:g} MiB (the limit)")
    if seconds > LIMIT_S or mib > LIMIT_MIB:
        sys.exit("a limit is exceeded")


if __name__ == "__main__":
    main()
