#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure series, bytes and memory of the real Prometheus with the planned monitoring of GPU nodes.

    benchmarks/monitoring/prometheus.py [--nodes 40 500] [--for 5000]

A node is made of files (stand_ins/gpu_node.py): 224 processors, 8 GPUs, 10 RDMA ports, 10 disks. The real node
exporter reads them 120 times, a minute apart for the node; dcgm-exporter's answers, each 5 s of the same two hours, are
made up.

Bytes: promtool makes a block of two hours from all these samples of one node; Prometheus makes such blocks, and larger
ones of them, which share an index, so that a day takes at most 12 of them. Limit: 2 bytes a sample, the most that its
documentation names.

Memory: Prometheus scrapes the planned targets with the planned rules at the planned intervals; one program answers for
all exporters. Its memory is that after the first round, when each series has a sample. What two hours of samples add is
measured with 4 nodes that are scraped each 2 s, as a ratio of the live heap, by which memory is scaled. Limit: 64
GiB for 5,000 nodes, which no machine here has: such numbers are scaled by the series. A query or a restart needs more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / path) for path in (".collections", "benchmarks/stand_ins", "tests/support")]

from exporters import Exporters
from gpu_node import GpuNode
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import JOBS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.node import COLLECTORS

LIMIT_BYTES, LIMIT_GIB = 2.0, 64.0
SAMPLES = 120  # of a chunk of Prometheus, and of two hours
BLOCK_S = 7200
NODE_S, DCGM_S = JOBS["node"].interval_s, JOBS["dcgm"].interval_s
GROWTH_S = 2  # between the samples with which chunks are filled
LIMIT_S = 600  # until all targets are scraped; the interval is 60
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


@dataclass(frozen=True)
class Used:
    """The series of a Prometheus, and in bytes its resident memory and its live heap after a collection."""

    series: int
    resident: int
    live: int


def recorded(folder: Path) -> tuple[list[str], int]:
    """Return the answers of node exporter in two hours, and how many series it has with all its own collectors."""
    port = free_port()
    node = GpuNode(folder)
    ours = [argument for argument in COLLECTORS if argument.startswith("--no-")]
    counts, answers = [], []
    for collectors, number in ((["--no-collector.infiniband"], 1), (ours, SAMPLES)):
        node.move(NODE_S)
        with node.exporter(port, collectors) as process:
            try:
                time.sleep(1)
                answers = []
                for _sample in range(number):
                    answers.append(node.node_answer(port, NODE_S))
                    node.move(NODE_S)
            finally:
                process.terminate()
        counts.append(len(samples(answers[0])))
    return answers, counts[0]


def samples(answer: str) -> list[tuple[str, str, str]]:
    """Return name, labels and value of each sample."""
    return [sample for line in answer.splitlines() if not line.startswith("#") for sample in SAMPLE.findall(line)]


def hosts(number: int) -> list[MonitoredHost]:
    """Return nodes on addresses of this machine: racks of 4, 8 leaves for 32 nodes."""
    return [
        MonitoredHost(
            f"node-{each:05}",
            ("nodes", "gpu_nodes"),
            f"127.9.{each // 250}.{each % 250 + 1}",
            rack=f"rack-{each // 4:04}",
            unit=each % 4 * 6 + 1,
            blocks={"pod": each // 128 + 1, "rack": each // 4 + 1},
            peers=tuple((f"leaf-{each // 32}-{rail}", rail) for rail in range(8)),
        )
        for each in range(number)
    ]


def block(folder: Path, node_answers: list[str], dcgm_answers: list[str]) -> tuple[int, int, int]:
    """Return samples, bytes of their chunks and all bytes of a block of one node."""
    planned = plan({}, hosts(1), ["nodes"]).texts
    text, count = folder / "samples", 0
    with text.open("w", encoding="utf-8") as stream:
        for job, answers, interval_s in (("node", node_answers, NODE_S), ("dcgm", dcgm_answers, DCGM_S)):
            labels = json.loads(planned[f"targets/{job}.json"])[0]["labels"]
            place = ",".join(f'{name}="{value}"' for name, value in {**labels, "job": job}.items())
            for number, answer in enumerate(answers):
                found = samples(answer)
                count += len(found)
                for name, own, value in found:
                    joined = ",".join(part for part in (own, place) if part)
                    stream.write(f"{name}{{{joined}}} {value} {1800000000 + number * interval_s}\n")
        stream.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "blocks")]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    sizes = {path: path.stat().st_size for path in (folder / "blocks").rglob("*") if path.is_file()}
    text.unlink()
    return count, sum(size for path, size in sizes.items() if path.parent.name == "chunks"), sum(sizes.values())


