# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kinds of settings of a request: the check of a value, and the type of the modules' option. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import Check, InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type

# libvirt refuses "/" and a few others. QEMU's pid and log files also have the name, so only characters that are valid
# everywhere are allowed.
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
SHORT_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# All nodes that have CPUs and memory, as the only element of numa_nodes.
ALL_NODES = "all"
NODE = re.compile(r"[0-9]{1,4}")

# The limits of any guest, where no host sets a lower one: 4096 vCPUs (QEMU's q35 since 9.0), 52 physical
# address bits and so 4 PiB (AMD64 Architecture Programmer's Manual, volume 2, 5.1), 256 buses, a device on each.
VCPUS_MAX = 4096
MEMORY_MIB_MAX = 1 << 32
WINDOW_MIB_MAX = 1 << 32
ADDRESS_BITS_MAX = 52
DEVICES_MAX = 256
# Queue pairs of a network interface: MAX_TAP_QUEUES of Linux drivers/net/tun.c.
QUEUES_MAX = 256
# 1 PiB, more than a qcow2 disk of QEMU can address with the default size of clusters and tables.
DISK_MIB_MAX = 1 << 30
# x86-64's sizes of huge pages; 0 is ordinary memory.
HUGE_PAGES_MIB = (0, 2, 1024)
# Linux on x86 takes 2048 bytes with the closing NUL (COMMAND_LINE_SIZE, arch/x86/include/asm/setup.h).
ARGUMENTS_MAX = 2047
# Linux: IFNAMSIZ is 16 with the closing NUL. The characters are those of libvirt's schema.
BRIDGE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}")
SOURCE_MAX = 255
# A URL that names a file at its end, and the hexadecimal digits of its digest.
URL = re.compile(r"https?://[^/\s]+/(?:[^\s?#]*/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
MODULE_ID = re.compile(r"[0-9]{1,3}")
BITS = re.compile(r"[1-9][0-9]")


@dataclass(frozen=True)
class OptionSpec:
    """One setting: ``check`` returns its value or raises InvalidValueError; the rest is as in Ansible's options."""

    check: Check
    type: str
    elements: str | None = None
    choices: tuple[str, ...] | None = None


def number(minimum: int, maximum: int, unit: str = "") -> OptionSpec:
    """Return the setting of a whole number of ``unit``."""
    return OptionSpec(values.within(minimum, maximum, unit), "int")


def choice(*choices: str) -> OptionSpec:
    """Return the setting of one of ``known``."""
    return OptionSpec(values.among(*choices), "str", choices=choices)


def check_power_of_two(value: Any) -> int:
    """Check a power of two; 0 means that the value is computed."""
    if values.integer(value, 0, WINDOW_MIB_MAX, "MiB") & (value - 1):
        raise InvalidValueError(f"{value} is not a power of two", "leave it out to have it computed")
    return value


def check_page_size(value: Any) -> int:
    """Check a size of huge pages in MiB."""
    if isinstance(value, bool) or value not in HUGE_PAGES_MIB:
        raise InvalidValueError(
            f"{value!r} is not a huge page size", "valid sizes on x86: 2 and 1024; 0 means ordinary memory"
        )
    return value


def check_address_bits(value: Any) -> str:
    """Check a mode of physical address bits, or their number as text."""
    names = values.text(value)
    if names not in ("auto", "passthrough", "off") and not (
        BITS.fullmatch(names) and 32 <= int(names) <= ADDRESS_BITS_MAX
    ):
        raise InvalidValueError(
            f"{value!r} is unknown", f"use auto, passthrough, off, or a number from 32 to {ADDRESS_BITS_MAX}"
        )
    return names


def check_machine(value: Any) -> str:
    """Check a machine type: the alias, or a version of it."""
    if value != machine_type.ALIAS and not machine_type.is_version(values.text(value)):
        raise InvalidValueError(
            f"{value!r} is not a version of q35",
            "write it as virsh capabilities shows it, like pc-q35-8.2, or leave it out",
        )
    return str(value)


def check_nodes(value: Any) -> list[str]:
    """Return NUMA nodes as text; numbers are accepted, too."""
    ids = [str(node) for node in value] if isinstance(value, list) else [str(value)]
    if not isinstance(value, list) or (ids != [ALL_NODES] and not all(NODE.fullmatch(node) for node in ids)):
        raise InvalidValueError(f"{ids!r} is neither [all] nor a list of NUMA nodes", "write it like [0, 1]")
    return ids


def check_addresses(value: Any) -> list[str]:
    """Check a list of PCI addresses."""
    if not isinstance(value, list):
        raise InvalidValueError(f"{value!r} is not a list", "write it like ['0000:3b:00.0']")
    return [check_address(item) for item in value]


def check_address(value: Any) -> str:
    """Return a PCI address in full and in lower case."""
    # YAML reads 10:00.0 without quotes as a number, of base 60.
    text = value.lower() if isinstance(value, str) else ""
    if SHORT_ADDRESS.fullmatch(text):
        text = f"0000:{text}"
    if not ADDRESS.fullmatch(text):
        raise InvalidValueError(f"{value!r} is not a PCI address", "write it like '0000:3b:00.0', in quotes")
    return text


def check_auto_switch(value: Any) -> str:
    """Return "auto", "true" or "false"; YAML's own true and false are accepted."""
    return values.among("auto", "true", "false")(str(value).lower() if isinstance(value, bool) else value)


def check_name(value: Any) -> str:
    """Check the name of a virtual machine."""
    if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
        raise InvalidValueError(
            "not a name", "use at most 64 letters, digits, '.', '_', '-', starting with a letter or digit"
        )
    return value


def check_arguments(value: Any) -> str:
    """Check a kernel's arguments."""
    return values.text(value, ARGUMENTS_MAX)


def check_source(value: Any) -> str:
    """Check the name of a network or a bridge."""
    return values.text(value, SOURCE_MAX)


def check_url(value: Any) -> str:
    """Check the URL of a file."""
    if not URL.fullmatch(values.text(value)):
        raise InvalidValueError(
            f"{value!r} is not the URL of a file", "write it like https://host/directory/file.qcow2"
        )
    return str(value)


def check_checksum(value: Any) -> str:
    """Check the checksum of a file, as Ansible's get_url writes it."""
    if not CHECKSUM.fullmatch(values.text(value)):
        raise InvalidValueError(
            f"{value!r} is not a checksum", "write it as sha256: or sha512: and its digits, as the vendor publishes it"
        )
    return str(value)


SWITCH = OptionSpec(values.flag, "bool")
AUTO_SWITCH = OptionSpec(check_auto_switch, "str", choices=("auto", "true", "false"))
POWER_OF_TWO = OptionSpec(check_power_of_two, "int")
PAGE_SIZE = OptionSpec(check_page_size, "int")
ADDRESS_BITS = OptionSpec(check_address_bits, "str")
MACHINE = OptionSpec(check_machine, "str")
NODES = OptionSpec(check_nodes, "list", "str")
ADDRESSES = OptionSpec(check_addresses, "list", "str")
NAME = OptionSpec(check_name, "str")
ARGUMENTS = OptionSpec(check_arguments, "str")
SOURCE = OptionSpec(check_source, "str")
PATH = OptionSpec(values.path, "str")
MAC = OptionSpec(values.unicast_mac, "str")
URL_OF_FILE = OptionSpec(check_url, "str")
CHECKSUM_OF_FILE = OptionSpec(check_checksum, "str")
LINES = OptionSpec(values.texts, "list", "str")
