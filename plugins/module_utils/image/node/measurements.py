# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a running node's TPM has measured: PCRs from the kernel, and the firmware's log of PCR 4.

Root on the node can show other values here; a quote by the TPM cannot be forged.
"""

from __future__ import annotations

import os
import struct

# The PCRs that image/uki/measured.py predicts, by number as text, for JSON.
FIRMWARE, IMAGE, PROGRAM, SETTINGS, EXTENSIONS = "4", "8", "11", "12", "13"
PCRS = (FIRMWARE, IMAGE, PROGRAM, SETTINGS, EXTENSIONS)
# Linux 5.12 and later show the values.
TPM = "sys/class/tpm/tpm0"
LOG = "sys/kernel/security/tpm0/binary_bios_measurements"
# TCG, "PC Client Platform Firmware Profile", 10.2: the first event, in the form of TPM 1.2, names the digests of the
# others with their sizes; an event is PCR, type, digests, and data with its size. EV_NO_ACTION is not measured.
FIRST = struct.Struct("<II20sI")
ALGORITHMS_AT = 24
SHA256, NO_ACTION = 0x000B, 3


def read_pcrs(root: str = "/") -> dict[str, str] | None:
    """Return the sha256 values of the PCRs that are predicted, those that can be read; None without a TPM."""
    if not os.path.isdir(os.path.join(root, TPM)):
        return None
    values = {}
    for pcr in PCRS:
        try:
            with open(os.path.join(root, TPM, "pcr-sha256", pcr), encoding="ascii") as stream:
                values[pcr] = stream.read().strip().lower()
        except OSError:
            continue
    return values


def read_log(path: str) -> list[str] | None:
    """Return the sha256 digests that the firmware has measured into PCR 4; None if there is no log of this kind."""
    try:
        with open(path, "rb") as stream:
            return parse_log(stream.read())
    except (OSError, ValueError, struct.error):
        return None


def parse_log(data: bytes) -> list[str]:
    """Return the sha256 digests of PCR 4 in a firmware's log. Raises ValueError or struct.error for other data."""
    _pcr, _kind, _digest, size = FIRST.unpack_from(data)
    sizes = _digest_sizes(data[FIRST.size : FIRST.size + size])
    offset, events = FIRST.size + size, []
    while offset < len(data):
        pcr, kind, count = struct.unpack_from("<III", data, offset)
        offset += 12
        for _number in range(count):
            (algorithm,) = struct.unpack_from("<H", data, offset)
            if algorithm not in sizes:
                raise ValueError("a digest of an unknown kind")
            if algorithm == SHA256 and str(pcr) == FIRMWARE and kind != NO_ACTION:
                events.append(data[offset + 2 : offset + 2 + sizes[algorithm]].hex())
            offset += 2 + sizes[algorithm]
        offset += 4 + struct.unpack_from("<I", data, offset)[0]
    if offset > len(data):
        raise ValueError("its last event is cut")
    return events


def _digest_sizes(first: bytes) -> dict[int, int]:
    if not first.startswith(b"Spec ID Event03\0"):
        raise ValueError("not the log of a TPM 2.0")
    (count,) = struct.unpack_from("<I", first, ALGORITHMS_AT)
    rows = (struct.unpack_from("<HH", first, ALGORITHMS_AT + 4 + 4 * number) for number in range(count))
    return dict(rows)
