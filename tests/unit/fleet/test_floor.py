# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Racks, units and links of a blueprint's site; links of an inventory without one."""

from __future__ import annotations

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.floor import Spot, floor_of


def test_the_floor_of_a_blueprint_has_each_device_at_its_place():
    site = sites.example("small")
    floor = floor_of(site, ())
    assert [rack.name for rack in floor.racks] == [rack.name for rack in site.racks]
    assert set(floor.spots) == set(site.devices)
    leaf = site.devices["leaf1"]
    assert floor.spots["leaf1"] == Spot(site.racks.index(leaf.rack), 40, 1)
    assert floor.links["leaf1", "leaf2"] == 16
    assert sum(floor.links.values()) == len(site.cables)


def test_racks_of_a_large_site_are_named_with_their_outermost_block():
    blocks = {rack.block for rack in floor_of(sites.example("blue_vela"), ()).racks}
    assert len(blocks) > 1


def test_without_a_blueprint_the_links_are_those_of_the_switches_ports():
    ports = {
        "leaf1": {
            "swp1": {"peer": {"host": "gpu1", "port": "mlx5_0"}},
            "swp2": {"peer": {"switch": "leaf2"}},
            "swp3": {},
        },
        "leaf2": {"swp2": {"peer": {"switch": "leaf1"}}, "swp4": {"peer": "text"}},
    }
    floor = floor_of(None, ports.items())
    assert (floor.racks, floor.spots) == ([], {})
    assert dict(floor.links) == {("gpu1", "leaf1"): 1, ("leaf1", "leaf2"): 1}
