# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each recording of the tools gives the verdict of its manifest, with the healthy one as the earlier reading."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path

import ib_sites
import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import read_counters
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import table
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
TOOLS = Path(ORIGINALS or "/") / "health/infiniband/tools"
pytestmark = pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")

NODE03 = "node03 mlx5_0 - leaf-r1 ib3"
# Links, part and checks of each fault.
FAULTS = {
    "healthy": [],
    "local-port-errors": [
        (
            "node01 mlx5_0 - leaf-r1 ib1",
            "switch",
            ["port_buffer_overruns", "port_integrity_errors", "port_link_downs", "port_symbol_errors"],
        )
    ],
    "node02-slow-edr": [("node02 mlx5_0 - leaf-r1 ib2", "cable", ["port_rate"])],
    "node04-unplugged": [("node04", "cable", ["port_down"])],
    "symbol-errors-link-downed": [(NODE03, "cable", ["port_link_downs", "port_symbol_errors"])],
}


def recorded_plan():
    """Return the plan of the recorded fabric: 4 nodes, a leaf with two up links, 2 spines, HDR."""
    tree = copy.deepcopy(ib_sites.TREE)
    tree["blocks"]["rack"]["count"] = 1
    for model in tree["models"].values():
        for ports in model["ports"].values():
            ports["speed_gbit_s"] = 200
    tree["models"]["node"]["ports"]["hca"]["names"] = "mlx5_[0:0]"
    tree["models"]["leaf"]["ports"]["down"]["names"] = "ib[1:4]"
    tree["models"]["leaf"]["ports"]["up"]["names"] = "ib[7:8]"
    tree["models"]["spine"]["ports"]["down"]["names"] = "ib[1:1]"
    tree["devices"]["node"].update(count=4, name="node{n:02}")
    tree["devices"]["leaf"].update(count=1, name="leaf-r{rack}")
    tree["media"]["copper"]["most_m"] = 50
    return plan(sites.site(**tree), "compute", {}, {})


def port_lines(text):
    """Return a topology of ibnetdiscover in the form of ``ibnetdiscover -p``."""
    lines, near = [], ""
    for line in text.splitlines():
        if head := re.match(r'(Switch|Ca)\s+\d+ ".*"\s+# "(.*?)"', line):
            kind, near = ("SW", head[2]) if head[1] == "Switch" else ("CA", head[2])
        elif port := re.match(r'\[(\d+)\].*"([SH])-.*"\[(\d+)\].*"(.*)" lid (\d+) (\d+x)(\w+)$', line):
            number, far_kind, far, name, lid, width, speed = port.groups()
            far_text = f"{'SW' if far_kind == 'S' else 'CA'} {lid} {far} 0x1 ( '{near}' - '{name}' )"
            lines.append(f"{kind} 1 {number} 0x1 {width} {speed} - {far_text}\n")
    return "".join(lines)


@pytest.mark.parametrize("name", FAULTS)
def test_a_recording_gives_its_faults_and_no_others(name):
    earlier = read_counters((TOOLS / "healthy/ibqueryerrors.txt").read_text(), 0)
    later = read_counters((TOOLS / name / "ibqueryerrors.txt").read_text(), 3600)
    result = table(recorded_plan(), port_lines((TOOLS / name / "ibnetdiscover.txt").read_text()), earlier, later)
    found = [(fault["links"], fault["part"], fault["checks"]) for fault in result.faults]
    normal = [
        ([" - ".join(sorted(link.split(" - "))) for link in links], part, checks) for links, part, checks in found
    ]
    assert normal == [([" - ".join(sorted(link.split(" - ")))], part, checks) for link, part, checks in FAULTS[name]]


def test_every_recording_has_its_verdict():
    assert {folder.name for folder in TOOLS.iterdir()} == {*FAULTS}
