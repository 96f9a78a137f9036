# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Only nodes that this run has judged fit are proved."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.filter.scheduler_proved import scheduler_proved


def test_nodes_that_were_not_judged_are_not_proved():
    hostvars = {"a1": {"scheduler_node_proved": True}, "a2": {"scheduler_node_proved": False}, "a3": {}}
    assert scheduler_proved({"a1": {}, "a2": {}, "a3": {}, "a4": {}}, hostvars) == ["a1"]
