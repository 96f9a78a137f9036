# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the slow one among many: values far from the median of like nodes. Pure.

A limit for one node cannot find it: 1200 MHz are right for one model and a fault of another. Like nodes have the same
planned devices, and each device is compared with those at the same place in the other nodes, because GPUs in the
exhaust air of others are always warmer.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import median

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer

# Modified z-score: B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers, 1993; NIST/SEMATECH e-Handbook of
# Statistical Methods, 1.3.5.17, which gives the factor and the limit.
FACTOR, LIMIT = 0.6745, 3.5
# A deviation below this share of the median is taken for it: readings are rounded, and equal values have none.
LEAST_DEVIATION = 0.005
# Fewer like nodes have no meaningful median deviation (the project's choice).
LEAST_NODES = 8
# A GPU works from this utilization on; the temperatures of idle and working GPUs are not compared.
WORKING_PERCENT = 50
UTILIZATION = "gpu_utilization"
LOW, HIGH = -1, 1


@dataclass(frozen=True)
class Watched:
    """The bad side of the median, and the least distance that matters: a share of it and an amount.

    The distances are the project's choice: nobody repairs less, whatever the median deviation is.
    """

    side: int
    share: float = 0.0
    amount: float = 0.0
    under_load: bool = False


WATCHED = {
    "gpu_temperature": Watched(HIGH, amount=10.0, under_load=True),
    "gpu_memory_temperature": Watched(HIGH, amount=10.0, under_load=True),
    "gpu_sm_clock_under_load": Watched(LOW, share=0.05),
    "gpu_memory_clock_under_load": Watched(LOW, share=0.05),
    "gpu_power_under_load": Watched(LOW, share=0.15),
    "pcie_bandwidth_to_gpu": Watched(LOW, share=0.1),
    "pcie_bandwidth_from_gpu": Watched(LOW, share=0.1),
    "step_time": Watched(HIGH, share=0.1),
}


@dataclass(frozen=True)
class Outlier:
    """A value of a node far from those of like nodes. ``score``: the modified z-score, without sign."""

    node: str
    check: str
    place: str
    name: str  # of the place: "GPU 4"
    value: float
    median: float
    nodes: int
    score: float

    @property
    def distance(self) -> float:
        """The distance as a share of the median: -0.8 is 80% below."""
        return (self.value - self.median) / self.median if self.median else 0.0


class Collection:
    """The values of a fleet, which are added node by node, so that no answer has to be kept."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.values: dict[tuple[str, str, str], tuple[array[int], array[float]]] = {}
        self.names: dict[tuple[str, str], str] = {}  # by like nodes and place

    def add(self, node: str, answer: Answer) -> None:
        """Add a node's values."""
        number = len(self.nodes)
        self.nodes.append(node)
        loads = answer.values.get(UTILIZATION, {})
        for place, name in answer.names.items():
            self.names.setdefault((answer.like, place), name)
        for check, places in answer.values.items():
            watched = WATCHED.get(check)
            if watched is None:
                continue
            for place, value in places.items():
                if not isfinite(value) or (watched.under_load and loads.get(place, 0.0) < WORKING_PERCENT):
                    continue
                key = (answer.like, check, place)
                if key not in self.values:
                    self.values[key] = (array("l"), array("d"))
                self.values[key][0].append(number)
                self.values[key][1].append(value)

    def outliers(self) -> list[Outlier]:
        """Return the outliers, the farthest first."""
        result = []
        for (like, check, place), (numbers, values) in self.values.items():
            if len(values) >= LEAST_NODES:
                name = self.names.get((like, place), place)
                result += [
                    Outlier(self.nodes[number], check, place, name, value, middle, len(values), score)
                    for number, value, middle, score in _far(numbers, values, WATCHED[check])
                ]
        return sorted(result, key=lambda outlier: (-outlier.score, outlier.node, outlier.check, outlier.place))

    def too_few(self) -> set[str]:
        """Return the nodes with values that were not compared, because too few like nodes have them."""
        few = [numbers for numbers, _values in self.values.values() if len(numbers) < LEAST_NODES]
        return {self.nodes[number] for numbers in few for number in numbers}


def _far(numbers: array[int], values: array[float], watched: Watched) -> list[tuple[int, float, float, float]]:
    """Return number, value, median and score of each value that is too far on the bad side."""
    middle = median(values)
    deviation = max(median(abs(value - middle) for value in values), abs(middle) * LEAST_DEVIATION)
    distance_min = max(LIMIT * deviation / FACTOR, abs(middle) * watched.share, watched.amount)
    if not deviation:
        return []
    return [
        (number, value, middle, FACTOR * abs(value - middle) / deviation)
        for number, value in zip(numbers, values)
        if (value - middle) * watched.side > distance_min
    ]


def by_node(outliers: list[Outlier]) -> Mapping[tuple[str, str], list[Outlier]]:
    """Return the outliers of each node and check, the farthest first: a node without power slows all of its GPUs."""
    groups: dict[tuple[str, str], list[Outlier]] = {}
    for outlier in outliers:
        groups.setdefault((outlier.node, outlier.check), []).append(outlier)
    return groups
