# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses by plan."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError


def test_each_rack_and_port_has_its_own_network():
    site = sites.site()
    assert site.devices["gpu01"].addresses == {
        "management": "10.0.0.11",
        "rail-0": "10.1.0.1",
        "rail-1": "10.1.1.1",
        "rail-2": "10.1.2.1",
        "rail-3": "10.1.3.1",
    }
    # The first host of rack 2 has the first address in its networks, which follow those of rack 1.
    assert site.devices["gpu03"].addresses["rail-0"] == "10.1.4.1"
    assert site.devices["gpu04"].addresses["rail-3"] == "10.1.7.2"


def test_ipv6_addresses_are_assigned():
    site = sites.site(networks__management={"network": "fd00:10::/64", "gateway": 1})
    assert site.devices["gpu04"].addresses["management"] == "fd00:10::e"


def test_networks_beyond_the_address_space_are_refused():
    with pytest.raises(
        SiteError, match=r"networks\.rail\.network: 8 networks from 255\.255\.254\.0/24 on exceed the address space"
    ):
        sites.site(networks__rail__network="255.255.254.0/24")


def test_a_device_outside_the_block_of_its_network_is_refused():
    with pytest.raises(
        SiteError, match=r"devices\.spine\.addresses\.lan: spine1 is not in a rack, but lan has a network for each"
    ):
        sites.site(networks__lan={"network": "10.9.0.0/24", "per": "rack"}, devices__spine__addresses={"lan": 5})
