# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``roce_asics``: a user's own switch ASICs, and a user's versions of those in ``asic_table``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Buffers, Headroom
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, Asic

ASICS_VARIABLE = "roce_asics"
# Source: IEEE 802.3. RoCE is not used below 1 Gbit/s.
SPEEDS_GBIT_S = (1, 2, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600)
CABLE_M = values.within(1, 120_000)  # the longest in SONiC's profiles
# Jericho 2's buffer in HBM, 6.4 GB, is the largest in the table; ten times that must be a wrong unit.
MOST_BYTES = 64 * 10**9
BYTES, ABOVE_0_BYTES = values.within(0, MOST_BYTES), values.within(1, MOST_BYTES)
ALPHAS = values.within(-8, 8)  # exponents; SONiC's profiles have -6 to 7
# Those that an ASIC must have come first.
NUMBERS = {
    "buffer_bytes": values.within(1_000_000, MOST_BYTES),
    "pool_bytes": values.within(100_000, MOST_BYTES),
    "cell_bytes": values.within(32, 16_384),
    "lossless_classes": values.within(0, CLASSES),
    "unicast_queues": values.within(1, CLASSES),
    "headroom_pool_bytes": BYTES,
    "lossy_pool_bytes": BYTES,
    "alpha_exponent": ALPHAS,
}
NEEDED = ("buffer_bytes", "pool_bytes", "cell_bytes", "lossless_classes")


def read_asics(variable: Any) -> dict[str, Asic]:
    """Return all ASICs by name: those of the table, and the user's own (``roce_asics``), which override them.

    Raises FabricError for the first error.
    """
    record = Settings(FabricError, ASICS_VARIABLE, {} if variable is None else variable)
    return {**ASICS, **{str(name): _read_asic(str(name), data) for name, data in record.data.items()}}


def _read_asic(name: str, settings_given: Any) -> Asic:
    record = Settings(FabricError, f"{ASICS_VARIABLE}: {name}", settings_given)
    record.only("like", "title", "source", "headroom", *NUMBERS)
    like = record.value("like", values.among(*sorted(ASICS)))
    base = ASICS[like] if like else None
    if base is None:
        record.need(*NEEDED)
    settings: dict[str, Any] = {
        setting: record.value(setting, check) for setting, check in NUMBERS.items() if setting in record.data
    }
    if "headroom" in record.data:
        settings["headroom"] = _read_rows(record)
        settings["formula"] = None
    if {"pool_bytes", "lossy_pool_bytes", "headroom_pool_bytes"} & settings.keys():
        settings["sizes_pools"] = False  # a switch with pools of a fixed size
    settings["name"] = name
    settings["source"] = record.required("source", values.text)
    settings["title"] = record.value("title", values.text, base.title if base else name)
    asic = replace(base, **settings) if base else Asic(**{"unicast_queues": CLASSES, "headroom": {}, **settings})
    _check_pools(record, asic)
    return asic


def _check_pools(record: Settings, asic: Asic) -> None:
    for setting in ("pool_bytes", "headroom_pool_bytes", "lossy_pool_bytes"):
        if getattr(asic, setting) > asic.buffer_bytes:
            raise record.refuse(
                f"{setting} {getattr(asic, setting)} is more than the whole buffer of {asic.buffer_bytes}",
                "correct the one that is wrong; all are in bytes",
            )
    if asic.shared_bytes <= 0:
        raise record.refuse(
            f"headroom_pool_bytes {asic.headroom_pool_bytes} leaves nothing of pool_bytes {asic.pool_bytes}",
            "correct the one that is wrong; both are in bytes",
        )


def _read_rows(record: Settings) -> dict[tuple[int, int], Headroom]:
    table: dict[tuple[int, int], Headroom] = {}
    for row in record.parts("headroom"):
        row.only(
            *("speed_gbit_s", "cable_m", "reserved_bytes", "xoff_bytes"),
            *("xon_offset_bytes", "xon_bytes", "alpha_exponent"),
        )
        key = read_speed(row), row.required("cable_m", CABLE_M)
        if key in table:
            raise row.refuse(f"{key[0]} Gbit/s and {key[1]} m are listed twice", "keep one of the rows")
        reserved = row.required("reserved_bytes", BYTES)
        offset = row.value("xon_offset_bytes", BYTES, 0)
        table[key] = Headroom(
            reserved,
            row.required("xoff_bytes", ABOVE_0_BYTES),
            offset,
            row.required("alpha_exponent", ALPHAS),
            row.value("xon_bytes", BYTES, max(0, reserved - offset)),
        )
    return table


def read_speed(record: Settings) -> int:
    """Return the setting speed_gbit_s. Raises FabricError for a speed that Ethernet does not have."""
    speed: int = record.required("speed_gbit_s", values.among(*SPEEDS_GBIT_S))
    return speed


def with_buffers(asic: Asic, buffers: Buffers) -> Asic:
    """Return the ASIC with the buffers that a switch has.

    A headroom profile of the switch replaces the table's for its speed and cable, and those of the speed that
    contradict it (a shorter cable with as much headroom, a longer one with no more). NVIDIA's stay those of the
    formula, because the images' own rows are from before it.
    """
    rows = {
        line: row
        for line, row in asic.headroom.items()
        if not any(
            speed == line[0] and (cable == line[1] or (cable < line[1]) != (headroom.xoff_bytes < row.xoff_bytes))
            for (speed, cable), headroom in buffers.headroom.items()
        )
    }
    changes: dict[str, Any] = {
        "headroom_pool_bytes": buffers.headroom_pool_bytes,
        "vendor_headroom_bytes": asic.lossless_classes * buffers.ports_xoff_bytes,
    }
    if asic.formula is None:
        changes["headroom"] = {**rows, **buffers.headroom}
    if buffers.lossless_bytes is not None:
        pools_bytes = buffers.lossless_bytes + buffers.headroom_pool_bytes
        changes.update(
            pool_bytes=buffers.lossless_bytes,
            lossy_pool_bytes=buffers.lossy_bytes,
            buffer_bytes=max(asic.buffer_bytes, buffers.egress_bytes, pools_bytes),
            sizes_pools=False,
        )
    return replace(asic, **changes)


def find_asic(asics: Mapping[str, Asic], name: Any, subject: str) -> Asic:
    """Return the ASIC of that name. Raises FabricError for ``subject``, with the known names, if there is none."""
    if not isinstance(name, str) or name not in asics:
        raise FabricError(
            f"ASIC {name!r} is unknown" if name is not None else "roce_switch_asic is missing",
            f"valid values: {', '.join(sorted(asics))}; or give its numbers and their source in {ASICS_VARIABLE}",
            subject=subject,
        )
    return asics[name]
