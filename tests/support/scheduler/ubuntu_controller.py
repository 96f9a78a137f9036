# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The slurmctld of Ubuntu 24.04, in a root of its own, for emulated nodes: it must not be older than their slurmd.

The planned files are used as they are. Needs root, for mmdebstrap; the root is cached.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from boot_network import SERVER, Network, address_of
from patience import scaled_s
from user_cache import user_cache

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import NodeState, changes, read_nodes

ARCHIVE = "http://archive.ubuntu.com/ubuntu"
KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
PACKAGES = "slurmctld,slurm-client,munge"


def _ubuntu() -> Path:
    """Return a root with Ubuntu's slurmctld, which the first call makes."""
    root = user_cache("slurm-noble") / "root"
    if not root.exists():
        new = root.with_name("new")
        shutil.rmtree(new, ignore_errors=True)
        new.parent.mkdir(parents=True, exist_ok=True)
        sources = [f"deb {ARCHIVE} {suite} main universe" for suite in ("noble", "noble-updates")]
        options = ["--quiet", "--mode=root", "--variant=minbase", f"--include={PACKAGES}", f"--keyring={KEYRING}"]
        options += ["--aptopt=Apt::Install-Recommends false"]
        subprocess.run(["mmdebstrap", *options, "noble", new, *sources], check=True)
        new.rename(root)
    return root


class UbuntuController:
    """slurmctld and munged in a network, as the host ``name`` at SERVER; ``nodes`` are those of the network."""

    def __init__(self, network: Network, name: str, nodes: Iterable[str], files: Mapping[str, str]) -> None:
        self.network, self.name, self.root = network, name, network.folder / "controller"
        subprocess.run(["cp", "-a", _ubuntu(), self.root], check=True)
        hosts = [f"{SERVER} {name}", *(f"{address_of(number)} {node}" for number, node in enumerate(nodes, 1))]
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{line}\n" for line in hosts))
        self.key = os.urandom(96).hex()
        key = self.root / "etc/munge/munge.key"
        key.unlink(missing_ok=True)
        key.write_text(self.key)
        for path in ("run/munge", "var/log/slurm", "var/lib/slurm/slurmctld"):
            (self.root / path).mkdir(parents=True, exist_ok=True)
        self._own("munge", "etc/munge/munge.key", "run/munge")
        self._own("slurm", "var/log/slurm", "var/lib/slurm", "var/lib/slurm/slurmctld")
        key.chmod(0o400)
        for file, text in files.items():
            (self.root / "etc/slurm" / file).write_text(text)
        # The nodes' name server; the role's has none.
        dns = ["dnsmasq", "--conf-file=/dev/null", "--no-daemon", "--no-resolv", "--no-hosts", "--bind-interfaces"]
        dns += [f"--listen-address={SERVER}", f"--addn-hosts={self.root}/etc/hosts", "--pid-file="]
        network.start(dns, network.folder / "dns.log")
        self._start("munge", "/usr/sbin/munged", "--foreground")
        self.wait("munged", (self.root / "run/munge/munge.socket.2").exists, 60)
        self._start("slurm", "/usr/sbin/slurmctld", "-D")
        self.wait("slurmctld", lambda: "is UP" in self.run("scontrol", "ping", check=False), 120)

    def _own(self, user: str, *paths: str) -> None:
        subprocess.run(["chroot", self.root, "chown", f"{user}:", *(f"/{path}" for path in paths)], check=True)

    def _inside(self, *command: str, user: str = "root") -> list[str | Path]:
        """Return the command to run in root and network, as a user of this machine and not of the network's space."""
        entered = ["nsenter", f"--target={self.network.holder.pid}", "--net", "unshare", "--uts", "sh", "-c"]
        # slurmctld compares its host's name with the planned one.
        return [
            *entered,
            'hostname "$0" && exec chroot "$@"',
            self.name,
            f"--userspec={user}:{user}",
            self.root,
            *command,
        ]

    def _start(self, user: str, *command: str) -> None:
        with (self.network.folder / f"{user}.log").open("wb") as log:
            process = subprocess.Popen(self._inside(*command, user=user), stdout=log, stderr=log)
        self.network.started.append(process)

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a program of Slurm prints."""
        ran = subprocess.run(self._inside(*command), capture_output=True, text=True, timeout=300, check=False)
        assert not check or ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def states(self) -> dict[str, NodeState]:
        """Return the state of each node."""
        return read_nodes(self.run("scontrol", "show", "node", "--oneliner"))

    def release(self, spares: Collection[str], *proved: str) -> list[str]:
        """Do what the module slurm_release does; return the nodes that it changed."""
        made = changes(self.states(), proved, spares)
        for change in made:
            self.run("scontrol", "update", *change.arguments)
        return [change.node for change in made]

    def wait(self, subject: str, condition: Callable[[], bool], wait_s: float) -> None:
        """Wait until a condition holds."""
        begun = time.monotonic()
        while not condition():
            waited_s = time.monotonic() - begun
            assert waited_s < scaled_s(wait_s), f"{subject}: waited for {waited_s:.0f} s\n{self.log()}"
            time.sleep(1)

    def log(self) -> str:
        """Return the end of slurmctld's log."""
        path = self.root / "var/log/slurm/slurmctld.log"
        return path.read_text(errors="replace")[-6000:] if path.exists() else ""
