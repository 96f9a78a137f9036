# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The differences in meaning between a domain that libvirt has and the wanted one. Pure.

libvirt adds defaults, aliases, addresses and implicit devices to a definition. So everything wanted must be present and
unchanged, and anything else is a difference unless table ``ADDED`` has it as an addition of libvirt.

A later libvirt may make additions that are in no table. Such an addition is a difference that is reported but not acted
on (``Difference.unknown``): defining the domain again, or restarting it, would not remove the addition and would be
repeated at every run. ``OWNED`` has the places where an addition changes the machine and is removed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.host_record import NAMESPACE

PLAN = "metadata/sailloft:plan"

# The attributes that identify an element among those with its tag, as "@attribute" or "child/@attribute". A tag without
# a row occurs once. A second element with the same identity gets [2], as in XPath.
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
    "timer": ("@name",),
    "input": ("@type", "@bus"),
    "seclabel": ("@model",),
    "sailloft:device": ("@address",),
    "qemu:device": ("@alias",),
    "qemu:property": ("@name",),
}

# Additions of libvirt to a q35 domain: the path, and its value in an addition (None: any). "*" is one step or a part of
# one, "**" is everything below. Sources: qemuDomainDefAddDefaultDevices, virDomainDefAddImplicitDevices,
# virDomainDefAddConsoleCompat and virDomainDefFormatInternal in libvirt's repository, and the XML that libvirt 9.0 and
# 11.3 wrote for domains that were defined and started.
ADDED: tuple[tuple[str, str | None], ...] = (
    ("@id", None),
    ("currentMemory**", None),
    ("resource**", None),
    ("seclabel[[]*]**", None),
    ("on_poweroff", "destroy"),
    ("on_reboot", "restart"),
    ("on_crash", "destroy"),
    ("clock", ""),
    ("clock/@offset", "utc"),
    # The image that libvirt chooses for firmware='efi', and its variables.
    ("os/loader**", None),
    ("os/nvram**", None),
    ("os/boot", ""),
    ("os/boot/@dev", "hd"),
    # Since libvirt 10.1.
    ("cpu/topology/@clusters", "1"),
    ("devices/*/alias**", None),
    ("devices/emulator", None),
    # The first serial port again, under its older name.
    ("devices/console**", None),
    ("devices/audio**", None),
    ("devices/input[[]mouse,ps2]**", None),
    ("devices/input[[]keyboard,ps2]**", None),
    ("devices/controller[[]sata,0]**", None),
    # The watchdog of ICH9, since libvirt 9.1.
    ("devices/watchdog", ""),
    ("devices/watchdog/@model", "itco"),
    ("devices/watchdog/@action", "reset"),
    ("devices/controller[[]*]/model", ""),
    ("devices/controller[[]*]/model/@name", None),
    ("devices/controller[[]*]/target", ""),
    ("devices/controller[[]*]/target/@chassis", None),
    ("devices/controller[[]*]/target/@port", None),
    ("devices/disk[[]*]/source/@index", None),
    ("devices/disk[[]*]/backingStore**", None),
    ("devices/interface[[]*]/target", ""),
    ("devices/interface[[]*]/target/@dev", None),
    ("devices/interface[[]*]/source/@portid", None),
    ("devices/interface[[]*]/source/@bridge", None),
    ("devices/interface[[]*]/source/@dev", None),
    ("devices/interface[[]*]/source/@mode", None),
    ("devices/serial[[]*]/source", ""),
    ("devices/serial[[]*]/source/@path", None),
    ("devices/channel[[]*]/source", ""),
    ("devices/channel[[]*]/source/@mode", None),
    ("devices/channel[[]*]/source/@path", None),
    ("devices/channel[[]*]/target/@state", None),
    # These mean nothing when empty; their content is compared.
    ("metadata", ""),
    (PLAN, ""),
    ("memoryBacking", ""),
    ("cputune", ""),
    ("numatune", ""),
    ("os/firmware", ""),
    # Labels that other programs put on a domain, each in its own name space. They are no part of the machine.
    ("metadata/{**", None),
    ("title", None),
    ("description", None),
)

# Places where an addition changes the machine, and is removed by defining the domain again.
OWNED = (
    f"{PLAN}/**",
    "memoryBacking/**",
    "cputune/**",
    "numatune/**",
    "memtune**",
    "blkiotune**",
    "iothreads**",
    "sysinfo**",
    "launchSecurity**",
    "vcpu/@*",
    "os/@firmware",
    "os/firmware/**",
    "os/kernel**",
    "os/initrd**",
    "os/cmdline**",
    "features/**",
    "clock/timer[[]hpet]**",
    "cpu/cache**",
    "cpu/feature**",
    "cpu/maxphysaddr**",
    "cpu/numa/**",
    "devices/*",
    "devices/*/driver**",
    "devices/controller[[]*]/pcihole64**",
    "devices/controller[[]*]/target/node**",
    "devices/controller[[]*]/target/@hotplug",
    "devices/disk[[]*]/*",
    "devices/hostdev[[]*]/**",
    # Not all of an interface: libvirt also reports what the network adds to it (VLAN, virtual port, bandwidth, MTU).
    "devices/interface[[]*]/boot**",
    "devices/interface[[]*]/link**",
    "devices/interface[[]*]/rom**",
    "qemu:**",
)

