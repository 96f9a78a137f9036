# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute how often a job should write a checkpoint, and what failures and checkpoints cost it. Pure.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974) 530; J. T. Daly, A
higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006) 303, equations 20 and 37.
Both take failures for independent, with one rate, and a checkpoint for a pause of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, expm1, sqrt
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError

DAY_S, HOUR_S = 86400.0, 3600.0
# Numbers from here on are mistakes: of nodes, gigabytes, their rate, failures and seconds.
MOST = 1e15
# Published failures of jobs per 1000 node-days of 8 GPUs. Meta's Llama 3 (arXiv 2407.21783, table 5): 419 in 54 days of
# 2048 nodes. Meta's RSC-1 (arXiv 2410.21680): 6.5.
PUBLISHED = {"llama_3": 419 / (2048 * 54) * 1000, "meta_rsc_1": 6.5}


@dataclass(frozen=True)
class CheckpointedJob:
    """A job: the mean time between its failures, the time of a checkpoint, and from a failure to work again."""

    mtbf_s: float
    checkpoint_s: float
    restart_s: float


def young_s(job: CheckpointedJob) -> float:
    """Return Young's interval between the ends of two checkpoints, without the checkpoint itself."""
    return sqrt(2 * job.checkpoint_s * job.mtbf_s)


def daly_s(job: CheckpointedJob) -> float:
    """Return Daly's interval; Young's is the first term of it."""
    share = job.checkpoint_s / (2 * job.mtbf_s)
    if share >= 1:
        return job.mtbf_s
    return young_s(job) * (1 + sqrt(share) / 3 + share / 9) - job.checkpoint_s


def loss(job: CheckpointedJob, interval_s: float) -> float:
    """Return the share of the time that is lost to checkpoints, lost work and restarts, 0 to 1 (Daly, equation 20)."""
    try:
        cycle_s = job.mtbf_s * exp(job.restart_s / job.mtbf_s) * expm1((interval_s + job.checkpoint_s) / job.mtbf_s)
    except OverflowError:
        return 1.0
    return 1 - interval_s / cycle_s


def failure_rate(failures: int | None, node_days: float | None, published: str) -> float:
    """Return the failures per 1000 node-days, counted or else published. Raises SchedulerError."""
    subject = "checkpoint_interval"
    if (failures is None) != (node_days is None):
        raise SchedulerError("failures and node_days go together", "give both or neither", subject=subject)
    if published not in PUBLISHED:
        raise SchedulerError(f"no rate {published!r} is published", f"use {' or '.join(PUBLISHED)}", subject=subject)
    if failures is None or node_days is None:
        return PUBLISHED[published]
    _check({"node_days": node_days})
    return failures / node_days * 1000


def _check(numbers: Mapping[str, object], minimum: float = 1 / MOST) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value < MOST:
            remedy = f"use a number from {minimum:g} to {MOST:g}"
            raise SchedulerError(f"{name}: {value!r} is not valid", remedy, subject="checkpoint_interval")


def report_line(nodes: int, rates: Mapping[str, Any]) -> str:
    """Return the advice for a job on so many nodes as a line of a report. Raises SchedulerError.

    ``rates``: ``gb`` and ``write_gb_s``, and the arguments of ``failure_rate``.
    """
    failures, node_days = rates.get("failures"), rates.get("node_days")
    published = rates.get("published", "meta_rsc_1")
    advice = advise(nodes, rates["gb"], rates["write_gb_s"], failure_rate(failures, node_days, published))
    source = f"the published {published}" if failures is None else f"{failures} counted in {node_days:g} node-days"
    spare, faster = advice["spare_saves_percent"], advice["twice_the_bandwidth_saves_percent"]
    return (
        f"a checkpoint of {rates['gb']:g} GB each {advice['interval_s'] / 60:.0f} min on {nodes} nodes loses "
        f"{advice['lost_percent']:g} % of the time ({advice['mtbf_h']:g} h between failures, by {source}); a spare "
        f"saves {spare:g} %, twice the bandwidth {faster:g} %"
    )


def advise(
    nodes: int,
    checkpoint_gb: float,
    write_gb_s: float,
    rate_per_1000_node_days: float,
    restart_s: float = 600.0,
    repair_s: float = 7200.0,
) -> dict[str, Any]:
    """Return intervals and losses of a job on so many nodes. Raises SchedulerError.

    ``repair_s``: how long a job waits for its node where there is no spare.
    """
    numbers = {
        "nodes": nodes,
        "checkpoint_gb": checkpoint_gb,
        "write_gb_s": write_gb_s,
        "failures per 1000 node-days": rate_per_1000_node_days,
    }
    _check(numbers)
    _check({"restart_s": restart_s, "repair_s": repair_s}, minimum=0.0)
    mtbf_s = 1000 / (nodes * rate_per_1000_node_days) * DAY_S
    job = CheckpointedJob(mtbf_s, checkpoint_gb / write_gb_s, restart_s)
    interval_s = daly_s(job)
    without_spare = CheckpointedJob(mtbf_s, job.checkpoint_s, restart_s + repair_s)
    faster = CheckpointedJob(mtbf_s, job.checkpoint_s / 2, restart_s)
    loss_share = loss(job, interval_s)
    return {
        "mtbf_h": round(mtbf_s / HOUR_S, 1),
        "checkpoint_s": round(job.checkpoint_s, 1),
        "young_s": round(young_s(job)),
        "interval_s": round(interval_s),
        "lost_percent": round(100 * loss_share, 2),
        "lost_percent_hourly": round(100 * loss(job, HOUR_S), 2),
        "spare_saves_percent": round(100 * (loss(without_spare, interval_s) - loss_share), 2),
        "twice_the_bandwidth_saves_percent": round(100 * (loss_share - loss(faster, daly_s(faster))), 2),
    }