@contextmanager
def scraping(folder: Path, number: int, answers: list[list[str]], interval_s: int = 0) -> Iterator[str]:
    """Run Prometheus with the plan of nodes; yield its URL. ``interval_s``: of all jobs, instead of the planned."""
    node_port, dcgm_port, blackbox, own = (free_port() for _port in range(4))
    every = {"interval_s": interval_s} if interval_s else {}
    jobs = {"node": {"port": node_port, **every}, "dcgm": {"port": dcgm_port, **every}, "ssh": every}
    nodes = hosts(number)
    planned = plan({"jobs": jobs, "blackbox": f"127.0.0.1:{blackbox}"}, nodes, ["nodes"])
    for name, text in {**planned.texts, **{name: json.dumps(each) for name, each in planned.documents.items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    addresses = [each.address for each in nodes]
    exporters = Exporters(addresses, {node_port: answers[0], dcgm_port: answers[1]}, blackbox)
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{own}",
        "--web.enable-lifecycle",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{own}"
        finally:
            process.kill()
            exporters.stop()


def wait(url: str, targets: int) -> None:
    """Wait until Prometheus has scraped each target once; on a machine with other work some scrapes are too late."""
    until = time.monotonic() + LIMIT_S
    while True:
        with suppress(OSError):
            up = json.loads(asked(f"{url}/api/v1/query?query=count(max_over_time(up[1h])==1)"))["data"]["result"]
            if up and int(up[0]["value"][1]) == targets:
                return
            if time.monotonic() > until:
                sys.exit(f"Prometheus has not scraped {targets} targets in {LIMIT_S} s: {up}")
        time.sleep(2)


def used(url: str) -> Used:
    """Return what Prometheus uses. Ends the program if a rule fails."""
    asked(f"{url}/debug/pprof/heap?gc=1&debug=1")  # collects garbage first
    own = {name: float(value) for name, labels, value in samples(asked(f"{url}/metrics")) if not labels}
    groups = json.loads(asked(f"{url}/api/v1/rules"))["data"]["groups"]
    failing = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
    if failing:
        sys.exit(f"a rule fails: {failing[0]}")
    return Used(
        int(own["prometheus_tsdb_head_series"]),
        int(own["process_resident_memory_bytes"]),
        int(own["go_memstats_heap_alloc_bytes"]),
    )


def asked(url: str) -> str:
    """Return an answer of Prometheus."""
    with urllib.request.urlopen(url, timeout=120) as answer:
        return str(answer.read().decode())


def growth(folder: Path, answers: list[list[str]]) -> float:
    """Return the live heap after a whole chunk of each series, divided by that after its first samples."""
    number = 4
    with scraping(folder, number, answers, GROWTH_S) as url:
        wait(url, number * 3)
        first = used(url)
        time.sleep(SAMPLES * GROWTH_S)
        last = used(url)
    return last.live / first.live


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[40, 500])
    parser.add_argument("--for", type=int, nargs="+", default=[5000], dest="scaled", help="nodes to scale to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        folders = [top / name for name in ("node", "block", "growth", *map(str, arguments.nodes))]
        for each in folders:
            each.mkdir()
        node_answers, with_all = recorded(folders[0])
        gpus = GpuNode(top / "gpus")
        dcgm_answers = [gpus.dcgm_answer() for _sample in range(BLOCK_S // DCGM_S)]
        series = [len(samples(answers[0])) for answers in (node_answers, dcgm_answers)]
        print(f"a node: {series[0]} series of node exporter ({with_all} with all its collectors), {series[1]} of GPUs")
        count, chunks, whole = block(folders[1], node_answers, dcgm_answers)
        per_sample = whole / count
        print(f"two hours of a node: {count} samples, {chunks / count:.2f} bytes each, {per_sample:.2f} with the index")
        print(f"{per_sample / LIMIT_BYTES:.2f} of {LIMIT_BYTES:g} bytes a sample (the limit)")
        day_mb = whole * 86400 / BLOCK_S / 1e6
        grown = growth(folders[2], [node_answers, dcgm_answers])
        print(f"memory after a chunk of {SAMPLES} samples a series: {grown:.2f} of that after the first ones")
        for number, folder in zip(arguments.nodes, folders[3:]):
            with scraping(folder, number, [node_answers[:4], dcgm_answers[:40]]) as url:
                wait(url, number * 3)
                last = used(url)
            report(number, last.series, day_mb, last.resident, grown)
        for nodes in arguments.scaled:
            factor = nodes / number
            print("scaled: ", end="")
            report(nodes, last.series * factor, day_mb, last.resident * factor, grown)
        gib = last.resident * grown * factor / 2**30
        print(f"{gib / LIMIT_GIB:.2f} of {LIMIT_GIB:g} GiB for {nodes} nodes (the limit)")


def report(nodes: int, series: float, day_mb: float, resident: float, grown: float) -> None:
    """Print a line."""
    memory = f"{resident / 2**30:.2f} GiB, {resident * grown / 2**30:.2f} GiB after two hours"
    print(f"{nodes} nodes: {series:.0f} series, {day_mb * nodes / 1e3:.2f} GB a day, {memory}", flush=True)


if __name__ == "__main__":
    main()
