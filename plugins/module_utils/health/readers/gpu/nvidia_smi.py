# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read NVIDIA GPUs from ``nvidia-smi -q -x``: the XML of document types v11 (driver 470), v12 (535) and v13 (590).

The exit status decides nothing: with a GPU that was lost later it is 0, and the fields say "GPU is lost". Nor does the
document type: fields came and went within one. A value that is absent or "N/A" is not measured.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RESET_COUNT
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    Expected,
    Measurement,
    Place,
    Reading,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import PATTERN, gpus, pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

READER = "nvidia_smi"
ARGV = ("nvidia-smi", "-q", "-x")
TIMEOUT_S = 30.0
# The driver's words for what a GPU does not have; the last ones are those of drivers from 575 on.
ABSENT = ("", "N/A", "Not Supported", "Not Available", "None", "Requested functionality has been deprecated")
LOST, NEEDS_RESET = "GPU is lost", "GPU requires reset"
# Of the NVLink fabric, for some minutes after each boot.
IN_PROGRESS = "In Progress"
WORDS = {"yes": True, "active": True, "no": False, "not active": False}
NUMBER = re.compile(r"(-?[0-9]{1,20}(?:\.[0-9]{1,9})?) ?(?:[A-Za-z%/]+|bank\(s\))?")
# Data rate of a lane by PCIe generation, GT/s.
SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# States in which a GPU works; links slow down in the others.
WORKING = ("P0", "P1", "P2")
# Utilization from which on a link has its full speed, and one at which nodes can be compared, in percent.
WORKS, FULL_LOAD = 10, 90

# Checks that are true if any of their fields says yes.
FLAGS = {
    "gpu_row_remap_pending": ("remapped_rows/remapped_row_pending",),
    "gpu_row_remap_failure": ("remapped_rows/remapped_row_failure",),
    "gpu_retired_pages_pending": ("retired_pages/pending_blacklist", "retired_pages/pending_retirement"),
    "gpu_sram_threshold_exceeded": ("ecc_errors/aggregate/sram_threshold_exceeded",),
    "gpu_repair_pending": ("ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending"),
    "gpu_unrepairable_memory": ("ecc_errors/unrepairable_memory",),
}
# Reasons of a slow clock that are faults; software's power cap at full load, idleness and settings are not.
SLOWDOWNS = {
    "gpu_power_brake": "hw_power_brake_slowdown",
    "gpu_hw_thermal_slowdown": "hw_thermal_slowdown",
    "gpu_hw_slowdown": "hw_slowdown",
}
# Checks that add up fields: any of them that is absent was of another driver.
COUNTS = {
    "gpu_ecc_dram_uncorrectable": ("volatile/dram_uncorrectable",),
    "gpu_ecc_sram_uncorrectable": (
        "volatile/sram_uncorrectable",
        "volatile/sram_uncorrectable_parity",
        "volatile/sram_uncorrectable_secded",
    ),
    "gpu_ecc_lifetime_uncorrectable": (
        "aggregate/dram_uncorrectable",
        "aggregate/sram_uncorrectable",
        "aggregate/sram_uncorrectable_parity",
        "aggregate/sram_uncorrectable_secded",
    ),
}
TIMES = {
    "gpu_power_brake_time": "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake",
    "gpu_hw_thermal_slowdown_time": "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown",
}
TEXTS = {
    "gpu_persistence_mode": "persistence_mode",
    "gpu_mig_mode": "mig_mode/current_mig",
    "gpu_ecc_mode": "ecc_mode/current_ecc",
    "gpu_fabric_state": "fabric/state",
    "gpu_fabric_status": "fabric/status",
    "gpu_fabric_bandwidth": "fabric/health/bandwidth",
    "gpu_fabric_health": "fabric/health/summary",
}
KNOWN = {
    "gpu_persistence_mode": ("Enabled", "Disabled"),
    "gpu_mig_mode": ("Enabled", "Disabled"),
    "gpu_ecc_mode": ("Enabled", "Disabled"),
}
RECOVERY = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
POWER = (
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/power_draw",
    "gpu_power_readings/average_power_draw",
    "power_readings/power_draw",
)
GAUGES = {
    "gpu_temperature": ("temperature/gpu_temp",),
    "gpu_memory_temperature": ("temperature/memory_temp",),
    "gpu_power": POWER,
    "gpu_utilization": ("utilization/gpu_util",),
}
LOADED_GAUGES = {
    "gpu_sm_clock_under_load": ("clocks/sm_clock",),
    "gpu_memory_clock_under_load": ("clocks/mem_clock",),
    "gpu_power_under_load": POWER,
}
# One sentence instead of any report, of a GPU by its index or its address.
NO_HANDLE = re.compile(rf"device handle for (?:GPU|gpu) ?({PATTERN}|\d{{1,3}}): ?([^\n]*)")
CORRUPTED = re.compile(rf"(?i)infoROM is corrupted at gpu ({PATTERN})")
NO_DEVICES = "No devices were found"
DRIVER_FAILS = re.compile(
    "couldn't communicate with the NVIDIA driver"
    "|Failed to initialize NVML: (?:Driver Not Loaded|Driver/library version mismatch)"
)


