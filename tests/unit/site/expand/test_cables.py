# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ends and lengths of cables."""

from __future__ import annotations

import pytest
import sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.cables import route_m, stocked_m


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
    back = {"from": "spine", "ports": "down", "to": "leaf", "to_ports": "down", "medium": "dac"}
    assert sites.refused(links__back=back) == Mentions("links.back.from", "spine1", "leaf")


def test_a_block_without_the_other_kind_is_refused():
    assert sites.refused(devices__leaf__total=2) == Mentions("links.fabric.to", "gpu03", "leaf")


@pytest.mark.parametrize(("planes", "spines"), [(1, 2), (1, 3), (2, 2), (2, 4), (4, 4)])
def test_each_plane_has_the_same_number_of_upper_switches(planes, spines):
    ports = {"models__leaf__ports__up__names": "Up[0:15]", "models__spine__ports__down__names": "Down[0:15]"}
    site = sites.site(**ports, devices__spine__count=spines, links__uplink__planes=planes)
    for leaf in site.by_kind["leaf"]:
        uppers = [cable.b.name for cable in leaf.cables.values() if cable.rule.name == "uplink"]
        first, each = leaf.index % planes * (spines // planes), spines // planes
        assert uppers == [f"spine{at + 1}" for at in range(first, first + each) for _twice in range(2)]


@pytest.mark.parametrize(("planes", "spines"), [(2, 1), (2, 3), (3, 4), (4, 2)])
def test_upper_switches_that_do_not_divide_into_planes_are_refused(planes, spines):
    assert sites.refused(devices__spine__count=spines, links__uplink__planes=planes) == Mentions(
        "links.uplink.planes", spines, planes
    )


def test_ports_of_several_rules_are_taken_in_order_until_they_are_exhausted():
    again = {"from": "node", "ports": "nic", "to": "leaf", "to_ports": "down", "medium": "dac"}
    assert sites.refused(links__again=again) == Mentions("links.again", "gpu01", "4", "nic", "fabric")
    more = {"models__spine__ports__down__names": "Ethernet[0:9]", "links__uplink__each": 1}
    extra = {**sites.DATA["links"]["uplink"], "each": 1}
    site = sites.site(**more, links__extra=extra)
    assert ends(site, "leaf1-1", "extra") == {"Ethernet24": "spine1 Ethernet4", "Ethernet28": "spine2 Ethernet4"}
    assert sites.refused(**more, links__extra={**extra, "each": 2}) == Mentions(
        "links.extra", "leaf1-1", "4", "extra, fabric, uplink"
    )


def test_cables_are_numbered_over_the_site_and_have_the_speed_of_their_ports():
    cables = sites.harbour().cables
    assert [cable.number for cable in cables] == list(range(1, 105))
    assert {cable.rule.name: cable.speed_gbit_s for cable in cables} == {
        "rails": 400,
        "rise": 400,
        "cross": 400,
        "pairs": 100,
        "partners": 100,
        "infiniband": 400,
        "lan": 25,
        "bmc_lan": 1,
    }


FLOOR = {"racks_per_row": 2, "rack_width_m": 0.75, "row_pitch_m": 3, "tray_m": 0.5, "slack_m": 1.25}


@pytest.mark.parametrize(
    ("one", "other", "route"),
    [
        # In one rack: the difference of the heights, and the slack.
        ("leaf1-1", "leaf1-2", 1.25 + 1 * 0.04445),
        ("gpu01", "leaf1-1", 1.25 + 35.5 * 0.04445),
        # rack-1 is beside network-1, and both have 42 units: unit 40 is 2.5 units below the top, unit 1 41.5.
        ("leaf1-1", "spine1", 1.25 + 44 * 0.04445 + 2 * 0.5 + 0.75),
        ("spine1", "leaf1-1", 1.25 + 44 * 0.04445 + 2 * 0.5 + 0.75),
        # rack-2 is behind network-1.
        ("leaf2-1", "spine1", 1.25 + 44 * 0.04445 + 2 * 0.5 + 3),
        ("leaf2-1", "leaf1-1", 1.25 + 5 * 0.04445 + 2 * 0.5 + 0.75 + 3),
    ],
)
def test_the_route_of_a_cable_goes_over_the_tray_and_along_the_rows(one, other, route):
    site = sites.site(floor=FLOOR)
    assert route_m(site, site.devices[one], site.devices[other]) == round(route, 2)


def test_the_route_between_racks_of_different_heights_has_the_difference_of_their_trays():
    site = sites.site(floor=FLOOR, blocks__network__units=30)
    # Down from unit 1 of 30: 29.5 units; the trays are 12 units apart.
    route = 1.25 + (2.5 + 29.5 + 12) * 0.04445 + 2 * 0.5 + 0.75
    assert route_m(site, site.devices["leaf1-1"], site.devices["spine1"]) == round(route, 2)
    assert route_m(site, site.devices["spine1"], site.devices["leaf1-1"]) == round(route, 2)


@pytest.mark.parametrize(
    ("route", "stock", "length"),
    [
        (2.1, (1, 2, 3), 3),
        (3, (1, 2, 3), 3),
        (3.1, (1, 2, 3), 4),
        (4, (1, 2, 3), 4),
        (4.01, (1, 2, 3), 5),
        (0.5, (1, 2, 3), 1),
        (1, (1, 2, 3), 1),
        (2.2, (), 3),
        (2, (), 2),
        (1.01, (), 2),
    ],
)
def test_a_route_gets_the_next_stock_length(route, stock, length):
    assert stocked_m(route, stock) == length
