#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Roll out an image to many nodes: rollout.yml, against the usual modules with one task per step.

    benchmarks/rollout_fleet.py
    benchmarks/rollout_fleet.py --nodes 200 --delay 0.05

Stand-in nodes and their BMCs answer each round trip after a fixed time and use no processor time, because real ones do
not use the controller's processors. The boot server's store is real, in a temporary directory. Each side runs three
times: in check mode, for the rollout itself, and again without changes. The peer is peers/rollout_by_hand.yml, with the
same Ansible, forks and pipelining. It has no waves, no proof and no rollback.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from noop_converge import play
from timed import ROOT, BenchmarkError, controller_s, status

sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests/support/image")]

from build_host import make_keys
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import INITRD, boot_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.node_scripts import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

OURS = ROOT / "playbooks/rollout.yml"
PEER = ROOT / "benchmarks/peers/rollout_by_hand.yml"
URLS = ["http://127.0.0.1"]
RUNS = {"check mode": ["--check"], "rollout": [], "nothing to do": []}


def mac(number: int) -> str:
    """Return the MAC address of a node."""
    return f"52:54:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"


def report(image: Sample) -> dict[str, Any]:
    """Return the result of node_image_info on a node that runs the image; HOST stands for the node's name."""
    manifest = image.manifest
    # The node's name is its MAC address. Its first stage knows no statement, whose claims need colons there.
    words = boot_words(image.digest, ",".join(URLS), "HOST", "", "HOST")
    line = " ".join([INITRD, *manifest.kernel_arguments, *words])
    layers = [{"name": layer.name, "sha256": layer.sha256, "verity": True} for layer in manifest.layers]
    return {
        "changed": False,
        "image": image.digest,
        "reason": "",
        "report": {
            "format": "sailloft-boot/1",
            "node": "HOST",
            "image": image.digest,
            "name": manifest.name,
            "kernel": manifest.kernel.version,
            "arguments": line,
            "layers": layers,
            "server": URLS[0],
            "writable_bytes": manifest.writable_mib << 20,
            "phases": [{"name": "network", "start_s": 0.5, "end_s": 1.5}],
            "warnings": [],
            "host_keys": [],
        },
        "uptime_s": 1.0,
        "boot_id": f"{image.digest[:8]}-HOST",
        "kernel": manifest.kernel.version,
        "command_line": line,
        "arguments": list(manifest.kernel_arguments),
        "boot_arguments": [INITRD, *words],
        "host_key": "",
        "has_identity": False,
        "verity_possible": True,
        "systemd": {"state": "running", "userspace_s": 0.2, "finished_s": 0.9},
        "failed_units": [],
    }


def answers(old: Sample, new: Sample) -> dict[str, Any]:
    """Return the stand-ins' answer to each module (stand_ins/answering.py)."""
    reports = [report(old), report(new)]
    system = {"Id": "1", "PowerState": "On"}
    entries = [[{"system_uri": "/redfish/v1/Systems/1"}, system]]

    def printed(text: str) -> dict[str, Any]:
        return {"changed": True, "rc": 0, "stdout": text, "stdout_lines": text.splitlines(), "stderr": ""}

    def slurped(each: dict[str, Any]) -> dict[str, Any]:
        return {"changed": False, "content": base64.b64encode(json.dumps(each["report"]).encode()).decode()}

    return {
        "node_image_info": reports,
        "redfish_info": {"changed": False, "redfish_facts": {"system": {"entries": entries}}},
        "redfish_command": {"of": {"SetOneTimeBoot": {"changed": True}, "Power": {"changed": True, "restarts": True}}},
        "slurp": [slurped(each) for each in reports],
        "ping": {"changed": False, "ping": "pong"},
        "command": {
            "of": {
                "cmdline": [printed(each["command_line"]) for each in reports],
                "uname": [printed(each["kernel"]) for each in reports],
                "systemctl": printed(""),
                "gpu-health": printed("healthy"),
            }
        },
    }


