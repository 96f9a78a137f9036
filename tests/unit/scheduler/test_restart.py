# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Only some changes need a restart."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.restart import (
    gate_of,
    gated,
    node_names,
    reasons,
    slurmd_settings,
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
