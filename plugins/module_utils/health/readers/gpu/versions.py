# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the versions of driver, kernel, VBIOS and NIC firmware from /proc and /sys: no program that could hang."""

from __future__ import annotations

import os
import re

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node

READER = "versions"
DRIVER = "/proc/driver/nvidia/version"
KERNEL = "/proc/sys/kernel/osrelease"
GPUS = "/proc/driver/nvidia/gpus"
NICS = "/sys/class/infiniband"
_DRIVER = re.compile(r"NVRM version:.*?\s(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\s")
_VBIOS = re.compile(r"(?m)^Video BIOS:\s*(\S+)")


def read(node: Node) -> Reading:
    """Measure the versions that are planned for this node."""
    names = {name.partition(" ")[0] for name in node.expected.versions}
    measurements: list[Measurement] = []
    if "nvidia_driver" in names:
        measurements.append(_driver(node))
    if "kernel" in names:
        measurements.append(Measurement("version_kernel", Place("node"), node.text(KERNEL), KERNEL))
    if "vbios" in names:
        measurements += _vbios(node)
    if "firmware" in names:
        measurements += _firmware(node)
    return Reading(READER, tuple(measurements))


def _driver(node: Node) -> Measurement:
    check, place = "version_nvidia_driver", Place("node")
    try:
        match = _DRIVER.search(node.text(DRIVER))
    except FileNotFoundError:
        return Measurement(check, place, "not loaded", DRIVER)
    return Measurement(check, place, match[1] if match else None, DRIVER, "" if match else "it names no version")


def _vbios(node: Node) -> list[Measurement]:
    result = []
    for name in node.names(GPUS):
        address = pci_address(name)
        if address:
            path = f"{GPUS}/{name}/information"
            match = _VBIOS.search(node.text(path))
            # The driver writes question marks for a GPU that it could not ask.
            value = match[1] if match and "?" not in match[1] else None
            reason = "" if value else "the driver does not know it"
            result.append(Measurement("version_vbios", Place("gpu", address), value, path, reason))
    return result


def _firmware(node: Node) -> list[Measurement]:
    result = []
    for name in node.names(NICS):
        path = f"{NICS}/{name}/fw_ver"
        address = pci_address(os.path.basename(os.path.realpath(node.path(f"{NICS}/{name}/device"))))
        # A bond has a device of the kernel's own, without an address.
        if address:
            try:
                value, reason = node.text(path), ""
            except OSError as error:
                value, reason = "", error.strerror or "not readable"
            result.append(Measurement("version_firmware", Place("nic", address), value or None, path, reason))
    return result
