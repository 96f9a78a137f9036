# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Resets of devices between guests that are known to fail.

The methods that the kernel would use are in /sys/bus/pci/devices/ADDRESS/reset_method, first choice first (Linux 5.15,
Documentation/ABI/testing/sysfs-bus-pci). Tested on made-up values only.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function

NVIDIA = 0x10DE


@dataclass(frozen=True)
class Failure:
    """A reset method that fails on some devices of a vendor, with its effect and the remedy."""

    vendor_id: int
    device_ids: frozenset[int]
    method: str
    effect: str
    remedy: str


WITHOUT_BUS = "write the other methods to its reset_method, or use a kernel that knows the device"
KNOWN = (
    # Linux drivers/pci/quirks.c, quirk_nvidia_no_bus_reset (5.14, and 6.4 for the T4). A kernel with the quirk does not
    # offer the method.
    Failure(NVIDIA, frozenset(range(0x2340, 0x2380)), "bus", "it does not come back", WITHOUT_BUS),
    Failure(NVIDIA, frozenset({0x1EB8}), "bus", "it does not come back", WITHOUT_BUS),
    # GeForce RTX 5090, RTX PRO 6000 Blackwell (workstation, Max-Q, server): users of passthrough report that the GPU
    # does not respond after the function level reset at the end of a guest that ran for days, and that NVIDIA has
    # reproduced this; H100, B200 and RTX 4090 do not have the defect. Ids: pci.ids.
    Failure(
        NVIDIA,
        frozenset({0x2B85, 0x2BB1, 0x2BB4, 0x2BB5}),
        "flr",
        "it may not answer any more after days of load, until the host is rebooted",
        "update its firmware and the host's kernel, and reboot the host when it happens",
    ),
)


def of_functions(system: System, functions: list[Function]) -> dict[str, str]:
    """Return, as text by address, the offered methods that are known to fail, and devices without any method.

    A device whose methods the kernel does not report is left out.
    """
    methods_by_address = {}
    for function in functions:
        methods = system.read(f"/sys/bus/pci/devices/{function.address}/reset_method")
        reasons = [] if methods is None else _reasons(function, methods.split())
        if reasons:
            methods_by_address[function.address] = "; ".join(reasons)
    return methods_by_address


def _reasons(function: Function, methods: list[str]) -> list[str]:
    if not methods:
        return ["the kernel has no way to reset it: the next guest finds it as the last one left it"]
    return [
        f"its reset method {failure.method} is known to fail, {failure.effect}: {failure.remedy}"
        for failure in KNOWN
        if failure.vendor_id == function.vendor_id
        and function.device_id in failure.device_ids
        and failure.method in methods
    ]
