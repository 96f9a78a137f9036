#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Render a fabric and check its paths: 1,024 switches and 8,192 hosts, against a template task for each switch.

    benchmarks/fabric.py                 # all sizes
    benchmarks/fabric.py --groups 16     # one size in this process, with its figures as JSON

A group is a two-layer Clos of 32 leaves and 32 spines. A leaf has NICs of 32 hosts and a link to each spine, and each
host has a NIC at each of two leaves. 16 groups are the whole fabric with 49,152 ports in use; 4 and 8 show the growth.

The call is that of the module roce_switch_config: the policy and all switches are read and checked, their links are
compared with each other, and everything is compiled, rendered and written to files. The path check is that of the
module roce_path_info: it does the same, but the files are read back, each NIC of each host is in the form of
roce_nic_info, each host has an application, and every part of every path is checked in both directions. Both run like
their modules, without Ansible's own part. The playbook makes the first call by `ansible-playbook
playbooks/fabric_config.yml`, and reads the inventory before. The template task renders the same lines from a template
written by hand, with given thresholds and without checks. It runs for SAMPLE switches of the same inventory with the
forks of ansible.cfg; the time of a run for one switch is subtracted, and the rest is scaled up to all switches. Times
are processor times, so that other load on the machine does not count.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timed import ROOT, controller_s

sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.buffers import lossless_bytes
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

GROUPS = 16
SIZES = (4, 8, GROUPS)
SPREAD = 32  # the number of leaves and of spines in a group, and of hosts' NICs at a leaf
SAMPLE = 64
TARGET = 50
SYSTEM = "eos"
# The lines that the system renders for one port and for the whole switch, as a user would write them.
TEMPLATE = """\
{% set classes = {26: 3, 48: 6} %}
!
qos map dscp {% for dscp in range(64) if dscp not in classes %}{{ dscp }} {% endfor %}to traffic-class 0
{% for dscp, class in classes.items() %}
qos map dscp {{ dscp }} to traffic-class {{ class }}
{% endfor %}
{% for class in (0, 3, 6) %}
qos map traffic-class {{ class }} to tx-queue {{ class }}
{% endfor %}
!
{% for speed, minimum in {400: 600000, 800: 1200000}.items() %}
qos profile roce-{{ speed }}
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   priority-flow-control pause watchdog
   priority-flow-control pause watchdog port timer timeout 0.2 polling-interval auto recovery-time 0.2
   priority-flow-control pause watchdog port action drop
   !
   uc-tx-queue 0
      no priority
      bandwidth percent 50
   !
   uc-tx-queue 3
      no priority
      bandwidth percent 50
      random-detect ecn minimum-threshold {{ minimum }} bytes maximum-threshold {{ minimum * 10 }} bytes \
max-mark-probability 100 weight 0
   !
   uc-tx-queue 6
      priority strict
!
{% endfor %}
{% for name, port in roce_switch_ports.items() %}
interface {{ name }}
   mtu 9100
   service-profile roce-{{ port.speed_gbit_s }}
!
{% endfor %}
"""
PLAY = """\
- hosts: roce_switches
  gather_facts: false
  tasks:
    - ansible.builtin.template:
        src: {folder}/switch.j2
        dest: {folder}/{{{{ inventory_hostname }}}}.cfg
        mode: "0644"
"""


def fabric(groups: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the switches and the hosts' NICs of that many groups, in the form that the module accepts."""
    switches: dict[str, Any] = {}
    hosts: dict[str, Any] = {}
    for group in range(groups):
        for number in range(SPREAD):
            leaf, spine = f"leaf-{group}-{number}", f"spine-{group}-{number}"
            down, up, ends = {}, {}, {}
            for at in range(SPREAD):
                host, nic = f"gpu-{group}-{number // 2 * SPREAD + at}", f"mlx5_{number % 2}"
                hosts.setdefault(host, {})[nic] = {"speed_gbit_s": 400, "cable_m": 3}
                down[f"Ethernet{at + 1}"] = {"speed_gbit_s": 400, "cable_m": 3, "peer": {"host": host, "port": nic}}
                up[f"Ethernet{SPREAD + at + 1}"] = {
                    "speed_gbit_s": 800,
                    "cable_m": 30,
                    "peer": {"switch": f"spine-{group}-{at}", "port": f"Ethernet{number + 1}"},
                }
                ends[f"Ethernet{at + 1}"] = {
                    "speed_gbit_s": 800,
                    "cable_m": 30,
                    "peer": {"switch": f"leaf-{group}-{at}", "port": f"Ethernet{SPREAD + number + 1}"},
                }
            switches[leaf] = {"system": SYSTEM, "asic": "tomahawk5", "ports": {**down, **up}}
            switches[spine] = {"system": SYSTEM, "asic": "tomahawk5", "ports": ends}
    return switches, hosts


def read_back(hosts: dict[str, Any]) -> dict[str, Any]:
    """Return host -> NIC -> result of roce_nic_info, for NICs with the default policy; no object is shared."""
    policy = read_policy(None)
    rdma, cnp, default = policy.classes[0], policy.cnp, policy.default
    priority = {each.traffic_class: each.priority for each in (rdma, cnp, default)}
    queues = {
        rdma.traffic_class: Queue(False, rdma.bandwidth_percent),
        cnp.traffic_class: Queue(True),
        default.traffic_class: Queue(False, default.bandwidth_percent),
    }
    nic = Nic(
        name="",
        interface="eth0",
        trust="dscp",
        dscp_to_priority=tuple(priority[each] for each in policy.dscp_to_class()),
        priority_to_class=tuple({each: at for at, each in priority.items()}.get(at, 0) for at in range(8)),
        queues=tuple(queues.get(at) for at in range(8)),
        pfc=(rdma.priority,),
        notification=(rdma.priority,),
        reaction=(rdma.priority,),
        cnp_dscp=cnp.dscp,
        cm_tos=rdma.tos,
        ip_mtu_bytes=policy.ip_mtu_bytes,
        may_mark=True,
        dcbx_by_host=True,
        priority_to_buffer=tuple(int(at == rdma.priority) for at in range(8)),
        buffer_bytes=(130944, lossless_bytes(400, 3, policy.ip_mtu_bytes), *[0] * 6),
        cable_m=3,
    )
    card: dict[str, Any] = {"cannot": {}, "gids": None, "speed_gbit_s": 400, "mac": None, "vfs": [], "vfs_unread": ""}
    text = json.dumps({**asdict(nic), **card, "uncovered": []})
    return {host: {name: {**json.loads(text), "name": name} for name in nics} for host, nics in hosts.items()}


def peak_kib() -> int:
    """Return the peak memory of this process in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def checked(switches: dict[str, Any], hosts: dict[str, Any], running: dict[str, str]) -> dict[str, Any]:
    """Return the path check's processor seconds and additional memory, and the number of parts that it checked."""
    params: dict[str, Any] = {
        "policy": {},
        "switches": switches,
        "asics": None,
        "running": running,
        "nics": read_back(hosts),
        "hosts": hosts,
        "applications": {host: [{"name": "NCCL", "tos": 106, "queue_pairs": 4}] for host in hosts},
        "paths": [],
        "rdma_class": None,
        "thresholds": True,
        "name": "fabric",
    }
    before, start = peak_kib(), time.process_time()
    gc.disable()  # as in the module
    done = report.checked(params)
    seconds = time.process_time() - start
    gc.enable()
    assert done["holds"], done["message"]
    return {"path": seconds, "path_more_mib": (peak_kib() - before) / 1024, "parts": done["parts"]}


def measure(groups: int) -> dict[str, Any]:
    """Return the processor seconds of stages, call and path check, the call's wall seconds, and the peak memory."""
    switches, hosts = fabric(groups)
    params = {"policy": {}, "switches": switches, "hosts": hosts, "asics": None}
    before = peak_kib()
    with tempfile.TemporaryDirectory() as folder:
        wall, start = time.monotonic(), time.process_time()
        done = configs.rendered({**params, "path": folder}, False, False)
        seconds, wall = time.process_time() - start, time.monotonic() - wall
        assert len(done["written"]) == len(switches)
        peak = peak_kib()
        running = {Path(name).stem: Path(name).read_text(encoding="utf-8") for name in done["written"]}
    path = checked(switches, hosts, running)
    start = time.process_time()
    specs = read_switches(switches, hosts)
    read = time.process_time()
    planned = plan(read_policy(None), specs)
    compiled = time.process_time()
    lines = sum(SYSTEMS[SYSTEM].render(switch).count("\n") for switch in planned.values())
    rendered = time.process_time()
    return {
        "switches": len(switches),
        "hosts": len(hosts),
        "ports": sum(len(switch["ports"]) for switch in switches.values()),
        "lines": lines,
        "read": read - start,
        "plan": compiled - read,
        "render": rendered - compiled,
        "seconds": seconds,
        "wall": wall,
        "both": seconds + path["path"],
        "more_mib": (peak - before) / 1024,
        "peak_mib": peak_kib() / 1024,
        **path,
    }


def inventory(folder: Path) -> Path:
    """Write the whole fabric as an inventory script, which Ansible reads fastest, and return its path."""
    switches, hosts = fabric(GROUPS)
    variables = {
        name: {f"roce_switch_{setting}": value for setting, value in switch.items()}
        for name, switch in switches.items()
    }
    variables |= {name: {"roce_host_nics": nics} for name, nics in hosts.items()}
    variables["localhost"] = {}
    for each in variables.values():
        each |= {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    data = {
        "_meta": {"hostvars": variables},
        "roce_switches": {"hosts": list(switches)},
        "all": {"hosts": list(variables)},
    }
    (folder / "inventory.json").write_text(json.dumps(data), encoding="utf-8")
    script = folder / "inventory"
    script.write_text(f"#!/bin/sh\nexec cat {folder}/inventory.json\n", encoding="utf-8")
    script.chmod(0o755)
    return script


def played(*arguments: str) -> tuple[float, float]:
    """Return the processor and wall seconds of a run of ansible-playbook, including its child processes."""
    before, wall = controller_s(), time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout.decode()[-2000:])
    return controller_s() - before, time.monotonic() - wall


def main() -> int:
    """Run the benchmark. Return 0 if everything was measured, whatever the figures are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, help="measure this size alone, here, and print it as JSON")
    options = parser.parse_args()
    if options.groups:
        print(json.dumps(measure(options.groups)))
        return 0
    found = {}
    heads = ["switches", "hosts", "ports", "read s", "plan s", "render s", "call s", "wall s", "more MiB"]
    heads += ["parts", "path s", "more MiB", "both s", "peak MiB"]
    print("".join(f"{head:>9}" for head in heads))
    for groups in SIZES:
        done = subprocess.run([sys.executable, __file__, "--groups", str(groups)], stdout=subprocess.PIPE, check=True)
        found[groups] = row = json.loads(done.stdout)
        cells = [f"{row[name]}" for name in ("switches", "hosts", "ports")]
        cells += [f"{row[name]:.2f}" for name in ("read", "plan", "render", "seconds", "wall")]
        cells += [f"{row['more_mib']:.1f}", f"{row['parts']}", f"{row['path']:.2f}", f"{row['path_more_mib']:.1f}"]
        cells += [f"{row['both']:.2f}", f"{row['peak_mib']:.1f}"]
        print("".join(f"{cell:>9}" for cell in cells), flush=True)
    whole = found[GROUPS]
    for what, name in (
        ("the call", "seconds"),
        ("the path check", "path"),
        ("the path check's memory", "path_more_mib"),
    ):
        growths = [found[groups][name] / found[SIZES[0]][name] * SIZES[0] / groups for groups in SIZES[1:]]
        print(f"{what} at 2 and 4 times the size, to linear growth: {growths[0]:.2f}, {growths[1]:.2f}")
    print(f"{whole['lines']} lines rendered, {whole['parts']} parts checked")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        script = inventory(folder)
        ours = played("-i", str(script), "playbooks/fabric_config.yml", "-e", f"fabric_path={folder}/fabric")
        (folder / "switch.j2").write_text(TEMPLATE, encoding="utf-8")
        (folder / "play.yml").write_text(PLAY.format(folder=folder), encoding="utf-8")
        play = ("-i", str(script), str(folder / "play.yml"), "--limit")
        one = played(*play, "leaf-0-0")
        many = played(*play, ",".join(f"leaf-0-{at // 2}" if at % 2 else f"spine-0-{at // 2}" for at in range(SAMPLE)))
    rest = (whole["switches"] - 1) / (SAMPLE - 1)
    theirs = [first + (sample - first) * rest for first, sample in zip(one, many)]
    print(f"the playbook: {ours[0]:.1f} s of processor, {ours[1]:.1f} s by the clock")
    print(
        f"template task: {many[0]:.1f} s of processor for {SAMPLE} switches, of that {one[0]:.1f} s for the first; "
        f"scaled to all {theirs[0]:.0f} s ({theirs[1]:.0f} s by the clock)"
    )
    for name, seconds in (
        ("one call", whole["seconds"]),
        ("the call and the path check", whole["both"]),
        ("the playbook", ours[0]),
    ):
        ratio = theirs[0] / seconds
        met = "met" if ratio >= TARGET else "not met"
        print(f"{name}: {ratio:.0f} times faster than the template task, target {TARGET}: {met}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
