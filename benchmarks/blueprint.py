#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare a blueprint with a static YAML inventory for 100, 1,000 and 10,000 nodes, and measure a site's whole plan.

    benchmarks/blueprint.py                   # all sizes; the static inventory of 10,000 nodes takes minutes
    benchmarks/blueprint.py --static 1000     # static inventories of up to that many nodes
    benchmarks/blueprint.py --plan 10000      # the plan of one size in this process, with its figures as JSON

A site has pods of 128 nodes in 4 units of 32, each node with 8 RoCE ports on a rail-optimised fabric of leaves, spines
and cores, like inventories/blue_vela. Both sides run `ansible-inventory --host`, which reads the inventory and prints
one host. The static inventory has the same groups, hosts and variables, written by PyYAML in its short form. The whole
plan is made in one process: blueprint, inventory, the RoCE configuration of all switches, boot data, cables, checks and
all files. Times are processor times, so that other load on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.site import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import ANSIBLES, load

SIZES = (100, 1000, 10000)
SECONDS_MAX, MIB_MAX = 60, 2048
TEXT = """\
plugin: sailloft.fleet.blueprint
site: bench
floor: {{racks_per_row: 72}}
blocks:
  pod: {{count: {pods}}}
  network: {{inside: pod, count: 4, units: 48}}
  su: {{inside: pod, count: 4}}
  rack: {{inside: su, count: 8, units: 48}}
models:
  node: {{units: 6, watts: 10000, ports: {{nic: {{names: "mlx5_[0:7]", speed_gbit_s: 400}}}}}}
  leaf:
    units: 1
    watts: 1500
    ports:
      down: {{names: "Ethernet[1:32]", speed_gbit_s: 400}}
      up: {{names: "Ethernet[33:64]", speed_gbit_s: 400}}
  core: {{units: 1, watts: 1500, ports: {{down: {{names: "Ethernet[1:{core_ports}]", speed_gbit_s: 400}}}}}}
networks:
  management: {{network: 10.0.0.0/16, gateway: 1}}
  rail: {{network: 10.16.0.0/16, count: 8}}
devices:
  nodes:
    model: node
    per: rack
    count: 4
    total: {nodes}
    name: "node-{{n:05}}"
    addresses: {{management: 1001, rail: {{first: 1, ports: nic}}}}
    vars: {{ansible_user: root}}
  leaf:
    model: leaf
    per: su
    count: 8
    rack: rack
    unit: 46
    name: "leaf-{{su:03}}-{{i}}"
    groups: [roce_switches]
    addresses: {{management: 20001}}
    vars: &switch {{roce_switch_system: eos, roce_switch_asic: tomahawk5}}
  spine:
    model: leaf
    per: pod
    count: 32
    rack: network
    name: "spine-{{pod:02}}-{{i:02}}"
    groups: [roce_switches]
    addresses: {{management: 30001}}
    vars: *switch
  core:
    model: core
    count: {cores}
    rack: network
    unit: 20
    name: "core-{{i:04}}"
    groups: [roce_switches]
    addresses: {{management: 40001}}
    vars: *switch
  boot_servers:
    model: core
    per: pod
    rack: network
    unit: 47
    name: "boot-{{n:02}}"
    serves: management
    addresses: {{management: 50001}}
links:
  rails: {{from: nodes, ports: nic, to: leaf, to_ports: down, medium: ndr-mmf, fabric: compute, roce: true}}
  up: {{from: leaf, ports: up, to: spine, to_ports: down, each: 8, planes: 8, medium: smf, fabric: compute, roce: true}}
  top:
    {{from: spine, ports: up, to: core, to_ports: down, each: {each}, planes: 32, medium: smf, fabric: compute,
      roce: true}}
checks:
  compute: {{oversubscription: 1, survives: [nic, leaf, spine, core], rail_aligned: true}}
"""