def read(node: Node) -> Reading:
    """Measure the GPUs. A node that should have none is not asked."""
    if not gpus(node.expected):
        return Reading(READER)
    ran = node.run(ARGV, TIMEOUT_S)
    measurements = parse(ran.stdout or ran.stderr, node.expected)
    counts, saved = resets(measurements, node.kept)
    return Reading(READER, (*measurements, *counts), kept=saved)


def resets(
    measurements: Iterable[Measurement], saved: Mapping[str, str]
) -> tuple[tuple[Measurement, ...], dict[str, str]]:
    """Return how often each GPU was seen to be reset, and what to keep: it needed a reset, and then needs none.

    The driver counts no resets. ``saved``: by address "2", or "2 needed" of a GPU that needs one.
    """
    counts, saved = [], dict(saved)
    for measurement in measurements:
        if measurement.check == "gpu_reset_required" and isinstance(measurement.value, bool):
            number, _space, needed = saved.get(measurement.place.name, "0").partition(" ")
            count = (int(number) if number.isdecimal() else 0) + bool(needed and not measurement.value)
            saved[measurement.place.name] = f"{count} needed" if measurement.value else str(count)
            counts.append(Measurement(RESET_COUNT, measurement.place, count, measurement.source))
    return tuple(counts), saved


def parse(text: str, expected: Expected) -> tuple[Measurement, ...]:
    """Return the measurements of a report. Raises NotMeasuredError if there is none."""
    match = NO_HANDLE.search(text)
    if match and "<nvidia_smi_log" not in text:
        return _without_handle(match[1], match[2], expected)
    if text.strip().startswith(NO_DEVICES):
        return (_count(0),)
    if DRIVER_FAILS.search(text) and "<nvidia_smi_log" not in text:
        return _without_driver(clean(text), expected)
    corrupted = {pci_address(address) for address in CORRUPTED.findall(text)}
    measurements, places = [], []
    for element in log(text).findall("gpu"):
        gpu = _gpu(element)
        places.append(gpu.place)
        measurements += gpu.measurements()
        measurements.append(gpu.measured("gpu_inforom_corrupted", gpu.place.name in corrupted, "warnings"))
    return (_count(len(places)), _driver(False), *measurements)


def log(text: str) -> ET.Element:
    """Return the XML between what the tool prints before and after it."""
    start, end, closing = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>"), "</nvidia_smi_log>"
    if start < 0:
        printed = clean(text) or "nothing"
        raise NotMeasuredError(f"nvidia-smi printed no report but: {printed:.200}")
    if end < 0:
        raise NotMeasuredError("nvidia-smi's report has no end")
    try:
        return ET.fromstring(text[start : end + len(closing)])
    except (ET.ParseError, ValueError) as error:
        raise NotMeasuredError(f"nvidia-smi's report is no XML: {error}") from error


def _count(number: int) -> Measurement:
    return Measurement("gpu_count", Place("node"), number, "nvidia-smi -q -x: gpu")


def _driver(fails: bool, reason: str = "") -> Measurement:
    return Measurement("gpu_driver_fails", Place("node"), fails, "nvidia-smi -q -x", reason)


def _without_driver(message: str, expected: Expected) -> tuple[Measurement, ...]:
    """Return the one fault of the node. Nothing is known of its GPUs, which may be well."""
    unknown = (Measurement("gpu_lost", Place("gpu", gpu.address), None, ARGV[0], message) for gpu in gpus(expected))
    return (_driver(True, message), *unknown)


