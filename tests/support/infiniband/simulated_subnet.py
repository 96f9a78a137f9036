# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A subnet of a planned fabric in ibsim, with the real opensm and infiniband-diags on it.

ibsim gives GUIDs to nodes in the order of its net file. All programs of a subnet find its ibsim by IBSIM_SOCKNAME, so
several subnets can run at a time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import CONF
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings, together
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.read import read_fabric

# A cable: (description, port number) of both ends.
Cable = tuple[tuple[str, int], tuple[str, int]]
# A loaded machine has taken a minute for what takes 0.2 s.
WAIT_S = 600
# A test that is killed leaves no process behind.
_WITH_THE_TEST = ("setpriv", "--pdeathsig", "KILL")
# The limits of ibsim for a site with 512 nodes and 8 rails: nodes, switches, ports.
LIMITS = ("-N", "6000", "-S", "400", "-P", "60000", "-L", "30000")


def cables(fabric: Fabric) -> list[Cable]:
    """Return the cables of a fabric."""
    hcas: list[Cable] = [((str(hca), 1), (port.switch, port.number)) for hca, port in fabric.hcas.items()]
    return hcas + [((low.switch, low.number), (up.switch, up.number)) for low, up in fabric.uplinks]


def guids_of(links: list[Cable]) -> dict[str, Any]:
    """Return the GUIDs that ibsim gives, in the form of the inventory."""
    guids: dict[str, Any] = {}
    hcas = switches = 0
    for name in _ports(links):
        host, _space, device = name.partition(" ")
        if device:
            # The node's GUID is one less; each HCA has one port.
            guids.setdefault(host, {})[device] = f"0x{0x100001 + 2 * hcas:016x}"
            hcas += 1
        else:
            guids[name] = f"0x{0x200000 + switches:016x}"
            switches += 1
    return guids


def _ports(links: list[Cable]) -> dict[str, list[tuple[int, tuple[str, int]]]]:
    """Return the cabled ports of each node with their far ends; HCAs and switches in the order of their names."""
    ports: dict[str, list[tuple[int, tuple[str, int]]]] = {}
    for one, other in links:
        ports.setdefault(one[0], []).append((one[1], other))
        ports.setdefault(other[0], []).append((other[1], one))
    return {name: sorted(ports[name]) for name in sorted(ports)}


class SimulatedDiags(Diags):
    """The programs of infiniband-diags on the host of an HCA, one at a time: ibsim has 10 clients at most."""

    def __init__(self, subnet: Subnet, host: str) -> None:
        super().__init__()
        self.options = ["-t", str(WAIT_S * 100)]
        self.environment = {**subnet.environment, "SIM_HOST": host}
        self.lock = threading.Lock()

    def run(self, program: str, *arguments: str) -> str:
        """Return what a program prints."""
        with self.lock:
            return super().run(program, *arguments)


class DiedError(Exception):
    """A program of the subnet ended or stands still.

    libumad2sim sometimes crashes a manager that starts beside another one, and loses the answer that another waits for.
    """


