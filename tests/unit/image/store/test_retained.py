# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.retained import Named, NodeAnswer, kept, table

A, B, C, D = (letter * 64 for letter in "abcd")


def refused(*arguments) -> str:
    with pytest.raises(ImageError) as caught:
        kept(*arguments)
    return str(caught.value)


def test_an_image_is_retained_for_each_of_its_reasons():
    """The reasons of stores come first, then the inventory's, then those of nodes that run the image."""
    nodes = [
        NodeAnswer("bm01", running=A),
        NodeAnswer("bm02", running=A, pinned=A),
        NodeAnswer("bm03", running=B, pinned=A),
    ]
    images = [
        Named("boot02", A, "gpu-node", ("channel stable", "last build of gpu-node")),
        Named("boot01", A, "gpu-node", ("channel stable",)),
    ]
    assert kept(nodes, images, []) == {
        A: [
            "channel stable (boot02)",
            "last build of gpu-node (boot02)",
            "channel stable (boot01)",
            "the inventory names it for bm02, bm03",
            "it runs on bm01, bm02",
        ],
        B: ["it runs on bm03"],
    }


def test_retained_images_are_sorted_by_digest():
    nodes = [NodeAnswer("bm01", running=D), NodeAnswer("bm02", pinned=B)]
    images = [Named("boot01", C, "", ("keep",)), Named("boot01", A, "", ("keep",))]
    assert list(kept(nodes, images, [])) == [A, B, C, D]


def test_an_equal_reason_is_given_once():
    image = Named("boot01", A, "gpu-node", ("channel stable", "channel stable", "keep"))
    assert kept([], [image, image], []) == {A: ["channel stable (boot01)", "keep (boot01)"]}


def test_an_unreferenced_image_is_not_retained():
    assert kept([NodeAnswer("bm01", running=A)], [Named("boot01", B, "gpu-node", ())], []) == {A: ["it runs on bm01"]}


def test_no_image_is_retained_without_nodes_and_images():
    assert kept([], [], []) == {}
    assert kept([NodeAnswer("bm01")], [], []) == {}


def test_only_the_first_20_nodes_of_a_reason_are_named():
    nodes = [NodeAnswer(f"bm{at:02}", running=A) for at in range(1, 22)]
    named = ", ".join(node.name for node in nodes[:20])
    assert kept(nodes[:20], [], []) == {A: [f"it runs on {named}"]}
    assert kept(nodes, [], []) == {A: [f"it runs on {named} and 1 more"]}


def test_nothing_is_decided_if_a_node_did_not_report():
    nodes = [
        NodeAnswer("bm01", running=A),
        NodeAnswer("bm03", silence="no route to host"),
        NodeAnswer("bm02", silence="permission denied"),
    ]
    assert refused(nodes, [], []) == Mentions("bm03, bm02", "bm03: no route to host", "node_boot_collect_without")
    assert refused(nodes, [], ["bm03"]) == Mentions("bm02: permission denied", "node_boot_collect_without")


def test_a_node_that_is_left_out_need_not_report_and_keeps_its_pinned_image():
    nodes = [NodeAnswer("bm01", running=A), NodeAnswer("bm02", silence="no route to host", pinned=B)]
    without = iter(["bm02"])
    assert kept(nodes, [], without) == {A: ["it runs on bm01"], B: ["the inventory names it for bm02"]}


def test_a_node_that_is_left_out_and_reports_keeps_the_image_that_it_runs():
    assert kept([NodeAnswer("bm01", running=A)], [], ["bm01"]) == {A: ["it runs on bm01"]}


def test_the_first_unknown_node_to_be_left_out_is_refused_before_missing_reports():
    nodes = [NodeAnswer("bm01", silence="no route to host")]
    assert refused(nodes, [], ["bm01", "bm09", "bm05"]) == Mentions("bm05", "inventory")


def test_an_invalid_pinned_digest_is_refused():
    assert refused([NodeAnswer("bm01", pinned=A), NodeAnswer("bm02", pinned="stable")], [], []) == Mentions(
        "bm02", "'stable'"
    )


def test_the_table_has_a_line_for_each_image_in_the_order_of_the_reasons():
    images = [
        Named("boot01", A, "", ("keep",)),
        Named("boot02", A, "gpu-node", ()),
        Named("the inventory", A, "", ("node_boot_rollout_image",)),
        Named("boot01", C, "login", ()),
    ]
    reasons = {B: ["it runs on bm01"], A: ["keep (boot01)", "node_boot_rollout_image (the inventory)"]}
    assert table(reasons, images) == [
        "stays bbbbbbbbbbbb (in no store): it runs on bm01",
        "stays aaaaaaaaaaaa gpu-node: keep (boot01), node_boot_rollout_image (the inventory)",
    ]


def test_the_table_is_empty_if_no_image_stays():
    assert table({}, [Named("boot01", A, "gpu-node", ())]) == []
