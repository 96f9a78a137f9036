# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host in a directory whose NVMe drives are loop devices: lsblk, blkid, mkfs.xfs, wipefs and mount are the real ones.

Made up: the PCI functions of /sys, and systemctl, which mounts what the units of mounts say. No arrays: this kernel may
have no md (tests/storage boots one that has).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.drives import read_superblock

needs_loops = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/loop-control") or not shutil.which("mkfs.xfs"),
    reason="needs root, loop devices and mkfs.xfs",
)
SIZE = 320 << 20  # mkfs.xfs refuses less than 300 MiB


class StorageHost(System):
    """A host with ``drives``, the NUMA node of each; the first has the address 0000:10:00.0."""

    def __init__(self, folder: Path, *nodes: int) -> None:
        super().__init__(str(folder / "root"))
        self.folder = folder
        self.commands: list[str] = []
        self.loops: list[str] = []
        self.mounted: list[str] = []
        self.running: list[str] = []  # services
        (folder / "root/run/systemd/system").mkdir(parents=True)
        (folder / "root/sys/block").mkdir(parents=True)
        (folder / "root/proc").symlink_to("/proc")
        for number, node in enumerate(nodes):
            self.add_function(self.address(number), node)
            self._add_disk(number)

    def address(self, number: int) -> str:
        """Return the address of a drive."""
        return f"0000:{16 + number:02x}:00.0"

    def add_function(self, address: str, node: int) -> None:
        """Add an NVMe function, without a disk."""
        function = self.folder / "root/sys/bus/pci/devices" / address
        function.mkdir(parents=True)
        (function / "class").write_text("0x010802\n")
        (function / "numa_node").write_text(f"{node}\n")

    def _add_disk(self, number: int) -> None:
        image = self.folder / f"disk{number}"
        with image.open("wb") as file:
            file.truncate(SIZE)
        made = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True)
        loop = made.stdout.strip()
        self.loops.append(loop)
        name = loop.rpartition("/")[2]
        place = f"../../devices/pci0000:00/{self.address(number)}/nvme/nvme{number}/{name}"
        device = os.stat(loop).st_rdev
        for link in (f"class/block/{name}", f"dev/block/{os.major(device)}:{os.minor(device)}"):
            path = self.folder / "root/sys" / link
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(place)

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Run a command; systemctl is made up."""
        if argv[0] != "systemctl":
            if argv[0] not in ("lsblk",):
                self.commands.append(" ".join(argv))
            return super().run(argv, stdin, timeout_s)
        words = [word for word in argv[1:] if not word.startswith("--")]
        if words[0] == "show":
            return "\n\n".join(f"ActiveState={self._state(name)}" for name in words[1:])
        self.commands.append(" ".join(argv))
        if words[0] == "enable":
            text = self.read(f"/etc/systemd/system/{words[1]}") or ""
            target = text.partition("WantedBy=")[2].split()[0]
            self.replace(f"/etc/systemd/system/{target}.wants/{words[1]}", b"")
        elif words[0] == "disable":
            self._stop(words[1])
            for target in ("multi-user", "remote-fs"):
                self.remove(f"/etc/systemd/system/{target}.target.wants/{words[1]}")
        elif words[0] == "restart":
            self._stop(words[1])
            if words[1].endswith(".mount"):
                self.mount(words[1])
            else:
                self.running.append(words[1])
        return ""

    def mount(self, unit: str) -> None:
        """Mount what a unit says, as systemd does at boot."""
        label, path = self._of(unit)
        device = next(loop for loop in self.loops if (xfs := read_superblock(loop)) and xfs.label == label)
        Path(self.path(path)).mkdir(parents=True, exist_ok=True)
        super().run(["mount", "-t", "xfs", "-o", "noatime", device, self.path(path)])
        self.mounted.append(self.path(path))

    def _of(self, unit: str) -> tuple[str, str]:
        lines = dict(line.partition("=")[::2] for line in (self.read(f"/etc/systemd/system/{unit}") or "").splitlines())
        return lines.get("What", "").removeprefix("LABEL="), lines.get("Where", "")

    def _state(self, unit: str) -> str:
        is_active = unit in self.running or self.path(self._of(unit)[1]) in self.mounted
        return "active" if is_active else "inactive"

    def _stop(self, unit: str) -> None:
        self.running = [name for name in self.running if name != unit]
        path = self.path(self._of(unit)[1])
        if path in self.mounted:
            super().run(["umount", path])
            self.mounted.remove(path)

    def reboot(self, imaged: bool = False) -> None:
        """Unmount everything; ``imaged``: with a root of which nothing is left."""
        for path in [*self.mounted]:
            super().run(["umount", path])
        self.mounted.clear()
        for name in ("etc", "var", "usr") if imaged else ():
            shutil.rmtree(self.path(name), ignore_errors=True)

    def apply(self, *local: dict, check: bool = False, **others: object):
        """Return the outcome of the module's call with local storage and others."""
        self.commands.clear()
        return ensure.ensure(self, {"local": local, "nfs": [], "s3": [], "s3_keys": {}, **others}, False, check)

    def close(self) -> None:
        """Give the loop devices back."""
        self.reboot()
        for loop in self.loops:
            subprocess.run(["losetup", "-d", loop], check=True)
