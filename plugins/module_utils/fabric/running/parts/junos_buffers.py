# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the parts into which a Junos switch divides its buffer, as configured, as shown, and by default.

All percents are of the shared buffer, which is what the ports' dedicated buffers leave.

Sources: Juniper's TechPost "QFX5K-Series Switches Packet Buffer Architecture" (2025-04-25): table "QFX5K Default Shared
Buffer Values", alpha, and the form of ``show class-of-service shared-buffer`` of Junos Evolved; that of Junos has
decimals (a QFX3500). The parts are the same with Juniper's statement pages buffer-partition, which only have those of
the older chips (ingress: 9% lossless, 45% headroom; egress: 50% lossless).

A reading has the answer to ``show class-of-service shared-buffer`` after the line SHOWN. Never tried on a switch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Buffers, BufferShares, Override
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import COS, SHOWN, Line
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import BUFFER

PARTS = (*COS, "shared-buffer")
LOSSLESS, HEADROOM = ("ingress", "buffer-partition", "lossless"), ("ingress", "buffer-partition", "lossless-headroom")
EGRESS_LOSSLESS = ("egress", "buffer-partition", "lossless")
ALPHA = (*PARTS, *LOSSLESS, "dynamic-threshold")
THRESHOLD_OF_1 = 7  # the dynamic-threshold that is an alpha of 1, and the default; each step doubles alpha
_THRESHOLD = re.compile(r"\d|10")
_PERCENT = re.compile(r"\d{1,2}|100")  # as in syntax/overrides.py
_ROW = re.compile(r"\s*(Shared Buffer|Lossless|Lossless Headroom|Lossless dynamic threshold)\s*:\s*(\d+(?:\.\d+)?)\b")


class _Default(NamedTuple):
    """A model's buffer as Juniper's table has it, in KB of 1,024 bytes."""

    model: str
    total: int
    ingress_shared: int
    ingress_lossless: int
    headroom: int
    egress_shared: int
    egress_lossless: int

    def shares(self) -> BufferShares:
        """Return the parts; the smaller of both shared buffers counts, because a packet is in both at once."""
        return BufferShares(
            round(100 * self.ingress_lossless / self.ingress_shared),
            round(100 * self.headroom / self.ingress_shared),
            alpha_exponent=0,  # dynamic-threshold 7
            egress_percent=round(100 * self.egress_lossless / self.egress_shared),
            divided_percent=100 * min(self.ingress_shared, self.egress_shared) // self.total,
            default_of=self.model,
        )


DEFAULTS = {
    "tomahawk2": _Default("QFX5210", 43_264, 29_224, 2_630, 13_150, 28_080, 14_040),
    "tomahawk3": _Default("QFX5220", 65_536, 44_420, 8_884, 4_442, 44_420, 8_884),
    "tomahawk4": _Default("QFX5230", 116_386, 74_743, 14_949, 7_474, 74_743, 14_948),
    "tomahawk5": _Default("QFX5240", 169_207, 84_206, 16_841, 8_420, 84_206, 16_841),
    "trident3": _Default("QFX5120", 32_256, 28_328, 2_549, 12_747, 27_396, 13_698),
    "trident4": _Default("QFX5130", 134_792, 111_263, 22_252, 11_126, 111_263, 22_252),
}
DEFAULT_SHARES = {asic: default.shares() for asic, default in DEFAULTS.items()}
_MOST_BY_DEFAULT = max(shares.lossless_percent or 0 for shares in DEFAULT_SHARES.values())


def _percents(lines: Sequence[Line]) -> dict[Line, int]:
    """Return the configured parts of the buffer in percent, by their paths below [edit class-of-service]."""
    return {
        line[len(PARTS) : -2]: int(line[-1])
        for line in lines
        if line[: len(PARTS)] == PARTS and line[-2] == "percent" and _PERCENT.fullmatch(line[-1])
    }


def _shown(text: str) -> BufferShares | None:
    """Return the parts that the switch shows; None where it does not show them all, or more than one buffer."""
    rows: dict[tuple[str, str], float] = {}
    side = ""
    for line in text.partition(SHOWN)[2].splitlines():
        if line.strip() in ("Ingress:", "Egress:"):
            side = line.strip()[:-1]
        elif match := _ROW.match(line):
            if (side, match[1]) in rows:
                return None
            rows[side, match[1]] = float(match[2])
    names = [("Ingress", "Shared Buffer"), ("Ingress", "Lossless"), ("Ingress", "Lossless Headroom")]
    numbers = [rows.get(name) for name in (*names, ("Egress", "Shared Buffer"), ("Egress", "Lossless"))]
    kbytes = [number for number in numbers if number is not None]
    if len(kbytes) < len(numbers) or not kbytes[0] or not kbytes[3]:
        return None
    shared, lossless, headroom, egress_shared, egress_lossless = kbytes
    threshold = rows.get(("Ingress", "Lossless dynamic threshold"))
    return BufferShares(
        round(100 * lossless / shared),
        round(100 * headroom / shared),
        None if threshold is None else int(threshold) - THRESHOLD_OF_1,
        egress_percent=round(100 * egress_lossless / egress_shared),
        divided_bytes=int(1024 * min(shared, egress_shared)),
    )


def shares_of(lines: Sequence[Line], text: str) -> BufferShares:
    """Return the parts as the switch shows them, or else as they are configured: None where nothing says them."""
    if shown := _shown(text):
        return shown
    percents = _percents(lines)
    thresholds = [int(line[-1]) for line in lines if line[:-1] == ALPHA and _THRESHOLD.fullmatch(line[-1])]
    return BufferShares(
        percents.get(LOSSLESS),
        percents.get(HEADROOM),
        thresholds[-1] - THRESHOLD_OF_1 if thresholds else None,
        percents.get(EGRESS_LOSSLESS),
    )


def buffers(lines: Sequence[Line], text: str, name: str) -> Buffers | None:
    """Return the parts of the buffer, and alpha; None where the switch has the default ones, and does not show them."""
    shares = shares_of(lines, text)
    if 0 in (shares.lossless_percent, shares.egress_percent):
        refusal = FabricError(
            "it leaves lossless packets no buffer, so no class can be lossless",
            "make the classes lossy, or set a larger lossless partition of ingress and egress while no traffic has to "
            "pass, because changing it stops all ports",
            subject=f"{name}: {' '.join(PARTS)}",
        )
        return Buffers(refusal=refusal)
    return None if shares == BufferShares() else Buffers(shares=shares)


def small_egress_part(lines: Sequence[Line]) -> Iterator[Override]:
    """Yield the part of egress that is smaller than that of ingress: it drops packets before ingress pauses them.

    An ingress part that is not configured counts as the largest default, because the configuration names no model.
    """
    percents = _percents(lines)
    percent = percents.get(EGRESS_LOSSLESS)
    if percent is not None and percent < percents.get(LOSSLESS, _MOST_BY_DEFAULT):
        yield Override(" ".join((*PARTS, *EGRESS_LOSSLESS, "percent", str(percent))), BUFFER)
