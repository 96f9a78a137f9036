# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A separate network with boot servers that the role's files configure, and a diskless node."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boot_server_role import dnsmasq_configuration, nginx_configuration, render
from patience import scaled_s
from sockets import wait_for_listener

SERVER = "10.9.0.1"
NODE_ADDRESS = "10.9.0.11"
OTHER_SERVER = "10.9.0.254"
NODE = "bm01"
MAC = "52:54:00:aa:bb:01"
# The node's second NIC, which does not boot, and the server's address in its network.
RAIL_MAC = "52:54:00:aa:bb:02"
RAIL_SERVER = "10.9.1.1"
MEMORY_MIB = 1536
OVMF = Path("/usr/share/OVMF")


def mac_of(number: int) -> str:
    """Return the MAC address of a node, the first of which is ``NODE``."""
    return f"{MAC[:-2]}{number:02}"


def address_of(number: int) -> str:
    """Return the address of a node, the first of which is ``NODE``."""
    return f"{NODE_ADDRESS[:-1]}{number}"


class Network:
    """A network namespace with a bridge that connects the node and the servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen] = []
        self.holder = self._namespace(["unshare", "--user", "--map-root-user", "--net"])
        self._run(
            "ip link set lo up",
            "ip link add nodes0 type bridge",
            f"ip address add {SERVER}/24 dev nodes0",
            f"ip address add {RAIL_SERVER}/24 dev nodes0",
            "ip link set nodes0 up",
        )
        for tap in ("tap0", "tap1", "tap2"):
            self._run(f"ip tuntap add {tap} mode tap", f"ip link set {tap} master nodes0 up")

    def _namespace(self, command: list) -> subprocess.Popen:
        """Start a process that holds the network namespace that the command makes."""
        holder = subprocess.Popen([*command, "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE)
        self.started.append(holder)
        assert holder.stdout.readline() == b"ready\n", "no network namespace of our own"
        return holder

    def _run(self, *commands: str) -> None:
        for command in commands:
            subprocess.run(self.inside(command.split()), check=True)

    def inside(self, command: list) -> list:
        """Return the command, prefixed to run in the namespace."""
        entered = ["nsenter", f"--target={self.holder.pid}", "--user", "--net", "--preserve-credentials"]
        return [*entered, *map(str, command)]

    def start(self, command: list, log: Path) -> subprocess.Popen:
        """Start a command, which is stopped with the network."""
        with log.open("ab") as stream:
            process = subprocess.Popen(
                self.inside(command), stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
            )
        self.started.append(process)
        return process

    def close(self) -> None:
        """Stop everything that was started."""
        for process in reversed(self.started):
            stop(process)

    def other_dhcp(self) -> None:
        """Start another DHCP server of the site, which gives the node its address and knows nothing about booting."""
        other = self._namespace(self.inside(["unshare", "--net"]))
        # "exec" throughout: the process started in the namespace must be the one that made it.
        self._run(
            f"ip link add other0 type veth peer name eth0 netns {other.pid}", "ip link set other0 master nodes0 up"
        )
        there = ["nsenter", f"--target={other.pid}", "--net"]
        for command in (f"ip address add {OTHER_SERVER}/24 dev eth0", "ip link set eth0 up"):
            subprocess.run(self.inside([*there, *command.split()]), check=True)
        leases = self.folder / "leases"
        leases.touch()
        (self.folder / "udhcpd.conf").write_text(
            f"interface eth0\nstart {NODE_ADDRESS}\nend {NODE_ADDRESS}\noption subnet 255.255.255.0\n"
            f"lease_file {leases}\npidfile {self.folder}/udhcpd.pid\n"
        )
        self.start([*there, "busybox", "udhcpd", "-f", self.folder / "udhcpd.conf"], self.folder / "udhcpd.log")

    def dnsmasq(
        self,
        servers: list[str],
        dhcp: str = "full",
        nic_driver: str = "ipxe",
        signed: Path | None = None,
        altered: Mapping[str, str] | None = None,
        discovery: Mapping[str, Any] | None = None,
        names: Sequence[str] = (NODE,),
        **changed: object,
    ) -> None:
        """Start TFTP for the nodes, and DHCP: complete, or the part that another DHCP server leaves to it.

        With ``signed``, a store, the nodes have Secure Boot and get the file of this store. ``altered`` are texts of
        the configuration, and what an attacker has put in their place. With ``discovery``, the server knows no node.
        ``changed`` are further variables of the role.
        """
        tftp = self.folder / "tftp"
        tftp.mkdir()
        for name in ("undionly.kpxe", "ipxe.efi", "snponly.efi"):
            shutil.copy(Path("/usr/lib/ipxe") / name, tftp)
        (tftp / "start.ipxe").write_text(render("start.ipxe.j2", boot_server_servers=servers))
        if signed:
            (tftp / "nodes").symlink_to(signed / "nodes")
        settings = {"nic_driver": nic_driver, "secure_boot": signed is not None}
        nodes = [
            {"name": name, "mac": mac_of(number), "address": address_of(number), **settings}
            for number, name in enumerate(names, 1)
        ]
        text = dnsmasq_configuration(
            [] if discovery else nodes,
            boot_server_discovery=discovery or {},
            boot_server_servers=servers,
            boot_server_interface="nodes0",
            boot_server_tftp_dir=tftp,
            boot_server_address=SERVER,
            boot_server_dhcp=dhcp,
            **changed,
        )
        for ours, theirs in (altered or {}).items():
            assert ours in text, text
            text = text.replace(ours, theirs)
        file = self.folder / "dnsmasq.conf"
        file.write_text(text.replace("/var/lib/misc", str(self.folder)))
        # "--no-daemon" also keeps the current user; the namespace has no other.
        log = self.folder / "dnsmasq.log"
        process = self.start(["dnsmasq", f"--conf-file={file}", "--no-daemon"], log)
        while "started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)

    def tftp(self, address: str, folder: Path) -> Path:
        """Start another machine's TFTP server, which knows nothing of DHCP, after ``dnsmasq``; return its log."""
        self._run(f"ip address add {address}/24 dev nodes0")
        log = self.folder / f"tftp-{address}.log"
        command = ["dnsmasq", "--conf-file=/dev/null", "--no-daemon", "--port=0", "--bind-interfaces", "--pid-file="]
        self.start([*command, f"--listen-address={address}", "--enable-tftp", f"--tftp-root={folder}"], log)
        return log


