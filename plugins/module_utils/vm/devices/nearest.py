# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nearest NICs or NVMe drives for all GPUs of all virtual machines at once. Pure.

Every GPU has its wants. The sum of the distances is minimal: first the fewest devices on another NUMA node, then on
another root complex, and so on. If every want can have its nearest device, nothing else is computed. Otherwise this is
the assignment problem (Hungarian method, O(wants^2 * devices)). SciPy has it, but is not on the hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import SYS, path_distance

# One distance of a class costs more than up to 64 distances of nearer classes. Within a class, the number of common
# bridges and the distance of the nodes (ACPI SLIT, 8 bits) decide.
CLASS_BITS = 6
DETAIL_BITS = 16
# The cost of an impossible device; more than any sum of real costs.
NEVER = 1 << 80
# The most attempts to give an IOMMU group that two virtual machines would share to one of them.
TRIES = 200


@dataclass(frozen=True)
class Want:
    """One device for virtual machine ``name``, near ``path`` (None: anywhere), whose node has the ``distances``."""

    name: str
    path: tuple[str, ...] | None
    distances: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class AssignableDevice:
    """A device that can be assigned.

    ``group`` is its IOMMU group. ``owner`` is the only virtual machine that can have it (None: any can), and ``holder``
    is the one that has it today.
    """

    address: str
    path: tuple[str, ...]
    node: int | None
    group: int | None = None
    owner: str | None = None
    holder: str | None = None


def nearest_distance(path: tuple[str, ...], devices: list[tuple[str, ...]]) -> int:
    """Return the distance class, PIX to SYS, of the nearest of ``devices`` (paths); SYS if there is none."""
    return min((path_distance(path, device_path) for device_path in devices), default=SYS)


def cost(want: Want, device: AssignableDevice) -> int:
    """Return the distance of ``device`` from ``want``; smaller is nearer."""
    if want.path is None:
        return 0
    reach = path_distance(want.path, device.path)
    common = 0
    for want_step, device_step in zip(want.path, device.path):
        if want_step != device_step:
            break
        common += 1
    distance = dict(want.distances).get(device.node, 255) if device.node is not None else 255
    detail = (max(63 - common, 0) << 8) + min(distance, 255)
    return ((1 << CLASS_BITS * reach) << DETAIL_BITS) + detail


def assign(wanted_devices: list[Want], devices: list[AssignableDevice]) -> list[str] | None:
    """Return a device's address for each of ``wanted_devices``, or None if there are not enough for all.

    A virtual machine keeps what it holds today. Two virtual machines never have devices of one IOMMU group.
    """
    devices = sorted(devices, key=lambda device: device.address)
    prices = _prices(wanted_devices, devices)
    picks: list[int | None] = [None] * len(wanted_devices)
    # A virtual machine keeps the devices that it has; the nearest pairs are assigned first.
    current_pairs = sorted(
        (prices[want_number][number], number, want_number)
        for want_number, want in enumerate(wanted_devices)
        for number, device in enumerate(devices)
        if device.holder == want.name and prices[want_number][number] < NEVER
    )
    for _price, number, want_number in current_pairs:
        if picks[want_number] is None and number not in picks:
            picks[want_number] = number
    owners = {
        devices[number].group: wanted_devices[want_number].name
        for want_number, number in enumerate(picks)
        if number is not None
    }
    owners.pop(None, None)
    open_wants = [want_number for want_number, number in enumerate(picks) if number is None]
    taken_devices = {number for number in picks if number is not None}
    tries = [TRIES]
    result = _within_groups(wanted_devices, devices, prices, open_wants, taken_devices, owners, tries)
    if result is None:
        return None
    for want_number, number in zip(open_wants, result[1]):
        picks[want_number] = number
    return [devices[number].address for number in picks if number is not None]


def _prices(wanted_devices: list[Want], devices: list[AssignableDevice]) -> list[list[int]]:
    prices_of_key: dict[tuple[Any, ...], list[int]] = {}
    prices = []
    for want in wanted_devices:
        key = (want.name, want.path)
        if key not in prices_of_key:
            prices_of_key[key] = [
                cost(want, device) if device.owner in (None, want.name) else NEVER for device in devices
            ]
        prices.append(prices_of_key[key])
    return prices


