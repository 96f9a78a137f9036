# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts to which playbooks are applied, as rooms of this machine: files, processes, name and network of their own.

Each room has a copy of this machine's files, of which only the changes are stored, and an address on a bridge. The
programs are those of this machine; the stand-in of molecule/monitoring for systemctl starts their units. Needs root.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from playing import ROOT, ansible_playbook

SYSTEMCTL = ROOT / "molecule/monitoring/files/systemctl"
NETWORK = "10.9.7"
# A loaded machine has taken a minute for what takes a second.
WAIT_S = 120
# room DIRECTORY PATH SETUP: all rooms see two directories beside DIRECTORY: tmp, which Ansible's files go through, and
# shared, as PATH.
ROOM = f"""set -eu
dir=$1 tmp=${{1%/*}}/tmp
hostname "${{dir##*/}}"
mkdir $dir/room
mount -t tmpfs tmpfs $dir/room
root=$dir/room/root
mkdir $dir/room/upper $dir/room/work $root
mount -t overlay overlay -o lowerdir=/,upperdir=$dir/room/upper,workdir=$dir/room/work $root
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mount -t sysfs sysfs $root/sys
mount --rbind /sys/fs/cgroup $root/sys/fs/cgroup
mount -t tmpfs tmpfs $root/run
mkdir -p $root/run/systemd/system $root$tmp $root$2
mount --bind $tmp $root$tmp
mount --bind ${{dir%/*}}/shared $root$2
install -m 755 {SYSTEMCTL} $root/usr/bin/systemctl
cp ${{dir%/*}}/hosts $root/etc/hosts
rm -f $root/etc/systemd/system/multi-user.target.wants/*
ip link set lo up
eval "$3"
# /proc is still this machine's.
read -r pid _ </proc/self/stat
echo $pid >$dir/pid.new
mv $dir/pid.new $dir/pid
# A test that is killed leaves no room behind for long. The shell waits for orphans: for libvirt, a QEMU that
# nobody waits for is alive.
exec chroot $root bash -c "sleep 7200 & wait"
"""
SPACES = "--mount --pid --net --uts --root --wd"


class Rooms:
    """The rooms by name, and their inventory: ``groups`` with the variables of all rooms.

    ``bridge``: a process in the network of the bridge "rooms", once they are started.
    ``shared``: the path of a directory that is the same one in all rooms. ``setup``: shell lines for each room before
    it is used, with its files below ``$root``. ``python``: the interpreter of Ansible's modules there.
    """

    def __init__(
        self,
        folder: Path,
        groups: dict[str, list[str]],
        shared: str,
        setup: str = "",
        python: str = "/usr/bin/python3",
        **variables: object,
    ) -> None:
        self.folder = folder
        self.python = python
        self.shared = shared
        self.setup = setup
        self.names = list(dict.fromkeys(name for names in groups.values() for name in names))
        self.holders: list[subprocess.Popen] = []
        for name in ("tmp", "shared", *self.names):
            (folder / name).mkdir(parents=True)
        rows = [f"{NETWORK}.{number} {name}" for number, name in enumerate(self.names, 11)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "\n".join(rows) + "\n")
        local = {"ansible_connection": "local"}
        of_rooms = {
            **local,
            "ansible_pipelining": True,
            "ansible_remote_tmp": str(folder / "tmp"),
            "packages_install": False,
            **variables,
        }
        # Of each host: a task that another host delegates has that one's inventory_hostname.
        own = {name: {"ansible_python_interpreter": f"{folder}/{name}/python"} for name in self.names}
        children = {group: {"hosts": {name: own[name] for name in names}} for group, names in groups.items()}
        here = {**local, "ansible_python_interpreter": sys.executable}
        whole = {"hosts": {"localhost": here}, "children": {"rooms": {"children": children, "vars": of_rooms}}}
        self.inventory = {"all": whole}

    def start(self) -> None:
        """Start the rooms, and connect them."""
        bridge = self._hold(["--net"], "echo ready; exec sleep 7200")
        bridge.stdout.readline()
        self.bridge = bridge_pid = _child(bridge.pid)
        _ip(bridge_pid, "link add rooms type bridge", "link set rooms up")
        for number, name in enumerate(self.names, 11):
            room = self.folder / name
            holder = self._hold(["--mount", "--pid", "--net", "--uts"], ROOM, name, str(room), self.shared, self.setup)
            until = time.monotonic() + WAIT_S
            while not (room / "pid").exists():
                assert holder.poll() is None, (self.folder / "rooms.log").read_text()
                assert time.monotonic() < until, (self.folder / "rooms.log").read_text()
                time.sleep(0.02)
            pid = int((room / "pid").read_text())
            python = room / "python"
            python.write_text(f'#!/bin/sh\nexec nsenter --target {pid} {SPACES} {self.python} "$@"\n')
            python.chmod(0o755)
            peer = f"link add {name} type veth peer name eth0 netns {pid}"
            _ip(bridge_pid, peer, f"link set {name} master rooms up")
            _ip(pid, f"address add {NETWORK}.{number}/24 dev eth0", "link set eth0 up")

    def _hold(self, spaces: list[str], *script: str) -> subprocess.Popen:
        with (self.folder / "rooms.log").open("ab") as log:
            holder = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", *spaces, "bash", "-c", *script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.holders.append(holder)
        return holder

    def run(self, name: str, *command: str, check: bool = True) -> str:
        """Return what a command prints in a room."""
        pid = (self.folder / name / "pid").read_text().strip()
        ran = subprocess.run(
            ["nsenter", "--target", pid, *SPACES.split(), *command],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert not check or ran.returncode == 0, f"{name}: {command}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def play(self, playbook: str, *options: str) -> tuple[int, str]:
        """Run a playbook of the project, or a file; return its status and output."""
        inventory = self.folder / "inventory.json"
        inventory.write_text(json.dumps(self.inventory))
        return ansible_playbook("-i", str(inventory), *options, str(ROOT / "playbooks" / playbook))

    def changed(self, output: str) -> dict[str, int]:
        """Return the number of changed tasks of each room in the output of a playbook."""
        rows = re.findall(r"(?m)^(\S+) +: ok=\d+ +changed=(\d+) ", output)
        return {name: int(count) for name, count in rows if name in self.names}

    def wait(self, subject: str, condition) -> None:
        """Wait until a condition holds."""
        until = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < until, f"{subject}: waited for {WAIT_S} s"
            time.sleep(0.2)

    def close(self) -> None:
        """End all rooms, with their processes and files."""
        for holder in self.holders:
            holder.kill()
            holder.wait()
        shutil.rmtree(self.folder)


def _ip(pid: int, *commands: str) -> None:
    for command in commands:
        subprocess.run(["nsenter", f"--target={pid}", "--net", "ip", *command.split()], check=True)


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
