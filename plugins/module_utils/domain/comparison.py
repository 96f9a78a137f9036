# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a domain that libvirt has differs from the one that is wanted, in meaning. Pure.

libvirt adds to what it is given: defaults, aliases, addresses, implicit devices. So what is wanted must be there as it
is; what is there beside it is a difference only where an element of that kind changes the machine (``OWNED``) and is
not one that libvirt puts into every domain (``IMPLICIT``).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.record import NAMESPACE

# What tells elements of one tag apart: an attribute, or "child/@attribute". No row: there is one such element.
IDENTITY: dict[str, tuple[str, ...]] = {
    "controller": ("@type", "@index"),
    "hostdev": ("source/address/@domain", "source/address/@bus", "source/address/@slot", "source/address/@function"),
    "disk": ("target/@dev",),
    "interface": ("mac/@address",),
    "serial": ("target/@port",),
    "channel": ("target/@name",),
    "vcpupin": ("@vcpu",),
    "iothreadpin": ("@iothread",),
    "cell": ("@id",),
    "sibling": ("@id",),
    "memnode": ("@cellid",),
    "page": ("@nodeset",),
    "feature": ("@name",),
    "input": ("@type", "@bus"),
    "qemu:arg": ("@value",),
    "sailloft:device": ("@address",),
}

# Places where an element too many changes the machine. "*" is any tag right below.
OWNED = (
    "metadata/sailloft:plan/*",
    "memoryBacking/*",
    "memoryBacking/hugepages/*",
    "cputune/*",
    "numatune/*",
    "memtune/*",
    "blkiotune/*",
    "iothreads",
    "sysinfo",
    "cpu/feature",
    "cpu/maxphysaddr",
    "cpu/numa/*",
    "features/ioapic",
    "os/kernel",
    "os/initrd",
    "os/cmdline",
    "devices/*",
    "devices/disk/readonly",
    "devices/disk/boot",
    "devices/hostdev/rom",
    "launchSecurity",
    "qemu:commandline",
    "qemu:commandline/*",
)

# Attributes that change the machine and that libvirt does not set by itself.
OWNED_ATTRIBUTES = frozenset(
    {
        "os/@firmware",
        "devices/controller/driver/@iommu",
        "devices/controller/driver/@ats",
        "devices/disk/driver/@iommu",
        "devices/disk/driver/@ats",
        "devices/disk/driver/@iothread",
        "devices/disk/driver/@cache",
        "devices/disk/driver/@io",
        "devices/interface/driver/@iommu",
        "devices/interface/driver/@ats",
    }
)

# What libvirt puts into a q35 domain by itself: qemuDomainDefAddDefaultDevices, virDomainDefAddImplicitDevices and
# virDomainDefAddConsoleCompat in libvirt's sources; the watchdog since libvirt 9.1 (ICH9's own).
IMPLICIT = (
    "devices/emulator",
    "devices/console",
    "devices/audio",
    "devices/input[mouse,ps2]",
    "devices/input[keyboard,ps2]",
    "devices/controller[sata,0]",
    "devices/watchdog",
)

PREFIXES = {"{http://libvirt.org/schemas/domain/qemu/1.0}": "qemu:", f"{{{NAMESPACE}}}": "sailloft:"}
MACHINE = re.compile(r"pc-q35-[0-9.]+")


@dataclass
class Difference:
    """``wanted`` or ``have`` is None where that side has no such thing."""

    path: str
    wanted: str | None
    have: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        return asdict(self)


def differences(wanted_xml: str, have_xml: str) -> list[Difference]:
    """Every difference in meaning, by path."""
    wanted, have = statements(wanted_xml), statements(have_xml)
    if "os/loader" in have:
        # Of a running domain, libvirt tells the image that it chose for firmware='efi', and no longer the choice.
        have.setdefault("os/@firmware", "efi")
    found = []
    for path, value in wanted.items():
        if path not in have:
            # One line for a thing that is missing, not one for each of its parts.
            if not any(path.startswith(f"{item.path}/") and item.have is None for item in found):
                found.append(Difference(path, value or "present", None))
        elif not _same(path, value, have[path]):
            found.append(Difference(path, value, have[path]))
    for path, value in have.items():
        if path in wanted or path in IMPLICIT or not _owned(path):
            continue
        if not any(path.startswith(f"{item.path}/") and item.wanted is None for item in found):
            found.append(Difference(path, None, value or "present"))
    return sorted(found, key=lambda item: item.path)


def running_differences(wanted_xml: str, live_xml: str) -> list[Difference]:
    """The same of what runs: what the host was when it started stays in its metadata, and needs no restart."""
    return [item for item in differences(wanted_xml, live_xml) if not item.path.startswith("metadata")]


def statements(xml: str) -> dict[str, str]:
    """The XML as flat sentences: "cputune/vcpupin[0]/@cpuset" is "1"; "" for an element without text."""
    root = ET.fromstring(xml)
    flat = {f"@{name}": value for name, value in root.attrib.items() if name != "id"}
    flat.update(_flatten(root, ""))
    return flat


def side_by_side(found: list[Difference]) -> dict[str, str]:
    """For Ansible's diff: a line for each difference, as it is and as it will be."""

    def lines(side: str) -> str:
        return "".join(f"{item.path} = {getattr(item, side)}\n" for item in found if getattr(item, side) is not None)

    return {"before": lines("have"), "after": lines("wanted")}


def _flatten(element: ET.Element, above: str) -> Iterator[tuple[str, str]]:
    for child in element:
        space, brace, plain = child.tag.rpartition("}")
        tag = PREFIXES.get(space + brace, space + brace) + plain
        path = f"{above}{tag}{_identity(child, tag)}"
        yield path, (child.text or "").strip()
        for name, value in child.attrib.items():
            yield f"{path}/@{name}", value
        yield from _flatten(child, f"{path}/")


def _identity(element: ET.Element, tag: str) -> str:
    parts = []
    for step in IDENTITY.get(tag, ()):
        place, _slash, attribute = step.rpartition("/")
        holder = element.find(place) if place else element
        parts.append("" if holder is None else holder.get(attribute.lstrip("@"), ""))
    if tag == "hostdev" and all(parts):
        domain, bus, slot, function = (int(part, 16) for part in parts)
        parts = [f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"]
    return f"[{','.join(parts)}]" if parts else ""


def _same(path: str, wanted: str, have: str) -> bool:
    if wanted == have:
        return True
    # libvirt writes down which version of the machine "q35" was when it was defined.
    return path == "os/type/@machine" and wanted == "q35" and bool(MACHINE.fullmatch(have))


def _owned(path: str) -> bool:
    plain = re.sub(r"\[[^]]*\]", "", path)
    if "@" in plain:
        return plain in OWNED_ATTRIBUTES
    above = plain.rpartition("/")[0]
    return plain in OWNED or f"{above}/*" in OWNED
