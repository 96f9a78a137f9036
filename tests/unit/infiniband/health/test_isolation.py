# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A link is isolated only if its switch keeps the up links that the inventory declares necessary."""

from __future__ import annotations

import ib_sites
import pytest
from made_up_ports import found
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.isolation import changed_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan

SITE, GUIDS = ib_sites.small()
PLAN = plan(SITE, "compute", {}, GUIDS)


def changes(isolate=(), restore=(), spare=1, without=()):
    return changed_ports(PLAN, found(PLAN.fabric, without), isolate, restore, spare)


@pytest.mark.parametrize(("name", "switch", "number"), [("leaf-1-2 ib4", "leaf-1-2", 4), ("spine-2 ib2", "spine-2", 2)])
def test_a_link_is_isolated_at_either_end_where_the_leaf_may_lack_it(name, switch, number):
    (port,) = changes([name])
    assert port == {"guid": GUIDS[switch], "port": number, "state": "disabled", "name": name}
    assert changes([name, name]) == [port]


@pytest.mark.parametrize(
    ("isolate", "more", "facts"),
    [
        (["leaf-1-2 ib4"], {"spare": 0}, ("leaf-1-2", "1 of 2", "needs 2")),
        # The last up link stays, whatever is declared.
        (["leaf-1-2 ib4", "leaf-1-2 ib3"], {"spare": 2}, ("0 of 2", "needs 1")),
        (["leaf-1-2 ib4", "spine-1 ib2"], {}, ("leaf-1-2", "0 of 2")),
        (["leaf-1-2 ib4"], {"without": [("spine-1", 2)]}, ("0 of 2", "needs 1")),
        (["leaf-1-2 ib1"], {}, ("leaf-1-2 ib1", "drain")),
        (["node-1 mlx5_0"], {}, ("node-1 mlx5_0", "drain")),
        (["leaf-9 ib1"], {}, ("leaf-9 ib1",)),
        (["leaf-1-2 ib4"], {"restore": ["spine-2 ib2"]}, ("leaf-1-2 ib4", "restore")),
    ],
)
def test_a_link_that_is_needed_is_not_isolated(isolate, more, facts):
    with raises(InfinibandError, *facts):
        changes(isolate, **more)


def test_links_of_several_leaves_are_isolated_at_once_and_a_link_is_restored_always():
    assert [port["state"] for port in changes(["leaf-1-2 ib4", "leaf-2-1 ib4"])] == ["disabled", "disabled"]
    (port,) = changes(restore=["leaf-1-2 ib4"], spare=0, without=[("leaf-1-2", 4)])
    assert port["state"] == "enabled"


def test_a_switch_without_a_known_guid_is_refused():
    with raises(InfinibandError, "leaf-1-2 ib4", "GUID"):
        changed_ports(plan(SITE, "compute", {}, {}), found(PLAN.fabric), ["leaf-1-2 ib4"], [], 1)
