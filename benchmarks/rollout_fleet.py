#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Roll out an image to many nodes: rollout.yml, against its goal, the version before, and the usual modules.

    benchmarks/rollout_fleet.py                                  # 50 nodes
    benchmarks/rollout_fleet.py --nodes 50 1000 10000            # also the ratio of the cost of a node
    benchmarks/rollout_fleet.py --peer                           # against the usual modules, one task a step
    benchmarks/rollout_fleet.py --real                           # 20 nodes with real SSH and Redfish

Each run is in check mode, then the rollout itself, then again without changes.

Without --real, nodes and BMCs are stand-ins that answer each round trip after a fixed time and use no processor time,
because real ones do not use the controller's processors; what ssh and the Redfish client cost the controller is not in
it. The boot server's store, the statement, the proofs and all of Ansible are real, in a temporary directory.

With --real, each node is a directory that sshd, on the loopback, shows as the node's files; ssh, the Redfish client and
the emulator of sushy-tools are real, the boots are not. It needs root, and sshd and its user (Debian: openssh-server).

The peer is peers/rollout_by_hand.yml, with the same Ansible, forks and pipelining. It has no waves, no proof and no
rollback.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from noop_converge import play
from timed import ROOT, BenchmarkError, controller_s, status

sys.path[:0] = [str(ROOT / ".collections"), *(str(ROOT / "tests/support" / name) for name in ("image", "roles", ""))]

from build_host import make_keys
from fleet_site import Fleet
from image_samples import Sample
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import INITRD, boot_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.node_scripts import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

OURS = ROOT / "playbooks/rollout.yml"
PEER = ROOT / "benchmarks/peers/rollout_by_hand.yml"
URLS = ["http://127.0.0.1"]
SSHD_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
RUNS = {"check mode": ["--check"], "rollout": [], "nothing to do": []}
# The goal, and what one task a host a step cost (commit a4d1478a, 50 nodes), in seconds of processor time a node; how
# much more than at 1,000 nodes a node may cost at 10,000; and the memory of the largest process in MiB.
GOAL_S, GOAL_RATIO, GOAL_MIB = 0.1, 1.1, 1024
BEFORE_S = {"check mode": 0.44, "rollout": 1.32, "nothing to do": 0.32}


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
            before = controller_s()
            done = play(playbook, [*given, *arguments])
            used[run] = controller_s() - before
            print_run(run, done.seconds, used[run], nodes)
            if run == "nothing to do" and done.changed:
                raise BenchmarkError(f"{playbook.name} changed {done.changed} things, though nothing was to be done")
        restarted = len(list((folder / "restarted").iterdir()))
        if restarted != nodes:
            raise BenchmarkError(f"{playbook.name} restarted {restarted} of {nodes} nodes")
    return used


def print_run(run: str, seconds: float, used_s: float, nodes: int) -> None:
    """Print what one run took, and its ratios to the goal and to the version before."""
    node_s = used_s / nodes
    ratios = f"{node_s / GOAL_S:.2f} of the goal, {node_s / BEFORE_S[run]:.3f} of the version before"
    print(
        f"  {run:<15}{seconds:>8.1f} s, {used_s:.1f} s of processor time, {node_s:.4f} s a node: {ratios}", flush=True
    )


