# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ends and lengths of cables."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.cables import stocked_m


def ends(site, device, rule=""):
    cables = site.devices[device].cables
    return {
        port: " ".join((cable.far(site.devices[device])[0].name, cable.far(site.devices[device])[1]))
        for port, cable in cables.items()
        if not rule or cable.rule.name == rule
    }


def test_port_i_is_connected_to_switch_i_modulo_their_count():
    assert ends(sites.site(), "gpu02") == {
        "mlx5_0": "leaf1-1 Ethernet8",
        "mlx5_1": "leaf1-2 Ethernet8",
        "mlx5_2": "leaf1-1 Ethernet12",
        "mlx5_3": "leaf1-2 Ethernet12",
    }


def test_each_upper_switch_is_connected_to_each_lower_switch():
    assert ends(sites.site(), "spine2") == {
        "Ethernet0": "leaf1-1 Ethernet24",
        "Ethernet4": "leaf1-1 Ethernet28",
        "Ethernet8": "leaf1-2 Ethernet24",
        "Ethernet12": "leaf1-2 Ethernet28",
        "Ethernet16": "leaf2-1 Ethernet24",
        "Ethernet20": "leaf2-1 Ethernet28",
        "Ethernet24": "leaf2-2 Ethernet24",
        "Ethernet28": "leaf2-2 Ethernet28",
    }


def test_planes_divide_the_upper_switches():
    site = sites.site(links__uplink__planes=2)
    for leaf in site.by_kind["leaf"]:
        uppers = {cable.far(leaf)[0].name for cable in leaf.cables.values() if cable.rule.name == "uplink"}
        assert uppers == {f"spine{leaf.index + 1}"}


def test_links_between_devices_of_one_kind_are_created_once():
    among = {"from": "leaf", "ports": "up", "to": "leaf", "to_ports": "up", "each": 2, "medium": "dac"}
    site = sites.site(links__uplink=among, checks=None)
    assert ends(site, "leaf2-1", "uplink") == {port: f"leaf2-2 {port}" for port in ("Ethernet16", "Ethernet20")}


def test_a_switch_outside_the_block_is_refused():
    with pytest.raises(
        SiteError, match=r"links\.back\.from: spine1 is not in a rack, but each leaf is; place it in one"
    ):
        sites.site(links__back={"from": "spine", "ports": "down", "to": "leaf", "to_ports": "down", "medium": "dac"})


def test_cable_lengths_are_computed_from_the_positions_of_devices():
    site = sites.site()
    # gpu01 is in units 1 to 8, leaf1-1 in unit 40: 35.5 units of 44.45 mm, and one metre of slack.
    cable = site.devices["gpu01"].cables["mlx5_0"]
    assert (cable.route_m, cable.length_m) == (2.58, 3)
    # Unit 40 (of 42) to unit 1 of the next rack: 2.5 units up, 41.5 units down, and twice half a metre to the tray.
    cable = site.devices["leaf1-1"].cables["Ethernet16"]
    assert (cable.route_m, cable.length_m) == (round(44 * 0.04445 + 2 * 0.5 + 0.6 + 1, 2), 5)


@pytest.mark.parametrize(
    ("route", "stock", "length"), [(2.1, (1, 2, 3), 3), (3, (1, 2, 3), 3), (3.1, (1, 2, 3), 4), (2.2, (), 3)]
)
def test_a_route_gets_the_next_stock_length(route, stock, length):
    assert stocked_m(route, stock) == length
