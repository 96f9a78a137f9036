# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Config space recorded from functions of the emulated server."""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parents[2] / "recordings" / "config"


def recorded_bytes(name: str) -> bytes:
    """Read a recording of config space: lines "OFFSET: BYTES" and "length: N"."""
    data = bytearray()
    for line in (RECORDED / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        head, _colon, rest = line.partition(": ")
        if head == "length":
            data.extend(bytes(int(rest) - len(data)))
        elif not line.startswith("#"):
            data.extend(bytes(int(head, 16) - len(data)))
            data.extend(bytes.fromhex(rest))
    return bytes(data)
