# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what the tools print that measure a node's bandwidths. Pure.

The formats are those of the tools' sources: nvbandwidth at 66746a3b (json_output.cpp), perftest at 00b55b66
(src/perftest_parameters.h, RESULT_FMT_G and REPORT_FMT), nccl-tests at a0b82b22 (src/util.cu, writeResultHeader and
writeBenchmarkLineBody).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

# Tests of nvbandwidth: copies by PCIe, and between GPUs.
TO_GPU, FROM_GPU = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"
BETWEEN_GPUS = "device_to_device_memcpy_read_ce"
ALL_REDUCE = "all_reduce_perf"  # of nccl-tests
MIB = 1 << 20


class UnreadableError(SailloftError):
    """An output that is not in the measuring tool's format, or that reports an error or a wrong result."""


@dataclass(frozen=True)
class Copy:
    """The bandwidth of one cell of a test of nvbandwidth in GB/s; ``row`` and ``column`` are numbers of devices."""

    test: str
    row: int
    column: int
    gb_per_s: float


@dataclass(frozen=True)
class Copies:
    """Bandwidths by nvbandwidth. ``gpus`` are PCI addresses by device number, ``waived`` the tests that did not run."""

    gpus: tuple[str, ...]
    copies: tuple[Copy, ...]
    waived: tuple[str, ...]


def copies(text: str) -> Copies:
    """Return the cells of all tests of ``nvbandwidth --json``. Raises UnreadableError."""
    try:
        data = json.loads(text[text.index("{") :])["nvbandwidth"]
        if "error" in data:
            raise UnreadableError(f"it says: {data['error']}")
        gpus = tuple(_address(line) for line in data["GPU Device list"])
        cells, waived = [], []
        for test in data["testcases"]:
            if test["status"] != "Passed":
                waived.append(f"{test['name']} ({test['status']})")
                continue
            for row, columns in enumerate(_list(test["bandwidth_matrix"])):
                for column, cell in enumerate(_list(columns)):
                    # The diagonal of copies between GPUs is "N/A", in older releases 0.
                    rate = None if cell == "N/A" else _rate(cell)
                    if rate:
                        cells.append(Copy(test["name"], row, column, rate))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError(f"it is not what nvbandwidth --json prints: {error!r}") from error
    return Copies(gpus, tuple(cells), tuple(waived))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is no list")
    return value


def _rate(cell: object) -> float:
    """Return a rate as a tool prints it. Raises UnreadableError."""
    match = re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?", str(cell))
    if not match or not math.isfinite(float(match[0])):
        raise UnreadableError(f"it prints {cell!r:.60} where a rate belongs")
    return float(match[0])


def _address(line: str) -> str:
    """Return 0000:1b:00.0 of "0: NVIDIA H100 (00000000:1b:00): (host)"."""
    match = re.search(r"\(([0-9a-f]{8}):([0-9a-f]{2}):([0-9a-f]{2})\)", line)
    if not match:
        raise UnreadableError(f"no PCI address in {line!r}")
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.0"


def perftest_gb_per_s(text: str) -> float:
    """Return the average bandwidth of the last row of ib_write_bw, in GB/s (10^9). Raises UnreadableError."""
    unit, average = "", None
    for line in text.splitlines():
        head = re.match(r"\s*#bytes\s+#iterations\s+BW peak\[(Gb|MiB|MB)/sec\]\s+BW average\[", line)
        row = re.match(r"\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+", line)
        if head:
            unit = head[1]
        elif row and unit:
            average = _rate(row[1])
    if average is None:
        raise UnreadableError("there is no row of results below '#bytes #iterations BW peak'")
    # "MB/sec" of older releases is MiB too.
    return average / 8 if unit == "Gb" else average * MIB / 1e9


def nccl_bus_gb_per_s(text: str) -> float:
    """Return the bus bandwidth of the largest size, out of place, in GB/s.

    Raises UnreadableError, also if the test found wrong values.
    """
    wrong = re.search(r"^# Out of bounds values : (\d+)", text, re.MULTILINE)
    if wrong is None:
        raise UnreadableError("it did not finish: there is no line '# Out of bounds values'")
    if int(wrong[1]):
        raise UnreadableError(f"it computed {wrong[1]} wrong values")
    rows = []
    for line in text.splitlines():
        columns = line.split()
        # size, count, type, redop, root, time, algbw, busbw, #wrong, and four more in-place. Older releases print no
        # root: 12 words, of which the eighth is the error (NVIDIA/nccl-tests#107).
        if len(columns) >= 13 and re.fullmatch("[0-9]{1,18} [0-9]{1,18}", " ".join(columns[:2])):
            rows.append((int(columns[0]), columns[7]))
    if not rows:
        raise UnreadableError("there is no row of results")
    return _rate(max(rows)[1])
