# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes that follow a channel according to the inventory."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_followers import node_boot_followers

HOSTVARS = {
    "bm03": {"node_boot_image": {"channel": "stable"}},
    "bm01": {},
    "bm02": {"node_boot_image": {"channel": "lab"}},
    "bm04": {"node_boot_image": {"digest": "stable"}},
    "bm05": {"node_boot_image": "stable"},
    "bm06": {"node_boot_image": {"channel": "stable"}},
}


def test_the_nodes_of_a_channel_are_in_the_order_of_the_inventory():
    names = ["bm03", "bm01", "bm02", "bm04", "bm05"]
    assert node_boot_followers(names, HOSTVARS, "stable") == ["bm03", "bm01"]
    assert node_boot_followers(names, HOSTVARS, "lab") == ["bm02"]


@pytest.mark.parametrize("channel", ["stabel", ""])
def test_a_channel_that_no_node_follows_is_an_error_with_those_that_are_followed(channel):
    with pytest.raises(AnsibleFilterError, match=f"'{channel}'.*lab, stable"):
        node_boot_followers(list(HOSTVARS), HOSTVARS, channel)