def largest_mib() -> float:
    """Return the memory of the largest process that has ended, in MiB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def compare(counts: list[int], delay_s: float, peer: bool) -> None:
    """Print the runs, and their ratios. Raises BenchmarkError if a side did not complete its work."""
    used: dict[int, dict[str, float]] = {}
    for nodes in counts:
        print(f"{nodes} stand-in nodes, each round trip {delay_s:g} s; rollout.yml")
        used[nodes] = side(OURS, nodes, delay_s)
        print(f"  the largest process: {largest_mib():.0f} MiB, {largest_mib() / GOAL_MIB:.2f} of the goal", flush=True)
    for run in RUNS if {1000, 10000} <= set(used) else ():
        ratio = used[10000][run] / used[1000][run] / 10
        print(f"{run}: a node of 10,000 costs {ratio:.2f} times one of 1,000; the goal is at most {GOAL_RATIO}")
    if peer:
        nodes = counts[0]
        print(f"{nodes} stand-in nodes, one task a step")
        theirs = side(PEER, nodes, delay_s)
        for run in RUNS:
            print(f"{run}: one task a step needs {theirs[run] / used[nodes][run]:.1f} times the processor time")


class SshFleet(Fleet):
    """The tests' fleet, but its nodes are reached by ssh: a key for each, whose command enters the node."""

    def __init__(self, folder: Path, nodes: list[str], options: str) -> None:
        """Make the nodes, and start their sshd."""
        self.options, self.ssh_port = options, free_port()
        super().__init__(folder, nodes)
        keys = []
        for name in ("host", *nodes):
            key = folder / f"key-{name}"
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            public = Path(f"{key}.pub").read_text(encoding="utf-8").strip()
            node = folder / name
            inside = f"[ -e {node}/up ] && exec unshare --mount --propagation private sh {folder}/enter {node} "
            keys += [f'command="{inside}\\"$SSH_ORIGINAL_COMMAND\\"" {public}'] if name != "host" else []
        (folder / "authorized").write_text("\n".join(keys) + "\n", encoding="utf-8")
        settings = {
            "Port": self.ssh_port,
            "ListenAddress": "127.0.0.1",
            "HostKey": folder / "key-host",
            "AuthorizedKeysFile": folder / "authorized",
            "StrictModes": "no",
            "PidFile": "none",
            "MaxStartups": 200,
        }
        (folder / "sshd").write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        with (folder / "sshd.log").open("w", encoding="utf-8") as log:
            command = [shutil.which("sshd", path=SSHD_PATH) or "sshd", "-D", "-e", "-f", str(folder / "sshd")]
            self.sshd = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _inventory(self) -> None:
        super()._inventory()
        path = self.folder / "hosts.yml"
        whole = json.loads(path.read_text(encoding="utf-8"))
        known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -F none"
        for name, variables in whole["all"]["children"]["nodes"]["hosts"].items():
            variables.update(
                ansible_connection="ssh",
                ansible_host="127.0.0.1",
                ansible_port=self.ssh_port,
                ansible_user="root",
                ansible_ssh_private_key_file=str(self.folder / f"key-{name}"),
                ansible_ssh_common_args=f"{known} {self.options}".strip(),
            )
        whole["all"]["vars"].update(node_boot_timeout_s=600, node_boot_restart_timeout_s=120)
        path.write_text(json.dumps(whole), encoding="utf-8")

    def stop(self) -> None:
        """End sshd and the BMC."""
        self.sshd.terminate()
        self.sshd.wait()
        super().stop()


def real(nodes: int, options: str) -> None:
    """Print the runs with real SSH and a real Redfish client. Raises BenchmarkError."""
    if os.geteuid() != 0 or not shutil.which("sshd", path=SSHD_PATH):
        raise BenchmarkError("real SSH needs root and sshd (Debian: openssh-server)")
    how = f" {options}" if options else ""
    print(f"{nodes} nodes with real ssh{how} and Redfish; the boots are stand-ins; rollout.yml")
    with tempfile.TemporaryDirectory() as name:
        fleet = SshFleet(Path(name), [f"bm{number:02}" for number in range(1, nodes + 1)], options)
        try:
            fleet.wait()
            given = ["-i", str(fleet.folder / "hosts.yml"), "-e", "node_boot_rollout_image=gpu-node"]
            os.environ.update(FLEET=str(fleet.folder))
            for run, arguments in RUNS.items():
                before = controller_s()
                done = play(OURS, [*given, *arguments])
                print_run(run, done.seconds, controller_s() - before, nodes)
            if set(fleet.runs().values()) != {"new"}:
                raise BenchmarkError("not all nodes run the new image")
        finally:
            fleet.stop()


def main() -> int:
    """Run the benchmark. Return 0 if all runs completed their work, whatever the ratios are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[50], help="stand-in nodes (default 50)")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that a round trip takes (default 0.05)")
    parser.add_argument(
        "--peer", action="store_true", help="also run the usual modules, with the first number of nodes"
    )
    parser.add_argument(
        "--real", type=int, nargs="?", const=20, default=0, help="nodes with real SSH (default 20, at most 99)"
    )
    parser.add_argument("--ssh-options", default="", help="options of ssh, such as -oKexAlgorithms=curve25519-sha256")
    options = parser.parse_args()
    if options.real:
        return status(lambda: real(options.real, options.ssh_options))
    return status(lambda: compare(options.nodes, options.delay, options.peer))


if __name__ == "__main__":
    sys.exit(main())
