# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the priority by which a transfer's bytes were sent, from a NIC's counters before and after it. Pure.

The counters are those of `ethtool -S`: mlx5 and related drivers name them tx_prioN_bytes and rx_prioN_bytes (kernel
documentation, networking/device_drivers/ethernet/mellanox/mlx5/counters.rst, "Priority Port Counters").
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import Fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, RdmaClass

COUNTER = re.compile(r"^\s*tx_prio([0-7])_bytes:\s*([0-9]+)\s*$", re.MULTILINE)
# The counters of any transfer include management traffic, ARP and similar packets.
MOST_ASTRAY_SHARE = 0.01


def sent_bytes(text: str, nic: str) -> tuple[int, ...]:
    """Return the bytes sent by priority (8), from `ethtool -S`'s output.

    Raises FabricError where the output has no such counters.
    """
    found = {int(priority): int(count) for priority, count in COUNTER.findall(text)}
    missing = [str(priority) for priority in range(CLASSES) if priority not in found]
    if missing:
        raise FabricError(
            f"NIC {nic}",
            f"its counters have no tx_prioN_bytes of priority {', '.join(missing)}",
            "see what `ethtool -S` shows; not every driver counts by priority",
        )
    return tuple(found[priority] for priority in range(CLASSES))


def rode(before: tuple[int, ...], after: tuple[int, ...], nic: str) -> tuple[int, ...]:
    """Return the bytes by priority between two readings. Raises FabricError where a counter decreased."""
    if any(late < early for early, late in zip(before, after)):
        raise FabricError(
            f"NIC {nic}", "a counter decreased between the readings", "was its driver reloaded? repeat the transfer"
        )
    return tuple(late - early for early, late in zip(before, after))


def astray(bytes_by_priority: tuple[int, ...], rdma: RdmaClass, policy: Policy, nic: str) -> Iterator[Fault]:
    """Yield the fault in the priorities of a test transfer, all of whose bytes should be in the class ``rdma``."""
    total = sum(bytes_by_priority)
    if total == 0:
        yield Fault("the test transfer is in the counters", "more than 0 bytes", 0, "it used another NIC", nic)
        return
    allowed = {rdma.priority, policy.cnp.priority}
    wrong = {at: count for at, count in enumerate(bytes_by_priority) if count and at not in allowed}
    if sum(wrong.values()) > MOST_ASTRAY_SHARE * total:
        yield Fault(
            f"the test transfer's bytes use priority {rdma.priority}",
            f"at least {1 - MOST_ASTRAY_SHARE:.0%}",
            shares(bytes_by_priority),
            "some of the traffic evades the marking: queue pairs that set a ToS of their own, or none",
            nic,
        )


def shares(bytes_by_priority: tuple[int, ...]) -> str:
    """Return the shares as text, the largest first: "priority 3: 97.1%, priority 0: 2.9%"."""
    by = dict(enumerate(bytes_by_priority))
    total = sum(by.values()) or 1
    return ", ".join(
        f"priority {at}: {count / total:.1%}" for at, count in sorted(by.items(), key=lambda item: -item[1]) if count
    )
