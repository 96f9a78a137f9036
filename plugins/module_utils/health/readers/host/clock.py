# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's clock: whether it follows a time source, and how far it is off, by chrony or else by the kernel."""

from __future__ import annotations

import ctypes
import math
import os

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

CHRONYC, ANSWER_S = ["chronyc", "-c", "tracking"], 5.0
# chrony's report has 14 fields: the fifth is the offset in seconds, the last one the leap status.
FIELDS, OFFSET, LEAP = 14, 4, 13
LEAPS = ("Normal", "Insert second", "Delete second")
NOT_SYNCHRONISED = "Not synchronised"
# adjtimex(2)
TIME_ERROR, STA_UNSYNC, STA_NANO = 5, 0x0040, 0x2000
PLACE = Place("node")


class _Timex(ctypes.Structure):
    """The beginning of the kernel's struct timex, with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def read(node: Node) -> Reading:
    """Measure the clock."""
    try:
        ran = node.run(CHRONYC, ANSWER_S)
        measured = parse_tracking(ran.stdout) if ran.rc == 0 else None
        source = " ".join(CHRONYC)
    except NotMeasuredError:
        measured = None
    if measured is None:
        measured, source = kernel_clock(), "adjtimex"
    is_synchronised, offset = measured
    return Reading(
        "clock",
        (
            Measurement("clock_not_synchronised", PLACE, not is_synchronised, source),
            # The offset from a source that is lost says nothing.
            *([Measurement("clock_offset", PLACE, abs(offset), source)] if is_synchronised else []),
        ),
    )


def parse_tracking(text: str) -> tuple[bool, float] | None:
    """Return whether `chronyc -c tracking` shows a source, and the offset in seconds; None if it is no such report."""
    fields = text.strip().split(",")
    if len(fields) != FIELDS:
        return None
    try:
        offset = float(fields[OFFSET])
    except ValueError:
        return None
    if not math.isfinite(offset) or fields[LEAP] not in (*LEAPS, NOT_SYNCHRONISED):
        return None
    return fields[LEAP] != NOT_SYNCHRONISED, offset


def kernel_clock() -> tuple[bool, float]:
    """Return whether the kernel's clock is synchronised, and its offset in seconds. Raises NotMeasuredError."""
    timex = _Timex()
    library = ctypes.CDLL(None, use_errno=True)
    state = library.adjtimex(ctypes.byref(timex))
    if state < 0:
        raise NotMeasuredError(f"adjtimex: {os.strerror(ctypes.get_errno())}")
    offset = timex.offset / (1e9 if timex.status & STA_NANO else 1e6)
    return state != TIME_ERROR and not timex.status & STA_UNSYNC, offset
