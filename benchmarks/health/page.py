#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make the page of a fleet of 5,000 nodes from its blueprint, against the limits of 10 s and 3 MB.

    benchmarks/health/page.py [--nodes 5000]

The fleet is made up: racks of 4 nodes, a leaf for each rail and 32 nodes, spines, one node in 23 with a fault, and the
proof of its fabric. Measured are the expansion of the blueprint, the states, the lines and the page, in processor time,
so that other load does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / path) for path in (".collections", "tests/support/health", "tests/support/site")]

from fleets import fleet

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.page import fleet_page

LIMIT_S, LIMIT_MB = 10.0, 3.0


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    nodes = parser.parse_args().nodes
    start = time.process_time()
    look, floor = fleet(nodes, time.time())
    lines = look.lines()
    page = fleet_page(look, floor, "fleet", "../proofs")
    seconds, megabytes = time.process_time() - start, len(page.encode()) / 1e6
    print(f"{nodes} nodes, {len(lines)} lines: {look.summary}")
    print(f"time {seconds:.1f} s, {seconds / LIMIT_S:.2f} of {LIMIT_S:g} s (the limit)")
    print(f"page {megabytes:.2f} MB, {megabytes / LIMIT_MB:.2f} of {LIMIT_MB:g} MB (the limit)")
    if seconds > LIMIT_S or megabytes > LIMIT_MB:
        sys.exit("a limit is exceeded")


if __name__ == "__main__":
    main()
