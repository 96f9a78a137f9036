# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The `dcb` tool of iproute2: the JSON that it prints, and the commands that set an interface's QoS.

Sources: dcb(8), dcb-app(8), dcb-ets(8), dcb-pfc(8), dcb-buffer(8), dcb-dcbx(8). A driver trusts DSCP where it has any
DSCP mapping: mlx5's en_dcbnl.c (mlx5e_dcbnl_ieee_setapp), and mlnx_qos without the vendor's sysfs (getTrust).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, DSCPS, Nic, Octet, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb

if TYPE_CHECKING:
    from typing import TypeGuard  # Python 3.9 has none

OBJECTS = ("app", "ets", "pfc", "buffer", "dcbx")
# dcb's messages where the driver does not have the operation, or lacks an attribute that the tool knows.
NOT_THERE = ("Operation not supported", "Attribute not found")
BUFFER_BYTES_AT_MOST = (1 << 32) - 1  # u32 in struct dcbnl_buffer


def decoded_error(message: str) -> str:
    """Return dcb's message with the driver's own error.

    The kernel returns the error as a byte (net/dcb/dcbnl.c, dcbnl_ieee_set), in which -22 is 234, and the tool prints
    "Unknown error 234".
    """
    return re.sub(r"Unknown error (1[3-9]\d|2\d\d)\b", lambda match: os.strerror(256 - int(match[1])), message)


def show(interface: str, dcb_object: str) -> list[str]:
    """Return the command that prints one of OBJECTS."""
    return ["dcb", "-N", "-j", dcb_object, "show", "dev", interface]


def parse(interface: str, printed: Mapping[str, str | None]) -> Dcb:
    """Return the settings in the output of ``show``. Raises FabricError if it is malformed.

    ``printed``: the output by object; None where the driver does not have the object.
    """
    read = {
        dcb_object: _Printed(interface, dcb_object, text) for dcb_object, text in printed.items() if text is not None
    }
    app, ets, pfc, buffer, dcbx = (read.get(dcb_object) for dcb_object in OBJECTS)
    table = app.dscps() if app else None
    total = buffer.number("total_size", BUFFER_BYTES_AT_MOST) if buffer else None
    return Dcb(
        tool="dcb",
        trust=None if table is None else ("dscp" if table else "pcp"),
        dscp_priorities=table,
        priority_to_class=ets.numbers("prio_tc", CLASSES - 1) if ets else None,
        queues=ets.queues() if ets else None,
        # IEEE 802.1Q-2018, D.2.8.4: three bits, in which 0 means 8.
        classes_at_most=(ets.number("ets_cap", 255) or CLASSES) if ets else CLASSES,
        pfc=tuple(priority for priority, on in enumerate(pfc.flags("prio_pfc")) if on) if pfc else None,
        lossless_at_most=pfc.number("pfc_cap", 255) if pfc else CLASSES,
        delay=pfc.number("delay", 65535) if pfc else None,
        priority_to_buffer=buffer.numbers("prio_buffer", CLASSES - 1) if buffer else None,
        buffer_bytes=buffer.numbers("buffer_size", BUFFER_BYTES_AT_MOST) if buffer else None,
        buffer_total_bytes=total,
        by_host=dcbx.record.get("host") is True and not dcbx.record.get("lld_managed") if dcbx else None,
        willing=_flag(ets.record.get("willing")) if ets else None,
    )


