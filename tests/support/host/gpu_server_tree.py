# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tree of a GPU server: its files are real, and its config space is the emulated server's recorded bytes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from recorded_config import recorded_bytes

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

MIB = 1024  # in kB
# address: (parents below the root complex, class, id, driver, IOMMU group, recorded config space)
FUNCTIONS = {
    "0000:00:02.0": ([], "10000", "1AF4:1001", "virtio-pci", 0, None),
    "0000:00:03.0": ([], "20000", "1AF4:1000", "virtio-pci", 1, None),
    "0000:10:00.0": ([], "60400", "1B36:000C", "pcieport", 2, "root-port"),
    "0000:11:00.0": (["0000:10:00.0"], "60400", "104C:8232", "pcieport", 3, "switch-upstream"),
    "0000:12:00.0": (["0000:10:00.0", "0000:11:00.0"], "60400", "104C:8233", "pcieport", 4, "switch-downstream"),
    "0000:12:01.0": (["0000:10:00.0", "0000:11:00.0"], "60400", "104C:8233", "pcieport", 5, "switch-downstream"),
    "0000:13:00.0": (
        ["0000:10:00.0", "0000:11:00.0", "0000:12:00.0"],
        "30200",
        "10DE:2330",
        "nvidia",
        4,
        "ats-endpoint",
    ),
    "0000:14:00.0": (["0000:10:00.0", "0000:11:00.0", "0000:12:01.0"], "20000", "8086:10C9", "igb", 5, "igb-pf"),
    "0000:10:01.0": ([], "60400", "1B36:000C", "pcieport", 6, "root-port"),
    "0000:15:00.0": (["0000:10:01.0"], "20000", "8086:10C9", "igb", 7, "igb-pf"),
}
INTERFACES = {"0000:14:00.0": "nic0", "0000:15:00.0": "nic1"}
VFS = 7


def _with_buses(address: str, data: bytes) -> bytes:
    """Return a bridge's bytes with the bus numbers below it here: the recording is of another bridge of its kind."""
    below = sorted(int(other.split(":")[1], 16) for other, row in FUNCTIONS.items() if address in row[0])
    return data[:0x19] + bytes([below[0], below[-1]]) + data[0x1B:] if below else data


class ServerTree(System):
    """The files of the server."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self._build()

    def put(self, path: str, text: str | bytes) -> None:
        """Write a file of the server directly, without the simulated kernel."""
        target = Path(self.path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, path: str, target: str) -> None:
        """Make a link to a path of the server."""
        place = Path(self.path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.symlink_to(os.path.relpath(self.path(target), place.parent))

    def directory(self, address: str) -> str:
        """Return the path of a function in /sys/devices."""
        return "/" + os.path.relpath(os.path.realpath(self.path(f"/sys/bus/pci/devices/{address}")), self.root)

    def bind(self, address: str, driver: str | None) -> None:
        """Bind a function to a driver, or to none."""
        uevent = re.sub(r"DRIVER=.*\n", "", (self.read(f"{self.directory(address)}/uevent") or "") + "\n")
        place = Path(self.path(f"{self.directory(address)}/driver"))
        if place.is_symlink():
            place.unlink()
        if driver:
            self.put(f"/sys/bus/pci/drivers/{driver}/bind", "")
            self.link(f"{self.directory(address)}/driver", f"/sys/bus/pci/drivers/{driver}")
            uevent += f"DRIVER={driver}\n"
        self.put(f"{self.directory(address)}/uevent", uevent)

    def _function(
        self, place: str, pci_class: str, ids: str, driver: str | None, group: int, config: str | None
    ) -> None:
        address = place.split("/")[-1]
        self.put(f"{place}/uevent", f"PCI_CLASS={pci_class}\nPCI_ID={ids}\nPCI_SLOT_NAME={address}\n")
        self.put(f"{place}/numa_node", "0\n")
        self.put(f"{place}/config", _with_buses(address, recorded_bytes(config)) if config else bytes(256))
        self.link(f"{place}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
        self.link(f"/sys/bus/pci/devices/{address}", place)
        if driver:
            self.bind(address, driver)
        if config == "igb-pf":
            self.put(f"{place}/sriov_totalvfs", f"{VFS}\n")
            self.put(f"{place}/sriov_numvfs", "0\n")
            self.put(f"{place}/sriov_drivers_autoprobe", "1\n")
            self.put(f"{place}/net/{INTERFACES[address]}/operstate", "up\n")
            self.link(f"/sys/class/net/{INTERFACES[address]}", f"{place}/net/{INTERFACES[address]}")

    def _build(self) -> None:
        for address, (parents, pci_class, ids, driver, group, config) in FUNCTIONS.items():
            bus = (parents or [address])[0].split(":")[1]
            place = "/".join([f"/sys/devices/pci0000:{bus}", *parents, address])
            self._function(place, pci_class, ids, driver, group, config)
        self.put("/sys/devices/pci0000:00/0000:00:02.0/block/vda/dev", "254:0\n")
        self.link("/sys/class/block/vda", "/sys/devices/pci0000:00/0000:00:02.0/block/vda")
        self.link("/sys/dev/block/254:0", "/sys/devices/pci0000:00/0000:00:02.0/block/vda")
        self.put("/proc/self/mountinfo", "1 1 254:0 / / rw - ext4 /dev/vda rw\n")
        self.put("/sys/devices/pci0000:00/0000:00:03.0/net/eth0/operstate", "up\n")
        self.link("/sys/class/net/eth0", "/sys/devices/pci0000:00/0000:00:03.0/net/eth0")
        self.put(
            "/proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0\t3\t0\t0\t0\t00000000\n",
        )
        for node in (0, 1):
            top = f"/sys/devices/system/node/node{node}"
            self.put(f"{top}/cpulist", f"{node}\n")
            self.put(f"{top}/meminfo", f"Node {node} MemTotal: {3000 * MIB} kB\nNode {node} MemFree: {2800 * MIB} kB\n")
            for size in (2 * MIB, 1024 * MIB):
                self.put(f"{top}/hugepages/hugepages-{size}kB/nr_hugepages", "0\n")
                self.put(f"{top}/hugepages/hugepages-{size}kB/free_hugepages", "0\n")
        self.put("/proc/sys/vm/compact_memory", "")
        self.put("/proc/meminfo", "Hugepagesize:    2048 kB\n")
        self.put("/proc/mounts", "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n")
        self.put("/proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\nflags : fpu vmx\n\n")
        self.put("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.1 root=UUID=1 ro quiet\n")
        self.put("/sys/firmware/acpi/tables/DMAR", "")
        self.link("/sys/class/iommu/dmar0", "/sys/devices/virtual/iommu/dmar0")
        self.put("/run/systemd/system/there", "")
