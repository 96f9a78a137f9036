# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A GPU server in a directory: its files are real, and a small kernel answers writes and commands as Linux does.

The tree is the emulated server's, and its config space the recorded bytes of it. What a test guards is the code
that runs on the live one too: only System is replaced, at its lowest edge.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, KernelRefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System, refusal
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

RECORDED = Path(__file__).parents[2] / "recordings" / "config"
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
# As a driver makes them; a setting has the word of ip-link(8).
FRESH_VF = {
    "mac": "00:00:00:00:00:00",
    "vlan": 0,
    "spoofchk": True,
    "trust": False,
    "state": "auto",
    "min_tx_rate": 0,
    "max_tx_rate": 0,
}
FRESH_INFINIBAND_VF = {
    "node_guid": "00:00:00:00:00:00:00:00",
    "port_guid": "00:00:00:00:00:00:00:00",
    "state": "disable",
}


class KilledError(BaseException):
    """As a kill: no code of ours may catch it."""


def recorded_bytes(name: str) -> bytes:
    """A recording of config space: "OFFSET: BYTES" lines, and "length: N"."""
    data = bytearray()
    for line in (RECORDED / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        head, _colon, rest = line.partition(": ")
        if head == "length":
            data.extend(bytes(int(rest) - len(data)))
        elif not line.startswith("#"):
            data.extend(bytes(int(head, 16) - len(data)))
            data.extend(bytes.fromhex(rest))
    return bytes(data)


def _with_buses(address: str, data: bytes) -> bytes:
    """A bridge's bytes with the buses that are below it here: the recording is that of one bridge of its kind."""
    below = sorted(int(other.split(":")[1], 16) for other, row in FUNCTIONS.items() if address in row[0])
    return data[:0x19] + bytes([below[0], below[-1]]) + data[0x1B:] if below else data


class Server(System):
    """The server. ``effects`` is what was done to it; ``kill_at`` kills before that many effects plus one."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.effects: list[str] = []
        self.kill_at: int | None = None
        self.pages_at_most: dict[str, int] = {}  # by directory of a pool: more the kernel does not give
        self.domains: list[str] | None = None  # libvirt's active ones; None: there is no libvirt
        self.locked_down = False  # writes to config space get EPERM, whatever /sys/kernel/security says
        self.read_only: set[tuple[str, int]] = set()  # (address, offset) of registers that keep their value
        self.vf_settings: dict[str, dict[int, dict[str, Any]]] = {}
        self.links = {"nic0": {"address": "02:fe:00:00:14:00"}, "nic1": {"address": "02:fe:00:00:15:00"}}
        self.infiniband: set[str] = set()  # interfaces
        self.eswitches: dict[str, str] = {}  # by address the mode; the driver of another has no embedded switch
        self.mode_changes = "any time"  # or "without VFs" (ice), "with VFs" (bnxt)
        self.firmware: dict[str, dict[str, list[str]]] = {}
        self.reveals_at_boot = False  # firmware shows what ADVANCED_PCI_SETTINGS reveals only after a boot
        self.commands: list[str] = []
        self._build()

    # What a test arranges and looks at.

    def put(self, path: str, text: str | bytes) -> None:
        """A file, made as it is."""
        target = Path(self.path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, path: str, target: str) -> None:
        """A link, to a path of the server."""
        place = Path(self.path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.symlink_to(os.path.relpath(self.path(target), place.parent))

    def directory(self, address: str) -> str:
        """Return the path of a function in /sys/devices."""
        return "/" + os.path.relpath(os.path.realpath(self.path(f"/sys/bus/pci/devices/{address}")), self.root)

    def bind(self, address: str, driver: str | None) -> None:
        """Give a function a driver."""
        uevent = re.sub(r"DRIVER=.*\n", "", (self.read(f"{self.directory(address)}/uevent") or "") + "\n")
        place = Path(self.path(f"{self.directory(address)}/driver"))
        if place.is_symlink():
            place.unlink()
        if driver:
            self.put(f"/sys/bus/pci/drivers/{driver}/bind", "")
            self.link(f"{self.directory(address)}/driver", f"/sys/bus/pci/drivers/{driver}")
            uevent += f"DRIVER={driver}\n"
        self.put(f"{self.directory(address)}/uevent", uevent)

    def lock_down(self, level: str) -> None:
        """Turn kernel lockdown on, as Secure Boot does."""
        levels = ("none", "integrity", "confidentiality")
        self.put(
            "/sys/kernel/security/lockdown", " ".join(f"[{one}]" if one == level else one for one in levels) + "\n"
        )
        self.locked_down = level != "none"

    def host(self) -> Host:
        """The host as topology reads it."""
        return read_topology(self)

    def register(self, address: str, offset: int) -> int:
        """Two bytes of config space."""
        return int.from_bytes(
            (self.read_bytes(f"{self.directory(address)}/config") or b"")[offset : offset + 2], "little"
        )

    def open_by(self, process: int, path: str, arguments: list[str]) -> None:
        """A process that has a device file open."""
        self.put(f"/proc/{process}/cmdline", "\0".join(arguments))
        place = Path(self.path(f"/proc/{process}/fd/7"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)

    def state(self) -> dict[str, Any]:
        """All that can be compared of a server: files by path, settings of VFs, firmware."""
        files = {}
        for directory, _names, names in os.walk(self.root):
            for name in names:
                path = os.path.join(directory, name)
                content = os.readlink(path) if os.path.islink(path) else Path(path).read_bytes()
                files[os.path.relpath(path, self.root)] = content
        files.pop("proc/sys/vm/compact_memory", None)
        return {
            "files": files,
            "vfs": self.vf_settings,
            "firmware": self.firmware,
            "eswitches": dict(self.eswitches),
        }

    # The edge: every effect may be the last.

    def _effect(self, what: str) -> None:
        if self.kill_at is not None and len(self.effects) >= self.kill_at:
            raise KilledError(what)
        self.effects.append(what)

    def poke_bytes(self, path: str, data: bytes, offset: int) -> None:
        self._effect(f"poke {path}")
        if (path.split("/")[-2], offset) in self.read_only:
            return
        before = self.read_bytes(path)
        if before is None:
            raise KernelRefusedError(refusal(path, data, offset, os.strerror(errno.ENOENT)), errno.ENOENT)
        if path.endswith("/config") and self.locked_down:
            raise KernelRefusedError(refusal(path, data, offset, os.strerror(errno.EPERM)), errno.EPERM)
        if path.endswith("/config"):
            self.put(path, before[:offset] + data + before[offset + len(data) :])
        else:
            self.put(path, data)
        self._kernel(path, data.decode() if not path.endswith("/config") else "")

    def replace(self, path: str, content: bytes) -> None:
        self._effect(f"replace {path}")
        super().replace(path, content)

    def remove(self, path: str) -> None:
        self._effect(f"remove {path}")
        super().remove(path)

    def run(self, argv: list[str], stdin: str | None = None, timeout_seconds: float | None = None) -> str:
        self.commands.append(" ".join(argv))
        if argv[0] == "virsh":
            if self.domains is None:
                raise HostError("virsh is not installed on this host", "install its package first")
            return "".join(f"{name}\n" for name in [*self.domains, ""])
        if argv[:2] in (["ip", "-j"],):
            return self._ip_show(argv[-1])
        if argv[:5] == ["devlink", "-j", "dev", "eswitch", "show"]:
            return self._devlink_show(argv[5])
        if argv[0] == "mstconfig" and argv[-1] == "query":
            return self._mstconfig_query(argv[2])
        self._effect(" ".join(argv))
        return {
            "ip": self._ip_batch,
            "devlink": self._devlink_set,
            "driverctl": self._driverctl,
            "update-grub": self._update_grub,
            "mstconfig": self._mstconfig_set,
            "mkdir": lambda argv, _stdin: os.makedirs(self.path(argv[-1]), exist_ok=True) or "",
            "mount": self._mount,
            "umount": self._umount,
            "systemctl": self._systemctl,
        }[argv[0]](argv, stdin)

    # The kernel and the tools.

    def _kernel(self, path: str, text: str) -> None:
        directory = os.path.dirname(path)
        if path.endswith("/nr_hugepages"):
            used = int(self.read(f"{directory}/nr_hugepages.used") or 0)
            given = max(min(int(text), self.pages_at_most.get(directory, 1 << 30)), used)
            self.put(path, f"{given}\n")
            self.put(f"{directory}/free_hugepages", f"{given - used}\n")
        if path.endswith("/sriov_numvfs"):
            self._make_vfs(path.split("/")[-2], int(text))

    def _make_vfs(self, address: str, count: int) -> None:
        top = self.directory(address)
        if count and Path(self.path(f"{top}/virtfn0")).is_symlink():
            raise KernelRefusedError(
                refusal(f"{top}/sriov_numvfs", str(count).encode(), 0, os.strerror(errno.EBUSY)), errno.EBUSY
            )
        for index in range(VFS):
            vf = self._vf(address, index)
            if Path(self.path(f"{top}/virtfn{index}")).is_symlink():
                shutil.rmtree(os.path.realpath(self.path(f"{top}/virtfn{index}")))
                os.unlink(self.path(f"{top}/virtfn{index}"))
                os.unlink(self.path(f"/sys/bus/pci/devices/{vf}"))
            if index < count:
                place = f"{os.path.dirname(top)}/{vf}"
                self._function(place, "20000", "8086:10CA", None, 20 + index, "igb-vf")
                self.link(f"{top}/virtfn{index}", place)
                self.link(f"{place}/physfn", top)
        interface = INTERFACES[address]
        fresh = FRESH_INFINIBAND_VF if interface in self.infiniband else FRESH_VF
        self.vf_settings[interface] = {index: dict(fresh) for index in range(count)}

    @staticmethod
    def _vf(address: str, index: int) -> str:
        return (
            address.replace(":00.0", f":10.{2 * index}")
            if index < 4
            else address.replace(":00.0", f":11.{2 * index - 8}")
        )

    def _ip_show(self, interface: str) -> str:
        """The JSON of iproute2 6.1 (ip/ipaddress.c: print_linkinfo, print_vfinfo) with the fields that are read."""
        kind = "infiniband" if interface in self.infiniband else "ether"
        link = {"ifname": interface, "link_type": kind, **self.links[interface]}
        vfs = self.vf_settings.get(interface, {})
        return json.dumps([{**link, "vfinfo_list": [self._vfinfo(kind, index, one) for index, one in vfs.items()]}])

    @staticmethod
    def _vfinfo(kind: str, index: int, one: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"vf": index, "link_type": kind, "address": one.get("mac", ":".join(["00"] * 20))}
        told["vlan_list"] = [{"vlan": one["vlan"]}] if one.get("vlan") else [{}]
        told["rate"] = {"max_tx": one.get("max_tx_rate", 0), "min_tx": one.get("min_tx_rate", 0)}
        told.update({name: one[name] for name in ("spoofchk", "trust") if name in one})
        told.update({name.replace("_", " "): one[name] for name in ("node_guid", "port_guid") if name in one})
        return {**told, "link_state": one["state"]}

    def _ip_batch(self, _argv: list[str], stdin: str | None) -> str:
        for number, line in enumerate((stdin or "").splitlines(), 1):
            words = line.split()
            assert [*words[:3], words[4]] == ["link", "set", "dev", "vf"]
            one = self.vf_settings[words[3]][int(words[5])]
            for name, value in zip(words[6::2], words[7::2]):
                if name not in one:
                    raise HostError(
                        "'ip -batch -' failed (1): RTNETLINK answers: Operation not supported; "
                        f"Command failed -:{number}",
                        "correct what it names, and run again",
                    )
                is_number = name in ("vlan", "min_tx_rate", "max_tx_rate")
                one[name] = value == "on" if value in ("on", "off") else int(value) if is_number else value
        return ""

    def _devlink_show(self, handle: str) -> str:
        """The JSON of iproute2's devlink/devlink.c (pr_out_eswitch)."""
        address = handle[len("pci/") :]
        if address not in self.eswitches:
            raise HostError(f"'devlink' failed (1): {handle}: kernel answers: No such device", "correct what it names")
        said = {"mode": self.eswitches[address], "inline-mode": "none", "encap-mode": "basic"}
        return json.dumps({"dev": {handle: said}})

    def _devlink_set(self, argv: list[str], _stdin: str | None) -> str:
        address = argv[4][len("pci/") :]
        assert [*argv[:4], argv[5]] == ["devlink", "dev", "eswitch", "set", "mode"]
        there = bool(int(self.read(f"{self.directory(address)}/sriov_numvfs") or 0))
        if {"any time": False, "without VFs": there, "with VFs": not there}[self.mode_changes]:
            raise HostError("'devlink' failed (1): kernel answers: Operation not supported", "correct what it names")
        self.eswitches[address] = argv[6]
        return ""

    def _driverctl(self, argv: list[str], _stdin: str | None) -> str:
        if argv[1] == "set-override":
            self.bind(argv[2], argv[3])
            self._effect("driverctl saves")  # it does so after it has bound the device
            self.put(f"/etc/driverctl.d/pci-{argv[2]}", argv[3] + "\n")
        else:
            self.bind(argv[2], FUNCTIONS[argv[2]][3])
            self._effect("driverctl forgets")
            Path(self.path(f"/etc/driverctl.d/pci-{argv[2]}")).unlink(missing_ok=True)
        return ""

    def _update_grub(self, _argv: list[str], _stdin: str | None) -> str:
        """The part of grub-mkconfig and 10_linux that matters, with the real shell reading the real files."""
        script = '. "$1"; for one in "$1".d/*.cfg; do if [ -e "$one" ]; then . "$one"; fi; done; '
        script += 'printf "%s\\n%s" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"'
        done = subprocess.run(
            ["sh", "-eu", "-c", script, "sh", self.path("/etc/default/grub")],
            capture_output=True,
            text=True,
            check=True,
        )
        always, default = done.stdout.split("\n")
        self.put(
            "/boot/grub/grub.cfg",
            "### BEGIN /etc/grub.d/10_linux ###\n"
            f"\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro {always} {default}\n"
            f"\t\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro single {always}\n"
            "### END /etc/grub.d/10_linux ###\n"
            "### BEGIN /etc/grub.d/30_os-prober ###\n"
            "\tlinux /vmlinuz root=/dev/sdb1\n"
            "### END /etc/grub.d/30_os-prober ###\n",
        )
        return ""

    def _mount(self, argv: list[str], _stdin: str | None) -> str:
        assert Path(self.path(argv[-1])).is_dir()
        self.put("/proc/mounts", f"{self.read('/proc/mounts')}\nhugetlbfs {argv[-1]} hugetlbfs rw,{argv[4]} 0 0\n")
        return ""

    def _umount(self, argv: list[str], _stdin: str | None) -> str:
        lines = (self.read("/proc/mounts") or "").splitlines()
        self.put("/proc/mounts", "\n".join(line for line in lines if line.split()[1] != argv[-1]) + "\n")
        return ""

    def _systemctl(self, argv: list[str], _stdin: str | None) -> str:
        place = f"/etc/systemd/system/multi-user.target.wants/{argv[-1]}"
        if "enable" in argv:
            self.link(place, f"/etc/systemd/system/{argv[-1]}")
        if "disable" in argv:
            os.unlink(self.path(place))
        return ""

    def _mstconfig_query(self, address: str) -> str:
        if address not in self.firmware:
            raise HostError("mstconfig has no answer for it")
        rows = self.firmware[address]
        advanced = rows["ADVANCED_PCI_SETTINGS"][1 if self.reveals_at_boot else 2]
        hidden = {"MAX_ACC_OUT_READ"} if advanced == "False(0)" else set()
        head = f"\nDevice #1:\n----------\n\nDevice type:    ConnectX6\nDevice:         {address}\n\n"
        head += "Configurations:                              Default         Current         Next Boot       \n"
        lines = [
            f"{'*' if row[1] != row[2] else ' '}        {name:<36}{row[0]:<16}{row[1]:<16}{row[2]:<16}"
            for name, row in rows.items()
            if name not in hidden
        ]
        return (
            head
            + "\n".join(lines)
            + "\nThe '*' shows parameters with next value different from default/current value.\n"
        )

    def _mstconfig_set(self, argv: list[str], _stdin: str | None) -> str:
        words = {"True(1)": "1", "False(0)": "0", "per_mkey(0)": "per_mkey", "force_relax(1)": "force_relax"}
        for argument in argv[5:]:
            name, value = argument.split("=")
            back = {short: long for long, short in words.items()}
            row = self.firmware[argv[2]][name]
            row[2] = back.get(value, value) if "(" in row[0] else value
        return ""

    # The machine.

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


@pytest.fixture
def make_server(tmp_path: Path) -> Callable[[], Server]:
    """Makes servers that are all alike."""
    made: list[Server] = []

    def make() -> Server:
        made.append(Server(tmp_path / f"server{len(made)}"))
        return made[-1]

    return make


@pytest.fixture
def server(make_server: Callable[[], Server]) -> Server:
    """One server."""
    return make_server()


@pytest.fixture
def killed_anywhere(make_server: Callable[[], Server]) -> Callable[..., int]:
    """Runs ``ensure(server)`` killed before its first effect, its second, and so on; the next run must complete it.

    Completed means: the same state as a run that nobody killed, and nothing left to change. Returns how many
    places there were.
    """

    def check(arrange: Callable[[Server], None], ensure: Callable[[Server], Any]) -> int:
        whole = make_server()
        arrange(whole)
        before = len(whole.effects)
        ensure(whole)
        places = len(whole.effects) - before
        for place in range(places):
            server = make_server()
            arrange(server)
            server.kill_at = len(server.effects) + place
            with pytest.raises(KilledError):
                ensure(server)
            server.kill_at = None
            ensure(server)
            assert server.state() == whole.state(), f"killed at place {place}, before {whole.effects[before + place]}"
            assert not ensure(server).changed
        return places

    return check
