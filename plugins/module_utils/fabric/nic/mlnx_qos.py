# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The vendor's `mlnx_qos`, used where `dcb` is not available: its output, and the commands with the same effect.

Written from the tool's own source (github.com/Mellanox/mlnx-tools, python/mlnx_qos: its options and pretty_print) and
tested on text of that form. It was not tested on such a NIC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Nic, Octet, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb

DSCPS_OF_PRIORITY = re.compile(r"^\s*prio:([0-7]) dscp:([0-9,]+)\s*$", re.MULTILINE)
PFC_ROW = r"^\s*{name}((?:\s+\d){{8}})\s*$"
CLASS = re.compile(r"^tc: ([0-7]) ratelimit: .*, tsa: (?:(ets), bw: (\d+)%|(\w+))$")
PRIORITY = re.compile(r"^\s+priority:\s+([0-7])$")
# Older versions print "max_buffer_size"; with the vendor's sysfs there is no total.
BUFFERS = re.compile(r"^Receive buffer size \(bytes\): ((?:\d+,){8})(?:\w+_size=(\d+))?\s*$", re.MULTILINE)


def show(interface: str) -> list[str]:
    """Return the command that prints all settings."""
    return ["mlnx_qos", "-i", interface, "-a"]


def parse(interface: str, text: str) -> Dcb:
    """Return the settings in the output of ``show``. Raises FabricError where it is not output of mlnx_qos."""
    mode = re.search(r"^DCBX mode: (OS|Firmware) controlled$", text, re.MULTILINE)
    trust = re.search(r"^Priority trust state: (dscp|pcp|none)$", text, re.MULTILINE)
    enabled = re.search(PFC_ROW.format(name="enabled"), text, re.MULTILINE)
    delay = re.search(r"^Cable len: (\d+)$", text, re.MULTILINE)
    classes, queues = _classes(text)
    if not (mode and trust and enabled and delay) or None in classes:
        raise FabricError(
            "its output is not that of mlnx_qos from mlnx-tools",
            "install iproute2's dcb",
            subject=f"{interface}: 'mlnx_qos -a'",
        )
    table: dict[int, tuple[int, ...]] = {}
    for priority, dscps in DSCPS_OF_PRIORITY.findall(text):
        for dscp in filter(None, dscps.split(",")):
            table[int(dscp)] = (*table.get(int(dscp), ()), int(priority))
    buffers = BUFFERS.search(text)
    used = re.search(PFC_ROW.format(name="buffer"), text, re.MULTILINE)
    return Dcb(
        tool="mlnx_qos",
        trust={"none": None}.get(trust[1], trust[1]),
        dscp_priorities=table,
        priority_to_class=classes,
        queues=queues,
        pfc=tuple(priority for priority, on in enumerate(enabled[1].split()) if on == "1"),
        delay=int(delay[1]),
        priority_to_buffer=tuple(map(int, used[1].split())) if used else None,
        buffer_bytes=tuple(int(size) for size in buffers[1].split(",")[:CLASSES]) if buffers else None,
        buffer_total_bytes=int(buffers[2]) if buffers and buffers[2] else None,
        by_host=mode[1] == "OS",
    )


def _classes(text: str) -> tuple[Octet, tuple[Queue | None, ...]]:
    """Return the traffic class of each priority, and the queues."""
    classes: list[int | None] = [None] * CLASSES
    queues: list[Queue | None] = [None] * CLASSES
    current_class = None
    for line in text.splitlines():
        class_line, priority_line = CLASS.match(line), PRIORITY.match(line)
        if class_line:
            current_class = int(class_line[1])
            queues[current_class] = (
                Queue(False, int(class_line[3]))
                if class_line[2]
                else Queue(True)
                if class_line[4] == "strict"
                else None
            )
        elif priority_line and current_class is not None:
            classes[int(priority_line[1])] = current_class
    return tuple(classes), tuple(queues)


def map_dscps(interface: str, table: Mapping[int, int]) -> list[list[str]]:
    """Trust DSCP, and map DSCPs to priorities: the tool accepts the two only in separate calls."""
    options = [word for dscp, priority in table.items() for word in ("--dscp2prio", f"set,{dscp},{priority}")]
    return [["mlnx_qos", "-i", interface, "--trust", "dscp"], ["mlnx_qos", "-i", interface, *options]]


def set_queues(interface: str, wanted: Nic) -> list[list[str]]:
    """Set the scheduler and the priorities' traffic classes; the tool requires all eight."""
    kinds = ("strict" if queue is None or queue.strict else "ets" for queue in wanted.queues)
    percents = ((queue.bandwidth_percent or 0) if queue else 0 for queue in wanted.queues)
    lists = [_list(wanted.priority_to_class), _list(kinds), _list(percents)]
    return [["mlnx_qos", "-i", interface, "-p", lists[0], "-s", lists[1], "-t", lists[2]]]


def set_pfc(interface: str, priorities: tuple[int, ...], delay: int | None) -> list[list[str]]:
    """Enable PFC on exactly these priorities. The tool sets cable and priorities together, so both are always given."""
    flags = _list(int(priority in priorities) for priority in range(CLASSES))
    return [["mlnx_qos", "-i", interface, "-f", flags, *(["--cable_len", str(delay)] if delay else [])]]


def set_delay(interface: str, priorities: tuple[int, ...], delay: int) -> list[list[str]]:
    """Set the cable's length in metres."""
    return set_pfc(interface, priorities, delay)


def set_buffers(interface: str, sizes: Octet, priority_to_buffer: Octet) -> list[list[str]]:
    """Set the buffers' sizes, then the buffer of each priority."""
    command = ["mlnx_qos", "-i", interface]
    return [[*command, "--buffer_size", _list(sizes)], [*command, "--prio2buffer", _list(priority_to_buffer)]]


def unmap_dscps(interface: str) -> list[list[str]]:
    """Trust the priority of VLAN tags instead of DSCP."""
    return [["mlnx_qos", "-i", interface, "--trust", "pcp"]]


def take_over(interface: str) -> list[list[str]]:
    """Give DCBX to the host instead of the firmware."""
    return [["mlnx_qos", "-i", interface, "-d", "os"]]


def hand_back(interface: str) -> list[list[str]]:
    """Give DCBX to the firmware."""
    return [["mlnx_qos", "-i", interface, "-d", "fw"]]


def _list(values: Iterable[object]) -> str:
    return ",".join(map(str, values))
