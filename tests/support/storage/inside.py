# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that runs in the emulated node, as root; each line "RESULT {...}" is the result of one part of a step."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, "/code")

from ansible.module_utils.testing import patch_module_args

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import file_systems
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import read_request

LOCAL = [{"name": "cache", "numa_node": 1, "count": 3, "purpose": "cache"}]
# Of one server, NFS 4.1 would use the transport of the first mount for all.
NFS = [
    {"source": "10.1.0.1:/srv/near", "path": "/near", "rdma": True},
    {"source": "127.0.0.1:/srv/far", "path": "/far", "cache": "cache", "options": ["vers=4.0"]},
]
# The far server's link, and the data of an epoch.
RATE, FILES, FILE_BYTES = "40mbit", 12, 4 << 20
EXPORTS = "/srv/near *(rw,no_root_squash,insecure,fsid=1)\n/srv/far *(ro,no_root_squash,insecure,fsid=2)\n"


def run(*argv: str) -> str:
    """Run a command; return its output, or the reason for its failure."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else f"failed ({done.returncode}): {done.stderr}{done.stdout}"


def module(check: bool = False, **arguments: object) -> dict:
    """Run storage_client and return its result."""
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
        patch_module_args({**arguments, "_ansible_check_mode": check, "_ansible_diff": True}),
    ):
        importlib.import_module("ansible_collections.sailloft.fleet.plugins.modules.storage_client").main()
    return json.loads(printed.getvalue())


def disk(address: str) -> str:
    """Return the path of the disk of an NVMe function."""
    (name,) = (path.parent.name for path in Path("/sys/class/nvme").glob("*/address") if address in path.read_text())
    return f"/dev/{name}n1"


def is_blank(path: str) -> bool:
    """Return whether the first MiB of a drive, in which signatures are, is zero."""
    with open(path, "rb") as drive:
        return not any(drive.read(1 << 20))


def tell(name: str, **values: object) -> None:
    """Print a result."""
    print("\nRESULT " + json.dumps({"name": name, "seconds": round(time.monotonic(), 1), **values}), flush=True)


def serve() -> str:
    """Serve NFS over RDMA on a software HCA, and over TCP on a slow link."""
    log = run("ip", "link", "set", "lo", "up")
    log += run("modprobe", "rdma_rxe") + run("modprobe", "rpcrdma")
    log += run("ip", "link", "add", "rdma0", "type", "dummy") + run(
        "ip", "address", "add", "10.1.0.1/24", "dev", "rdma0"
    )
    log += run("ip", "link", "set", "rdma0", "up")
    log += run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "rdma0")
    Path("/srv").mkdir(exist_ok=True)
    log += run("mount", "-t", "tmpfs", "tmpfs", "/srv")
    for name in ("near", "far"):
        Path(f"/srv/{name}").mkdir()
    for number in range(FILES):
        Path(f"/srv/far/shard-{number}").write_bytes(os.urandom(FILE_BYTES))
    Path("/etc/exports").write_text(EXPORTS)
    log += run("modprobe", "nfsd") + run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    # A client would wait for 90 s, in which clients of before a restart may come back.
    for name in ("lease", "grace"):
        Path(f"/proc/fs/nfsd/nfsv4{name}time").write_text("10")
    log += run("exportfs", "-ra") + run("rpc.mountd", "--no-nfs-version", "3", "--no-udp")
    log += run("rpc.nfsd", "--no-nfs-version", "3", "--rdma=20049", "4")
    return log + run(
        "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", RATE, "burst", "256kb", "latency", "400ms"
    )


def epoch(folder: str) -> dict:
    """Read all files of a folder, none of which is in memory; return the seconds and the bytes over the far link."""
    run("sync")
    Path("/proc/sys/vm/drop_caches").write_text("3")
    start, before = time.monotonic(), link_bytes()
    for path in sorted(Path(folder).glob("shard-*")):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
    return {"seconds": time.monotonic() - start, "link_bytes": link_bytes() - before}


def link_bytes() -> int:
    """Return the bytes that have passed the far server's link."""
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def cached_bytes() -> int:
    """Return the size of cachefilesd's files, some of which vanish meanwhile."""
    shown = subprocess.run(["du", "-sB1", "/cache/cachefilesd"], capture_output=True, text=True, check=False).stdout
    return int(shown.split()[0])


