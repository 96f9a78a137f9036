# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The counters of another priority show traffic that evades the marking."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.priority_counters import (
    astray,
    rode,
    sent_bytes,
    shares,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

POLICY = read_policy(None)


def text(*sent):
    """Return the counters as ethtool prints them, with other counters between them."""
    lines = [f"     tx_prio{at}_bytes: {count}\n     tx_prio{at}_packets: 7" for at, count in enumerate(sent)]
    return "NIC statistics:\n     rx_prio3_bytes: 99\n" + "\n".join(lines) + "\n"


def test_bytes_per_priority_are_computed_from_two_readings():
    before = sent_bytes(text(5, 0, 0, 100, 0, 0, 1, 0), "mlx5_0")
    after = sent_bytes(text(6, 0, 0, 1100, 0, 0, 3, 0), "mlx5_0")
    assert rode(before, after, "mlx5_0") == (1, 0, 0, 1000, 0, 0, 2, 0)


def faults(*by_priority):
    return list(astray(by_priority, POLICY.classes[0], POLICY, "gpu1 mlx5_0"))


def test_a_transfer_in_its_class_has_no_fault():
    assert faults(1, 0, 0, 1000, 0, 0, 50, 0) == []


def test_more_than_1_percent_in_another_priority_is_a_fault():
    (fault,) = faults(300, 0, 0, 700, 0, 0, 0, 0)
    assert fault.seen == "priority 3: 70.0%, priority 0: 30.0%"
    assert (fault.where, fault.wanted) == ("gpu1 mlx5_0", "at least 99%")
    # Other priorities may have at most 1%.
    assert faults(10, 0, 0, 990, 0, 0, 0, 0) == []
    assert faults(11, 0, 0, 989, 0, 0, 0, 0) != []


def test_a_transfer_of_zero_bytes_is_a_fault():
    assert faults(*[0] * 8)[0].consequence == "it used another NIC"


def test_equal_shares_are_in_the_order_of_their_priorities():
    assert shares((0, 5, 5, 0, 10, 0, 0, 0)) == "priority 4: 50.0%, priority 1: 25.0%, priority 2: 25.0%"


def test_shares_of_zero_bytes_are_empty():
    assert shares((0,) * 8) == ""


def test_missing_or_decreasing_counters_are_refused():
    with pytest.raises(FabricError, match="NIC eth0: its counters have no tx_prioN_bytes of priority 0, 1"):
        sent_bytes("NIC statistics:\n     tx_bytes: 5\n", "eth0")
    with pytest.raises(FabricError, match="NIC mlx5_0: a counter decreased between the readings"):
        rode((5,) * 8, (4,) * 8, "mlx5_0")