def blueprint(nodes: int) -> str:
    """Return the blueprint of a site with that many nodes.

    The 32 uplinks of a spine go to the cores of its plane: to few with many cables each, to more where there are too
    many pods for a core's 128 ports of 400 Gbit/s.
    """
    pods = -(-nodes // 128)
    each = 32
    while each * pods > 128:
        each //= 2
    return TEXT.format(pods=pods, nodes=nodes, each=each, cores=32 * 32 // each, core_ports=pods * each)


def site_of(text: str) -> Any:
    """Return the site of a blueprint's text."""
    data, source = load(text, "blueprint.yml")
    return expand(read({name: value for name, value in data.items() if name not in ANSIBLES}, source))


def peak_mib() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def planned(nodes: int) -> dict[str, Any]:
    """Return the processor seconds of each step of the whole plan, and the memory of this process."""
    start = last = time.process_time()
    steps = {}

    def step(name: str) -> None:
        nonlocal last
        now = time.process_time()
        steps[name], last = now - last, now

    site = site_of(blueprint(nodes))
    step("expand")
    made = inventory(site)
    step("inventory")
    own = {name: {**made["groups"][host["group"]]["vars"], **host["vars"]} for name, host in made["hosts"].items()}
    switches = {
        name: {key: each[f"roce_switch_{key}"] for key in ("system", "asic", "ports")}
        for name, each in own.items()
        if "roce_switch_ports" in each
    }
    hosts = {name: each.get("roce_host_nics") for name, each in own.items()}
    with tempfile.TemporaryDirectory() as folder:
        params = {"policy": {}, "switches": switches, "hosts": hosts, "asics": None, "path": folder}
        done = configs.rendered(params, False, False)
        step("switches")
        files = plan(site)
        step("checks and files")
        for name, text in files["files"].items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        step("written")
    assert len(done["written"]) == len(switches)
    assert files["findings"] == [], files["findings"]
    return {
        "nodes": nodes,
        "devices": len(site.devices),
        "cables": len(site.cables),
        **steps,
        "seconds": time.process_time() - start,
        "peak_mib": peak_mib(),
    }


def static(nodes: int, file: Path) -> None:
    """Write a static inventory with the same content."""
    site = site_of(blueprint(nodes))
    made = inventory(site)
    groups: dict[str, Any] = {}
    for name, each in made["groups"].items():
        group: dict[str, Any] = {"children": {child: {} for child in each["children"]}, "vars": each["vars"]}
        groups[name] = {key: value for key, value in group.items() if value}
    for name, host in made["hosts"].items():
        groups[host["group"]].setdefault("hosts", {})[name] = host["vars"]

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """A dumper that writes no anchors, because no user writes them for a host."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    with file.open("w", encoding="utf-8") as stream:
        yaml.dump({"all": {"children": groups}}, stream, Dumper, sort_keys=False, width=1000)


def seconds(source: Path, host: str) -> tuple[float, float]:
    """Return processor seconds and peak MiB of reading an inventory."""
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(source), "--host", host]
    # Each inventory is read in a separate process, because the peak of children is that of the largest one.
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"},
    )
    used, peak = done.stdout.split()
    return float(used), float(peak)


def main() -> int:
    """Run the benchmark. Return 0 if everything was measured, whatever the figures are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plan", type=int, help="plan a site of this size here, and print the figures as JSON")
    parser.add_argument("--static", type=int, default=SIZES[-1], help="static inventories up to this size")
    options = parser.parse_args()
    if options.plan:
        print(json.dumps(planned(options.plan)))
        return 0
    ours: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for nodes in SIZES:
            described = folder / "blueprint.yml"
            described.write_text(blueprint(nodes), encoding="utf-8")
            ours[nodes], peak = seconds(described, "node-00001")
            print(f"{nodes} nodes, blueprint: {ours[nodes]:.2f} s, {peak:.0f} MiB", flush=True)
            if nodes <= options.static:
                listed = folder / "static.yml"
                static(nodes, listed)
                theirs, peak = seconds(listed, "node-00001")
                size = listed.stat().st_size / 1e6
                print(f"{nodes} nodes, static YAML of {size:.1f} MB: {theirs:.2f} s, {peak:.0f} MiB")
                print(f"{nodes} nodes: {theirs / ours[nodes]:.1f} times faster, target 1", flush=True)
    more = (ours[SIZES[2]] - ours[SIZES[0]]) / (ours[SIZES[1]] - ours[SIZES[0]])
    linear = (SIZES[2] - SIZES[0]) / (SIZES[1] - SIZES[0])
    print(f"from 1,000 to 10,000 nodes, to linear growth: {more / linear:.2f}")
    row = None
    for nodes in SIZES:
        done = subprocess.run([sys.executable, __file__, "--plan", str(nodes)], stdout=subprocess.PIPE, check=True)
        row = json.loads(done.stdout)
        print("plan: " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()), flush=True)
    assert row
    for what, value, limit in (("s", row["seconds"], SECONDS_MAX), ("MiB", row["peak_mib"], MIB_MAX)):
        print(f"{SIZES[-1]} nodes: {value:.0f} {what}, target {limit}: {'met' if value < limit else 'not met'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