def _within_groups(
    wanted_devices: list[Want],
    devices: list[AssignableDevice],
    prices: list[list[int]],
    open_wants: list[int],
    taken_devices: set[int],
    owners: dict[int | None, str],
    tries: list[int],
) -> tuple[int, list[int]] | None:
    """Return (sum, device numbers) of the best assignment without a group of two owners; ``owners`` is fixed."""
    rows = []
    for want_number in open_wants:
        name = wanted_devices[want_number].name
        rows.append(
            [
                NEVER
                if number in taken_devices or owners.get(device.group, name) != name
                else prices[want_number][number]
                for number, device in enumerate(devices)
            ]
        )
    picks = columns_of_lowest_sum(rows)
    if picks is None:
        return None
    holders: dict[int, set[str]] = {}
    for want_number, number in zip(open_wants, picks):
        group = devices[number].group
        if group is not None:
            holders.setdefault(group, set()).add(wanted_devices[want_number].name)
    shared = sorted(group for group, names in holders.items() if len(names) > 1)
    if not shared:
        return sum(row[number] for row, number in zip(rows, picks)), picks
    best = None
    for name in sorted({wanted_devices[want_number].name for want_number in open_wants}):
        if tries[0] <= 0:
            break
        tries[0] -= 1
        settled = {**owners, shared[0]: name}
        candidate = _within_groups(wanted_devices, devices, prices, open_wants, taken_devices, settled, tries)
        if candidate is not None and (best is None or candidate[0] < best[0]):
            best = candidate
    return best


def columns_of_lowest_sum(rows: list[list[int]]) -> list[int] | None:
    """Return one column for each row, with the least sum, or None if only NEVER is left for some row."""
    taken_columns: set[int] = set()
    picks = []
    for row in rows:
        lowest = min(row, default=NEVER)
        pick = next(
            (
                column_number
                for column_number, price in enumerate(row)
                if price == lowest and column_number not in taken_columns
            ),
            None,
        )
        if lowest >= NEVER or pick is None:
            break
        taken_columns.add(pick)
        picks.append(pick)
    if len(picks) == len(rows):
        return picks
    if not rows or len(rows) > len(rows[0]):
        return None
    # Of devices with equal distances (the VFs of one port), only as many as there are wants are considered.
    columns_of_prices: dict[tuple[int, ...], list[int]] = {}
    for column_number, column in enumerate(zip(*rows)):
        columns_of_prices.setdefault(column, []).append(column_number)
    columns = sorted(column_number for numbers in columns_of_prices.values() for column_number in numbers[: len(rows)])
    picks = [columns[pick] for pick in hungarian([[row[column_number] for column_number in columns] for row in rows])]
    return None if any(row[pick] >= NEVER for row, pick in zip(rows, picks)) else picks


def hungarian(rows: list[list[int]]) -> list[int]:
    """Solve the assignment problem by shortest augmenting paths with potentials; it takes no more rows than columns."""
    count, width = len(rows), len(rows[0])
    of_row, of_column = [0] * (count + 1), [0] * (width + 1)
    match = [0] * (width + 1)  # the row (from 1) of each column (from 1); column 0 has the row to be assigned
    for start in range(1, count + 1):
        match[0] = start
        column = 0
        lowest_slack = [NEVER * (count + 2)] * (width + 1)
        previous_column = [0] * (width + 1)
        used = [False] * (width + 1)
        while match[column]:
            used[column] = True
            row = match[column]
            delta, following = NEVER * (count + 2), 0
            for free_column in range(1, width + 1):
                if used[free_column]:
                    continue
                slack = rows[row - 1][free_column - 1] - of_row[row] - of_column[free_column]
                if slack < lowest_slack[free_column]:
                    lowest_slack[free_column], previous_column[free_column] = slack, column
                if lowest_slack[free_column] < delta:
                    delta, following = lowest_slack[free_column], free_column
            for free_column in range(width + 1):
                if used[free_column]:
                    of_row[match[free_column]] += delta
                    of_column[free_column] -= delta
                else:
                    lowest_slack[free_column] -= delta
            column = following
        while column:
            match[column] = match[previous_column[column]]
            column = previous_column[column]
    picks = [0] * count
    for column in range(1, width + 1):
        if match[column]:
            picks[match[column] - 1] = column - 1
    return picks
