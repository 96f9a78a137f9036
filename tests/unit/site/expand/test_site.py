# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Properties of the site of every blueprint."""

from __future__ import annotations

import ipaddress
from collections import Counter

import pytest
import sites
from hypothesis import given

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.site import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read


def hold(site):
    """Check what holds for every site."""
    ends = Counter(end for cable in site.cables for end in ((cable.a.name, cable.a_port), (cable.b.name, cable.b_port)))
    assert set(ends.values()) <= {1}, "a port is used twice"
    for device in site.devices.values():
        for port, cable in device.cables.items():
            far, far_port = cable.far(device)
            assert far.cables[far_port] is cable, "a link is not symmetric"
            assert far.cables[far_port].far(far) == (device, port)
    addresses = Counter(address for device in site.devices.values() for address in device.addresses.values())
    assert set(addresses.values()) <= {1}, "an address is used twice"
    networks = [subnet for subnets in site.subnets.values() for subnet in subnets]
    assert len(networks) == len(set(networks))
    for device in site.devices.values():
        for name, address in device.addresses.items():
            spec = site.blueprint.networks.get(name) or site.blueprint.networks[name.rsplit("-", 1)[0]]
            assert any(ipaddress.ip_address(address) in subnet for subnet in site.subnets[spec.name])


@given(sites.blueprints())
def test_generated_sites_meet_the_invariants_and_are_reproducible(data):
    site = expand(read(data))
    hold(site)
    again = expand(read(data))
    assert [(cable.a.name, cable.a_port, cable.b.name, cable.b_port, cable.length_m) for cable in again.cables] == [
        (cable.a.name, cable.a_port, cable.b.name, cable.b_port, cable.length_m) for cable in site.cables
    ]


@given(sites.blueprints())
def test_a_site_that_grows_keeps_its_existing_devices_and_cables(data):
    before = expand(read(data))
    more = {**data, "blocks": {**data["blocks"], "rack": {**data["blocks"]["rack"], "count": 9}}}
    more["devices"]["node"].pop("total")
    more["models"]["spine"]["ports"]["down"]["names"] = "Ethernet[0:999]"
    after = expand(read(more))
    full = before.blueprint.kinds["node"].count
    for device in before.devices.values():
        same = after.devices[device.name]
        assert (same.rack.name, same.unit, same.addresses) == (device.rack.name, device.unit, device.addresses)
        # The switches of a last rack that was not full have more cables now.
        if device.kind.name != "leaf" or device.rack.numbers["rack"] * full <= len(before.by_kind["node"]):
            for port, cable in device.cables.items():
                far, far_port = same.cables[port].far(same)
                assert (far.name, far_port) == (cable.far(device)[0].name, cable.far(device)[1])


@pytest.mark.parametrize("name", ["vela", "blue_vela", "small"])
def test_the_examples_meet_the_invariants(name):
    hold(sites.example(name))


def test_the_vela_example_matches_the_paper():
    site = sites.example("vela")
    assert len(site.by_kind["gpu_hosts"]) == 219
    assert len(site.by_kind["gpu_hosts"]) * 8 == 1752
    assert Counter(Counter(host.rack.name for host in site.by_kind["gpu_hosts"]).values()) == {6: 36, 3: 1}
    for host in site.by_kind["gpu_hosts"]:
        leaves = [host.cables[f"mlx5_{port}"].far(host)[0] for port in range(8)]
        assert all(leaf.rack is host.rack for leaf in leaves)
        assert all(leaves[at] is not leaves[at + 1] for at in range(0, 8, 2))
    for leaf in site.by_kind["leaf"]:
        spines = Counter(
            cable.far(leaf)[0].name for cable in leaf.cables.values() if cable.far(leaf)[0].kind.name == "spine"
        )
        assert spines == {f"spine-00{number}": 2 for number in range(1, 5)}


def test_the_blue_vela_example_matches_the_paper():
    site = sites.example("blue_vela")
    assert len(site.by_kind["nodes"]) == 4 * 128
    assert set(Counter(node.rack.numbers["su"] for node in site.by_kind["nodes"]).values()) == {32}
    assert set(Counter(node.rack.name for node in site.by_kind["nodes"]).values()) == {4}
    for node in site.by_kind["nodes"]:
        leaves = [node.cables[f"mlx5_{rail}"].far(node)[0] for rail in range(8)]
        assert [leaf.index for leaf in leaves] == list(range(8))
        assert all(leaf.block.numbers["su"] == node.rack.numbers["su"] for leaf in leaves)
    # The fabric is non-blocking: each switch has as many ports up as down, and spines and cores use every port.
    for kind, ports in (("leaf", 65), ("spine", 65), ("core", 65)):
        assert {len(switch.cables) for switch in site.by_kind[kind]} == {ports}, kind
    assert max(cable.length_m for cable in site.cables) <= 50
