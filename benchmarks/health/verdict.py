#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print a node's verdict, against an empty Python program and node-problem-detector's 5 s for a plugin.

    benchmarks/health/verdict.py [--calls 20]

The state is that of a node with 8 GPUs, each with a fault and 40 values. Processor time of the program as it is
installed, from its zip with bytecode; both sides alternate. tests/hardware/health.py measures whole rounds.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections")]

from ansible_collections.sailloft.fleet.plugins.module_utils.health import main as command
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition, Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Place
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive

LIMIT_S = 5.0


def node() -> state.State:
    """Return the state of a node after a round of now."""
    now = state.moment()
    gpus = [Place("gpu", f"0000:{number:02x}:00.0") for number in range(8)]
    faults = tuple(
        Fault("pcie_width", gpu, "PCIe link narrower than planned", "hardware", "drain", "pcie-link-degraded", now, now)
        for gpu in gpus
    )
    checks = {f"check_{number}": state.Tally(8, 0, 0, now) for number in range(100)}
    values = {f"value_{number}": {str(gpu): float(number) for gpu in gpus} for number in range(40)}
    return state.State("gpu-001", state.Round(1, now, 1.0, 60.0), Condition(faults), checks, values)


def processor_s(argv: list[str]) -> float:
    """Run a program and return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "health.pyz")
        code.write_bytes(archive.build(command.__name__, with_bytecode=True))
        state.save(node(), folder)
        verdict = [sys.executable, str(code), "--state", folder, "--format", "npd"]
        empty = [sys.executable, "-c", "pass"]
        pairs = [(processor_s(verdict), processor_s(empty)) for _call in range(calls)]
    ours, python = (sorted(side)[calls // 2] for side in zip(*pairs))
    print(f"verdict {ours * 1000:.0f} ms of processor time, {ours / python:.1f} of an empty Python program")
    print(f"{ours / LIMIT_S:.3f} of {LIMIT_S:g} s (the limit)")


if __name__ == "__main__":
    main()
