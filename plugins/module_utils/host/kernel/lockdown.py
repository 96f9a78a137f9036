# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel lockdown: why the kernel refuses writes to PCI config space, and what can be done instead.

Sources: kernel_lockdown(7); Linux security/lockdown/lockdown.c (the file), drivers/pci/pci-sysfs.c, pci_write_config()
(EPERM from the level "integrity" on; reading stays allowed). Distributions turn it on under Secure Boot.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# "none [integrity] confidentiality": the current level is in brackets.
FILE = "/sys/kernel/security/lockdown"
NONE = "none"

WAY_OUT = (
    "turn Secure Boot off in the BIOS, or leave these settings out. ACS needs no such write where the kernel argument "
    "pci=config_acs= sets it at boot (Linux 6.11 has it, 6.15 sets several ports without errors); nothing replaces the "
    "write of MaxReadReq and relaxed ordering"
)


def level(system: System) -> str | None:
    """Return "none", "integrity" or "confidentiality"; None if the kernel does not report it."""
    match = re.search(r"\[(\w+)\]", system.read(FILE) or "")
    return match[1] if match else None


def forbids_config_writes(level_now: str | None) -> bool:
    """Return True if the kernel certainly refuses writes to config space; if unknown, only a write can show it."""
    return level_now not in (None, NONE)


def cause(level_now: str | None) -> str:
    """Return the reason why a write to config space was refused."""
    if level_now is None:
        return f"the kernel refuses writes to PCI config space (EPERM), and {FILE} does not say whether lockdown is on"
    if level_now == NONE:
        return (
            "the kernel refuses writes to PCI config space (EPERM), although lockdown is off: run as root of the host"
        )
    return f"kernel lockdown is on ({level_now}), which blocks all writes to PCI config space"
