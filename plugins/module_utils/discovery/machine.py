# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what this machine is, for its report. Nothing is changed but that NICs without a link setting are brought up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import struct
import subprocess
from collections import Counter
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import lldp
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import (
    MOST_NICS,
    MachineReport,
    ReportedNic,
    harmless,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import Neighbour
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

# Twice the interval at which a switch sends by default (IEEE 802.1AB, msgTxInterval: 30 s), less what it varies.
LISTEN_S = 62.0
BMC_S = 60
# What boards without a number say.
NO_NUMBER = re.compile(
    r"(?i)|none|n/?a|0+|default string|not (specified|applicable|available)|to be filled.*|system serial.*"
)
# linux/sockios.h, linux/if.h.
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1


def inspect(mac: str, root: str = "/", listen_s: float = LISTEN_S) -> MachineReport:
    """Return the report of this machine, which boots from the NIC with this address.

    What cannot be read is one of its problems.
    """
    problems = []
    names = nics(root)
    for name in names:
        with contextlib.suppress(OSError):
            bring_up(name)
    heard = lldp.listen(names, listen_s)
    topology, devices, memory_mib, cpus = None, Counter[str](), 0, 0
    try:
        host = read_host(root)
    except TopologyError as error:
        problems.append(f"topology: {error.cause}")
    else:
        topology, devices = host.to_dict(), Counter(function.kind for function in host.functions)
        memory_mib = sum(node.memory_bytes for node in host.numa_nodes) >> 20
        cpus = sum(len(node.cpus) for node in host.numa_nodes)
    bmc, problem = read_bmc()
    problems += [problem] if problem else []
    dmi = Path(root, "sys/class/dmi/id")
    return MachineReport(
        mac=mac,
        vendor=_number(dmi, "sys_vendor"),
        product=_number(dmi, "product_name"),
        serial=_number(dmi, "product_serial", "chassis_serial", "board_serial"),
        bmc_address=bmc.get("IP Address", ""),
        bmc_mac=bmc.get("MAC Address", "").lower(),
        memory_mib=memory_mib,
        cpus=cpus,
        device_counts=dict(sorted(devices.items())),
        nics=tuple(_nic(root, name, heard) for name in names),
        problems=tuple(harmless(problem) for problem in problems),
        topology=topology,
    )


def nics(root: str) -> list[str]:
    """Return the names of the network interfaces that are devices, sorted, and not those of InfiniBand."""
    folder = Path(root, "sys/class/net")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    # linux/if_arp.h: ARPHRD_ETHER is 1.
    return [name for name in names if (folder / name / "device").exists() and _read(folder / name / "type") == "1"][
        :MOST_NICS
    ]


def bring_up(name: str) -> None:
    """Bring an interface up, so that it has a link and hears its neighbour. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        answer = fcntl.ioctl(channel, GET_FLAGS, struct.pack("16sh14x", name.encode(), 0))
        flags = struct.unpack_from("16sh", answer)[1]
        fcntl.ioctl(channel, SET_FLAGS, struct.pack("16sh14x", name.encode(), flags | UP))


def read_bmc() -> tuple[dict[str, str], str]:
    """Return the fields of the BMC's network channel as ipmitool names them, and why there are none, "" if there are.

    ipmitool finds the channel, and asks through the kernel. SMBIOS has the BMC's address only for the connection
    between host and BMC (type 42), not for the network on which people reach it.
    """
    try:
        process = subprocess.run(
            ["ipmitool", "lan", "print"], capture_output=True, text=True, errors="replace", timeout=BMC_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"BMC: ipmitool: {error}"
    pairs = (line.partition(":") for line in process.stdout.splitlines())
    fields = {name.strip(): value.strip() for name, colon, value in pairs if colon and name.strip()}
    address, mac = fields.get("IP Address", ""), fields.get("MAC Address", "").lower()
    if re.fullmatch(r"[0-9.]{7,15}", address) and re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", mac):
        return fields, ""
    return {}, f"BMC: ipmitool: {process.stderr.strip() or 'it names no address'}"


def _nic(root: str, name: str, heard: dict[str, Neighbour]) -> ReportedNic:
    folder = Path(root, "sys/class/net", name)
    driver = folder / "device/driver"
    neighbour = heard.get(name)
    return ReportedNic(
        name=harmless(name),
        mac=_read(folder / "address").lower(),
        driver=harmless(os.path.basename(os.path.realpath(driver))) if driver.exists() else "",
        link=_read(folder / "carrier") == "1",
        neighbour=harmless(neighbour.device) if neighbour else "",
        ports=tuple(harmless(port) for port in neighbour.ports) if neighbour else (),
    )


def _number(dmi: Path, *names: str) -> str:
    """Return the first of the firmware's texts that says something."""
    texts = (harmless(_read(dmi / name)) for name in names)
    return next((text for text in texts if not NO_NUMBER.fullmatch(text)), "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
