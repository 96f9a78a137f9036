# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices of the host that a libvirt domain or network names in its XML. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
# The elements of a domain that have a PCI function of the host (https://libvirt.org/formatdomain.html). A domain with
# <interface type='network'> shows the function that its network lent it as type='hostdev' while it runs.
HOLDERS = (
    "hostdev[@type='pci']/source/address",
    "interface[@type='hostdev']/source/address[@type='pci']",
    "disk[@type='nvme']/source/address",
)
# QEMU's options of a passed-through device, in its own syntax and as JSON: the host's address, without a domain too,
# or its directory in /sys (hw/vfio/pci.c, properties host and sysfsdev).
PASSED = re.compile(
    r"""(?:\bhost["']?[=:]\s*["']?|\bsysfsdev["']?[=:]\s*["']?/sys/\S*/)"""
    r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])\b"
)
# The drive that QEMU drives itself: nvme://ADDRESS/NAMESPACE, or its option device, with the whole address
# (block/nvme.c).
DRIVEN = re.compile(
    r"""(?:\bnvme://|\bdevice["']?[=:]\s*["']?)([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])\b"""
)
DEVICE_PATH = re.compile(r"""/dev/[^\s,"']+""")


@dataclass
class Lent:
    """The devices that a libvirt network lends to its domains.

    ``devices`` are PCI addresses, ``interfaces`` the host's interfaces, ``owners`` those whose VFs are lent, by name.
    """

    devices: list[str] = field(default_factory=list)
    interfaces: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)


def devices(domain: ET.Element) -> list[str]:
    """Return the PCI addresses that a domain passes through."""
    sources = [source for place in HOLDERS for source in domain.iterfind(f"devices/{place}")]
    return [_address(source) for source in sources] + _devices_of_arguments(domain)


def interfaces(domain: ET.Element) -> list[str]:
    """Return the kernel's names of the network interfaces of the host that a domain uses as a whole."""
    return [source.get("dev", "") for source in domain.iterfind("devices/interface[@type='direct']/source")]


def disks(domain: ET.Element) -> list[str]:
    """Return the paths of a domain's disks, of the images below them, and of devices in its arguments for QEMU.

    libvirt takes a block device as type='file' too. Volumes have no path here: ``pool_devices`` has their devices.
    """
    sources = (source for disk in domain.iterfind("devices/disk") for source in disk.iter("source"))
    paths = [source.get("dev") or source.get("file") or "" for source in sources]
    paths += [path for text in _arguments(domain) for path in DEVICE_PATH.findall(text)]
    return [path for path in paths if path]


def pool_devices(xml: str) -> list[str]:
    """Return the devices of the storage pool of this XML (https://libvirt.org/formatstorage.html, source)."""
    return [path for item in ET.fromstring(xml).iterfind("source/device") if (path := item.get("path"))]


def _address(source: ET.Element) -> str:
    part = {key: int(source.get(key, "0"), 16) for key in ("domain", "bus", "slot", "function")}
    return f"{part['domain']:04x}:{part['bus']:02x}:{part['slot']:02x}.{part['function']:x}"


def _devices_of_arguments(root: ET.Element) -> list[str]:
    """Return the PCI addresses in the arguments that the domain gives to QEMU itself."""
    addresses = []
    for text in _arguments(root):
        passed = PASSED.findall(text) if "vfio-pci" in text else []
        for domain, *place in passed + (DRIVEN.findall(text) if "nvme" in text else []):
            bus, slot, function = (int(part, 16) for part in place)
            addresses.append(f"{int(domain or '0', 16):04x}:{bus:02x}:{slot:02x}.{function:x}")
    return addresses


def _arguments(root: ET.Element) -> list[str]:
    return [argument.get("value", "") for argument in root.iter(f"{{{QEMU_NAMESPACE}}}arg")]


def lent(xml: str) -> Lent:
    """Return what the network of this XML lends to domains (https://libvirt.org/formatnetwork.html, forward)."""
    forward = ET.fromstring(xml).find("forward")
    if forward is None:
        return Lent()
    lent_interfaces = [name for name in (item.get("dev") for item in forward.iterfind("interface")) if name]
    return Lent(
        devices=[_address(item) for item in forward.iterfind("address[@type='pci']")],
        interfaces=lent_interfaces,
        owners=[name for name in (item.get("dev") for item in forward.iterfind("pf")) if name],
    )
