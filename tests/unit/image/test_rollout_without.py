# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A rollout needs a node that it brings into service, and one that it leaves alive."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image import rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.rollout import RolloutNode, without


@pytest.mark.parametrize(
    ("spares", "repaired"), [((), ["bm01", "bm02"]), (("bm01", "bm02"), []), (("bm02",), ["bm01"])]
)
def test_a_rollout_that_brings_no_node_into_service_is_refused(spares, repaired):
    nodes = [RolloutNode(name, spare=name in spares) for name in ("bm01", "bm02")]
    with pytest.raises(ImageError) as refused:
        without(nodes, repaired)
    assert "node_boot_rollout_without" in refused.value.remedy


def test_nodes_in_service_remain():
    nodes = [RolloutNode("bm01"), RolloutNode("bm02", spare=True), RolloutNode("bm03")]
    assert [node.name for node in without(nodes, ["bm03"])] == ["bm01", "bm02"]


def test_a_rollout_without_a_living_node_is_not_done():
    names, promoted, rules = (
        ("bm01", "bm02"),
        rollout.ChannelCopies(("b",), with_history=("boot01",)),
        rollout.Rules((1,), 9),
    )
    step = rollout.decide([RolloutNode(name, reachable=False) for name in names], "b", promoted, rules)
    assert (step.kind, step.nodes, step.channel) == (rollout.ROLLBACK, names, True)
    alive = [RolloutNode("bm01", reachable=False), RolloutNode("bm02", running="b")]
    assert rollout.decide(alive, "b", promoted, rules).kind == rollout.DONE
