# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cables of a small site: real lldpd in network namespaces, and InfiniBand in ibsim. Needs root: make cabling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import sites
from ansible.module_utils.testing import patch_module_args

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    Neighbour,
    read_infiniband,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import interfaces, planned
from ansible_collections.sailloft.fleet.plugins.modules import cabling_info

# lldpd sends one message per second; a loaded machine has taken two minutes.
WAIT_S = 600


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Wired:
    """The devices of a site as network namespaces, its cables as veth pairs, and an lldpd in each device."""

    def __init__(self, site, folder):
        self.site, self.folder, self.names = site, folder, interfaces(site)
        self.space = {name: f"sl{os.getpid()}-{at}" for at, name in enumerate(site.devices)}
        self.daemons = []

    def start(self):
        for space in self.space.values():
            run("ip", "netns", "add", space)
        for cable in self.site.cables:
            self.plug(*self.ends(cable))
        for name, space in self.space.items():
            # Each has a privileged parent with its own chroot directory.
            log = (self.folder / f"{name}.log").open("w")
            command = ["ip", "netns", "exec", space, "lldpd", "-d", "-u", str(self.socket(name))]
            self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        for name in self.space:
            for setting in (f"system hostname {name}", "lldp tx-interval 1", "lldp portidsubtype ifname"):
                command = ["lldpcli", "-u", str(self.socket(name)), "configure", *setting.split()]
                self.until(
                    lambda command=command: not subprocess.run(command, capture_output=True, check=False).returncode
                )

    def ends(self, cable):
        return (
            (cable.a.name, self.names[cable.a.name, cable.a_port]),
            (cable.b.name, self.names[cable.b.name, cable.b_port]),
        )

    def socket(self, name):
        return self.folder / f"{name}.socket"

    def plug(self, one, other):
        far = ("peer", "name", other[1], "netns", self.space[other[0]])
        run("ip", "link", "add", one[1], "netns", self.space[one[0]], "type", "veth", *far)
        for device, interface in (one, other):
            run("ip", "-n", self.space[device], "link", "set", interface, "up")

    def unplug(self, end):
        run("ip", "-n", self.space[end[0]], "link", "delete", end[1])

    def until(self, check):
        end = time.monotonic() + WAIT_S
        while not check():
            assert time.monotonic() < end, "nothing came of it in time"
            time.sleep(0.5)

    def found(self, capsys):
        """Read the neighbours of all devices with the module, and compare them with the site."""
        seen = {}
        for name in self.space:
            with patch_module_args({"socket": str(self.socket(name))}), pytest.raises(SystemExit):
                cabling_info.main()
            result = json.loads(capsys.readouterr().out)
            assert "neighbours" in result, result
            seen[name] = {
                port: Neighbour(each["device"], tuple(each["ports"])) for port, each in result["neighbours"].items()
            }
        return compare(planned(self.site), seen).counts()

    def close(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(30)
        for space in self.space.values():
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


@pytest.fixture(scope="module")
def wired():
    # lldpd and lldpcli drop root privileges, and only root can read pytest's directories.
    folder = Path(tempfile.mkdtemp(prefix="sailloft-lldp-"))
    folder.chmod(0o755)
    made = Wired(sites.site(blocks__rack__count=1), folder)
    try:
        made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def test_exchanged_and_missing_cables_are_found_with_lldp(wired, capsys):
    cables = len(wired.site.cables)
    right = {"faults": [], "right": cables, "wrong": 0, "unread": 0}
    wired.until(lambda: wired.found(capsys) == right)

    # Two cables are exchanged at the leaf.
    one, other = (wired.ends(wired.site.devices[name].cables["mlx5_0"]) for name in ("gpu01", "gpu02"))
    for end, _far in (one, other):
        wired.unplug(end)
    wired.plug(one[0], other[1])
    wired.plug(other[0], one[1])
    wired.until(lambda: [fault.kind for fault in wired.found(capsys)["faults"]] == ["swapped"])
    (fault,) = wired.found(capsys)["faults"]
    assert fault.message == (
        "swap the ends of the cables gpu01 ens1f0np0 - leaf1-1 Ethernet0 and gpu02 ens1f0np0 - leaf1-1 Ethernet8 at "
        "gpu01, gpu02"
    )
    for end in (one[0], other[0]):
        wired.unplug(end)
    wired.plug(*one)
    wired.plug(*other)
    wired.until(lambda: wired.found(capsys) == right)

    # A cable is missing.
    wired.unplug(one[0])
    wired.until(lambda: [fault.kind for fault in wired.found(capsys)["faults"]] == ["missing"])
    wired.plug(*one)
    wired.until(lambda: wired.found(capsys) == right)


INFINIBAND = {
    "blocks": {"rack": {"units": 42}},
    "models": {
        "node": {"watts": 1, "ports": {"hca": {"names": "mlx5_[0:1]", "speed_gbit_s": 10}}},
        "leaf": {
            "watts": 1,
            "ports": {
                "down": {"names": "ib[1:4]", "speed_gbit_s": 10},
                "up": {"names": "ib[5:8]", "speed_gbit_s": 10},
            },
        },
    },
    "networks": {},
    "devices": {
        "node": {"model": "node", "per": "rack", "count": 3, "name": "node-{n}"},
        "leaf": {"model": "leaf", "per": "rack", "count": 2, "name": "leaf-{n}", "unit": 10},
        "spine": {"model": "leaf", "rack": "rack", "name": "spine-{n}", "unit": 20},
    },
    "links": {
        "hca": {
            "from": "node",
            "ports": "hca",
            "to": "leaf",
            "to_ports": "down",
            "medium": "copper",
            "infiniband": True,
        },
        "up": {
            "from": "leaf",
            "ports": "up",
            "to": "spine",
            "to_ports": "down",
            "each": 2,
            "medium": "copper",
            "infiniband": True,
        },
    },
    "media": {"copper": {"most_m": 5}},
    "checks": {},
}


def discovered(site, folder, cables):
    """Return what ibnetdiscover sees in ibsim of these cables, each ((device, port), (device, port))."""
    links = {}
    for one, other in cables:
        links.setdefault(one[0], []).append((one[1], other))
        links.setdefault(other[0], []).append((other[1], one))
    lines = []
    for name, ends in links.items():
        lines.append(f'{"Switch 8" if " " not in name else "Hca 1"} "{name}"')
        lines += [f'[{port}]\t"{far}"[{far_port}]' for port, (far, far_port) in sorted(ends)]
        lines.append("")
    net = folder / "net"
    net.write_text("\n".join(lines), encoding="utf-8")
    (preload,) = Path("/usr/lib").glob("*/umad2sim/libumad2sim.so")
    with (folder / "ibsim.log").open("w") as log:
        # ibsim ends when its console is closed.
        simulator = subprocess.Popen(
            ["ibsim", "-s", str(net)], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder
        )
        try:
            end = time.monotonic() + WAIT_S
            while "simulator ready" not in (folder / "ibsim.log").read_text() and time.monotonic() < end:
                time.sleep(0.5)
            host = next(name for name in links if " " in name)
            done = subprocess.run(
                ["ibnetdiscover", "-p"],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                timeout=WAIT_S,
                env={**os.environ, "LD_PRELOAD": str(preload), "SIM_HOST": host},
            )
            assert done.returncode == 0, done.stderr
            return compare(planned(site), {}, None, read_infiniband(done.stdout)).counts()
        finally:
            simulator.kill()
            simulator.wait(30)


def test_exchanged_and_missing_cables_are_found_with_infiniband(tmp_path):
    site = sites.site(**INFINIBAND)
    cables = []
    for cable in site.cables:
        one, other = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        cables.append(
            tuple(
                (device.name, int(port[2:])) if port.startswith("ib") else (f"{device.name} {port}", 1)
                for device, port in (one, other)
            )
        )
    found = discovered(site, tmp_path, cables)
    assert found == {"faults": [], "right": len(site.cables), "wrong": 0, "unread": 0}

    # The cables to the second HCAs of two nodes are exchanged.
    (a, b), (c, d) = cables[1], cables[3]
    swapped = [cables[0], (a, d), cables[2], (c, b), *cables[4:]]
    assert [fault.kind for fault in discovered(site, tmp_path, swapped)["faults"]] == ["swapped"]

    assert [fault.kind for fault in discovered(site, tmp_path, cables[1:])["faults"]] == ["missing"]
