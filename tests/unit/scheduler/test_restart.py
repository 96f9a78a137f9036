# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Only some changes need a restart; names in folded lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.restart import (
    gate_of,
    gated,
    node_names,
    reasons,
    slurmd_settings,
    unfold,
)

TEXT = "# head\nSelectType=select/cons_tres\nMaxTime=3\nNodeName=a[1-2] Sockets=2\nPartitionName=p Nodes=a[1-2]\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("MaxTime=3", "MaxTime=4", []),
        ("PartitionName=p", "PartitionName=q", []),
        ("select/cons_tres", "select/linear", ["selecttype"]),
        ("NodeName=a[1-2]", "NodeName=a[1-3]", ["nodes"]),
        ("SelectType=select/cons_tres\n", "", ["selecttype"]),
    ],
)
def test_only_some_settings_need_a_restart(old, new, why):
    assert reasons(TEXT, TEXT.replace(old, new), "", "") == why


def test_cores_need_a_restart():
    assert reasons(TEXT, TEXT, "Cores=0-1", "Cores=2-3") == ["gres.conf"]


def test_slurmd_restarts_for_nodes_but_not_for_partitions():
    assert slurmd_settings(TEXT) == slurmd_settings(TEXT.replace("PartitionName=p", "PartitionName=q"))
    assert slurmd_settings(TEXT) != slurmd_settings(TEXT.replace("a[1-2] ", "a[1-3] "))


def test_the_gate_is_a_line_of_its_own():
    text = gated(TEXT, "a[1-2]", "why: this")
    assert (gate_of(text), gate_of(TEXT)) == ("a[1-2]", "")
    assert node_names(text) == ["a1", "a2"]


def test_lists_with_several_ranges():
    assert unfold("r[1-2]n[08-10],x,y[1,3]") == ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10", "x", "y1", "y3"]


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{1,3}([a-b][0-9]{1,2})?", fullmatch=True), unique=True))
def test_folded_names_are_unfolded_again(names):
    assert sorted(unfold(fold(names))) == sorted(names)
