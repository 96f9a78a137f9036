# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The HCAs of a host as its subnets see them: node descriptions, and an IPoIB interface for each partition.

Files: Linux, Documentation/ABI/stable/sysfs-class-infiniband and Documentation/infiniband/ipoib.rst.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

DEVICES, NETS = "/sys/class/infiniband", "/sys/class/net"
INFINIBAND = "InfiniBand"
FULL_MEMBER = 0x8000
# A node description has 64 bytes (IBA volume 1, 14.2.5.2).
MOST_BYTES = 64
_DEVICE = re.compile(r"[A-Za-z0-9_-]{1,32}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}")
# The interface of a partition, as the kernel names it: ib0.8001.
_CHILD = re.compile(r"\.[0-9a-f]{4}$")


def settings(host: str, hcas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked settings: ``host``, "" for the machine's own name, and the P_Keys by HCA. Raises RequestError.

    A P_Key has the bit of full membership, as the kernel sets it in the names of interfaces.
    """
    if host and not _HOST.fullmatch(host):
        raise RequestError(f"host {host!r} cannot be in a node description", "use 31 letters, digits, '.', '_' and '-'")
    checked: dict[str, list[int]] = {}
    for device, pkeys in hcas.items():
        if not _DEVICE.fullmatch(str(device)):
            raise RequestError(f"hcas: {device!r} is no RDMA device", "write its name, like mlx5_0")
        try:
            numbers = [int(str(pkey), 0) | FULL_MEMBER for pkey in pkeys or ()]
        except (TypeError, ValueError):
            numbers = [0]
        if not all(FULL_MEMBER < number < 0xFFFF for number in numbers):
            raise RequestError(f"hcas: {device}: {pkeys!r} are no P_Keys of partitions", "use 0x0001 to 0x7ffe")
        checked[device] = sorted(set(numbers))
    return {"host": host, "hcas": checked}


def link_layer(system: System, device: str) -> str:
    """Return "InfiniBand" or "Ethernet". Raises HostError for a device that the host does not have."""
    layer = system.read(f"{DEVICES}/{device}/ports/1/link_layer")
    if layer is None:
        seen = ", ".join(system.names(DEVICES)) or "none"
        raise HostError(f"{device}: no such RDMA device, there are: {seen}", "correct its name, or load its driver")
    return layer


def ensure(system: System, wanted: Mapping[str, Any], check: bool = False) -> Outcome:
    """Set node descriptions and interfaces where they differ; ``failed`` has the HCAs that could not follow."""
    outcome = Outcome()
    failures = []
    for device, pkeys in wanted["hcas"].items():
        try:
            layer = link_layer(system, device)
            if layer != INFINIBAND:
                raise HostError(f"{device}: its link layer is {layer}", "set its link type to InfiniBand, and reboot")
            _describe(system, device, wanted["host"], outcome, check)
            _add_interfaces(system, device, pkeys, outcome, check)
        except HostError as error:
            failures.append(str(error))
    outcome.failed = "; ".join(failures)
    return outcome


def description(host: str, device: str) -> str:
    """Return the node description that the plan of the fabric has."""
    return f"{host or socket.gethostname().split('.')[0]} {device}"


def _describe(system: System, device: str, host: str, outcome: Outcome, check: bool) -> None:
    path, text = f"{DEVICES}/{device}/node_desc", description(host, device)
    if len(text.encode()) > MOST_BYTES:
        raise HostError(f"{device}: the node description {text!r} is too long", f"use at most {MOST_BYTES} bytes")
    written = system.read(path)
    if written != text:
        outcome.differ(f"{device} node_desc", written, text)
        if not check:
            system.poke(path, text)


def _add_interfaces(system: System, device: str, pkeys: list[int], outcome: Outcome, check: bool) -> None:
    """Add the missing interfaces of partitions. Others stay: the host's network may use them."""
    if not pkeys:
        return
    names = [name for name in system.names(f"{DEVICES}/{device}/device/net") if not _CHILD.search(name)]
    if not names:
        raise HostError(f"{device}: it has no IPoIB interface", "load ib_ipoib (modprobe ib_ipoib)")
    # The main interface has the P_Key at index 0. The kernel refuses a second interface with it.
    main = int(system.read(f"{NETS}/{names[0]}/pkey") or "0", 0) | FULL_MEMBER
    for pkey in pkeys:
        child = f"{names[0]}.{pkey:04x}"
        if pkey == main or system.exists(f"{NETS}/{child}"):
            continue
        outcome.differ(child, None, f"partition 0x{pkey:04x} on {device}")
        if not check:
            system.poke(f"{NETS}/{names[0]}/create_child", f"0x{pkey:04x}")
            if not system.exists(f"{NETS}/{child}"):
                raise HostError(f"{child}: the kernel has not made it", "look into its log (dmesg)")
