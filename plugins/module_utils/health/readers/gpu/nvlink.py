# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read NVLinks from ``nvidia-smi nvlink -s`` (which links are active) and ``-e`` (their error counters).

Both name a GPU by its UUID. Its address is in the driver's directory of /proc, which costs no further call.

NVLink 5 (Blackwell) has other counters than those before. Their names are from AWS's notes on a B300 with driver 595,
NVML's field values and DCGM's sources; no output of such a GPU was seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading, clean
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import gpus, pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

READER = "nvlink"
TIMEOUT_S = 15.0
PROC = "/proc/driver/nvidia/gpus"
# The counters before NVLink 5 have 16 bits and stop there.
SATURATED = 65535
# One sentence instead of the lines of all links, of a GPU whose links are all down, or that has none.
NONE_ACTIVE = "all links are inactive"
COUNTERS = {
    "gpu_nvlink_replays": ("Replay Errors",),
    "gpu_nvlink_recoveries": ("Recovery Errors",),
    "gpu_nvlink_crc_errors": ("CRC Errors",),
}
NVLINK5_COUNTERS = {
    "gpu_nvlink_recoveries": ("Link recovery successful events",),
    "gpu_nvlink_recovery_failures": ("Link recovery failed events",),
    # What forward error correction did not correct, and what it received.
    "gpu_nvlink_effective_errors": ("Effective Errors",),
    "gpu_nvlink_symbol_errors": ("Symbol Errors",),
    "gpu_nvlink_packet_errors": (
        "Malformed packet Errors",
        "Buffer overrun Errors",
        "Rx Errors",
        "Rx remote Errors",
        "Rx General Errors",
        "Local link integrity Errors",
    ),
}
# Bit errors by bit after correction; "15e-255" is the least that NVML can say, and means none. "Raw BER" and
# "FEC Errors - 0" are large on healthy links.
BER_CHECK, BER = "gpu_nvlink_effective_ber", "Effective BER"
_BER = re.compile(r"[0-9]{1,3}(\.[0-9]{1,9})?[eE]-[0-9]{1,3}")
_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_LINK = re.compile(r"\s*Link (\d{1,3}): (.*)")
_UUID = re.compile(r"(?m)^GPU UUID:\s*(\S+)")


@dataclass
class Links:
    """The links of one GPU, as one report has them."""

    active: list[int] = field(default_factory=list)
    inactive: list[int] = field(default_factory=list)
    errors: dict[str, dict[int, int]] = field(default_factory=dict)  # by the counter's name and the link
    rates: dict[int, float] = field(default_factory=dict)  # the effective bit error rate by link
    unread: dict[str, str] = field(default_factory=dict)  # by a counter's name: a value that is no number
    words: str = ""  # a sentence instead of links, or a line that is none of both

    @property
    def is_nvlink5(self) -> bool:
        """True if the counters are those of NVLink 5."""
        names = {BER, *(name for group in NVLINK5_COUNTERS.values() for name in group)}
        return bool(names & {*self.errors, *self.unread} or self.rates)


def read(node: Node) -> Reading:
    """Measure the NVLinks of each GPU, if GPUs with NVLinks are planned."""
    if not any(gpu.nvlinks for gpu in gpus(node.expected)):
        return Reading(READER)
    addresses = uuids(node)
    states, counters = (parse(node.run(("nvidia-smi", "nvlink", option), TIMEOUT_S).stdout) for option in ("-s", "-e"))
    return Reading(READER, measurements(states, counters, addresses))


def uuids(node: Node) -> dict[str, str]:
    """Return the address of each GPU by its UUID, as the driver has them in /proc."""
    result = {}
    for name in node.names(PROC):
        address = pci_address(name)
        match = _UUID.search(node.text(f"{PROC}/{name}/information")) if address else None
        if match and address:
            result[match[1]] = address
    return result


