#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boot hundreds of nodes at once: the first stage fetches its image from nginx, as the role configures it.

    benchmarks/boot_storm.py [CLIENTS]

Prints failed fetches, broken transfers and times, with all servers available and with one that is lost in mid-transfer
and comes back; and the same for as many curls, bare or with a check of the digests. Exits with 1 if a node does not get
its whole image.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SUPPORT = ("tests/support/image", "tests/support/emulation", "tests/support")
sys.path[:0] = [str(REPOSITORY / path) for path in (".collections", *SUPPORT)]

from boot_network import HttpServer, Network
from image_samples import BOOT_SCRIPT, Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

INIT = REPOSITORY / "roles" / "node_image" / "files" / "first-stage" / "init"
CLIENTS = 400
# The layers are small, because those of all clients are in the memory of one machine at the same time.
LAYERS_MIB = {"base": 8, "gpu": 3, "site": 1}
PORTS = (8001, 8002, 8003)
# The shares of all bytes after which a server is lost, and after which it is back.
LOST, BACK = 0.25, 0.5
BARE, CHECKED, FIRST, LOST_ONE = "bare curl", "curl and sha256sum", "first stage", "first stage, a server lost"
STORM_LIMIT_S = 540
ALONE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")

# The first stage from its settings to its last layer, with a separate /run as on a node. It does not set up a network,
# and a node that gives up does not reboot a machine.
FIRST_STAGE = """
    export PATH={bin}
    mount -t tmpfs -o mode=0755 tmpfs /run
    . {init}
    restart() {{ echo "GAVE UP: $1"; exit 1; }}
    public_key={public_key}
    mkdir -p "$folder"
    arguments="sailloft.image={digest} sailloft.servers={servers} sailloft.node={node} sailloft.report={report}"
    arguments="$arguments sailloft.reboot_after_s=$(($(whole_uptime_s) + 600)) BOOTIF=01-{mac}"
    settings
    echo READY
    read -r _ || :
    fetch_manifest
    fetch_layers
    echo "DONE $(uptime_s)"
    report booting server "$layer_server"
    while read -r name sha256 _; do
        cmp "$folder/layers/$name" "{store}/blobs/$sha256" || exit 1
    done <"$folder/layers.list"
    echo WHOLE
"""
CURL = """
    mount -t tmpfs -o mode=0755 tmpfs /run
    cd /run
    echo READY
    read -r _ || :
    curl --fail --silent --show-error {fetched} || exit 1
    {checked}
    echo "DONE $(cut -d' ' -f1 /proc/uptime)"
    {compared}
    echo WHOLE
"""


@dataclass(frozen=True)
class Storm:
    """The result of the clients: the seconds of each client that has its whole image, and the clients' output."""

    seconds: list[float]
    outputs: list[str]
    bytes_each: int

    @property
    def failed(self) -> int:
        return len(self.outputs) - len(self.seconds)

    @property
    def broken(self) -> int:
        """Return the number of transfers that ended early or did not begin."""
        return sum(text.count(" bytes are here") for text in self.outputs)

    @property
    def refused(self) -> int:
        """Return the number of files that were fetched completely but have the wrong content."""
        return sum(text.count("REFUSED") for text in self.outputs)

    @property
    def mb_s(self) -> float:
        """Return all bytes divided by the time of the slowest client, in 10^6 bytes per second."""
        return len(self.seconds) * self.bytes_each / max(self.seconds) / 1e6


