# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A boot server's dnsmasq and its clients, each in its own network namespace, connected by a cable."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_plan

DNSMASQ = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/sbin")
CLIENTS = Path(__file__).with_name("dhcp_clients.py")
SERVER, ROUTER = "10.9.0.1", "10.9.0.2"


class DhcpNetwork:
    """Two namespaces; that of the clients is also the router to ``subnets``, with relays at their gateways."""

    def __init__(self, folder: Path, bits: int, subnets: Sequence[dict[str, str]] = ()) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen] = []
        try:
            self.server = self._namespace(["unshare", "--user", "--map-root-user", "--net"])
            self.clients = self._namespace([*self._enter(self.server), "unshare", "--net"])
            self._run(self.server, f"ip link add boot0 type veth peer name nodes0 netns {self.clients.pid}")
            self._run(
                self.server, f"ip address add {SERVER}/{bits} dev boot0", "ip link set boot0 up", "ip link set lo up"
            )
            self._run(
                self.clients, f"ip address add {ROUTER}/{bits} dev nodes0", "ip link set nodes0 up", "ip link set lo up"
            )
            for subnet in subnets:
                self._run(self.clients, f"ip address add {subnet['gateway']}/32 dev lo")
                self._run(self.server, f"ip route add {subnet['network']} via {ROUTER}")
        except BaseException:
            self.close()
            raise

    def _namespace(self, command: list[str]) -> subprocess.Popen:
        holder = subprocess.Popen([*command, "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE)
        self.started.append(holder)
        assert holder.stdout.readline() == b"ready\n", "no network namespace of our own"
        return holder

    def _enter(self, holder: subprocess.Popen) -> list[str]:
        return ["nsenter", f"--target={holder.pid}", "--user", "--net", "--preserve-credentials"]

    def _run(self, where: subprocess.Popen, *commands: str) -> None:
        for command in commands:
            subprocess.run([*self._enter(where), *command.split()], check=True)

    def dnsmasq(self, text: str, nodes: int) -> Path:
        """Start dnsmasq with this configuration and the role's limit of open files; return its log."""
        assert "\ninterface=boot0\n" in text
        tftp = self.folder / "tftp"
        tftp.mkdir(exist_ok=True)
        (tftp / "ipxe.efi").write_bytes(bytes(4096))
        configuration, log = self.folder / "dnsmasq.conf", self.folder / "dnsmasq.log"
        configuration.write_text(text.replace("/srv/tftp", str(tftp)))
        files = boot_plan.capacity(nodes, 0).dnsmasq_files
        command = [*self._enter(self.server), "prlimit", f"--nofile={files}", DNSMASQ, f"--conf-file={configuration}"]
        with log.open("wb") as stream:
            # "--no-daemon" also keeps the current user; the namespace has no other.
            process = subprocess.Popen(
                [*command, "--no-daemon"], stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
            )
        self.started.append(process)
        self.last = process
        deadline = time.monotonic() + 60
        while "started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return log

    def listening(self) -> list[str]:
        """Return the addresses and ports at which the server's processes listen, as ss writes them."""
        command = [*self._enter(self.server), "ss", "-Hlntu"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return [line.split()[4] for line in lines]

    def ask(self, clients: list[dict], transfers: int = 0, tries: int = 8) -> dict:
        """Have the clients request their addresses, and then a file by TFTP."""
        clients = [{"giaddr": None, "renews": None, **client} for client in clients]
        request = {"interface": "nodes0", "server": SERVER, "own": ROUTER, "clients": clients}
        request |= {"transfers": transfers, "tries": tries}
        done = subprocess.run(
            [*self._enter(self.clients), sys.executable, CLIENTS],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stop_dnsmasq(self) -> None:
        """Stop the dnsmasq that was started last."""
        self.last.terminate()
        self.last.wait(10)

    def close(self) -> None:
        """Stop everything that was started; the namespaces disappear with it."""
        for process in reversed(self.started):
            process.terminate()
            process.wait(10)