class HttpServer:
    """nginx with the role's configuration, on its own port; nodes get ``url``."""

    def __init__(
        self,
        network: Network,
        store: Path,
        port: int,
        slow_kib_s: int = 0,
        discovery: Mapping[str, Any] | None = None,
        crash_dumps_gib: int = 0,
        address: str = SERVER,
    ) -> None:
        self.network = network
        self.url = f"http://{SERVER}:{port}"
        self.folder = network.folder / f"nginx-{port}"
        self.folder.mkdir()
        text = nginx_configuration(
            self.folder,
            store,
            port,
            nodes=[{"name": NODE, "mac": MAC, "address": NODE_ADDRESS}],
            discovery=discovery,
            address=address,
            crash_dumps_gib=crash_dumps_gib,
        )
        if slow_kib_s:
            text = text.replace("sendfile on;", f"sendfile on; limit_rate {slow_kib_s}k;")
        self.configuration = self.folder / "nginx.conf"
        self.configuration.write_text(text)
        self.process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        """Start serving."""
        command = ["nginx", "-e", self.folder / "error.log", "-c", self.configuration, "-g", "daemon off;"]
        self.process = self.network.start(command, self.folder / "out.log")

    def stop(self) -> None:
        """Stop at once, even during a response."""
        stop(self.process)

    def reports(self) -> list[dict[str, str]]:
        """Return the node's reports."""
        file = self.folder / "sailloft-report.log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def requests(self) -> str:
        """Return the log of all requests."""
        return (self.folder / "access.log").read_text()


