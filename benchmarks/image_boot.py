#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boot a node's image in our way and in the two usual ways, with the same root, kernel, servers and QEMU.

    benchmarks/image_boot.py [ROUNDS]

- single stage: the whole root as one cpio.gz, which the kernel unpacks into memory (Warewulf's and xCAT's classic way);
- dracut livenet: dracut's initrd fetches the same squashfs and mounts it.

Needs root. Prints memory, bytes over the wire and seconds to systemd's start; exits with 1 if a target is missed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SUPPORT = ("tests/support/image", "tests/support/emulation", "tests/support")
sys.path[:0] = [str(REPOSITORY / path) for path in (".collections", *SUPPORT)]

from boot_network import MAC, MEMORY_MIB, NODE, HttpServer, Network, Node
from build_host import BASE, BuildHost, make_keys
from node_image import PACKAGES, bootstrap, packages_of

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue, node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

ROUNDS = 3
MEMORY_LIMIT, FASTER_LIMIT = 0.55, 1.5
BOOT_LIMIT_S = 600
ARGUMENTS = ["no_timer_check", "quiet", "systemd.show_status=no"]
OURS, SINGLE, LIVENET = WAYS = ("ours", "single stage", "dracut livenet")
# The packages that dracut needs in its root for a live image over HTTP, and zstd for its best compression.
DRACUT = ["dracut-core", "dracut-live", "dracut-network", "curl", "isc-dhcp-client", "zstd"]
# Measures a node some seconds after its boot: the memory in use, as the kernel estimates it and after all caches that
# can be dropped are dropped; and the time when systemd started the root's own services (systemd in an initrd names its
# start differently).
MEASURE = """#!/bin/sh
systemctl is-system-running --wait >/dev/null
sleep 5
memory() { sed -nE "s/^(Mem[A-Za-z]+): *([0-9]+) kB/$1_\\1_kib=\\2/p" /proc/meminfo | tr '\\n' ' '; }
# Pages that lie freed in a processor's own lists count as used until compaction hands them back.
echo 1 >/proc/sys/vm/compact_memory
up=$(memory up)
sync
echo 3 >/proc/sys/vm/drop_caches
echo 1 >/proc/sys/vm/compact_memory
dropped=$(memory dropped)
systemd_us=$(systemctl show --value -p UserspaceTimestampMonotonic)
failed=$(systemctl list-units --failed --plain --no-legend | cut -d' ' -f1 | tr '\\n' ,)
printf '\\nMEASURED %s%ssystemd_us=%s failed=%s uptime_s=%s\\n' "$up" "$dropped" "$systemd_us" "$failed" \\
    "$(cut -d' ' -f1 /proc/uptime)"
"""
SERVICE = """[Unit]
Description=Measure the node
[Service]
StandardOutput=tty
TTYPath=/dev/ttyS0
ExecStart=/usr/local/sbin/measure
[Install]
WantedBy=multi-user.target
"""
LAYER = {
    **BASE,
    "packages": PACKAGES,
    "kernel_arguments": ["console=ttyS0", *ARGUMENTS],
    "files": [
        {"path": "/usr/local/sbin/measure", "content": MEASURE, "mode": "0755"},
        {"path": "/etc/systemd/system/measure.service", "content": SERVICE},
    ],
    "services": {"enabled": ["measure.service"], "masked": ["serial-getty@ttyS0.service"]},
}


@dataclass(frozen=True)
class Boot:
    """The measurements of a boot; ``way_s`` is from its first packet to systemd's start, ``failed`` names units."""

    memory_mib: float
    dropped_mib: float
    total_mib: float
    wire_mb: float
    systemd_s: float
    way_s: float
    failed: str


def prepare(folder: Path) -> BuildHost:
    """Build a store with the image, and add the files of the other two ways to its blobs."""
    site = BuildHost(folder / "site", make_keys(folder / "keys"))
    site.build({"base": LAYER}, {"node": {"layer": "base"}})
    manifest = site.store.manifest(site.store.current("node"))
    blobs = Path(site.store.path, "blobs")
    os.link(blobs / manifest.layers[0].sha256, blobs / "root.squashfs")
    root = folder / "root"
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", root, blobs / "root.squashfs"], check=True)
    pack = f"set -o pipefail; find . | LC_ALL=C sort | busybox cpio -o -H newc 2>/dev/null | gzip >{blobs}/single"
    subprocess.run(["bash", "-c", pack], cwd=root, check=True)
    shutil.rmtree(root)
    # The initrd has the drivers of all machines, like our first stage; the kernel unpacks zstd fastest.
    options = f'--quiet --no-hostonly --zstd --add "network-legacy livenet" --kver {manifest.kernel.version}'
    bootstrap(
        Path("/dev/null"),
        packages_of(site.cache),
        [*PACKAGES, *DRACUT],
        "--format=null",
        f'--customize-hook=chroot "$1" dracut {options} /boot/livenet',
        f"--customize-hook=copy-out /boot/livenet {blobs}",
        initrd=False,
    )
    (blobs / "livenet").chmod(0o644)
    return site