def parse(text: str) -> dict[str, Links]:
    """Return the links of each GPU by UUID. Raises NotMeasuredError if the text is no report."""
    result: dict[str, Links] = {}
    links: Links | None = None
    for line in text.splitlines():
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu:
            links = result.setdefault(gpu[1], Links())
        elif links is None and line.strip():
            raise NotMeasuredError(f"nvidia-smi nvlink printed: {clean(line):.200}")
        elif link and links:
            _add(links, int(link[1]), link[2].strip())
        elif links and line.strip():
            links.words = clean(line)
    return result


def _add(links: Links, number: int, text: str) -> None:
    name, colon, value = text.rpartition(": ")
    if colon:
        if name == BER and _BER.fullmatch(value):
            links.rates[number] = float(value)
        elif name != BER and value.isdecimal() and len(value) < 20:
            links.errors.setdefault(name, {})[number] = int(value)
        else:
            links.unread[name] = clean(f"Link {number}: {text}")
    elif text == "<inactive>":
        links.inactive.append(number)
    elif text.endswith("GB/s"):
        links.active.append(number)
    else:
        links.words = f"Link {number}: {text}"


def measurements(
    states: dict[str, Links], counters: dict[str, Links], addresses: dict[str, str]
) -> tuple[Measurement, ...]:
    """Return the measurements of both reports. Raises NotMeasuredError for a GPU whose address is unknown."""
    result = []
    for uuid in sorted({*states, *counters}):
        if uuid not in addresses:
            raise NotMeasuredError(f"{PROC} has no GPU with the UUID {uuid} of nvidia-smi nvlink")
        place = Place("gpu", addresses[uuid])
        if uuid in states:
            result.append(_active(place, states[uuid]))
        if uuid in counters:
            result += _errors(place, counters[uuid])
    return tuple(result)


def _errors(place: Place, links: Links) -> list[Measurement]:
    if not links.is_nvlink5:
        return [_sum(place, check, names, links, SATURATED) for check, names in COUNTERS.items()]
    sums = [_sum(place, check, names, links, None) for check, names in NVLINK5_COUNTERS.items()]
    return [*sums, _worst_rate(place, links)]


def _worst_rate(place: Place, links: Links) -> Measurement:
    source = "nvidia-smi nvlink -e"
    reason = links.unread.get(BER) or links.words
    if not links.rates or reason:
        return Measurement(BER_CHECK, place, None, source, reason or "no such rate is listed")
    link = max(links.rates, key=lambda number: links.rates[number])
    return Measurement(BER_CHECK, place, links.rates[link], source, f"link {link}")


def _active(place: Place, links: Links) -> Measurement:
    check, source = "gpu_nvlinks_active", "nvidia-smi nvlink -s"
    if not links.active and not links.inactive:
        if NONE_ACTIVE in links.words.lower():
            return Measurement(check, place, 0, source, "all links are inactive")
        return Measurement(check, place, None, source, links.words or "no links are listed")
    if links.words:
        return Measurement(check, place, None, source, links.words)
    reason = f"inactive: link {', '.join(map(str, links.inactive))}" if links.inactive else ""
    return Measurement(check, place, len(links.active), source, reason)


def _sum(place: Place, check: str, names: tuple[str, ...], links: Links, saturated: int | None) -> Measurement:
    """Add up counters over all links: they increase as these do. One that is at its end hides what happens."""
    source = "nvidia-smi nvlink -e"
    numbers: dict[int, int] = {}
    for name in names:
        for link, number in links.errors.get(name, {}).items():
            numbers[link] = numbers.get(link, 0) + number
    full = [link for link, number in numbers.items() if saturated is not None and number >= saturated]
    unread = next((links.unread[name] for name in names if name in links.unread), "")
    if not numbers or unread or (links.words and NONE_ACTIVE not in links.words.lower()):
        reason = unread or links.words or "no such counter is listed"
        return Measurement(check, place, None, source, reason, is_counter=True)
    if full:
        reason = f"link {', '.join(map(str, full))}: the counter is at its end, {saturated}; reset it"
        return Measurement(check, place, None, source, reason, is_counter=True)
    counts = ", ".join(f"link {link}: {number}" for link, number in sorted(numbers.items()) if number)
    return Measurement(check, place, sum(numbers.values()), source, counts, is_counter=True)