class _Printed:
    """One output of the tool."""

    def __init__(self, interface: str, dcb_object: str, text: str) -> None:
        self.subject = f"{interface}: 'dcb -j {dcb_object} show'"
        self.text = text.strip()
        try:
            self.record = json.loads(self.text) if self.text else {}
        except ValueError as error:
            raise self._malformed("no JSON") from error
        if not isinstance(self.record, dict):
            raise self._malformed("no JSON object")

    def _malformed(self, problem: str) -> FabricError:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return FabricError(
            f"it printed {problem}: {shown!r}", "check that dcb is from iproute2 5.11 or later", subject=self.subject
        )

    def number(self, name: str, maximum: int) -> int:
        value = self.record.get(name)
        if not _is_number(value, maximum):
            raise self._malformed(f"{name} {value!r}")
        return value

    def _list(self, name: str) -> list[Any]:
        values = self.record.get(name)
        if not isinstance(values, list) or len(values) != CLASSES:
            raise self._malformed(f"{name} {values!r}, not 8 entries")
        return values

    def numbers(self, name: str, maximum: int) -> tuple[int, ...]:
        values = self._list(name)
        if not all(_is_number(value, maximum) for value in values):
            raise self._malformed(f"{name} {values!r}")
        return tuple(values)

    def flags(self, name: str) -> tuple[bool, ...]:
        values = [_flag(value) for value in self._list(name)]
        if None in values:
            raise self._malformed(f"{name} {self.record[name]!r}")
        return tuple(bool(value) for value in values)

    def queues(self) -> tuple[Queue | None, ...]:
        percents = self.numbers("tc_bw", 100)
        kinds = {"strict": lambda _percent: Queue(True), "ets": lambda percent: Queue(False, percent)}
        return tuple(
            kinds[kind](percent) if kind in ("strict", "ets") else None
            for kind, percent in zip(self._list("tc_tsa"), percents)
        )

    def dscps(self) -> dict[int, tuple[int, ...]]:
        table: dict[int, tuple[int, ...]] = {}
        rows = self.record.get("dscp_prio", [])
        if not isinstance(rows, list):
            raise self._malformed(f"dscp_prio {rows!r}")
        for row in rows:
            if not (isinstance(row, list) and len(row) == 2 and _is_number(row[0], DSCPS - 1)) or not _is_number(
                row[1], CLASSES - 1
            ):
                raise self._malformed(f"dscp_prio {row!r}")
            table[row[0]] = (*table.get(row[0], ()), row[1])
        return table


def _is_number(value: object, maximum: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= maximum


def _flag(value: Any) -> bool | None:
    return {True: True, False: False, "on": True, "off": False}.get(value) if isinstance(value, (bool, str)) else None


def map_dscps(interface: str, table: Mapping[int, int]) -> list[list[str]]:
    """Map DSCPs to priorities and remove their earlier mappings ("add" would keep those beside the new ones)."""
    return [["dcb", "app", "replace", "dev", interface, "dscp-prio", *_pairs(table.items())]]


def set_queues(interface: str, wanted: Nic) -> list[list[str]]:
    """Set the scheduler and the priorities' traffic classes in one command: the kernel checks them together.

    A traffic class without a queue in ``wanted`` is one that the interface does not have.
    """
    queues = {number: queue for number, queue in enumerate(wanted.queues) if queue}
    kinds = {number: "strict" if queue.strict else "ets" for number, queue in queues.items()}
    percents = {number: queue.bandwidth_percent or 0 for number, queue in queues.items()}
    command = ["dcb", "ets", "set", "dev", interface, "willing", "off", "tc-tsa", *_pairs(kinds.items()), "tc-bw"]
    return [[*command, *_pairs(percents.items()), "prio-tc", *_pairs(enumerate(wanted.priority_to_class))]]


def set_pfc(interface: str, priorities: tuple[int, ...], _delay: int | None) -> list[list[str]]:
    """Enable PFC on exactly these priorities."""
    flags = ((priority, "on" if priority in priorities else "off") for priority in range(CLASSES))
    return [["dcb", "pfc", "set", "dev", interface, "prio-pfc", *_pairs(flags)]]


def set_delay(interface: str, _priorities: tuple[int, ...], delay: int) -> list[list[str]]:
    """Set PFC's delay, which mlx5 takes as the cable's length in metres."""
    return [["dcb", "pfc", "set", "dev", interface, "delay", str(delay)]]


def set_buffers(interface: str, sizes: Octet, priority_to_buffer: Octet) -> list[list[str]]:
    """Set the buffers' sizes, then their priorities: mlx5 refuses a lossless priority in a buffer without capacity."""
    command = ["dcb", "buffer", "set", "dev", interface]
    return [
        [*command, "buffer-size", *_pairs(enumerate(sizes))],
        [*command, "prio-buffer", *_pairs(enumerate(priority_to_buffer))],
    ]


def unmap_dscps(interface: str) -> list[list[str]]:
    """Remove all mappings of DSCPs: a driver trusts DSCP where it has any."""
    return [["dcb", "app", "flush", "dev", interface, "dscp-prio"]]


def take_over(interface: str) -> list[list[str]]:
    """Give DCBX to the host instead of the firmware."""
    return [["dcb", "dcbx", "set", "dev", interface, "host", "ieee"]]


def hand_back(interface: str) -> list[list[str]]:
    """Give DCBX to the firmware. mlx5 refuses this form, and the tool has no other (Linux, mlx5e_dcbnl_setdcbx)."""
    return [["dcb", "dcbx", "set", "dev", interface, "lld-managed", "ieee"]]


def _pairs(items: Iterable[tuple[int, object]]) -> list[str]:
    return [f"{key}:{value}" for key, value in items]
