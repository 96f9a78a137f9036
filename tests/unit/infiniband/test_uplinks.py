# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A link between switches is isolated only if the declared redundancy stays, whoever says which links carry traffic."""

from __future__ import annotations

import ib_sites
import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.uplinks import Uplinks

FABRIC = fabric_of(ib_sites.tree(), "compute")
LINKS = [[FABRIC.name_of(end) for end in ends] for ends in FABRIC.links]


def uplinks(spare, without=()):
    return Uplinks(FABRIC, [ends for ends in LINKS if not {*ends} & {*without}], spare)


@pytest.mark.parametrize("name", ["leaf-1-2 ib4", "spine-2 ib2"])
def test_either_end_names_a_link(name):
    uplinks(1).check([name])
    for spare, without in ((0, ()), (1, ["leaf-1-2 ib3"]), (2, ["spine-1 ib2"])):
        with raises(InfinibandError, name, "leaf-1-2", "of 2 up links"):
            uplinks(spare, without).check([name])


def test_a_link_that_carries_nothing_may_be_isolated_where_the_others_are_enough():
    uplinks(1, ["leaf-1-2 ib4"]).check(["leaf-1-2 ib4"])


def test_a_fabric_of_one_switch_has_nothing_to_isolate():
    fabric = fabric_of(ib_sites.star(), "compute")
    assert (fabric.uplinks, fabric.roots) == ([], ["leaf-1"])
    with raises(InfinibandError, "leaf-1 ib1", "drain"):
        Uplinks(fabric, (), 1).check(["leaf-1 ib1"])