def _without_handle(name: str, message: str, expected: Expected) -> tuple[Measurement, ...]:
    """Name the GPU at which the tool stopped. An index counts the GPUs in the order of their addresses."""
    planned = [gpu.address for gpu in gpus(expected)]
    address = pci_address(name)
    if address is None and name.isdecimal() and int(name) < len(planned):
        address = planned[int(name)]
    source, reason = "nvidia-smi -q -x", clean(message.strip())
    if address is None:
        raise NotMeasuredError(f"nvidia-smi stopped at GPU {name}: {reason}")
    hidden = [planned_address for planned_address in planned if planned_address != address]
    return (
        Measurement("gpu_lost", Place("gpu", address), True, source, reason),
        *(
            Measurement("gpu_lost", Place("gpu", unseen), None, source, f"nvidia-smi stopped at {address}: {reason}")
            for unseen in hidden
        ),
    )


def _gpu(element: ET.Element) -> _Gpu:
    name = pci_address(element.get("id", "")) or pci_address(element.findtext("pci/pci_bus_id", ""))
    if name is None:
        raise NotMeasuredError("nvidia-smi's report has a GPU without an address")
    return _Gpu(Place("gpu", name), element, {})


@dataclass
class _Gpu:
    """One GPU of the report. ``strange``: words that are neither values nor absent ones, by field."""

    place: Place
    element: ET.Element
    strange: dict[str, str]

    def measurements(self) -> list[Measurement]:
        """Return what is measured of the GPU; nothing but its loss if it is lost, because the rest may be stale."""
        measurements = [*self._measurements()]
        lost_at = next((element.tag for element in self.element.iter() if _text(element) == LOST), "")
        if lost_at:
            measurements = [replace(measurement, value=None, reason=LOST) for measurement in measurements]
            self.strange.clear()
        strange = ", ".join(f"{path}: {strange}" for path, strange in list(self.strange.items())[:3])
        return [
            self.measured("gpu_lost", bool(lost_at), lost_at or "utilization", LOST if lost_at else ""),
            self.measured(
                "gpu_unreadable", None if strange or lost_at else False, "all fields", strange or (lost_at and LOST)
            ),
            *measurements,
        ]

    def measured(
        self, check: str, value: float | str | None, path: str, reason: str = "", is_counter: bool = False
    ) -> Measurement:
        return Measurement(check, self.place, value, f"nvidia-smi -q -x: {path}", reason, is_counter)

    def _measurements(self) -> Iterator[Measurement]:
        for check, path in TEXTS.items():
            yield self._mode(check, path)
        for check, paths in FLAGS.items():
            yield self._flag(check, paths)
        yield from self._slowdowns()
        yield from self._recovery()
        yield from self._counts()
        for check, path in TIMES.items():
            number = self._number(path)
            yield self.measured(check, number, path, self._absence(path), is_counter=True)
        yield from self._link()
        yield from self._gauges()

    def _words(self, path: str) -> str:
        element = self.element.find(path)
        return "" if element is None else _text(element)

    def _absence(self, *paths: str) -> str:
        """Return why a value is not measured."""
        text = next((text for text in map(self._words, paths) if text), "")
        return f"nvidia-smi says {text!r:.60}" if text else "this driver or GPU does not report it"

    def _mode(self, check: str, path: str) -> Measurement:
        text = self._words(path)
        if text in ABSENT:
            return self.measured(check, None, path, self._absence(path))
        if (check in KNOWN and text not in KNOWN[check]) or text in (NEEDS_RESET, IN_PROGRESS) or "Error" in text:
            self.strange[path] = text
            return self.measured(check, None, path, self._absence(path))
        pending = self._words("ecc_mode/pending_ecc") if check == "gpu_ecc_mode" else text
        reason = f"after a reset: {pending}" if pending != text and pending in KNOWN["gpu_ecc_mode"] else ""
        return self.measured(check, text, path, reason)

    def _bool(self, path: str) -> bool | None:
        text = self._words(path)
        value = WORDS.get(text.lower())
        if value is None and text not in ABSENT:
            self.strange[path] = text
        return value

    def _flag(self, check: str, paths: tuple[str, ...]) -> Measurement:
        values = [self._bool(path) for path in paths]
        value = True if True in values else False if False in values else None
        # A block without children has its word itself: remapped rows under MIG are "N/A".
        block = paths[0].partition("/")[0]
        reason = "" if value is not None else self._absence(*paths, block)
        return self.measured(check, value, paths[0], reason)

    def _slowdowns(self) -> Iterator[Measurement]:
        values = {}
        for check, name in SLOWDOWNS.items():
            paths = (
                f"clocks_event_reasons/clocks_event_reason_{name}",
                f"clocks_throttle_reasons/clocks_throttle_reason_{name}",
            )
            values[check] = self._flag(check, paths)
        # The general reason is also active with each of the others, which then say more.
        if values["gpu_power_brake"].value or values["gpu_hw_thermal_slowdown"].value:
            values["gpu_hw_slowdown"] = replace(values["gpu_hw_slowdown"], value=False)
        # An idle GPU is not slowed down: it does not show that the cause is gone.
        idle = self._idle_reason(WORKS)
        for measurement in values.values():
            yield replace(measurement, value=None, reason=idle) if measurement.value is False and idle else measurement

    def _recovery(self) -> Iterator[Measurement]:
        """Return what the GPU needs: in gpu_reset_status up to v12, in gpu_recovery_action in v13."""
        path, status = "gpu_recovery_action", "gpu_reset_status"
        action = self._words(path)
        needs_reset = any(_text(element) == NEEDS_RESET for element in self.element.iter())
        if action in RECOVERY:
            reset, reboot = action in ("Reset", "Drain and Reset"), action == "Reboot"
            drain: bool | None = action in ("Drain P2P", "Drain and Reset")
            yield self.measured("gpu_reset_required", reset or needs_reset, path, action if reset else "")
            yield self.measured("gpu_reboot_required", reboot, path)
            yield self.measured("gpu_drain_recommended", drain, path, action if drain else "")
            return
        if action not in ABSENT:
            self.strange[path] = action
        required, path = self._bool(f"{status}/reset_required"), f"{status}/reset_required"
        reason = "" if required is not None or needs_reset else self._absence(path)
        yield self.measured("gpu_reset_required", needs_reset or required, path, reason)
        path = f"{status}/drain_and_reset_recommended"
        drain = self._bool(path)
        yield self.measured("gpu_drain_recommended", drain, path, "" if drain is not None else self._absence(path))

    def _number(self, *paths: str) -> float | None:
        """Return the first number of some fields."""
        for path in paths:
            text = self._words(path)
            match = NUMBER.fullmatch(text)
            if match:
                return float(match[1]) if "." in match[1] else int(match[1])
            if text not in ABSENT:
                self.strange[path] = text
        return None

    def _counts(self) -> Iterator[Measurement]:
        is_off = self._words("ecc_mode/current_ecc") == "Disabled"
        for check, names in COUNTS.items():
            paths = [f"ecc_errors/{name}" for name in names]
            numbers = [self._number(path) for path in paths]
            is_present = [self.element.find(path) is not None for path in paths]
            # A field that exists without a number leaves the sum unknown.
            present_counts = [number for number, present in zip(numbers, is_present) if present]
            value = (
                None
                if is_off or not present_counts or None in present_counts
                else sum(count or 0 for count in present_counts)
            )
            reason = "" if value is not None else "ECC is off" if is_off else self._absence(*paths)
            yield self.measured(check, value, paths[0], reason, is_counter="lifetime" in check)

    def _idle_reason(self, percent: int) -> str | None:
        """Return the reason why its link and clocks say nothing, or None: the GPU works at this utilization."""
        state, used = self._words("performance_state"), self._number("utilization/gpu_util")
        if state not in WORKING:
            return f"the GPU is idle ({clean(state)[:20] or 'its state is unknown'})"
        if used is None:
            return "whether the GPU works is unknown"
        return None if used >= percent else f"the GPU is idle (utilization {used:g} %)"

    def _link(self) -> Iterator[Measurement]:
        info = "pci/pci_gpu_link_info"
        path = f"{info}/link_widths/current_link_width"
        width = self._number(path)
        yield self.measured("pcie_width", width or None, path, "" if width else self._absence(path))
        path = f"{info}/pcie_gen/current_link_gen"
        generation, idle = self._number(path), self._idle_reason(WORKS)
        speed = SPEEDS.get(int(generation)) if generation else None
        if generation and speed is None:
            self.strange[path] = f"generation {generation:g}"
        reason = "" if speed and not idle else idle or self._absence(path)
        yield self.measured("pcie_speed", None if idle else speed, path, reason)
        path = "pci/replay_counter"
        replays = self._number(path)
        reason = "" if replays is not None else self._absence(path)
        yield self.measured("gpu_pcie_replays", replays, path, reason, is_counter=True)

    def _gauges(self) -> Iterator[Measurement]:
        """Return the numbers that are compared over the fleet, those that there are."""
        tables = (GAUGES,) if self._idle_reason(FULL_LOAD) else (GAUGES, LOADED_GAUGES)
        for table in tables:
            for check, paths in table.items():
                number = self._number(*paths)
                if number is not None:
                    yield self.measured(check, number, paths[0])


def _text(element: ET.Element) -> str:
    return (element.text or "").strip()
