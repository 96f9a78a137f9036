# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine type of a guest: the alias q35, and the versions of it that each distribution's QEMU has. Pure.

A version fixes the guest's hardware (its ABI). libvirt resolves the alias when a domain is defined, and the domain
keeps that version: a newer QEMU adds versions, and does not change existing guests.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

ALIAS = "q35"

# Examples: pc-q35-10.0 (QEMU), pc-q35-rhel9.4.0 (RHEL), pc-q35-noble (Ubuntu) and pc-q35-jammy-hpb (Ubuntu, with the
# host's physical address bits).
VERSION = re.compile(r"pc-q35-[A-Za-z0-9][A-Za-z0-9._-]{0,56}")


# RHEL's versions have host-phys-bits-limit=48 (pc_rhel_compat of hw/i386/pc.c in RHEL's QEMU). Not tested on RHEL.
OF_RHEL = re.compile(r"pc-q35-rhel.*")
ADDRESS_BITS_OF_RHEL = 48


def address_bits(machine: str, host_bits: int | None) -> int | None:
    """Return the most physical address bits of a guest with this machine, or None if the host's are unknown."""
    if host_bits is None or not OF_RHEL.fullmatch(machine):
        return host_bits
    return min(host_bits, ADDRESS_BITS_OF_RHEL)


def is_version(machine: str) -> bool:
    """Return True if ``machine`` is a version of q35."""
    return bool(VERSION.fullmatch(machine))


def of_domain(xml: str) -> str | None:
    """Return the version in a domain's XML, or None if the machine is not q35 or its version is not resolved."""
    kind = ET.fromstring(xml).find("os/type")
    machine = kind.get("machine", "") if kind is not None else ""
    return machine if is_version(machine) else None


def settled(pinned: str, defined: str | None, newest: str) -> str:
    """Return the machine of a plan: the pinned version, else the existing domain's, else the alias's version."""
    return pinned if pinned != ALIAS else defined or newest


def note(machine: str, pinned: str, newest: str) -> str | None:
    """Return the note for a plan that keeps another version than a new domain would get, or None."""
    if pinned != ALIAS or machine == newest or not is_version(newest):
        return None
    return (
        f"the virtual machine keeps machine type {machine}; a new one would get {newest} on this host; machine: "
        f"{newest} changes it, and the guest's hardware with it, at the next start"
    )


def in_order(machines: list[str]) -> list[str]:
    """Return versions in the order of their numbers: 9.2 before 10.0."""
    return sorted(machines, key=lambda name: [(len(part), part) for part in re.split(r"[.-]", name)])