class Subnet:
    """A running ibsim. ``slow`` are (description, port) of ports with one lane only."""

    def __init__(self, folder: Path, links: list[Cable], slow: tuple[tuple[str, int], ...] = ()) -> None:
        self.folder, self.links = folder, links
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for name, ends in _ports(links).items():
            most = 1 if " " in name else 64
            lines.append(f'{"Hca" if " " in name else "Switch"} {most} "{name}"')
            lines += [
                f'[{port}]\t"{far}"[{far_port}]{" w=1" if (name, port) in slow else ""}'
                for port, (far, far_port) in ends
            ]
            lines.append("")
        (folder / "net").write_text("\n".join(lines), encoding="utf-8")
        (preload,) = Path("/usr/lib").glob("*/umad2sim/libumad2sim.so")
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(preload),
            "IBSIM_SOCKNAME": f"sailloft-{os.getpid()}-{folder.name}",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Subnet:
        log = self.folder / "ibsim.log"
        plain = {name: value for name, value in self.environment.items() if name != "LD_PRELOAD"}
        with log.open("w") as stream:
            # ibsim ends when its console is closed.
            command = [*_WITH_THE_TEST, "ibsim", "-s", *LIMITS, str(self.folder / "net")]
            self.processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=stream, stderr=stream, cwd=self.folder, env=plain
                )
            )
        try:
            self.until(lambda: "simulator ready" in log.read_text())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait(30)

    def until(self, check: Any, limit_s: float = WAIT_S) -> None:
        """Wait until ``check`` returns true. Raises DiedError if ibsim or an opensm ends before, or after the limit."""
        end = time.monotonic() + limit_s
        while not check():
            for process in self.processes:
                if process.poll() is not None:
                    raise DiedError(f"{process.args} ended with {process.returncode}")
            if time.monotonic() > end:
                raise DiedError(f"nothing came of it in {limit_s:g} s")
            time.sleep(0.05)

    def run(self, host: str, *command: str) -> str:
        """Return what a program prints on the host of an HCA."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
            cwd=self.folder,
            env={**self.environment, "SIM_HOST": host},
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def configure(self, manager: str, files: dict[str, str], config: str) -> Path:
        """Write planned files to the manager's directory, with paths there, and return the path of opensm.conf."""
        home = self.folder / manager.split(" ")[0]
        home.mkdir(exist_ok=True)
        for name, text in files.items():
            place = home / (CONF if name == config else name)
            place.write_text(text.replace("/etc/opensm/", f"{home}/"), encoding="utf-8")
        with (home / CONF).open("a", encoding="utf-8") as stream:
            # Of a name that is there twice, opensm takes the last value.
            stream.write(f"dump_files_dir {home}\nlog_file {home}/opensm.log\nforce_log_flush TRUE\n")
        return home / CONF

    def console(self, *commands: str) -> None:
        """Give commands to ibsim, and wait until it has done them."""
        log = self.folder / "ibsim.log"
        stream = self.processes[0].stdin
        assert stream is not None
        for command in commands:
            length = len(log.read_text(errors="replace"))
            stream.write(f"{command}\n".encode())
            stream.flush()
            self.until(lambda: "sim>" in log.read_text(errors="replace")[length:])  # noqa: B023

    def readings(self, host: str, home: Path, files: dict[str, dict[str, str]]) -> SubnetReadings:
        """Return all that a proof needs, as ib_fabric_info reads it on the host of an HCA; ``home`` is the master's."""
        read, unread = read_fabric(SimulatedDiags(self, host), home, lambda _line: None, WAIT_S)
        assert unread == []
        return together({"": read})._replace(files=files)

    @contextlib.contextmanager
    def manager(self, host: str, config: Path) -> Iterator[Path]:
        """Run an opensm until the block ends; yield its directory when it is master or standby."""
        process = self._opensm(host, config)
        try:
            self.until(lambda: _settled(config.parent / "opensm.log"))
            yield config.parent
        finally:
            process.kill()
            process.wait(30)
            self.processes.remove(process)

    def sweep(self, host: str, home: Path, managers: int) -> None:
        """Let the master, of directory ``home``, sweep its subnet until it sees that many managers, itself included.

        It hears of a new manager by a trap, which ibsim loses at times.
        """
        log = home / "opensm.log"
        while self.run(host, "saquery", "SMIR").count("SMInfoRecord dump") != managers:
            sweeps = log.read_text(errors="replace").count("SUBNET UP")
            master = next(process for process in self.processes if str(home) in str(process.args))
            master.send_signal(signal.SIGHUP)
            self.until(lambda: log.read_text(errors="replace").count("SUBNET UP") > sweeps)  # noqa: B023

    def _opensm(self, host: str, config: Path) -> subprocess.Popen[bytes]:
        with (config.parent / "opensm.out").open("w") as stream:
            process = subprocess.Popen(
                [*_WITH_THE_TEST, "opensm", "-F", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=self.folder,
                # opensm keeps GUIDs and LIDs there; each manager has its own.
                env={**self.environment, "SIM_HOST": host, "OSM_CACHE_DIR": str(config.parent)},
            )
        self.processes.append(process)
        return process


def _settled(log: Path) -> bool:
    text = log.read_text(errors="replace") if log.is_file() else ""
    return "SUBNET UP" in text or "Entering STANDBY" in text