def live() -> None:
    """Bring the node to its storage, in a running system."""
    tell("served", log=serve())
    given = {"local": LOCAL, "nfs": NFS}
    tell("check", result=module(check=True, **given), blank=is_blank(disk("0000:41:00.0")))
    tell("first", result=module(**given), info=run("xfs_info", "/cache"), md=Path("/proc/mdstat").read_text())
    tell("second", result=module(**given), check=module(check=True, **given))
    tell("mounts", text=Path("/proc/self/mountinfo").read_text(), nfs=Path("/proc/fs/nfsfs/volumes").read_text())
    Path("/near/written").write_text("over RDMA")
    tell("rdma", served=Path("/srv/near/written").read_text())
    first_drive = min(path.read_text().strip() for path in Path("/sys/class/nvme").glob("*/address"))
    refused = {"local": [{"name": "other", "drives": ["0000:41:00.0"]}, *LOCAL]}
    tell("refused", result=module(**refused), somebodys=module(local=[{"name": "all", "drives": [first_drive]}]))
    first = epoch("/far")
    until = time.monotonic() + 60
    while cached_bytes() < FILES * FILE_BYTES and time.monotonic() < until:
        time.sleep(1)
    second = epoch("/far")
    Path("/cache/direct").mkdir()
    for number in range(FILES):
        Path(f"/cache/direct/shard-{number}").write_bytes(Path(f"/srv/far/shard-{number}").read_bytes())
    tell("epochs", first=first, second=second, stripe=epoch("/cache/direct"), cached=cached_bytes(), rate=RATE)
    Path("/cache/marker").write_text("kept")
    run("sync")


class KilledError(Exception):
    """The end of a run."""


class Killed(System):
    """A system whose run ends before its command number ``step``."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def run(self, argv, stdin=None, timeout_s=None):
        if argv[0] not in ("lsblk", "udevadm"):
            if self.step == 0:
                raise KilledError(" ".join(argv))
            self.step -= 1
        return super().run(argv, stdin, timeout_s)


def kills() -> None:
    """End runs at each of their commands, and let the next run complete them: a stripe that is new, and one to wipe."""
    for keep in (True, False):
        storages = read_request({"local": [{**LOCAL[0], "keep": keep}]}).local
        for step in range(20):
            # udev starts arrays, and has what was written open for a moment.
            failures = run("udevadm", "settle")
            for array in Path("/sys/block").glob("md*"):
                failures += run("mdadm", "--quiet", "--stop", f"/dev/{array.name}")
            for number in (1, 2, 3) if keep else ():
                failures += run("wipefs", "--quiet", "--all", disk(f"0000:4{number}:00.0"))
            assert not failures, failures
            run("rm", "-rf", "/var/lib/sailloft/storage")
            killed = ""
            try:
                file_systems.ensure(Killed(step), storages)
            except KilledError as error:
                killed = str(error)
            else:
                break
            file_systems.ensure(System(), storages)
            again = file_systems.ensure(System(), storages)
            tell(f"killed {keep} {step}", keep=keep, before=killed, again=again.after, facts=again.facts)


def again() -> None:
    """Show what systemd made of the image's units at boot."""
    marker = Path("/cache/marker")
    tell(
        "booted",
        marker=marker.read_text() if marker.exists() else None,
        mount=run("systemctl", "show", "--property=ActiveState,Result", "cache.mount"),
        source=run("findmnt", "--noheadings", "--output", "SOURCE,FSTYPE", "/cache"),
        boot=run("systemctl", "show", "--property=ActiveState,Result", "sailloft-storage.service"),
        journal=run("journalctl", "--boot", "--no-pager", "--unit=sailloft-storage.service", "--unit=cache.mount"),
        cycles=run("journalctl", "--boot", "--no-pager", "--grep=ordering cycle"),
    )
    tell("same", result=module(local=json.loads(Path("/etc/sailloft/storage_client.json").read_text())["local"]))


STEPS = {"live": live, "kills": kills, "kept": again, "wiped": again}
try:
    STEPS[sys.argv[1]]()
except BaseException:
    import traceback

    tell("broken", error=traceback.format_exc())
tell("end")
