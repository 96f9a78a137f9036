# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Only a node that this run has judged, whose health is known and without a reason against it, may take jobs."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.scheduler_fit import scheduler_fit
from ansible_collections.sailloft.fleet.plugins.filter.scheduler_proved import scheduler_proved

FIT = {"error": "", "faults": [], "drain": "", "maintenance": ""}


def test_a_healthy_node_is_fit():
    assert scheduler_fit({"health": FIT})


@pytest.mark.parametrize(
    "read",
    [
        {},
        {"failed": True, "msg": "no"},
        {"health": {}},
        {"health": {**FIT, "error": "the last round is old"}},
        {"health": {**FIT, "faults": [{"check": "xid"}]}},
        {"health": {**FIT, "drain": "ticket 7"}},
        {"health": {**FIT, "maintenance": "new cables"}},
    ],
)
def test_a_reason_or_a_gap_keeps_it_out(read):
    assert not scheduler_fit(read)


def test_nodes_that_were_not_judged_are_not_proved():
    hostvars = {"a1": {"scheduler_node_proved": True}, "a2": {"scheduler_node_proved": False}, "a3": {}}
    assert scheduler_proved({"a1": {}, "a2": {}, "a3": {}, "a4": {}}, hostvars) == ["a1"]
