# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what the measuring tools print. Pure.

The formats are those of the tools' sources: perftest at 00b55b66 (src/perftest_parameters.h, RESULT_FMT_G and
REPORT_FMT), nccl-tests at a0b82b22 (src/util.cu, writeResultHeader and writeBenchmarkLineBody).
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.common.nvbandwidth import UnreadableError

MIB = 1 << 20


def perftest_gb_per_s(text: str) -> float:
    """Return the average bandwidth of the last row of ib_write_bw, in GB/s (10^9). Raises UnreadableError."""
    unit, average = "", None
    for line in text.splitlines():
        head = re.match(r"\s*#bytes\s+#iterations\s+BW peak\[(Gb|MiB|MB)/sec\]\s+BW average\[", line)
        row = re.match(r"\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+", line)
        if head:
            unit = head[1]
        elif row and unit:
            average = float(row[1])
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
        if len(columns) >= 13 and columns[0].isdigit() and columns[1].isdigit():
            rows.append((int(columns[0]), float(columns[7])))
    if not rows:
        raise UnreadableError("there is no row of results")
    return max(rows)[1]
