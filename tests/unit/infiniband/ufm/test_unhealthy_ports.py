# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The requests that isolate and restore links, by either end of a link."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.ports import UfmPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.unhealthy_ports import Unhealthy, changes

LEAF, SPINE, OTHER = UfmPort(f"{1:016x}", 3), UfmPort(f"{2:016x}", 7), UfmPort(f"{3:016x}", 1)
ISOLATED = [Unhealthy(LEAF, SPINE, "MANUAL", "")]


def test_a_link_that_is_isolated_already_needs_no_request_by_either_end():
    for end in (LEAF, SPINE):
        assert changes(ISOLATED, [end], []).requests() == []


def test_the_end_that_ufm_lists_is_marked_healthy():
    assert changes(ISOLATED, [], [SPINE]).requests() == [{"ports": [str(LEAF)], "ports_policy": "HEALTHY"}]
    assert changes(ISOLATED, [], [OTHER]).requests() == []


def test_a_new_link_is_isolated_by_its_guid_and_number():
    (request,) = changes(ISOLATED, [OTHER], []).requests()
    assert request == {"ports": ["0000000000000003_1"], "ports_policy": "UNHEALTHY", "action": "isolate"}
