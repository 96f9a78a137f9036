# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ethernet interfaces, from /sys/class/net and `ethtool -S`: state, speed, lost links, errors, discards, pause storms.

An interface below an RDMA device has the name of its port in the plan ("mlx5_4/1"); its state and rate are measured
there. Pauses and marked packets are RoCE at work and no faults; discards of a priority that has pauses are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    ExpectedPort,
    Measurement,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import (
    at_once,
    counter,
    lasting,
    natural,
    optional,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

INTERFACES = "/sys/class/net"
ETHTOOL_S = 5.0
LINE = re.compile(r"\s*([^:\s][^:]{0,99}):\s*([0-9]{1,20})\s*")
DISCARDS = re.compile(r"rx_prio([0-7])_discards")
# mlx5's statistics by check (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst).
STATISTICS = {
    "ethernet_crc_errors": ("rx_crc_errors_phy",),
    "ethernet_symbol_errors": ("rx_symbol_err_phy", "rx_pcs_symbol_err_phy"),
    "ethernet_pause_storm_warning": ("tx_pause_storm_warning_events",),
    "ethernet_pause_storm": ("tx_pause_storm_error_events",),
    "ethernet_module": ("module_bus_stuck", "module_high_temp", "module_bad_shorted"),
}
# Each driver's own statistics need ethtool; these the kernel has for all.
GENERAL = (("ethernet_crc_errors", "statistics/rx_crc_errors"), ("port_link_downs", "carrier_down_count"))


def read(node: Node) -> Reading:
    """Measure the planned Ethernet ports, by name or PCI address."""
    measurements: list[Measurement] = []
    port_places: list[tuple[str, Place]] = []
    names = node.names(INTERFACES)
    interfaces = {name: _address(node, name) for name in names}
    for port in node.expected.ports:
        if "/" not in port.name:
            measurements += _state(node, port)
        elif port.link_layer == "InfiniBand":
            continue
        port_places += [
            (name, Place("port", port.name))
            for name in names
            if name == port.name or (port.address and interfaces[name] == port.address)
        ]
    for counters in at_once(lambda pair: _counters(node, *pair), port_places):
        measurements += counters
    lasting_measurements, ports_down = lasting(node, "port_down", measurements)
    return Reading("ethernet", lasting_measurements, kept=ports_down)


def _address(node: Node, interface: str) -> str:
    """Return the PCI address of an interface, "" of a virtual one."""
    path = node.path(f"{INTERFACES}/{interface}/device")
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) else ""


def _state(node: Node, port: ExpectedPort) -> Iterator[Measurement]:
    place, folder = Place("port", port.name), f"{INTERFACES}/{port.name}"
    if not os.path.isdir(node.path(folder)):
        planned = {device.address for device in node.expected.devices}
        if port.address not in planned or os.path.isdir(node.path(f"/sys/bus/pci/devices/{port.address}")):
            yield Measurement("port_missing", place, True, folder, "missing: no driver made this interface")
        return
    yield Measurement("port_missing", place, False, folder, "present")
    state = optional(node, f"{folder}/operstate")
    # Virtual interfaces without a carrier of their own are "unknown" while they work.
    is_up = {"up": True, "unknown": True, "down": False, "lowerlayerdown": False, "notpresent": False}.get(state)
    is_up = False if state in ("dormant", "testing") else is_up
    yield Measurement(
        "port_down", place, None if is_up is None else not is_up, f"{folder}/operstate", state or "no state"
    )
    if is_up:
        megabits = natural(optional(node, f"{folder}/speed"))
        reason = "" if megabits is not None else "the driver knows no speed"
        yield Measurement("port_rate", place, None if megabits is None else megabits / 1000, f"{folder}/speed", reason)


def _counters(node: Node, interface: str, place: Place) -> list[Measurement]:
    measurements = [
        item for check, name in GENERAL for item in counter(node, check, place, f"{INTERFACES}/{interface}/{name}")
    ]
    try:
        ran = node.run(["ethtool", "-S", interface], ETHTOOL_S)
        statistics = parse(ran.stdout) if ran.rc == 0 else {}
        reason = f"ethtool ended with {ran.rc}: {ran.stderr.strip() or 'no statistics'}"
    except NotMeasuredError as error:
        statistics, reason = {}, error.cause
    # Only on a RoCE port must these be known: many drivers have no statistics of their own.
    if not statistics and "/" in place.name:
        measurements.append(Measurement("ethernet_discards", place, None, f"ethtool -S {interface}", reason))
    return measurements + list(judged(statistics, place, interface))


def parse(text: str) -> dict[str, int]:
    """Return the statistics of `ethtool -S` by name."""
    matches = (LINE.fullmatch(line) for line in text.splitlines())
    return {match.group(1): int(match.group(2)) for match in matches if match}


def judged(statistics: Mapping[str, int], place: Place, interface: str) -> Iterator[Measurement]:
    """Return the counters that have a rule. A priority without counters of pauses may lose packets by design."""
    for name, value in statistics.items():
        match = DISCARDS.fullmatch(name)
        if match and f"rx_prio{match.group(1)}_pause" not in statistics:
            continue
        check = "ethernet_discards" if match else next((key for key, names in STATISTICS.items() if name in names), "")
        if check:
            yield Measurement(check, place, value, f"ethtool -S {interface}: {name}", is_counter=True)