def script(way: str, site: BuildHost, server: str) -> str:
    """Return the iPXE script that boots a node in one of the other two ways."""
    manifest = site.store.manifest(site.store.current("node"))
    own = {
        SINGLE: "rdinit=/sbin/init",
        LIVENET: f"root=live:{server}/blobs/root.squashfs rd.live.overlay.overlayfs=1 rd.neednet=1 ip=dhcp",
    }[way]
    blob = {SINGLE: "single", LIVENET: "livenet"}[way]
    arguments = " ".join(manifest.kernel_arguments)
    return f"""#!ipxe
kernel {server}/blobs/{manifest.kernel.sha256} initrd=initrd {arguments} {own}
initrd --name initrd {server}/blobs/{blob}
boot
"""


def boot(way: str, site: BuildHost, folder: Path) -> Boot:
    """Boot a node in this way, starting with its firmware."""
    folder.mkdir()
    network = Network(folder)
    try:
        store = Path(site.store.path)
        server = HttpServer(network, store, 8001)
        node_script = store / "nodes" / f"{MAC.replace(':', '-')}.ipxe"
        node_script.unlink(missing_ok=True)
        node = {"name": NODE, "mac": MAC, "digest": site.store.current("node")}
        node |= {"servers": [server.url], "report": f"{server.url}/report"}
        node_scripts.ensure(site.store, [node], False)
        keys = Signer(str(site.keys / "image.key"), str(site.keys / "image.pub"))
        issue.ensure(site.store, issue.StatementRequest([node]), [], keys, issue.Terms(90, int(time.time())), False)
        if way != OURS:
            node_script.write_text(script(way, site, server.url))
        network.dnsmasq([server.url])
        machine = Node(network, [])
        while not wire_bytes(network)[0]:
            if machine.process.poll() is not None:
                sys.exit(machine.messages.read_text())
            time.sleep(0.05)
        first_packet = time.monotonic()
        console = machine.wait_for("uptime_s=", BOOT_LIMIT_S)
        seen = time.monotonic()
        line = next(line for line in console.splitlines() if line.startswith("MEASURED "))
        found = dict(word.split("=") for word in line.split()[1:])
        systemd_s = int(found["systemd_us"]) / 1e6
        return Boot(
            memory_mib=(int(found["up_MemTotal_kib"]) - int(found["up_MemAvailable_kib"])) / 1024,
            dropped_mib=(int(found["dropped_MemTotal_kib"]) - int(found["dropped_MemFree_kib"])) / 1024,
            total_mib=int(found["up_MemTotal_kib"]) / 1024,
            wire_mb=sum(wire_bytes(network)) / 1e6,
            systemd_s=systemd_s,
            way_s=seen - float(found["uptime_s"]) + systemd_s - first_packet,
            failed=found["failed"],
        )
    finally:
        network.close()


def wire_bytes(network: Network) -> tuple[int, int]:
    """Return the bytes that the node sent and received so far, with all headers."""
    lines = Path(f"/proc/{network.holder.pid}/net/dev").read_text().splitlines()
    fields = next(line for line in lines if line.strip().startswith("tap0:")).split()
    return int(fields[1]), int(fields[9])


def main() -> int:
    """Run the benchmark. Return 1 if a target is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    folder = Path(tempfile.mkdtemp(prefix="sailloft-boot-", dir="/var/tmp"))
    try:
        site = prepare(folder)
        boots: dict[str, list[Boot]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way in WAYS[:: -1 if number % 2 else 1]:
                boots[way].append(boot(way, site, folder / f"boot-{number}-{WAYS.index(way)}"))
    finally:
        shutil.rmtree(folder)

    def median(way: str, field: str) -> float:
        return statistics.median(getattr(each, field) for each in boots[way])

    print(f"  medians of {rounds} boots each, {MEMORY_MIB} MiB, load {os.getloadavg()[0]:.0f}")
    for way in WAYS:
        print(
            f"  {way:<16}{median(way, 'memory_mib'):6.0f} MiB used of {median(way, 'total_mib'):.0f},"
            f" {median(way, 'dropped_mib'):.0f} with caches dropped; {median(way, 'wire_mb'):.1f} MB over the wire;"
            f" kernel to systemd {median(way, 'systemd_s'):.1f} s, first packet to systemd {median(way, 'way_s'):.1f} s"
        )
        for units in sorted({each.failed for each in boots[way]} - {""}):
            print(f"  {way:<16}failed units: {units}")
    memory = median(OURS, "memory_mib") / median(SINGLE, "memory_mib")
    dropped = median(OURS, "dropped_mib") / median(SINGLE, "dropped_mib")
    faster = median(LIVENET, "systemd_s") / median(OURS, "systemd_s")
    from_packet = median(LIVENET, "way_s") / median(OURS, "way_s")
    print(f"  memory, against single stage: {memory:.2f} (at most {MEMORY_LIMIT}); with caches dropped {dropped:.2f}")
    for other in (SINGLE, LIVENET):
        print(f"  bytes over the wire, against {other}: {median(OURS, 'wire_mb') / median(other, 'wire_mb'):.2f}")
    print(
        f"  from the kernel's start to systemd's, dracut livenet against ours: {faster:.2f} (at least {FASTER_LIMIT})"
    )
    print(f"  from the first packet to systemd's start: {from_packet:.2f}")
    return int(memory > MEMORY_LIMIT or faster < FASTER_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
