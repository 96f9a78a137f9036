# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Domains of a node, from the variables of the blueprint and of the inventory."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.domains import domains_of


def test_the_blueprint_gives_rack_and_leaf_switches_and_the_inventory_the_rest():
    ports = {"ens1": {"peer": "leaf2 swp1"}, "ens2": {"peer": "leaf1 swp1"}, "bmc": {}}
    variables = {"site_rack": "r7", "site_ports": ports, "site_domains": {"feed": "a", "row": [1, 2]}}
    assert domains_of("n1", variables) == {"rack": ["r7"], "leaf": ["leaf1", "leaf2"], "feed": ["a"], "row": ["1", "2"]}
    assert domains_of("n1", {"site_rack": "r7", "site_domains": {"rack": "r8"}}) == {"rack": ["r8"]}
    assert domains_of("n1", {"site_feed": "a", "site_domains": {}}) == {"feed": ["a"]}
    assert domains_of("n1", {}) == {}


@pytest.mark.parametrize("domains", ["r7", ["r7"], {"feed": True}, {"feed": {"a": 1}}, {"feed": [""]}])
def test_domains_that_are_no_names_are_refused_with_their_node(domains):
    with pytest.raises(SailloftError) as refused:
        domains_of("n1", {"site_domains": domains})
    assert refused.value.subject == "n1: site_domains"
