#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan and prove the compute fabric of Blue Vela, beside the time that opensm itself takes to route it.

The peer is the real opensm, in ibsim: it discovers, configures and routes 512 nodes (4,096 HCAs on 8 rails) with ftree.
Plan and proof of the same fabric, from its dumps and the output of ibnetdiscover, are made in this process. Times are
processor times, so that other load does not count: opensm's until the end of its first sweep, without ibsim's. What
ftree takes of it is the elapsed time between two lines of opensm's log. P_Keys are not read, because ibsim answers one
program at a time.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timed import ROOT, status

for folder in (".collections", "tests/support", "tests/support/infiniband", "tests/support/site"):
    sys.path.insert(0, str(ROOT / folder))

import ib_sites
import simulated_subnet

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.read import DUMP_FILES

MASTER = "node-0001 mlx5_0"
SETTINGS = {"managers": [MASTER], "partitions": {"jobs": {"pkey": 1, "members": {"nodes": "full"}}}}
TARGET = 1.0


def processor_s(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time that a function takes, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def process_s(number: int) -> float:
    """Return the processor time that another process has taken (proc(5), utime and stime)."""
    fields = Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def routing_s(log: str) -> float:
    """Return the time from the first line of ftree to its tables, in opensm's log; nan without both."""
    lines = re.findall(r"(\d\d):(\d\d):(\d\d) (\d+) .*(General fabric topology info|ftree tables configured)", log)
    times = {text: int(h) * 3600 + int(m) * 60 + int(s) + int(micro) / 1e6 for h, m, s, micro, text in lines}
    return times.get("ftree tables configured", math.nan) - times.get("General fabric topology info", math.nan)


def compare() -> None:
    """Print the times of plan and proof, and their ratio to opensm's."""
    site = ib_sites.blue_vela()
    cables = simulated_subnet.cables(fabric_of(site, "compute"))
    guids = simulated_subnet.guids_of(cables)
    plan_s, planned = processor_s(lambda: plan(site, "compute", SETTINGS, guids))
    with (
        tempfile.TemporaryDirectory() as folder,
        simulated_subnet.Subnet(Path(folder) / "subnet", cables) as subnet,
        subnet.manager(MASTER, subnet.configure(MASTER, planned.files, "opensm-node-0001.conf")) as home,
    ):
        opensm_s = process_s(subnet.processes[-1].pid)
        links, forwarding, order = ((home / name).read_text() for name in DUMP_FILES.values())
        log = (home / "opensm.log").read_text(errors="replace")
        found = subnet.run(MASTER, "ibnetdiscover", "-p")
    prove_s, proof = processor_s(lambda: prove(planned, SubnetReadings(found, links, forwarding, order, log)))
    failed = [str(claim) for claim in proof.claims if claim.layer == "routes" and claim.holds is not True]
    if failed:
        raise SystemExit(f"the proof fails: {failed[0]}")
    print(
        f"Blue Vela, {len(planned.fabric.hcas)} HCAs: plan {plan_s:.2f} s, proof {prove_s:.2f} s; "
        f"opensm {opensm_s:.2f} s"
    )
    print(f"    ftree alone, elapsed: {routing_s(log):.2f} s")
    ratio = (plan_s + prove_s) / opensm_s
    verdict = "met" if ratio <= TARGET else "not met"
    print(f"    plan and proof / opensm: {ratio:.2f}, target at most {TARGET:g}: {verdict}")


if __name__ == "__main__":
    sys.exit(status(compare))
