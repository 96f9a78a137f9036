# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A GPU server in a directory: a small simulated kernel reacts to writes and commands as Linux does.

Only System is replaced, at its lowest level: the tests run the same code as a live server.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from gpu_server_tree import FUNCTIONS, INTERFACES, VFS, ServerTree

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, KernelRefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import refusal
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

# The settings of new VFs; names and values are those of ip-link(8).
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
    """A simulated kill: no code of ours may catch it."""


class Server(ServerTree):
    """The server. ``effects``: the changes to it; ``kill_at``: the number of effects after which it is killed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.effects: list[str] = []
        self.kill_at: int | None = None
        self.pages_at_most: dict[str, int] = {}  # by a pool's directory: the most pages that the kernel allocates
        self.domains: list[str] | None = None  # libvirt's active domains; None: there is no libvirt
        self.locked_down = False  # writes to config space get EPERM, whatever /sys/kernel/security says
        self.read_only: set[tuple[str, int]] = set()  # (address, offset) of registers that keep their value
        self.vf_settings: dict[str, dict[int, dict[str, Any]]] = {}
        self.links = {"nic0": {"address": "02:fe:00:00:14:00"}, "nic1": {"address": "02:fe:00:00:15:00"}}
        self.infiniband: set[str] = set()  # names of interfaces
        self.eswitches: dict[str, str] = {}  # mode by address; other devices' drivers have no embedded switch
        self.mode_changes = "any time"  # or "without VFs" (ice), "with VFs" (bnxt)
        self.firmware: dict[str, dict[str, list[str]]] = {}
        self.reveals_at_boot = False  # whether firmware shows what ADVANCED_PCI_SETTINGS reveals only after a boot
        self.commands: list[str] = []
        self.running: set[str] = set()  # systemd's units

    # Methods with which a test prepares and inspects the server.

    def lock_down(self, level: str) -> None:
        """Turn kernel lockdown on, as Secure Boot does."""
        levels = ("none", "integrity", "confidentiality")
        self.put(
            "/sys/kernel/security/lockdown", " ".join(f"[{one}]" if one == level else one for one in levels) + "\n"
        )
        self.locked_down = level != "none"

    def host(self) -> Host:
        """Return the host as topology reads it."""
        return read_topology(self)

    def register(self, address: str, offset: int) -> int:
        """Return two bytes of config space."""
        return int.from_bytes(
            (self.read_bytes(f"{self.directory(address)}/config") or b"")[offset : offset + 2], "little"
        )

    def open_by(self, process: int, path: str, arguments: list[str]) -> None:
        """Make a process that has a device file open."""
        self.put(f"/proc/{process}/cmdline", "\0".join(arguments))
        place = Path(self.path(f"/proc/{process}/fd/7"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)

    def state(self) -> dict[str, Any]:
        """Return everything of a server that can be compared: files by path, settings of VFs, firmware."""
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

    # The lowest level: a kill may come before any effect.

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

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        if argv[:2] == ["systemctl", "show"]:
            return f"ActiveState={'active' if argv[-1] in self.running else 'inactive'}\n"
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

    # The simulated kernel and tools.

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
        """Return the JSON of iproute2 6.1 (ip/ipaddress.c: print_linkinfo, print_vfinfo), with the fields we read."""
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
                        "correct what it reports, and run again",
                    )
                is_number = name in ("vlan", "min_tx_rate", "max_tx_rate")
                one[name] = value == "on" if value in ("on", "off") else int(value) if is_number else value
        return ""

    def _devlink_show(self, handle: str) -> str:
        """Return the JSON of iproute2's devlink/devlink.c (pr_out_eswitch)."""
        address = handle[len("pci/") :]
        if address not in self.eswitches:
            raise HostError(f"'devlink' failed (1): {handle}: kernel answers: No such device", "correct what it names")
        settings = {"mode": self.eswitches[address], "inline-mode": "none", "encap-mode": "basic"}
        return json.dumps({"dev": {handle: settings}})

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
            self._effect("driverctl saves")  # driverctl saves after it has bound the device
            self.put(f"/etc/driverctl.d/pci-{argv[2]}", argv[3] + "\n")
        else:
            self.bind(argv[2], FUNCTIONS[argv[2]][3])
            self._effect("driverctl forgets")
            Path(self.path(f"/etc/driverctl.d/pci-{argv[2]}")).unlink(missing_ok=True)
        return ""

    def _update_grub(self, _argv: list[str], _stdin: str | None) -> str:
        """Simulate the relevant part of grub-mkconfig and 10_linux: a real shell reads the real files."""
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
        target = "timers.target" if argv[-1].endswith(".timer") else "multi-user.target"
        place = f"/etc/systemd/system/{target}.wants/{argv[-1]}"
        if "restart" in argv:
            self.running.add(argv[-1])
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
