# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cables of NetBox: those that netbox.yml wrote are read as in the blueprint, and those of others are read, too."""

from __future__ import annotations

import netbox_api
import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import (
    planned_in_netbox,
    read_links,
    roce_variables,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError

SWITCHES = {"leaf1-1", "leaf1-2", "leaf2-1", "leaf2-2", "spine1", "spine2"}
HOSTS = {"gpu01", "gpu02", "gpu03", "gpu04"}


@pytest.fixture
def netbox():
    """Return interfaces and cables of the small site."""
    paths = netbox_api.filled(sites.site()).paths
    return paths["dcim/interfaces"], paths["dcim/cables"]


def port(netbox, switch="leaf1-1", name="Ethernet0"):
    return roce_variables(read_links(*netbox), SWITCHES, HOSTS)[switch]["roce_switch_ports"].get(name)


def interface(netbox, device="gpu01", name="ens1f0np0"):
    return next(each for each in netbox[0] if (each["device"]["name"], each["name"]) == (device, name))


@pytest.mark.parametrize("name", ["small", "vela", "blue_vela"])
def test_the_planned_cables_are_those_of_the_blueprint(name):
    site = sites.example(name)
    paths = netbox_api.filled(site).paths
    found = planned_in_netbox(read_links(paths["dcim/interfaces"], paths["dcim/cables"]))
    wanted = planned(site)
    # The blueprint has links and ends in the order of its file; NetBox orders interfaces by device.
    assert set(found.links) == set(wanted.links)
    assert len(found.links) == len(site.cables)
    cabled = {(end.device, end.interface) for link in wanted.links for end in (link.one, link.other)}
    assert found.hidden == {end for end in wanted.hidden if end in cabled}
    assert found.infiniband == wanted.infiniband
    assert all(name in found.interfaces[device] for device, name in cabled)


def test_a_port_has_speed_length_and_peer_from_netbox(netbox):
    wanted = {"speed_gbit_s": 100, "cable_m": 3, "peer": {"host": "gpu01", "port": "mlx5_0"}}
    assert port(netbox) == wanted
    # The ends A and B of the same cable are swapped.
    for each in (interface(netbox), interface(netbox, "leaf1-1", "Ethernet0")):
        each["cable_end"] = {"A": "B", "B": "A"}[each["cable_end"]]
    assert port(netbox) == wanted


@pytest.mark.parametrize(
    ("speed", "kind", "wanted"),
    [
        (200_000_000, "100gbase-x-qsfp28", 200),
        (None, "400gbase-x-osfp", 400),
        (None, "2.5gbase-t", 2.5),
        (None, "1000base-t", 1),
        (None, "other", 0),
    ],
)
def test_a_missing_speed_is_taken_from_the_interface_type(netbox, speed, kind, wanted):
    for each in (interface(netbox), interface(netbox, "leaf1-1", "Ethernet0")):
        each.update(speed=speed, type={"value": kind})
    assert port(netbox).get("speed_gbit_s", 0) == wanted


@pytest.mark.parametrize(
    ("length", "unit", "wanted"), [(250, "cm", 3), (10, "ft", 4), (100, "in", 3), (2, "m", 2), (None, None, None)]
)
def test_cable_lengths_are_rounded_up_to_metres(netbox, length, unit, wanted):
    netbox[1][0].update(length=length, length_unit=unit and {"value": unit})
    assert port(netbox).get("cable_m") == wanted


def test_the_length_of_a_path_through_patch_panels_is_unknown(netbox):
    for each in (interface(netbox), interface(netbox, "leaf1-1", "Ethernet0")):
        each["link_peers"] = [{"id": 900, "device": {"id": 90, "name": "panel"}, "name": "1"}]
    assert port(netbox) == {"speed_gbit_s": 100, "peer": {"host": "gpu01", "port": "mlx5_0"}}


def test_links_outside_the_fabric_are_omitted_from_its_ports(netbox):
    switches, hosts = SWITCHES - {"spine1"}, HOSTS - {"gpu01"}
    found = roce_variables(read_links(*netbox), switches, hosts)
    peers = [each["peer"] for one in found.values() for each in one.get("roce_switch_ports", {}).values()]
    assert peers
    assert not {"spine1", "gpu01"} & ({*found} | {peer.get("switch") or peer["host"] for peer in peers})
    # A cable between two hosts is left out.
    assert set(roce_variables(read_links(*netbox), {"spine1"}, {"gpu01", "leaf1-1"})) == {"spine1", "leaf1-1"}
    interface(netbox)["mgmt_only"] = True
    assert port(netbox) is None
    interface(netbox, "gpu01", "ens1f1np0")["type"] = {"value": "infiniband-hdr"}
    assert port(netbox, "leaf1-2") is None
    assert port(netbox, "leaf1-1", "Ethernet4")


def test_a_cable_with_several_far_ends_is_reported_as_left_out(netbox):
    far = interface(netbox)["connected_endpoints"]
    far.append(interface(netbox, "gpu02")["connected_endpoints"][0])
    assert read_links(*netbox)["left_out"] == ["gpu01 ens1f0np0: its cable has 2 far ends"]


def test_a_device_without_a_name_is_reported_as_left_out(netbox):
    interface(netbox)["device"]["name"] = None
    assert read_links(*netbox)["left_out"] == ["a device ens1f0np0: a device on its cable has no name"]


def test_a_response_without_an_expected_field_is_refused():
    with pytest.raises(SiteError, match=r"NetBox: its response has no 'device'; check that the URL"):
        read_links([{"id": 1}], [])
