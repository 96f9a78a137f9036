# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The API version and the virtual hardware that each setting needs. Pure.

pyVmomi silently leaves out what the negotiated version does not know, and below 7.0 it writes a dynamic DirectPath
device as one without a choice of device. So each setting is checked against this table before anything is sent.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN, Finding

API_7, API_8 = (7, 0), (8, 0, 0, 1)
# The newest virtual hardware by ESXi release: VMware KB 1003746, "Virtual machine hardware versions".
HARDWARE_OF_ESXI = (
    ((9, 0), 22),
    ((8, 0, 2), 21),
    ((8, 0), 20),
    ((7, 0, 2), 19),
    ((7, 0, 1), 18),
    ((7, 0), 17),
    ((6, 7, 2), 15),
    ((6, 7), 14),
    ((6, 5), 13),
)
# Setting -> (least API, least virtual hardware). API: the property's version in pyVmomi's own tables; hardware: the
# vSphere 8.0 documentation of virtual hyperthreads and of Dynamic DirectPath I/O.
NEEDS: dict[str, tuple[tuple[int, ...], int]] = {
    "threads_per_core": (API_8, 20),
    "cores_per_numa_node": (API_8, 20),
    "numa_node": (API_8, 20),
    "device_group": (API_8, 20),
    "dynamic": (API_7, 17),
}
WORDS = {
    "threads_per_core": "virtual hyperthreads (simultaneousThreads)",
    "cores_per_numa_node": "virtual NUMA (virtualNuma)",
    "numa_node": "the virtual NUMA node of a device (numaNode)",
    "device_group": "device groups",
    "dynamic": "dynamic DirectPath I/O",
}


def hardware(version: str) -> int:
    """Return the number of a virtual hardware version: "vmx-21" is 21; 0 without a number."""
    digits = version.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def newest_hardware(esxi: str) -> str:
    """Return the newest virtual hardware of an ESXi release ("8.0.3"); for a release before the table, the oldest."""
    release = tuple(int(part) for part in esxi.split(".") if part.isdecimal())
    for min_release, number in HARDWARE_OF_ESXI:
        if release >= min_release:
            return f"vmx-{number}"
    return f"vmx-{HARDWARE_OF_ESXI[-1][1]}"


def used(wanted: dict[str, Any]) -> set[str]:
    """Return the settings of ``NEEDS`` that a wanted configuration uses."""
    settings = set()
    if wanted["threads_per_core"] > 1:
        settings.add("threads_per_core")
    if wanted["cores_per_numa_node"]:
        settings.add("cores_per_numa_node")
    if wanted["device_group"]:
        settings.add("device_group")
    for device in wanted["devices"]:
        if device["numa_node"] is not None:
            settings.add("numa_node")
        if device["type"] == "dynamic":
            settings.add("dynamic")
    return settings


def missing(name: str, wanted: dict[str, Any], api: tuple[int, ...]) -> list[Finding]:
    """Return findings on settings that the negotiated API or the virtual hardware does not support.

    A setting that was requested by name refuses. Virtual NUMA and similar settings, which every plan uses where it can,
    only warn.
    """
    findings = []
    if not wanted["cores_per_numa_node"]:
        least_api, least_hardware = NEEDS["cores_per_numa_node"]
        findings.append(
            Finding(
                name,
                "virtual NUMA, virtual hyperthreads and the devices' virtual NUMA nodes are left out",
                f"they need API {_text(least_api)} and vmx-{least_hardware}, it has API {_text(api)} and "
                f"{wanted['hardware_version']}: the guest does not know which of its nodes is near a device",
                f"upgrade the older one of vCenter and pyVmomi, or set hardware_version: vmx-{least_hardware} or newer",
                WARN,
            )
        )
    for setting in sorted(used(wanted)):
        least_api, least_hardware = NEEDS[setting]
        if api < least_api:
            findings.append(
                Finding(
                    name,
                    f"{WORDS[setting]} needs API {_text(least_api)}, this vCenter and pyVmomi support {_text(api)}",
                    "it would be left out without an error",
                    "upgrade the older one, or leave the setting out",
                )
            )
        elif hardware(wanted["hardware_version"]) < least_hardware:
            findings.append(
                Finding(
                    name,
                    f"{WORDS[setting]} needs vmx-{least_hardware}, its version is {wanted['hardware_version']}",
                    "ESXi ignores or refuses it on older hardware",
                    f"set hardware_version: vmx-{least_hardware} or newer",
                )
            )
    return findings


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
