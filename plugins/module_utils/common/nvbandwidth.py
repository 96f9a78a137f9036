# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what ``nvbandwidth --json`` prints (NVIDIA/nvbandwidth at 66746a3b, json_output.cpp). Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

# The tests of copies by PCIe, which acceptance and health know by these names.
TO_GPU, FROM_GPU = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"


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
            for row, columns in enumerate(test["bandwidth_matrix"]):
                for column, cell in enumerate(columns):
                    # The diagonal of copies between GPUs is "N/A", in older releases 0.
                    if cell != "N/A" and float(cell) > 0:
                        cells.append(Copy(test["name"], row, column, float(cell)))
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"it is not what nvbandwidth --json prints: {error!r}") from error
    return Copies(gpus, tuple(cells), tuple(waived))


def _address(line: str) -> str:
    """Return 0000:1b:00.0 of "0: NVIDIA H100 (00000000:1b:00): (host)"."""
    match = re.search(r"\(([0-9a-f]{8}):([0-9a-f]{2}):([0-9a-f]{2})\)", line)
    if not match:
        raise UnreadableError(f"no PCI address in {line!r}")
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.0"
