# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules of hosts, ports and BMCs have limits, and compare a place with the plan of that place alone."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    EVENT,
    INCREASE_AT_MOST,
    NOT_TRUE,
    Expected,
    ExpectedDevice,
    ExpectedPort,
    Place,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import bmc, host, network
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

MINE = (*host.RULES, *network.RULES, *bmc.RULES)
EXPECTED = Expected(
    "gpu01",
    devices=(ExpectedDevice("0000:5c:00.0", "nic", "NIC", link_speed_gt_s=32.0, link_width=16),),
    ports=(ExpectedPort("mlx5_4/1", rate_gbit_s=400.0),),
    memory_bytes=1000,
    processors=96,
)


def test_each_rule_is_in_the_table_and_has_a_limit_if_it_compares():
    for rule in MINE:
        assert RULES[rule.check] == rule
        assert (rule.window_s > 0) == (rule.comparison == INCREASE_AT_MOST), rule
        has_limit = rule.limit is not None or rule.expected is not None
        # Only the inventory knows how many power supplies there are.
        # A flag is held against nothing, but may be of a part that is planned.
        is_compared = rule.comparison not in (NOT_TRUE, EVENT) and rule.check != "bmc_power_supplies"
        assert has_limit == is_compared or rule.comparison == NOT_TRUE, rule


@pytest.mark.parametrize(
    ("check", "place", "limit"),
    [
        ("pcie_width", Place("nic", "0000:5c:00.0"), 16),
        ("pcie_speed", Place("nic", "0000:5c:00.0"), 32.0),
        ("pcie_width", Place("gpu", "0000:5c:00.0"), None),
        ("port_rate", Place("port", "mlx5_4/1"), 400.0),
        ("port_rate", Place("port", "mlx5_5/1"), None),
        ("memory_bytes", Place("node"), 980),
        ("processors", Place("node"), 96),
        ("processors", Place("bmc"), None),
    ],
)
def test_a_place_is_compared_with_its_own_plan(check, place, limit):
    assert RULES[check].expected(EXPECTED, place) == limit


@pytest.mark.parametrize("check", ["memory_bytes", "processors"])
def test_nothing_is_expected_without_a_plan(check):
    assert RULES[check].expected(Expected("gpu01"), Place("node")) is None
