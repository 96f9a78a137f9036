# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports of RDMA devices (InfiniBand, RoCE), from /sys/class/infiniband: presence, state, rate and error counters.

The counters of a port are those of the InfiniBand specification: small, and without wrap. A counter at its end shows no
further error until somebody resets it (perfquery -R).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    ExpectedPort,
    Measurement,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import counter, lasting, optional
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node

DEVICES = "/sys/class/infiniband"
ACTIVE, LINK_UP = "ACTIVE", "LinkUp"
# The kernel's names of the states (drivers/infiniband/core/sysfs.c); anything else is not read.
STATES = ("NOP", "DOWN", "INIT", "ARMED", ACTIVE, "ACTIVE_DEFER")
LINK_STATES = (
    "<unknown>",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    LINK_UP,
    "LinkErrorRecovery",
    "Phy Test",
)
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")
# The kernel's file, the check, and where the counter stops: the bits of drivers/infiniband/core/sysfs.c.
COUNTERS = (
    ("link_downed", "port_link_downs", 0xFF),
    ("link_error_recovery", "port_link_recoveries", 0xFF),
    ("symbol_error", "port_symbol_errors", 0xFFFF),
    ("port_rcv_errors", "port_receive_errors", 0xFFFF),
    ("port_xmit_discards", "port_send_discards", 0xFFFF),
    ("local_link_integrity_errors", "port_integrity_errors", 0xF),
    ("excessive_buffer_overrun_errors", "port_buffer_overruns", 0xF),
)
# Counters of mlx5 and other drivers, of 64 bits.
HARDWARE_COUNTERS = (
    ("local_ack_timeout_err", "rdma_timeouts"),
    ("packet_seq_err", "rdma_sequence_errors"),
    ("rnr_nak_retry_err", "rdma_receiver_not_ready"),
    ("roce_slow_restart", "rdma_slow_restarts"),
)


def read(node: Node) -> Reading:
    """Measure the planned ports of RDMA devices."""
    ports = [port for port in node.expected.ports if "/" in port.name]
    measurements, ports_down = lasting(node, "port_down", (item for port in ports for item in _port(node, port)))
    return Reading("rdma", measurements, kept=ports_down)


def _port(node: Node, port: ExpectedPort) -> Iterator[Measurement]:
    place = Place("port", port.name)
    device, _slash, number = port.name.partition("/")
    folder = f"{DEVICES}/{device}/ports/{number}"
    if not os.path.isdir(node.path(folder)):
        if not _device_is_missing(node, port):
            yield Measurement("port_missing", place, True, folder, "missing: no driver made this port")
        return
    yield Measurement("port_missing", place, False, folder, "present")
    state, physical = optional(node, f"{folder}/state"), optional(node, f"{folder}/phys_state")
    is_up = parse_state(state, physical)
    text = f"{state}, {physical}" if state or physical else "its state cannot be read"
    yield Measurement("port_down", place, None if is_up is None else not is_up, f"{folder}/state", text)
    if is_up:
        text = optional(node, f"{folder}/rate")
        rate = parse_rate(text)
        reason = "" if rate is not None else f"{text!r:.60} is no rate"
        yield Measurement("port_rate", place, rate, f"{folder}/rate", reason)
    for name, check, end in COUNTERS:
        yield from counter(node, check, place, f"{folder}/counters/{name}", end)
    for name, check in HARDWARE_COUNTERS:
        yield from counter(node, check, place, f"{folder}/hw_counters/{name}")


def _device_is_missing(node: Node, port: ExpectedPort) -> bool:
    """Return True if the port's planned PCI function is missing: that is the fault, which the reader pcie reports."""
    planned = {device.address for device in node.expected.devices}
    return port.address in planned and not os.path.isdir(node.path(f"/sys/bus/pci/devices/{port.address}"))


def parse_state(state: str, physical: str) -> bool | None:
    """Return whether a port is up by its files state ("4: ACTIVE") and phys_state ("5: LinkUp"), None if unknown."""
    _number, _colon, name = state.partition(": ")
    _number, _colon, link = physical.partition(": ")
    if name not in STATES or link not in LINK_STATES:
        return None
    return name == ACTIVE and link == LINK_UP


def parse_rate(text: str) -> float | None:
    """Return the Gbit/s of "400 Gb/sec (4X NDR)"."""
    match = RATE.match(text)
    return float(match.group(1)) if match else None
