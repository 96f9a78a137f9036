#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan one 8-GPU server from its recording, and up to 10,000 of them in one process, against 2 ms per server.

    benchmarks/planning.py                # all sizes
    benchmarks/planning.py --hosts 1000   # one size, with its figures as JSON

A server is read from the text of its recording (with checks of JSON, types and contradictions), a virtual machine with
its eight GPUs and all its NICs is planned, and the plan and libvirt's XML are written as text. The recorded servers
with eight GPUs take turns. Each size is measured in a separate process. Times are processor times, so that other load
on the machine does not count. Memory is the increase of the process's peak since before the first server.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

SIZES = (1, 10, 100, 1_000, 10_000)
LIMIT_MS = 2.0
GPUS = 8


def servers() -> list[tuple[str, str, list[str]]]:
    """Return the name, the text of the topology and the NICs' addresses of each recorded server with eight GPUs."""
    found = []
    for path in sorted((ROOT / "tests/recordings").glob("*.json")):
        topology = json.loads(path.read_text(encoding="utf-8"))["topology"]
        functions = topology["functions"]
        if Counter(function["kind"] for function in functions)["gpu"] == GPUS:
            nics = [item["address"] for item in functions if item["kind"] == "nic" and not item.get("used_by_host")]
            found.append((path.stem, json.dumps(topology), nics))
    return found


def plan(text: str, name: str, nics: list[str]) -> tuple[float, float, float]:
    """Convert a recording's text to plan and XML; return the processor times of reading, planning and writing."""
    start = time.process_time()
    host = read_saved(json.loads(text))
    read = time.process_time()
    request = {"name": name, "memory_mib": 16384, "gpus": {"count": GPUS}, "nics": {"addresses": nics}}
    (planned,) = plan_domains(host, parse_specs([request]))
    done = time.process_time()
    json.dumps(planned.to_dict())
    render(planned)
    return read - start, done - read, time.process_time() - done


def measure(hosts: int) -> dict[str, Any]:
    """Return each stage's processor seconds and the peak memory for that many servers, after a warm-up."""
    recorded = servers()
    for name, text, nics in recorded:
        plan(text, name, nics)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stages = [0.0, 0.0, 0.0]
    for number in range(hosts):
        name, text, nics = recorded[number % len(recorded)]
        stages = [sum(pair) for pair in zip(stages, plan(text, f"{name}-{number}", nics))]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"hosts": hosts, "stages": stages, "peak_mib": peak / 1024, "more_mib": (peak - before) / 1024}


def main() -> int:
    """Run the benchmark. Return 0 if everything was measured, whatever the figures are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, help="measure this size alone, here, and print it as JSON")
    options = parser.parse_args()
    if options.hosts:
        print(json.dumps(measure(options.hosts)))
        return 0
    print(f"{len(servers())} recorded servers of {GPUS} GPUs in turns; limit {LIMIT_MS} ms a server")
    heads = (
        "servers",
        "seconds",
        "read ms",
        "plan ms",
        "write ms",
        "all ms",
        "of limit",
        "growth",
        "peak MiB",
        "more MiB",
    )
    print("".join(f"{head:>10}" for head in heads))
    last = None
    for size in SIZES:
        done = subprocess.run([sys.executable, __file__, "--hosts", str(size)], stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout)
        stages = [seconds * 1000 / size for seconds in found["stages"]]
        each = sum(stages)
        # The time per server divided by that of the size before: 1.0 is linear growth of the whole.
        growth = f"{each / last:.2f}" if last else "-"
        cells = [str(size), f"{sum(found['stages']):.3f}", *(f"{stage:.2f}" for stage in (*stages, each))]
        cells += [f"{each / LIMIT_MS:.2f}", growth, f"{found['peak_mib']:.1f}", f"{found['more_mib']:.1f}"]
        print("".join(f"{cell:>10}" for cell in cells))
        last = each
    return 0


if __name__ == "__main__":
    sys.exit(main())
