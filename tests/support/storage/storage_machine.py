# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An emulated node without a disk of its own: Debian with its kernel and systemd in memory, and four NVMe drives.

Each boot has a new root, as a stateless node's; the drives stay. Needs root, for mmdebstrap; the root is cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from patience import run_to_its_end, scaled_s
from sockets import free_port
from user_cache import user_cache

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
PACKAGES = (
    *("systemd-sysv", "udev", "kmod", "iproute2", "python3", "xfsprogs", "mdadm", "nfs-common", "nfs-kernel-server"),
    *("cachefilesd", "rdma-core", "linux-image-amd64", "e2fsprogs", "nvme-cli", "dropbear-bin"),
)
# The kernel's modules that the node needs; the others would only fill its memory.
MODULES = (
    *("fs/xfs", "fs/nfs", "fs/nfsd", "fs/nfs_common", "fs/lockd", "fs/cachefiles", "fs/fscache", "fs/netfs"),
    *("fs/exportfs", "fs/ext4", "fs/jbd2", "fs/mbcache.ko", "drivers/md", "drivers/nvme", "drivers/infiniband/core"),
    *("drivers/infiniband/sw", "net/sunrpc", "net/sched", "net/ipv4", "net/ipv6", "net/dns_resolver", "lib", "crypto"),
    *("arch", "block", "drivers/net/dummy.ko", "drivers/net/ethernet/intel/e1000", "fs/configfs", "security/keys"),
)
# What the node does not need of its packages; the kernel unpacks all others to its memory.
REMOVED = (
    *(
        "boot",
        "dev",
        "var/lib/apt",
        "var/lib/dpkg",
        "var/cache",
        "usr/share/perl",
        "usr/share/perl5",
        "usr/share/zoneinfo",
    ),
    *("usr/lib/apt", "usr/lib/udev/hwdb.bin", "usr/lib/udev/hwdb.d", "usr/lib/x86_64-linux-gnu/perl"),
    *("usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/libicudata.so.72.1"),
)
MASKED = (
    *(
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "e2scrub_reap.service",
    ),
    *(
        "fstrim.timer",
        "getty@tty1.service",
        "serial-getty@ttyS0.service",
        "systemd-logind.service",
        "nfs-blkmap.service",
    ),
)
# The first drive is on the first NUMA node and somebody's; the others are on the second.
DRIVES, DRIVE_BYTES = 4, 448 << 20
SECOND_NODE = ("0000:41:00.0", "0000:42:00.0", "0000:43:00.0")
# On a loaded machine a boot takes minutes. To make a file system takes longer than a device is waited for.
LIMITS = "[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=1\n"
SERVICE = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/usr/bin/python3 -B /inside.py {step}
ExecStopPost=/bin/systemctl poweroff --force
TimeoutStartSec=infinity
[Install]
WantedBy=graphical.target
"""
# The first process of a node whose units a stand-in for systemd starts: with systemd a boot takes ten times as long.
# ``then`` is what it does.
INIT = """#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir /dev/pts
mount -t devpts none /dev/pts
exec </dev/console >/dev/console 2>&1
mount -t tmpfs none /run
mkdir -p /run/systemd/system
export PATH=/usr/sbin:/usr/bin
modprobe -a nvme xfs raid0 e1000
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --subsystem-match=block
udevadm settle --timeout=60
{then}
"""
STEP = """python3 /inside.py {step}
sync
echo o >/proc/sysrq-trigger
sleep 60"""
# It answers to a key by SSH, at the address that QEMU's network expects.
ANSWER = """ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
mkdir -p /etc/dropbear
exec dropbear -R -F -E -s"""
SYSTEMCTL = REPOSITORY / "molecule/monitoring/files/systemctl"
LIMIT_S = 600


class Node:
    """The node, with its drives in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for number in range(DRIVES):
            with (folder / f"drive{number}").open("wb") as file:
                file.truncate(DRIVE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-L", "somebodys", folder / "drive0"], check=True)
        self.system = _system()

    def boot(self, step: str, prepare: Callable[[Path], object] | None = None) -> dict[str, dict]:
        """Boot a new root, run a step of inside.py, and return its results by name.

        With ``prepare``, which adds to the root as a layer does, systemd starts it.
        """
        tree, image, console = self.folder / step, self.folder / "initramfs", self.folder / f"{step}.log"
        units = tree / "etc/systemd/system"
        units.mkdir(parents=True)
        (tree / "etc/systemd/system.conf.d").mkdir()
        (tree / "etc/systemd/system.conf.d/limits.conf").write_text(LIMITS)
        if prepare:
            (units / "inside.service").write_text(SERVICE.format(step=step))
            prepare(tree)
            subprocess.run(["systemctl", f"--root={tree}", "--quiet", "enable", "inside.service"], check=True)
        else:
            (tree / "usr/bin").mkdir(parents=True)
            shutil.copy(SYSTEMCTL, tree / "usr/bin/systemctl")
            _start(tree, STEP.format(step=step))
        _code(tree)
        self._root(tree, image)
        text = run_to_its_end(self._command(image, console, "/init" if prepare else "/first"), console, LIMIT_S)
        lines = [line.partition("RESULT ")[2] for line in text.splitlines() if "RESULT " in line]
        results = {one["name"]: one for one in map(json.loads, lines)}
        assert "end" in results, text[-8000:]
        return results

    @contextlib.contextmanager
    def answering(self, public_key: str) -> Iterator[int]:
        """Boot a new root that answers to root with this key, by SSH; yield its port on the loopback."""
        tree, image, console = self.folder / "answering", self.folder / "initramfs", self.folder / "answering.log"
        (tree / "root/.ssh").mkdir(parents=True)
        (tree / "root").chmod(0o700)
        (tree / "root/.ssh").chmod(0o700)
        (tree / "root/.ssh/authorized_keys").write_text(public_key)
        _start(tree, ANSWER)
        self._root(tree, image)
        port = free_port()
        network = f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"
        wire = ["-netdev", network, "-device", "e1000,netdev=net,bus=pcie.0"]
        with (self.folder / "qemu.log").open("w") as log:
            machine = subprocess.Popen([*self._command(image, console, "/first"), *wire], stdout=log, stderr=log)
        try:
            until = time.monotonic() + scaled_s(LIMIT_S)
            # Dropbear's first line. It would refuse root after a number of connections that only ask for its banner.
            while "Not backgrounding" not in (console.read_text(errors="replace") if console.exists() else ""):
                assert machine.poll() is None, (self.folder / "qemu.log").read_text()
                assert time.monotonic() < until, console.read_text(errors="replace")[-6000:]
                time.sleep(1)
            yield port
        finally:
            machine.kill()
            machine.wait()

    def _root(self, tree: Path, image: Path) -> None:
        """Make the kernel's archive of the root and, over it, a directory."""
        shutil.copy(self.system / "root.cpio", image)
        # The kernel unpacks one archive over the other.
        _pack(tree, image)

    def _command(self, image: Path, console: Path, init: str) -> list[str]:
        command = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max"]
        command += ["-smp", "2", "-m", "3072", "-nodefaults", "-display", "none", "-no-reboot"]
        for node in (0, 1):
            command += ["-object", f"memory-backend-ram,id=m{node},size=1536M"]
            command += ["-numa", f"node,nodeid={node},memdev=m{node},cpus={node}"]
        command += ["-device", "pxb-pcie,id=second,bus=pcie.0,bus_nr=64,numa_node=1"]
        for number in range(DRIVES):
            drive = f"if=none,id=d{number},format=raw,discard=unmap,file={self.folder}/drive{number}"
            bus = "second" if number else "pcie.0"
            command += ["-drive", drive, "-device", f"pcie-root-port,id=port{number},bus={bus},chassis={number + 1}"]
            command += ["-device", f"nvme,serial=S{number},drive=d{number},bus=port{number}"]
        arguments = f"rdinit={init} console=ttyS0 quiet panic=-1 no_timer_check systemd.show_status=false"
        command += ["-kernel", str(self.system / "vmlinuz"), "-initrd", str(image), "-append", arguments]
        return [*command, "-serial", f"file:{console}"]


def _start(tree: Path, then: str) -> None:
    """Write the first process, and what it does."""
    (tree / "first").write_text(INIT.format(then=then))
    (tree / "first").chmod(0o755)


def _system() -> Path:
    """Return the directory of the kernel and the root, which the first call makes."""
    key = hashlib.sha256(" ".join((*PACKAGES, *MODULES, *REMOVED, *MASKED)).encode()).hexdigest()[:12]
    system = user_cache("storage") / key
    if not system.exists():
        new = system.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        tree = new / "tree"
        tree.mkdir(parents=True)
        command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
        subprocess.run([*command, "bookworm", str(tree)], check=True)
        shutil.copy(next(tree.glob("boot/vmlinuz-*")), new / "vmlinuz")
        _trim(tree)
        _pack(tree, new / "root.cpio")
        shutil.rmtree(tree)
        new.rename(system)
    return system


def _pack(tree: Path, archive: Path) -> None:
    """Append the files of a directory to an archive for the kernel."""
    names = subprocess.run(["find", ".", "-print0"], cwd=tree, check=True, capture_output=True).stdout
    with archive.open("ab") as out:
        packing = ["busybox", "cpio", "-0", "-o", "-H", "newc"]
        subprocess.run(packing, cwd=tree, input=names, stdout=out, stderr=subprocess.DEVNULL, check=True)


def _trim(tree: Path) -> None:
    """Remove modules and files that the node does not need, and let systemd be the first process."""
    (modules,) = (tree / "lib/modules").iterdir()
    kernel = modules / "kernel"
    for path in sorted(kernel.rglob("*.ko")):
        if not any(str(path.relative_to(kernel)).startswith(name) for name in MODULES):
            path.unlink()
    subprocess.run(["chroot", tree, "depmod", modules.name], check=True)
    subprocess.run(["rm", "-rf", *REMOVED], cwd=tree, check=True)
    (tree / "dev").mkdir()
    (tree / "init").symlink_to("usr/lib/systemd/systemd")
    for name in MASKED:
        (tree / f"etc/systemd/system/{name}").symlink_to("/dev/null")


def _code(tree: Path) -> None:
    """Copy inside.py, the collection, and Ansible's part of a module."""
    import ansible

    ours = Path(ansible.__file__).parent
    code = tree / "code"
    (code / "ansible").mkdir(parents=True)
    (code / "ansible/__init__.py").write_text(f"__version__ = {ansible.__version__!r}\n")
    shutil.copytree(ours / "module_utils", code / "ansible/module_utils")
    for part in ("modules", "module_utils"):
        place = code / "ansible_collections/sailloft/fleet/plugins" / part
        shutil.copytree(REPOSITORY / "plugins" / part, place, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "inside.py", tree / "inside.py")