class Site:
    """The boot servers, with a signed image."""

    def __init__(self, folder: Path, network: Network, clients: int) -> None:
        self.folder, self.network, self.clients = folder, network, clients
        pair = ["-p", str(folder / "image.pub"), "-s", str(folder / "image.key")]
        subprocess.run(["minisign", "-G", "-W", *pair], check=True, stdout=subprocess.DEVNULL)
        sample = Sample("storm", **{name: os.urandom(mib << 20) for name, mib in LAYERS_MIB.items()})
        # The first stage compares the manifest's kernel with the running kernel.
        kernel = replace(sample.manifest.kernel, version=os.uname().release)
        self.manifest = replace(sample.manifest, kernel=kernel)
        data = manifests.dump(self.manifest)
        self.digest = manifests.digest(data)
        signer = sign.Signer(str(folder / "image.key"), str(folder / "image.pub"))
        (signature,) = signer.sign([data], sign.MANIFEST)
        self.store = Store(str(folder / "store"))
        self.store.publish(data, signature, BOOT_SCRIPT, sample.files(folder / "blobs"))
        self.servers = [HttpServer(network, folder / "store", port, address="0.0.0.0") for port in PORTS]
        self.bin = folder / "bin"
        self.bin.mkdir()
        subprocess.run(["busybox", "--install", "-s", self.bin], check=True)
        (self.bin / "minisign").symlink_to(shutil.which("minisign") or "/usr/bin/minisign")
        # A server limits the connections from an address, so each client needs its own address. A connection to one of
        # the machine's own addresses also comes from that address: each client uses its own address for the servers.
        batch = "".join(f"address add {self.address(number)}/32 dev lo\n" for number in range(clients))
        subprocess.run(network.inside(["ip", "-batch", "-"]), input=batch.encode(), check=True)

    @staticmethod
    def address(number: int) -> str:
        return f"10.10.{number // 250}.{number % 250 + 1}"

    def first_stage(self, number: int) -> list[str]:
        """Return the command of a node."""
        urls = [f"http://{self.address(number)}:{port}" for port in PORTS]
        script = FIRST_STAGE.format(
            bin=self.bin,
            init=INIT,
            public_key=self.folder / "image.pub",
            digest=self.digest,
            servers=",".join(urls),
            node=f"n{number}",
            report=f"{urls[-1]}/report",
            mac=f"52-54-00-00-{number // 256:02x}-{number % 256:02x}",
            store=self.store.path,
        )
        return ["busybox", "sh", "-c", script, "client"]

    def curl(self, number: int) -> list[str]:
        """Return the command of a bare curl that fetches the same files from one of the servers."""
        return self._curl(number, "")

    def checked_curl(self, number: int) -> list[str]:
        """Return the command of a curl whose files are checked with the first stage's tool for digests."""
        digests = [self.digest, *(layer.sha256 for layer in self.manifest.layers)]
        lines = "\\n".join(f"{digest}  {digest}" for digest in digests)
        return self._curl(number, f"printf '{lines}\\n' | busybox sha256sum -c >/dev/null || exit 1")

    def _curl(self, number: int, checked: str) -> list[str]:
        url = f"http://{self.address(number)}:{PORTS[number % len(PORTS)]}"
        paths = {self.digest: f"images/{self.digest}/manifest.json"}
        paths["signature"] = f"{paths[self.digest]}.minisig"
        paths.update((layer.sha256, f"blobs/{layer.sha256}") for layer in self.manifest.layers)
        fetched = " ".join(f"-o {name} {url}/{path}" for name, path in paths.items())
        compared = "\n".join(f"cmp {name} {self.store.path}/{path} || exit 1" for name, path in paths.items())
        return ["sh", "-c", CURL.format(fetched=fetched, checked=checked, compared=compared)]

    def storm(self, client: Callable[[int], list[str]], lost: bool) -> Storm:
        """Start all clients at the same instant; with ``lost``, a server is stopped and started again."""
        gate, gate_end = os.pipe()
        logs = [self.folder / f"client-{number}" for number in range(self.clients)]
        processes = []
        for number, log in enumerate(logs):
            # Each client also has a PID namespace: a timeout must not kill another client that has reused the PID.
            command = self.network.inside([*ALONE, *client(number)])
            with log.open("wb") as stream:
                processes.append(subprocess.Popen(command, stdin=gate, stdout=stream, stderr=subprocess.STDOUT))
        self.network.started += processes
        os.close(gate)
        wait_until(lambda: all("READY" in log.read_text() for log in logs), "clients that are ready")
        bytes_each = sum(layer.size_bytes for layer in self.manifest.layers)
        before_bytes = self.sent_bytes()
        started = uptime_s()
        # All clients read the end of the pipe and start.
        os.close(gate_end)
        if lost:
            server = self.servers[0]
            for share, act in ((LOST, server.stop), (BACK, server.start)):
                wanted = before_bytes + share * bytes_each * self.clients
                wait_until(lambda: self.sent_bytes() >= wanted, f"{share:.0%} of the bytes")  # noqa: B023
                act()
        deadline = time.monotonic() + STORM_LIMIT_S
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        outputs = [log.read_text() for log in logs]
        done = [match for text in outputs if whole(text) for match in re.finditer(r"^DONE (\S+)$", text, re.MULTILINE)]
        seconds = [float(match.group(1)) - started for match in done]
        return Storm(sorted(seconds), outputs, bytes_each)

    def sent_bytes(self) -> int:
        """Return the bytes sent over the network's loopback device so far."""
        lines = Path(f"/proc/{self.network.holder.pid}/net/dev").read_text().splitlines()
        return int(next(line for line in lines if line.strip().startswith("lo:")).split()[9])

    def booted(self) -> int:
        """Return the number of reports of a boot."""
        return sum(entry["event"] == "booting" for server in self.servers for entry in server.reports())


def whole(text: str) -> bool:
    """Return True if a client with this output has its whole image."""
    return text.rstrip().endswith("WHOLE")


def uptime_s() -> float:
    """Return the seconds since the machine started, which the clients print as well."""
    return float(Path("/proc/uptime").read_text().split()[0])


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Wait until a condition is met, and end the program after a timeout."""
    deadline = time.monotonic() + STORM_LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} in {STORM_LIMIT_S} s")
        time.sleep(0.05)


def main() -> None:
    """Run the benchmark."""
    clients = int(sys.argv[1]) if len(sys.argv) > 1 else CLIENTS
    folder = Path(tempfile.mkdtemp(prefix="sailloft-storm-", dir="/var/tmp"))
    network = Network(folder)
    try:
        site = Site(folder, network, clients)
        storms = {
            BARE: (site.curl, False),
            CHECKED: (site.checked_curl, False),
            FIRST: (site.first_stage, False),
            LOST_ONE: (site.first_stage, True),
        }
        found = {}
        for name, (client, lost) in storms.items():
            found[name] = storm = site.storm(client, lost)
            if storm.failed:
                one = next(text for text in storm.outputs if not whole(text))
                sys.exit(f"{name}: {storm.failed} of {clients} failed, one of them saying\n{one[-2000:]}")
        booted = site.booted()
    finally:
        network.close()
        shutil.rmtree(folder)
    mib = sum(LAYERS_MIB.values())
    print(f"  {clients} clients, {mib} MiB in {len(LAYERS_MIB)} layers, {len(PORTS)} servers; none failed")
    for name, storm in found.items():
        print(
            f"  {name:<27}{storm.broken} broken transfers, {storm.refused} files refused;"
            f" half after {statistics.median(storm.seconds):.1f} s, all after {max(storm.seconds):.1f} s,"
            f" {storm.mb_s:.0f} MB/s"
        )
    for peer in (BARE, CHECKED):
        for name in (FIRST, LOST_ONE):
            print(f"  throughput of {name}, against {peer}: {found[name].mb_s / found[peer].mb_s:.2f}")
    # A client sends its report with a timeout of 5 s and does not wait for it, so reports may be missing.
    print(f"  {booted} of {2 * clients} reports of a boot came")


if __name__ == "__main__":
    main()