# The types that libvirt reports for a running interface on a network with a bridge or a device of the host.
ON_NETWORK = ("bridge", "direct")

PREFIXES = {"{http://libvirt.org/schemas/domain/qemu/1.0}": "qemu:", f"{{{NAMESPACE}}}": "sailloft:"}


def path_pattern(path: str) -> str:
    """Return ``path`` of a table as a regular expression: "**" is anything, "*" anything but "/", "[[]" a bracket."""
    parts = re.split(r"(\*\*|\*|\[\[\])", path)
    return "".join({"**": ".*", "*": "[^/]*", "[[]": r"\["}.get(part, re.escape(part)) for part in parts)


ADDED_BY_LIBVIRT = tuple((re.compile(path_pattern(path)), value) for path, value in ADDED)
OWNED_PATHS = re.compile("|".join(path_pattern(path) for path in OWNED))


@dataclass
class XmlDifference:
    """One difference. ``wanted`` or ``have`` is None if that side does not have the path.

    ``unknown`` is True for an addition that was not requested, and that is known neither to change the machine nor to
    be libvirt's own. It is reported but not acted on.
    """

    path: str
    wanted: str | None
    have: str | None
    unknown: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return asdict(self)


def differences(wanted_xml: str, have_xml: str) -> list[XmlDifference]:
    """Return every difference in meaning, by path."""
    wanted, have = statements(wanted_xml), statements(have_xml)
    _firmware_of_image(wanted, have)
    differing = []
    # An element that only one side has gets one line, not one for each of its parts.
    subtrees: set[str] = set()
    for path, value in wanted.items():
        if path not in have:
            if not is_below(path, subtrees):
                differing.append(XmlDifference(path, value or "present", None))
            subtrees.add(path)
        elif not _same(path, value, have[path]):
            differing.append(XmlDifference(path, value, have[path]))
    subtrees.clear()
    for path, value in have.items():
        if path in wanted or _added(path, value):
            continue
        if not is_below(path, subtrees):
            differing.append(XmlDifference(path, None, value or "present", unknown=not OWNED_PATHS.fullmatch(path)))
        subtrees.add(path)
    return sorted(differing, key=lambda item: item.path)


def running_differences(wanted_xml: str, live_xml: str) -> list[XmlDifference]:
    """Return the differences of the running domain, without those in its metadata.

    The metadata record the host at the time when the domain started, and need no restart.
    """
    return [item for item in differences(wanted_xml, live_xml) if not item.path.startswith("metadata")]


def acted_on(differing: list[XmlDifference]) -> list[XmlDifference]:
    """Return the differences that defining the domain again, or restarting it, removes."""
    return [item for item in differing if not item.unknown]


def statements(xml: str) -> dict[str, str]:
    """Return the XML as flat statements: "cputune/vcpupin[0]/@cpuset" is "1"; "" for an element without text."""
    root = ET.fromstring(xml)
    flat = {f"@{name}": value for name, value in root.attrib.items()}
    flat.update(_flatten(root, ""))
    return flat


def side_by_side(differing: list[XmlDifference]) -> dict[str, str]:
    """Return a line for each difference, before and after, for Ansible's diff."""

    def lines(side: str) -> str:
        return "".join(
            f"{item.path} = {getattr(item, side)}\n" for item in acted_on(differing) if getattr(item, side) is not None
        )

    return {"before": lines("have"), "after": lines("wanted")}


def _flatten(element: ET.Element, prefix: str) -> Iterator[tuple[str, str]]:
    seen: dict[str, int] = {}
    for child in element:
        space, brace, plain = child.tag.rpartition("}")
        tag = PREFIXES.get(space + brace, space + brace) + plain
        path = f"{prefix}{tag}{_identity(child, tag)}"
        seen[path] = seen.get(path, 0) + 1
        if seen[path] > 1:
            path += f"[{seen[path]}]"
        yield path, (child.text or "").strip()
        for name, value in child.attrib.items():
            yield f"{path}/@{name}", value
        if tag == "interface" and child.get("type") in ON_NETWORK and child.find("source[@network]") is not None:
            yield f"{path}/@type", "network"
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


def _firmware_of_image(wanted: dict[str, str], have: dict[str, str]) -> None:
    """Add firmware='efi' to ``have`` if libvirt reports only the image that it chose for it.

    Some versions of libvirt do this for a running domain.
    """
    if "os/loader" not in have or "os/@firmware" in have:
        return
    have["os/@firmware"] = "efi"
    if "os/firmware" not in have and have.get("os/loader/@secure") != "yes":
        have.update({path: value for path, value in wanted.items() if path.startswith("os/firmware")})


def _same(path: str, wanted: str, have: str) -> bool:
    if wanted == have:
        return True
    # A plan that was made without libvirt has the alias; libvirt writes the alias's version.
    return path == "os/type/@machine" and wanted == machine_type.ALIAS and machine_type.is_version(have)


def is_below(path: str, subtrees: set[str]) -> bool:
    """Return True if ``subtrees`` has one above ``path``. A "/" in brackets gives a false path, which does no harm."""
    end = path.rfind("/")
    while end > 0:
        if path[:end] in subtrees:
            return True
        end = path.rfind("/", 0, end)
    return False


def _added(path: str, value: str) -> bool:
    return any(pattern.fullmatch(path) and expected in (None, value) for pattern, expected in ADDED_BY_LIBVIRT)
