# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read AMD GPUs from ``amd-smi`` (ROCm 6 and 7), after its documents: never seen on hardware.

``amd-smi list --json`` names the address of each number, ``metric --json`` has the values and ``bad-pages --json`` the
retired pages. The list of GPUs stands alone or in "gpu_data"; a value is a number or {"value": number, "unit": text}.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading, clean
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import gpus, pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

READER = "amd"
TIMEOUT_S = 30.0
# Check, path in the metrics, and whether it is a counter.
VALUES = (
    ("amd_ecc_uncorrectable", ("ecc", "total_uncorrectable_count"), False),
    ("amd_pcie_replays", ("pcie", "replay_count"), True),
    ("pcie_width", ("pcie", "width"), False),
    ("gpu_temperature", ("temperature", "hotspot"), False),
    ("gpu_memory_temperature", ("temperature", "mem"), False),
    ("gpu_power", ("power", "socket_power"), False),
    ("gpu_utilization", ("usage", "gfx_activity"), False),
)


def read(node: Node) -> Reading:
    """Measure the AMD GPUs of a node that should have some."""
    if not gpus(node.expected, is_amd=True):
        return Reading(READER)
    texts = [node.run(("amd-smi", name, "--json"), TIMEOUT_S).stdout for name in ("list", "metric", "bad-pages")]
    return Reading(READER, parse(*texts))


def parse(listing: str, metrics: str, pages: str) -> tuple[Measurement, ...]:
    """Return the measurements of each GPU. Raises NotMeasuredError."""
    addresses = {number: pci_address(str(gpu.get("bdf"))) for number, gpu in _by_number(listing, "list").items()}
    values, retired = _by_number(metrics, "metric"), _by_number(pages, "bad-pages")
    result = []
    for number, address in addresses.items():
        if address is None:
            raise NotMeasuredError(f"amd-smi list has no address of GPU {number}")
        place = Place("gpu", address)
        for check, path, is_counter in VALUES:
            value = _number(values.get(number, {}), path)
            source = f"amd-smi metric: {'.'.join(path)}"
            reason = "" if value is not None else "amd-smi does not report it"
            result.append(Measurement(check, place, value, source, reason, is_counter))
        result.append(_pending(place, retired.get(number)))
    return tuple(result)


def _by_number(text: str, name: str) -> dict[int, dict[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotMeasuredError(f"amd-smi {name} printed no JSON: {clean(text) or 'nothing':.200}") from error
    items = document.get("gpu_data") if isinstance(document, dict) else document
    dicts = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    result = {item["gpu"]: item for item in dicts if isinstance(item.get("gpu"), int)}
    if not result:
        raise NotMeasuredError(f"amd-smi {name} lists no GPU: {clean(text):.200}")
    return result


def _number(gpu: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = gpu
    for key in (*path, "value"):
        if isinstance(value, dict):
            value = value.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _pending(place: Place, pages: dict[str, Any] | None) -> Measurement:
    """Return whether pages wait for a reset: a list of them, or a sentence if there are none."""
    check, source = "amd_retired_pages_pending", "amd-smi bad-pages: pending"
    value = (pages or {}).get("pending")
    if isinstance(value, list):
        return Measurement(check, place, bool(value), source)
    if isinstance(value, str) and value.lower().startswith("no bad pages"):
        return Measurement(check, place, False, source)
    return Measurement(check, place, None, source, f"amd-smi says {clean(str(value)):.60}")
