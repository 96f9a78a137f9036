# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCIe links of the planned devices, from /sys: presence, width, speed, and the counters of Advanced Error Reporting.

A GPU lowers the speed of its link while it is idle, and /sys does not say whether it is. So a speed that is too low
says nothing here of a link that leads to a GPU: the readers nvidia_smi, while a job works, and nvbandwidth, which
copies on a drained node, judge it. Links of other devices keep their speed unless the device sleeps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    ExpectedDevice,
    Measurement,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import natural, optional
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import DEVICE_MISSING

DEVICES = "/sys/bus/pci/devices"
SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# PCI base classes of display controllers and processing accelerators, which lower the speed of idle links.
SLOW_WHEN_IDLE = ("0x03", "0x12")
# PCI Express Base Specification, Link Status Register: the widest link; a register of ones reads as 63.
MOST_LANES = 32
# The kernel's names (drivers/pci/pcie/aer.c): file, total, and the errors that say nothing of the link. Devices refuse
# requests that they do not support when drivers look for features.
ERRORS = (
    ("pcie_errors_corrected", "aer_dev_correctable", "TOTAL_ERR_COR", ()),
    ("pcie_errors_nonfatal", "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", ("UnsupReq", "ACSViol")),
    ("pcie_errors_fatal", "aer_dev_fatal", "TOTAL_ERR_FATAL", ("UnsupReq", "ACSViol")),
)


def read(node: Node) -> Reading:
    """Measure each planned device."""
    return Reading("pcie", tuple(item for device in node.expected.devices for item in _device(node, device)))


def _device(node: Node, device: ExpectedDevice) -> Iterator[Measurement]:
    place = Place(device.kind, device.address)
    folder = f"{DEVICES}/{device.address}"
    if not os.path.isdir(node.path(folder)):
        yield Measurement(DEVICE_MISSING, place, True, folder, "missing")
        return
    sleep = _sleep(node, folder)
    if not sleep and _answers_with_ones(node, folder):
        yield Measurement(DEVICE_MISSING, place, True, f"{folder}/config", "listed, but no longer on the bus")
        return
    yield Measurement(DEVICE_MISSING, place, False, folder, "present")
    yield from _width(node, device, place, sleep)
    yield from _speed(node, device, place, sleep)
    for check, name, total, harmless in ERRORS:
        text = optional(node, f"{folder}/{name}")
        if text:
            value = parse_errors(text, total, harmless)
            reason = "" if value is not None else f"no {total} in it"
            yield Measurement(check, place, value, f"{folder}/{name}", reason, is_counter=True)


def _answers_with_ones(node: Node, folder: str) -> bool:
    """Return True if a device answers no request: its vendor and device then read as ones."""
    try:
        with open(node.path(f"{folder}/config"), "rb") as stream:
            return stream.read(4) == b"\xff" * 4
    except OSError:
        return False


def _sleep(node: Node, folder: str) -> str:
    """Return the device's power state if it may have slowed down its link, or else ""."""
    status, state = optional(node, f"{folder}/power/runtime_status"), optional(node, f"{folder}/power_state")
    if status in ("suspended", "suspending"):
        return status
    return state if state.startswith("D3") else ""


def _width(node: Node, device: ExpectedDevice, place: Place, sleep: str) -> Iterator[Measurement]:
    if device.link_width is None:
        return
    path = f"{DEVICES}/{device.address}/current_link_width"
    text = optional(node, path)
    width = natural(text)
    if width is not None and width > MOST_LANES:
        width = None
    # In D3cold a device has no link: its registers read as ones, and the port above it has no lanes.
    if sleep and not width:
        reason = f"no link: the device sleeps ({sleep})"
        yield Measurement("pcie_width", place, None, path, reason, is_occasional=True)
        return
    yield Measurement("pcie_width", place, width, path, "" if width is not None else f"{text!r:.60} is no width")


def _speed(node: Node, device: ExpectedDevice, place: Place, sleep: str) -> Iterator[Measurement]:
    if device.link_speed_gt_s is None:
        return
    path = f"{DEVICES}/{device.address}/current_link_speed"
    text = optional(node, path)
    speed, reason = parse_speed(text), ""
    if speed is None:
        reason = f"{text!r:.60} is no speed"
    elif speed < device.link_speed_gt_s and (sleep or gpus_of(node, device)):
        reason = f"{speed:g} GT/s says nothing: the device {f'sleeps ({sleep})' if sleep else 'may be idle'}"
        speed = None
    yield Measurement("pcie_speed", place, speed, path, reason)


def gpus_of(node: Node, device: ExpectedDevice) -> list[str]:
    """Return a GPU's own address, and of a port those directly below it, whose link's speed the port shows."""
    if device.kind == "gpu":
        return [device.address]
    folder = f"{DEVICES}/{device.address}"
    downstream = [name for name in node.names(folder) if ADDRESS.fullmatch(name)]
    return [name for name in downstream if optional(node, f"{folder}/{name}/class").startswith(SLOW_WHEN_IDLE)]


def parse_speed(text: str) -> float | None:
    """Return the GT/s of "32.0 GT/s PCIe", None of "Unknown"."""
    match = SPEED.match(text)
    return float(match.group(1)) if match else None


def parse_errors(text: str, total: str, harmless: tuple[str, ...] = ()) -> int | None:
    """Return the sum of a file of AER counters ("RxErr 0", a line each) without the harmless ones, None without it."""
    counters = {}
    for line in text.splitlines():
        name, _space, number = line.strip().rpartition(" ")
        value = natural(number)
        if value is not None:
            counters[name] = value
    if total not in counters:
        return None
    return max(0, counters[total] - sum(counters.get(name, 0) for name in harmless))