def site(folder: Path, nodes: int) -> Sample:
    """Make the store and an inventory of nodes that run one image; return the other image, which was built."""
    old, new = (Sample("gpu-node", knows=(), gpu=driver) for driver in (b"driver 1", b"driver 2"))
    keys = make_keys(folder / "keys")
    store = Store(str(folder / "store"))
    for sample in (old, new):
        sample.publish(store, folder / "cache")
    channels.promote(store, "stable", old.digest)
    names = [mac(number).replace(":", "-") for number in range(1, nodes + 1)]
    rows = [
        {"name": name, "mac": mac(number), "channel": "stable", "servers": URLS} for number, name in enumerate(names, 1)
    ]
    ensure(store, rows, False)
    (folder / "restarted").mkdir()
    (folder / "answers.json").write_text(json.dumps(answers(old, new)), encoding="utf-8")
    variables = {
        "ansible_python_interpreter": sys.executable,
        "ansible_pipelining": True,
        "boot_server_store_dir": store.path,
        "node_image_store_dir": store.path,
        "node_image_signing_key": str(keys / "image.key"),
        "node_image_public_key": str(keys / "image.pub"),
        "node_boot_server_urls": URLS,
        "proofs_path": str(folder / "proofs"),
        "node_boot_bmc_from": "gateway",
        "node_boot_health": {"command": ["/usr/bin/gpu-health"]},
        "node_boot_bmc": {"address": "{{ inventory_hostname }}.bmc", "username": "root", "password": "none"},
        "peer_digest": new.digest,
        "peer_command_line": report(new)["command_line"],
        "peer_release": report(new)["kernel"],
    }
    stand_in = {"ansible_connection": "answering"}
    local = {"ansible_connection": "local"}
    hosts = {name: {**stand_in, "node_boot_mac": mac(number)} for number, name in enumerate(names, 1)}
    groups = {"nodes": {"hosts": hosts}, "boot_servers": {"hosts": {"boot01": local}}}
    whole = {"hosts": {"localhost": local, "gateway": stand_in}, "vars": variables, "children": groups}
    (folder / "hosts.json").write_text(json.dumps({"all": whole}), encoding="utf-8")
    return new


def side(playbook: Path, nodes: int, delay_s: float) -> dict[str, float]:
    """Run one side three times; print and return its processor time in seconds, by run."""
    used: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site(folder, nodes)
        os.environ.update(
            ANSIBLE_CONNECTION_PLUGINS=str(ROOT / "benchmarks/stand_ins"),
            ANSIBLE_CACHE_PLUGIN="memory",
            STAND_IN_FOLDER=str(folder),
            STAND_IN_DELAY_S=str(delay_s),
        )
        given = ["-i", str(folder / "hosts.json"), "-e", "node_boot_rollout_image=gpu-node"]
        for run, arguments in RUNS.items():
            (folder / "round_trips").write_text("", encoding="utf-8")
            before = controller_s()
            done = play(playbook, [*given, *arguments])
            used[run] = controller_s() - before
            trips = (folder / "round_trips").stat().st_size / nodes
            each_s = used[run] / nodes
            measured = f"{used[run]:.1f} s of processor time, {each_s:.2f} s a node, {trips:.1f} round trips a node"
            print(f"  {run:<15}{done.seconds:>8.1f} s, {measured}", flush=True)
            if run == "nothing to do" and done.changed:
                raise BenchmarkError(f"{playbook.name} changed {done.changed} things, though nothing was to be done")
        restarted = len(list((folder / "restarted").iterdir()))
        if restarted != nodes:
            raise BenchmarkError(f"{playbook.name} restarted {restarted} of {nodes} nodes")
    return used


def compare(nodes: int, delay_s: float) -> None:
    """Print both sides and their ratios. Raises BenchmarkError if a side did not complete its work."""
    print(f"{nodes} nodes, each round trip {delay_s:g} s")
    print("rollout.yml")
    mine = side(OURS, nodes, delay_s)
    print("one task a step")
    peer = side(PEER, nodes, delay_s)
    for run in RUNS:
        print(f"{run}: one task a step needs {peer[run] / mine[run]:.1f} times the processor time")


def main() -> int:
    """Run the benchmark. Return 0 if both sides completed their work, whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50, help="stand-in nodes (default 50)")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that a round trip takes (default 0.05)")
    options = parser.parse_args()
    return status(lambda: compare(options.nodes, options.delay))


if __name__ == "__main__":
    sys.exit(main())
