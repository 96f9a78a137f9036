# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of bandwidths against the acceptance of the first day: the site's own copies, and deep checks. Pure."""

from __future__ import annotations

import math

from ansible_collections.sailloft.fleet.plugins.module_utils.common.measuring_tools import (
    ALL_REDUCE,
    BETWEEN_GPUS,
    FROM_GPU,
    TO_GPU,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    AT_LEAST,
    HARDWARE,
    MEDIAN_AT_LEAST,
    Expected,
    Place,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import Limit

# The checks of the copies that the site measures, by nvbandwidth's tests.
SITE = {TO_GPU: "pcie_bandwidth_to_gpu", FROM_GPU: "pcie_bandwidth_from_gpu"}
# The deep checks by test, and what is measured.
DEEP = {
    TO_GPU: ("nvbandwidth_to_gpu", "PCIe copies to the GPU", "pcie-link-degraded"),
    FROM_GPU: ("nvbandwidth_from_gpu", "PCIe copies from the GPU", "pcie-link-degraded"),
    BETWEEN_GPUS: ("nvbandwidth_between_gpus", "copies between GPUs", "nvlink-down"),
    ALL_REDUCE: ("all_reduce_perf", "NCCL's collective within the node", "nvlink-down"),
}
# The least share of what was accepted: half of the lanes or an older generation give half. An estimate.
ACCEPTED_SHARE = 0.75
MEASUREMENTS = 12


def _accepted(test: str) -> Limit:
    """Return the least rate, of a GPU's copies or of the node, from the acceptance of the first day."""

    def limit(expected: Expected, place: Place) -> float | None:
        rate = expected.accepted.get(f"{test} {place.name}".rstrip()) if place.kind in ("gpu", "node") else None
        if rate is None:
            return None
        # A rate of 0 would let all pass: it is no limit.
        return ACCEPTED_SHARE * rate if rate > 0 else math.nan

    return limit


def _rule(check: str, title: str, test: str, comparison: str, source: str, runbook: str, samples: int = 0) -> Rule:
    return Rule(
        check,
        f"{title} slower than accepted",
        HARDWARE,
        comparison,
        "drain",
        f"{source}: {ACCEPTED_SHARE:.0%} of the acceptance",
        runbook,
        unit="GB/s",
        samples=samples,
        is_occasional=True,
        expected=_accepted(test),
    )


RULES = (
    *(
        _rule(
            SITE[test],
            DEEP[test][1],
            test,
            MEDIAN_AT_LEAST,
            "arXiv 2407.05467, 2.3, with an estimate",
            "pcie-link-degraded",
            MEASUREMENTS,
        )
        for test in (TO_GPU, FROM_GPU)
    ),
    *(_rule(check, words, test, AT_LEAST, "estimate", runbook) for test, (check, words, runbook) in DEEP.items()),
)
