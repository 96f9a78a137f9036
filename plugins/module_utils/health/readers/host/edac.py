# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors of the main memory that the kernel's EDAC drivers count, below /sys/devices/system/edac.

Drivers have a directory for each module (dimm0) or, on old kernels, for each chip-select row with its channels, where
uncorrected errors are known of the row only. Errors of unknown place are counted for the controller (mc0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import GUEST, Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import natural, optional
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node

CONTROLLERS = "/sys/devices/system/edac/mc"
CONTROLLER, MODULE, ROW = re.compile(r"mc[0-9]+"), re.compile(r"(?:dimm|rank)[0-9]+"), re.compile(r"csrow[0-9]+")
CHANNEL = re.compile(r"(ch[0-9]+)_ce_count")
CORRECTED, UNCORRECTED = "edac_corrected", "edac_uncorrected"


def read(node: Node) -> Reading:
    """Measure each memory controller. A guest has none, and its host counts the errors.

    That no driver is loaded is only noted: some processors and kernels have none.
    """
    controllers = [name for name in node.names(CONTROLLERS) if CONTROLLER.fullmatch(name)]
    measurements = [item for name in controllers for item in _controller(node, name)]
    # ARM's /proc/cpuinfo does not tell guests.
    is_guest = node.expected.machine == GUEST or "hypervisor" in _flags(optional(node, "/proc/cpuinfo"))
    if not controllers and not is_guest:
        reason = "no EDAC driver is loaded: modprobe one for this processor"
        measurements.append(Measurement(UNCORRECTED, Place("memory"), None, CONTROLLERS, reason, is_occasional=True))
    return Reading("edac", tuple(measurements))


def _flags(cpuinfo: str) -> list[str]:
    """Return the flags of the first processor in /proc/cpuinfo."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return match.group(1).split() if match else []


def _controller(node: Node, name: str) -> Iterator[Measurement]:
    folder = f"{CONTROLLERS}/{name}"
    entries = node.names(folder)
    modules = [entry for entry in entries if MODULE.fullmatch(entry)]
    parts: list[Measurement] = []
    for entry in modules:
        place = Place("memory", f"{name}/{optional(node, f'{folder}/{entry}/dimm_label') or entry}")
        for check, file in ((CORRECTED, "dimm_ce_count"), (UNCORRECTED, "dimm_ue_count")):
            parts += _count(node, check, place, f"{folder}/{entry}/{file}")
    if not modules:
        for entry in entries:
            if ROW.fullmatch(entry):
                parts += _row(node, name, f"{folder}/{entry}", entry)
    yield from parts
    for check, file in ((CORRECTED, "ce_count"), (UNCORRECTED, "ue_count")):
        for total in _count(node, check, Place("memory", name), f"{folder}/{file}"):
            yield _rest(total, parts)


def _row(node: Node, controller: str, folder: str, row: str) -> Iterator[Measurement]:
    yield from _count(node, UNCORRECTED, Place("memory", f"{controller}/{row}"), f"{folder}/ue_count")
    for file in node.names(folder):
        match = CHANNEL.fullmatch(file)
        if match:
            label = optional(node, f"{folder}/{match.group(1)}_dimm_label") or f"{row}/{match.group(1)}"
            yield from _count(node, CORRECTED, Place("memory", f"{controller}/{label}"), f"{folder}/{file}")


def _count(node: Node, check: str, place: Place, path: str) -> Iterator[Measurement]:
    text = optional(node, path)
    value = natural(text)
    reason = "" if value is not None else f"{text!r:.60} is no number"
    yield Measurement(check, place, value, path, reason, is_counter=True)


def _rest(total: Measurement, parts: list[Measurement]) -> Measurement:
    """Return a controller's count without the errors of known modules, which have places of their own."""
    values = [part.value for part in parts if part.check == total.check]
    if total.value is None:
        return total
    if None in values:
        return replace(total, value=None, reason="the count of a module cannot be read")
    return Measurement(
        total.check,
        total.place,
        max(0, int(total.value) - sum(int(value or 0) for value in values)),
        f"{total.source} of no module",
        is_counter=True,
    )
