# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The counters of switches' ports and of NICs as metrics: those of the policy's classes only. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import BY_PRIORITY
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import COUNTER, Metric

NAME = "sailloft_fabric_counter_total"


def counter_metric(policy: Policy, counted: Mapping[str, Any]) -> Metric:
    """Return the metric of what was counted. ``counted``: the last result of roce_counters_info by device."""
    return Metric(
        NAME, "Counters of a switch's port or of a NIC, by class of the policy.", _samples(policy, counted), COUNTER
    )


def _samples(policy: Policy, counted: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, str], int]]:
    for device, result in sorted(counted.items()):
        by_port = result.get("counters") if isinstance(result, Mapping) else None
        for port, counters in sorted(by_port.items()) if isinstance(by_port, Mapping) else ():
            for counter, value in counters.items():
                labels = {"device": device, "port": port, "counter": counter}
                if isinstance(value, list):
                    for rdma in policy.classes:
                        at = rdma.priority if counter in BY_PRIORITY else rdma.queue
                        if at < len(value) and isinstance(value[at], int):
                            yield {**labels, "class": rdma.name}, value[at]
                elif isinstance(value, int) and not isinstance(value, bool):
                    yield labels, value
