# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a VF: their checks, the keywords of ip-link(8) that set them, and how ``ip -j`` reports them.

The keys of the report are from iproute2's ip/ipaddress.c (print_vfinfo), the keywords from ip/iplink.c
(iplink_parse_vf).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

DEVICES = "/sys/bus/pci/devices"
GUID = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){7}", re.IGNORECASE)
# IEEE 802.1Q: 12 bits; 4095 is reserved.
VLAN_MAX = 4094
# struct ifla_vf_rate (linux/if_link.h): 32 bits, which ip(8) reads as a signed number.
RATE_MAX = (1 << 31) - 1
LINK_STATES = ("auto", "enable", "disable")
COMMAND = re.compile(r"^link set dev (\S+) vf ", re.MULTILINE)
FAILED_LINE = re.compile(r"Command failed -:(\d+)")


def _guid(value: Any) -> str:
    text = values.text(value)
    if not GUID.fullmatch(text) or not text.strip("0:"):
        raise values.InvalidValueError(f"{text!r} is not a GUID", "write eight bytes like 02:00:00:00:00:00:00:01")
    return text.lower()


def _of_vlan(key: str, item: dict[str, Any]) -> int:
    """Return the number of a VF's VLAN ("vlan") or its priority ("qos"), which are reported unless they are 0."""
    # Kernels before 4.9 have no list.
    first = (item.get("vlan_list") or [item])[0]
    return int(first.get(key, 0))


def _reported(*keys: str) -> Callable[[dict[str, Any]], Any]:
    """Return a function that reads the first of these keys that is reported."""
    return lambda item: next((item[key] for key in keys if key in item), None)


@dataclass(frozen=True)
class VfSetting:
    """A setting: its type, its check, its keyword, and how it is read from an element of ``vfinfo_list``."""

    kind: type
    check: values.Check
    word: str
    read: Callable[[dict[str, Any]], Any]
    choices: tuple[str, ...] = ()


# iproute2 before 5.6 has "mac" instead of "address", and reports neither GUIDs nor permanent addresses.
OF_ONE_VF = {
    "mac": VfSetting(str, values.unicast_mac, "mac", _reported("address", "mac")),
    "node_guid": VfSetting(str, _guid, "node_guid", _reported("node guid")),
    "port_guid": VfSetting(str, _guid, "port_guid", _reported("port guid")),
}
OF_EVERY_VF = {
    "trust": VfSetting(bool, values.flag, "trust", _reported("trust")),
    "spoof_check": VfSetting(bool, values.flag, "spoofchk", _reported("spoofchk")),
    "vlan": VfSetting(int, values.within(0, VLAN_MAX), "vlan", partial(_of_vlan, "vlan")),
    "link_state": VfSetting(str, values.among(*LINK_STATES), "state", _reported("link_state"), LINK_STATES),
    "min_tx_mbps": VfSetting(
        int, values.within(0, RATE_MAX), "min_tx_rate", lambda item: item.get("rate", {}).get("min_tx")
    ),
    "max_tx_mbps": VfSetting(
        int, values.within(0, RATE_MAX), "max_tx_rate", lambda item: item.get("rate", {}).get("max_tx")
    ),
}
SETTINGS = {**OF_ONE_VF, **OF_EVERY_VF}
# Addresses by type of link; a VF of one type cannot have those of the other.
ADDRESSES = {"ether": ("mac",), "infiniband": ("node_guid", "port_guid")}
# Drivers refuse these in switchdev mode, where the VF's representor has them (mlx5: core/eswitch.c; ice: ice_sriov.c).
NOT_IN_SWITCHDEV = ("trust", "spoof_check", "vlan", "link_state")


@dataclass(frozen=True)
class PfInterface:
    """A physical function's network interface, and the settings of its VFs by index; None: not reported.

    ``vlan_qos``: the priority in the tags of each VF's VLAN, which is not a setting of ``gpu_host_sriov``.
    """

    interface: str
    kind: str  # "ether" or "infiniband"
    hardware_address: str  # the permanent one
    vfs: dict[int, dict[str, Any]]
    representor: bool = False
    vlan_qos: Mapping[int, int] = field(default_factory=dict)


def read(system: System, address: str) -> PfInterface:
    """Read the interface of a physical function, and its VFs. Raises HostError."""
    # In switchdev mode the representors of its VFs are interfaces of the same PCI device.
    links = [link(system, interface) for interface in interfaces(system, address)]
    uplink = next((netdev for netdev in links if not netdev.representor), None)
    if uplink is None:
        raise HostError(
            f"sriov: {address} has no network interface, which is needed to configure its VFs",
            "load its network driver, or leave the settings of its VFs out",
        )
    return uplink


def interfaces(system: System, address: str) -> list[str]:
    """Return the names of the network interfaces of a PCI function."""
    return system.names(f"{DEVICES}/{address}/net")


def apply(system: System, batch: list[tuple[str, str]]) -> None:
    """Run ``batch`` with ``ip -batch``: pairs of a command and its name in errors. Raises HostError."""
    if not batch:
        return
    try:
        system.run(["ip", "-batch", "-"], stdin="".join(f"{command}\n" for command, _subject in batch))
    except HostError as error:
        line = FAILED_LINE.search(error.cause)
        if not line or not 0 < int(line[1]) <= len(batch):
            raise
        command, subject = batch[int(line[1]) - 1]
        raise HostError(
            f"sriov: {subject}: the driver refused 'ip {command}': {error.cause}",
            "leave out what it does not support, or update the driver",
        ) from error


def line(interface: str, index: int, settings: dict[str, Any]) -> str:
    """Return the command of ``ip -batch`` that applies these settings to one VF."""
    arguments = (f"{SETTINGS[name].word} {_word(value)}" for name, value in settings.items())
    return f"link set dev {interface} vf {index} {' '.join(arguments)}"


def interfaces_of(batch: str) -> list[str]:
    """Return the interfaces that commands of ``line`` name, each once."""
    return list(dict.fromkeys(COMMAND.findall(batch)))


def link(system: System, interface: str) -> PfInterface:
    """Read a network interface, and the VFs of its function. Raises HostError."""
    answer = system.run(["ip", "-j", "-d", "link", "show", "dev", interface])
    try:
        report = json.loads(answer)[0]
        return PfInterface(
            interface,
            report.get("link_type", "ether"),
            # Reported only if it differs from the address: a member of a bond has the bond's address.
            report.get("permaddr", report.get("address", "")),
            {
                item["vf"]: {name: setting.read(item) for name, setting in SETTINGS.items()}
                for item in report.get("vfinfo_list", [])
            },
            # Linux Documentation/networking/switchdev.rst: representors are named pf0vf0, the uplink p0.
            str(report.get("phys_port_name", "")).startswith("pf"),
            {item["vf"]: _of_vlan("qos", item) for item in report.get("vfinfo_list", [])},
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise HostError(
            f"sriov: 'ip -j -d link show dev {interface}' gave {answer[:200]!r}", "update iproute2 (5.0 or newer)"
        ) from error


def _word(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
