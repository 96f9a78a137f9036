# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inspection stage's own listener hears what the real lldpd of a switch says. Needs root: make cabling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import sites
from machine_reports import MAC

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import lldp
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.accept import Plan
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned

WAIT_S = 120
ROOT = Path(__file__).parents[2]
# Prints what is heard on the NICs, and on one that does not exist.
LISTENS = f"""
import json, sys
sys.path.insert(0, {str(ROOT / ".collections")!r})
from {lldp.__name__} import listen
print(json.dumps(listen([*sys.argv[1:], "absent0"], 8)))
"""


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def rack():
    """A machine in a network namespace at the ports of gpu02, and an lldpd in that of each of its switches."""
    # lldpd and lldpcli drop root privileges, and only root can read pytest's directories.
    folder = Path(tempfile.mkdtemp(prefix="sailloft-lldp-"))
    folder.chmod(0o755)
    plan = planned(sites.site())
    cables = [(end, link.far(end)) for link in plan.links for end in (link.one, link.other) if end.device == "gpu02"]
    spaces = {name: f"sl{os.getpid()}-{name}" for name in ("machine", *sorted({far.device for _end, far in cables}))}
    daemons = []
    try:
        for space in spaces.values():
            run("ip", "netns", "add", space)
        for number, (_end, far) in enumerate(cables):
            peer = ("peer", "name", far.interface, "netns", spaces[far.device])
            run("ip", "link", "add", f"eth{number}", "netns", spaces["machine"], "type", "veth", *peer)
            for space, name in ((spaces["machine"], f"eth{number}"), (spaces[far.device], far.interface)):
                run("ip", "-n", space, "link", "set", name, "up")
        for name in list(spaces)[1:]:
            log, socket = (folder / f"{name}.log").open("w"), str(folder / f"{name}.socket")
            command = ["ip", "netns", "exec", spaces[name], "lldpd", "-d", "-u", socket]
            daemons.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
            for setting in (f"system hostname {name}", "lldp tx-interval 1", "lldp portidsubtype ifname"):
                end_s = time.monotonic() + WAIT_S
                command = ["lldpcli", "-u", socket, "configure", *setting.split()]
                while subprocess.run(command, capture_output=True, check=False).returncode:
                    assert time.monotonic() < end_s
                    time.sleep(0.5)
        yield spaces["machine"], plan, cables
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)
        for space in spaces.values():
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
        shutil.rmtree(folder)


def test_a_machine_without_lldpd_hears_its_switches_and_is_matched_with_its_planned_node(rack):
    space, plan, cables = rack
    names = [f"eth{number}" for number in range(len(cables))]
    end_s, heard = time.monotonic() + WAIT_S, {}
    while len(heard) < len(cables) and time.monotonic() < end_s:
        heard = json.loads(run("ip", "netns", "exec", space, sys.executable, "-c", LISTENS, *names))
    assert {name: (device, ports[0]) for name, (device, ports) in heard.items()} == {
        name: (far.device, far.interface) for name, (_end, far) in zip(names, cables)
    }
    nics = [{"neighbour": device, "ports": ports} for device, ports in heard.values()]
    assert Plan(plan).place({"mac": MAC, "nics": nics}).node == "gpu02"
