# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The counters of RDMA ports as a textfile of the node exporter, with the names of its own collector ``infiniband``.

That collector is off, because of two defects (prometheus/node_exporter#3265 and #3434): one port whose counters cannot
be read makes it drop all ports, and it asks such ports at each scrape, for which mlx5_core writes ACCESS_REG errors
into the kernel's log. Its device-exclude does not help: it reads before it excludes (#3823). This program leaves out
what cannot be read, and asks such a port again only after an hour. It runs from one file on the node.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk

DEVICES = "/sys/class/infiniband"
# The ports that could not be read, with the seconds of the boot at which they were tried.
MEMORY = "/run/sailloft-monitoring/rdma.json"
TRY_AGAIN_S = 3600.0
# The kernel's file, the metric of node_exporter's collector/infiniband_linux.go, its factor. Data is in words of 4
# bytes (InfiniBand specification, PortXmitData).
COUNTERS = (
    ("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors_total", 1),
    ("link_downed", "link_downed_total", 1),
    ("link_error_recovery", "link_error_recovery_total", 1),
    ("local_link_integrity_errors", "local_link_integrity_errors_total", 1),
    ("multicast_rcv_packets", "multicast_packets_received_total", 1),
    ("multicast_xmit_packets", "multicast_packets_transmitted_total", 1),
    ("port_rcv_constraint_errors", "port_constraint_errors_received_total", 1),
    ("port_xmit_constraint_errors", "port_constraint_errors_transmitted_total", 1),
    ("port_rcv_data", "port_data_received_bytes_total", 4),
    ("port_xmit_data", "port_data_transmitted_bytes_total", 4),
    ("port_xmit_discards", "port_discards_transmitted_total", 1),
    ("port_rcv_errors", "port_errors_received_total", 1),
    ("port_rcv_packets", "port_packets_received_total", 1),
    ("port_xmit_packets", "port_packets_transmitted_total", 1),
    ("port_xmit_wait", "port_transmit_wait_total", 1),
    ("symbol_error", "symbol_error_total", 1),
    ("unicast_rcv_packets", "unicast_packets_received_total", 1),
    ("unicast_xmit_packets", "unicast_packets_transmitted_total", 1),
)
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")
STATE = re.compile(r"([0-9]+): ")
UNREADABLE = "sailloft_rdma_port_unreadable"
Sample = tuple[str, str, str, str, float]  # metric, its type, device, port, value


def main(arguments: list[str]) -> int:
    """Write the metrics to the file that is named, and return the exit code."""
    (target,) = arguments
    disk.write_atomic(target, metrics("/").encode(), disk.public)
    return 0


def metrics(root: str) -> str:
    """Return the metrics of the machine whose files are below ``root``; ports that cannot be read are remembered."""
    memory = os.path.join(root, MEMORY.lstrip("/"))
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    tried = _remembered(memory)
    samples: list[Sample] = []
    unreadable = {}
    for device, port in _ports(root):
        name = f"{device}/{port}"
        if now - tried.get(name, -TRY_AGAIN_S) < TRY_AGAIN_S:
            unreadable[name] = tried[name]
        else:
            try:
                samples += _port(root, device, port)
            except OSError:
                unreadable[name] = now
        samples.append((UNREADABLE, "gauge", device, port, float(name in unreadable)))
    if unreadable != tried:
        os.makedirs(os.path.dirname(memory), exist_ok=True)
        disk.write_atomic(memory, json.dumps(unreadable).encode(), disk.public)
    return _text(samples)


def _remembered(path: str) -> dict[str, float]:
    try:
        with open(path, encoding="utf-8") as stream:
            return {str(name): float(seconds) for name, seconds in json.load(stream).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _ports(root: str) -> Iterator[tuple[str, str]]:
    folder = os.path.join(root, DEVICES.lstrip("/"))
    for device in _names(folder):
        for port in _names(os.path.join(folder, device, "ports")):
            yield device, port


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _port(root: str, device: str, port: str) -> list[Sample]:
    """Return what a port shows. Raises OSError for a file that the kernel refuses to read."""
    folder = os.path.join(root, DEVICES.lstrip("/"), device, "ports", port)
    samples: list[Sample] = []
    for file, metric in (("state", "state_id"), ("phys_state", "physical_state_id")):
        state = STATE.match(_read(f"{folder}/{file}"))
        if state:
            samples.append((f"node_infiniband_{metric}", "gauge", device, port, float(state[1])))
    rate = RATE.match(_read(f"{folder}/rate"))
    if rate:
        samples.append(("node_infiniband_rate_bytes_per_second", "gauge", device, port, float(rate[1]) * 1e9 / 8))
    for file, metric, factor in COUNTERS:
        text = _read(f"{folder}/counters/{file}")
        if text.isdecimal():  # "N/A (no PMA)" of iWARP is none
            samples.append((f"node_infiniband_{metric}", "counter", device, port, int(text) * factor))
    return samples


def _read(path: str) -> str:
    """Return a file's text; "" if the driver has no such file."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read().strip()
    except FileNotFoundError:
        return ""


def _text(samples: list[Sample]) -> str:
    """Return the samples in the text format, those of a metric together."""
    lines = []
    last = ""
    for metric, kind, device, port, value in sorted(samples):
        if metric != last:
            lines.append(f"# TYPE {metric} {kind}")
            last = metric
        number = int(value) if value == int(value) else value
        lines.append(f'{metric}{{device="{device}",port="{port}"}} {number}')
    return "".join(f"{line}\n" for line in lines)
