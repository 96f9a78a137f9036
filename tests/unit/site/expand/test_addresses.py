# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Networks and addresses."""

from __future__ import annotations

import pytest
import sites
from messages import Mentions

USABLE = "which is not usable; use a larger network or a lower first"
TWICE = "start one kind of device after the last address of the other"


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
    assert [str(subnet) for subnet in site.subnets["rail"]] == [f"10.1.{at}.0/24" for at in range(8)]
    assert [str(subnet) for subnet in site.subnets["management"]] == ["10.0.0.0/24"]


def test_a_network_for_each_block_counts_the_devices_of_the_block():
    networks = {"management": {"network": "10.0.0.0/28", "per": "rack"}, "rail": sites.DATA["networks"]["rail"]}
    devices = {**sites.DATA["devices"]["node"], "addresses": {"management": 3}}
    site = sites.site(networks=networks, devices={"node": devices}, links=None, checks=None)
    assert [node.addresses["management"] for node in site.by_kind["node"]] == [
        *("10.0.0.3", "10.0.0.4", "10.0.0.19", "10.0.0.20"),
    ]


def test_ipv6_addresses_are_assigned():
    site = sites.site(networks__management={"network": "fd00:10::/64", "gateway": 1})
    assert site.devices["gpu04"].addresses["management"] == "fd00:10::e"


@pytest.mark.parametrize(
    ("network", "first", "last"),
    [
        # The first and the last address of an IPv4 network are its own and its broadcast address.
        ("10.9.0.0/24", 1, 254),
        ("10.9.0.0/30", 1, 2),
        ("10.9.0.0/31", 0, 1),
        ("10.9.0.0/32", 0, 0),
        ("fd00::/126", 0, 3),
    ],
)
def test_the_usable_addresses_of_a_network_have_bounds(network, first, last):
    base = network.partition("/")[0]
    box = {"model": "spine", "rack": "network", "name": "box"}

    def given(offset):
        return {"networks__lan": {"network": network}, "devices__box": {**box, "addresses": {"lan": offset}}}

    for offset in (first, last):
        address = sites.site(**given(offset)).devices["box"].addresses["lan"]
        assert address == (base if not offset else f"{base.removesuffix('0')}{offset}")
    for offset in (last + 1, *([0] if first else [])):
        assert sites.refused(**given(offset)) == Mentions("devices.box.addresses.lan", offset, network)


@pytest.mark.parametrize(("network", "last"), [("255.255.248.0/24", True), ("255.255.249.0/24", False)])
def test_networks_beyond_the_address_space_are_refused(network, last):
    # The networks rail are eight.
    if last:
        assert str(sites.site(networks__rail__network=network).subnets["rail"][-1]) == "255.255.255.0/24"
    else:
        assert sites.refused(networks__rail__network=network) == Mentions("networks.rail.network", "8", network)


def test_ipv6_networks_beyond_the_address_space_are_refused():
    network = "ffff:ffff:ffff:fff8::/64"
    assert len(sites.site(networks__rail__network=network).subnets["rail"]) == 8
    network = "ffff:ffff:ffff:fff9::/64"
    assert sites.refused(networks__rail__network=network) == Mentions("networks.rail.network", "8", network)


def test_networks_that_overlap_are_refused():
    # The networks rail are 10.1.0.0/24 to 10.1.7.0/24, and management is 10.0.0.0/24.
    for apart in ("10.1.8.0/24", "10.0.255.0/24", "10.0.1.0/24", "::/64", "fd00::/64"):
        sites.site(networks__lan={"network": apart})
    told = "10.1.7.0/24 overlaps with rail, which is 10.1.0.0/24 to 10.1.7.0/24; move one of them"
    assert sites.refused(networks__lan={"network": "10.1.7.0/24"}) == f"networks.lan.network: {told}"
    told = "10.1.0.0/24 overlaps with lan, which is 10.0.255.0/24 to 10.1.0.0/24; move one of them"
    assert sites.refused(networks__lan={"network": "10.0.255.0/24", "count": 2}) == f"networks.rail.network: {told}"


def test_a_device_outside_the_block_of_its_network_is_refused():
    lan = {"networks__lan": {"network": "10.9.0.0/24", "per": "rack"}, "devices__spine__addresses": {"lan": 5}}
    assert sites.refused(**lan) == Mentions("devices.spine.addresses.lan", "spine1", "rack")


def test_an_address_is_assigned_once():
    assert sites.refused(networks__management__gateway=12) == Mentions(
        "devices.node.addresses.management", "10.0.0.12", "gateway", "gpu02"
    )
    assert sites.refused(devices__leaf__addresses={"management": 14}) == Mentions(
        "devices.leaf.addresses.management", "10.0.0.14", "gpu04", "leaf1-1"
    )
    sites.site(devices__leaf__addresses={"management": 15}, networks__management__gateway=10)
    # Each network of a name has its gateway, and the addresses of one are free in the others.
    assert sites.refused(networks__rail__gateway=2) == Mentions(
        "devices.node.addresses.rail", "10.1.0.2", "gateway", "gpu02"
    )
    first = {"devices__node__count": 1, "devices__node__name": "gpu{n}"}
    second = {"model": "server", "per": "rack", "unit": 20, "name": "other{n}", "total": 2}
    rail = {"rail": {"first": 1, "ports": "nic"}}
    assert sites.refused(**first, devices__other={**second, "addresses": rail}) == Mentions(
        "devices.other.addresses.rail", "10.1.0.1", "gpu1", "other1"
    )
