# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of one class that the ports of NICs and of switches share. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import LOSSLESS, Policy, RdmaClass
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim


def pfc_of_class(pfc: tuple[int, ...], rdma: RdmaClass, reason_text: str = "") -> Iterator[Claim]:
    if rdma.mode == LOSSLESS and rdma.priority not in pfc:
        yield fault(
            f"PFC is on for priority {rdma.priority}",
            rdma.priority,
            list(pfc),
            f"pauses are neither sent nor obeyed here, and a full buffer drops{reason_text}"
            if not pfc
            else "the paused priorities do not include the one that RoCE uses",
        )
    elif rdma.mode != LOSSLESS and rdma.priority in pfc:
        yield fault(
            f"PFC is off for priority {rdma.priority}, whose class is lossy",
            "off",
            list(pfc),
            "pauses for which no buffer is planned spread through the fabric",
        )


def pfc_of_others(pfc: tuple[int, ...], rdma: RdmaClass, policy: Policy, allowed: tuple[int, ...]) -> Iterator[Claim]:
    """Check PFC of priorities that belong to no RoCE class. ``pfc_of_class`` reports PFC of a lossy class."""
    rdma_priorities = {*(rdma_class.priority for rdma_class in policy.classes), *allowed}
    other_priorities = [priority for priority in pfc if priority not in rdma_priorities]
    if other_priorities and (rdma.mode != LOSSLESS or rdma.priority in pfc):
        yield fault(
            f"PFC is off for priority {', '.join(map(str, other_priorities))}, which no class of RoCE has",
            [rdma_class.priority for rdma_class in policy.lossless],
            list(pfc),
            "other traffic pauses the link, without headroom that was planned for it",
        )


def share(queue: Queue | None, rdma: RdmaClass, subject: str) -> Iterator[Claim]:
    if queue is not None and queue.strict:
        yield fault(
            f"{subject} has a share of {rdma.bandwidth_percent}%",
            rdma.bandwidth_percent,
            "strict",
            "RoCE starves all other traffic, including CNPs of a lower queue",
        )
    elif queue is None or queue.bandwidth_percent != rdma.bandwidth_percent:
        yield fault(
            f"{subject} has a share of {rdma.bandwidth_percent}%",
            rdma.bandwidth_percent,
            queue.bandwidth_percent if queue else None,
            "the guaranteed share differs from the policy's",
        )
