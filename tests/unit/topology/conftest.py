# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Callable

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

RECORDINGS = Path(__file__).parents[2] / "recordings"


class Machine:
    """A /sys and /proc that tests build piece by piece, in the kernel's layout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write(
            "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A CPU\nflags\t\t: fpu vmx\n"
        )
        self.write("proc/cmdline", "ro intel_iommu=on\n")
        self.write("proc/self/mountinfo", "")
        self.write("sys/devices/system/cpu/online", "0-1\n")
        self.node(0, "0-1")

    def write(self, path: str, text: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, path: str, target: str) -> None:
        """Link ``path`` to ``target``, both relative to the root; like the kernel's links, it is relative."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / target, link.parent))

    def node(self, number: int, cpus: str, memory_kib: int = 1024, distance: str = "") -> None:
        top = f"sys/devices/system/node/node{number}"
        self.write(f"{top}/cpulist", f"{cpus}\n")
        self.write(
            f"{top}/meminfo",
            f"Node {number} MemTotal: {memory_kib:>8} kB\nNode {number} MemFree: {memory_kib // 2:>8} kB\n",
        )
        if distance:
            self.write(f"{top}/distance", f"{distance}\n")

    def pci(self, path: str, pci_class: str = "20000", **files: str | bytes) -> str:
        """Add a function at ``path`` below /sys/devices ("pci0000:00/0000:00:01.0"); return its directory."""
        top = f"sys/devices/{path}"
        address = path.rsplit("/", 1)[-1]
        self.write(f"{top}/uevent", f"PCI_CLASS={pci_class}\nPCI_ID=10DE:2330\nPCI_SUBSYS_ID=10DE:16C1\n")
        self.write(f"{top}/numa_node", "0\n")
        for name, content in files.items():
            self.write(f"{top}/{name}", content)
        self.link(f"sys/bus/pci/devices/{address}", top)
        return top

    def interface(self, kind: str, name: str, device: str) -> str:
        """Add a device of a class ("net", "block", "infiniband") below a function's directory or a virtual one."""
        top = f"{device}/{kind}/{name}"
        self.write(f"{top}/uevent", "")
        self.link(f"sys/class/{kind}/{name}", top)
        return top

    def read(self) -> Host:
        return read_host(str(self.root))

    def one(self) -> Function:
        """Return the only function."""
        (function,) = self.read().functions
        return function


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def recording() -> Callable[[str], Host]:
    """Return a function that loads a recorded machine by its file's name."""

    def load(name: str) -> Host:
        return read_saved(json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))["topology"])

    return load