class Node:
    """A machine without a disk, one of three; ``console`` is its output so far. The second has the rail's tap."""

    def __init__(
        self,
        network: Network,
        boot: list,
        firmware: str = "bios",
        memory_mib: int = MEMORY_MIB,
        rail: bool = False,
        number: int = 1,
    ) -> None:
        self.log = network.folder / f"console-{number}.log"
        command = [
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-m",
            memory_mib,
            "-nodefaults",
            "-display",
            "none",
        ]
        command += [
            "-machine",
            "q35,smm=on" if firmware == "secure" else "q35",
            "-cpu",
            "max",
            "-serial",
            f"file:{self.log}",
            "-no-reboot",
        ]
        command += ["-netdev", f"tap,id=net,ifname=tap{number - 1},script=no,downscript=no"]
        # UEFI has its own driver; QEMU's ROM is iPXE, which would not request ipxe.efi.
        no_rom = "" if firmware == "bios" else ",romfile="
        # A kernel given on the command line already has boot index 0.
        command += [
            "-device",
            f"virtio-net-pci,netdev=net,mac={mac_of(number)}{'' if '-kernel' in boot else ',bootindex=0'}{no_rom}",
        ]
        if rail:
            command += ["-netdev", "tap,id=rail,ifname=tap1,script=no,downscript=no"]
            command += ["-device", f"virtio-net-pci,netdev=rail,mac={RAIL_MAC},romfile="]
        if firmware != "bios":
            variables = network.folder / "variables.fd"
            code = OVMF / "OVMF_CODE_4M.fd"
            if firmware == "efi":
                shutil.copy(OVMF / "OVMF_VARS_4M.fd", variables)
            else:
                # The variables with the site's keys are there; only the firmware itself may write them.
                code = OVMF / "OVMF_CODE_4M.secboot.fd"
                command += ["-global", "driver=cfi.pflash01,property=secure,value=on"]
            command += ["-drive", f"if=pflash,format=raw,readonly=on,file={code}"]
            command += ["-drive", f"if=pflash,format=raw,file={variables}"]
        self.messages = network.folder / f"qemu-{number}.log"
        self.process = network.start([*command, *boot], self.messages)

    @property
    def console(self) -> str:
        return self.log.read_text(errors="replace").replace("\r", "") if self.log.exists() else ""

    def stop(self) -> None:
        """End the machine, and forget its console."""
        stop(self.process)
        self.log.unlink()

    def wait_for(self, text: str, seconds: float, after: int = 0) -> str:
        """Wait until ``text`` is on the console in a complete line; return the console from character ``after`` on."""
        begun = time.monotonic()

        def is_there() -> bool:
            return "\n" in self.console[after:].partition(text)[2]

        while not is_there():
            assert self.process.poll() is None or is_there(), (
                f"the machine ended\n{self.console}{self.messages.read_text()}"
            )
            waited_s = time.monotonic() - begun
            assert waited_s < scaled_s(seconds), f"no {text!r} in {waited_s:.0f} s\n{self.console[-6000:]}"
            time.sleep(0.1)
        return self.console[after:]


class SoftwareTpm:
    """A TPM 2.0 (swtpm), whose memory outlives the machines that it is attached to, one after the other."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.folder = network.folder / "tpm"
        self.folder.mkdir()

    def options(self) -> list:
        """Start it, and return QEMU's options. It ends with the machine."""
        place = self.folder / "socket"
        place.unlink(missing_ok=True)
        command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self.folder}", "--terminate"]
        process = self.network.start([*command, "--ctrl", f"type=unixio,path={place}"], self.folder / "log")
        wait_for_listener(place, process)
        tpm = ["-chardev", f"socket,id=tpm,path={place}", "-tpmdev", "emulator,id=tpm0,chardev=tpm"]
        return [*tpm, "-device", "tpm-tis,tpmdev=tpm0"]


def stop(process: subprocess.Popen) -> None:
    """End a process that we started."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
