# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One variable of several hosts."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.roce_by_host import FilterModule

roce_by_host = FilterModule().filters()["roce_by_host"]
HOSTVARS = {"b": {"read": {"nics": [1]}}, "a": {"read": {"nics": []}}, "c": {"read": None}}


def test_the_value_or_its_part_is_returned_by_host_in_the_order_of_names():
    assert list(roce_by_host(["b", "a"], HOSTVARS, "read").items()) == [("b", {"nics": [1]}), ("a", {"nics": []})]
    assert roce_by_host(["b", "a"], HOSTVARS, "read.nics") == {"b": [1], "a": []}
    assert roce_by_host([], HOSTVARS, "read") == {}


def test_a_host_without_the_value_has_the_default_or_is_named():
    assert roce_by_host(["b", "c"], HOSTVARS, "read.nics", None) == {"b": [1], "c": None}
    with pytest.raises(AnsibleFilterError, match=r"read\.nics"):
        roce_by_host(["b", "c"], HOSTVARS, "read.nics")
    with pytest.raises(AnsibleFilterError, match="inventory"):
        roce_by_host(["d"], HOSTVARS, "read", None)
