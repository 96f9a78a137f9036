# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cables of NetBox: those that netbox.yml wrote are read as in the blueprint, and those of others are read, too."""

from __future__ import annotations

import netbox_api
import pytest
import sites
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.netbox import (
    planned_in_netbox,
    read_links,
    roce_variables,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import interfaces, planned
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory

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


def link(netbox):
    """Return the link of the first port of gpu01."""
    return next(each for each in read_links(*netbox)["links"] if ["gpu01", "ens1f0np0"] in each["ends"])


@pytest.mark.parametrize(
    "name", ["small", *(pytest.param(name, marks=pytest.mark.long) for name in ("vela", "blue_vela"))]
)
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
    ("speed", "kind", "gbit_s"),
    [
        (200_000_000, "100gbase-x-qsfp28", 200),
        (2_500_000, "other", 2.5),
        (100_000, "infiniband-ndr", 0.1),
        (None, "400gbase-x-osfp", 400),
        (None, "2.5gbase-t", 2.5),
        (None, "10gbase-x-sfpp", 10),
        (None, "1000base-t", 1),
        (None, "100base-tx", 0),
        (None, "infiniband-edr", 100),
        (None, "infiniband-hdr", 200),
        (None, "infiniband-ndr", 400),
        (None, "infiniband-xdr", 800),
        (None, "infiniband-sdr", 0),
        (None, "other", 0),
        (0, "other", 0),
    ],
)
def test_a_missing_speed_is_taken_from_the_interface_type(netbox, speed, kind, gbit_s):
    near, far = interface(netbox), interface(netbox, "leaf1-1", "Ethernet0")
    for each in (near, far):
        each.update(speed=speed, type={"value": kind})
    found = link(netbox)
    assert (found["speed_gbit_s"], found["infiniband"]) == (gbit_s, kind.startswith("infiniband"))
    assert isinstance(found["speed_gbit_s"], int) or gbit_s % 1
    # The other end's speed is that of the link where the own one is not known.
    near.update(speed=None, type={"value": "other"})
    assert link(netbox)["speed_gbit_s"] == gbit_s


@pytest.mark.parametrize(
    ("length", "unit", "metres", "rounded"),
    [
        (1.5, "km", 1500, 1500),
        (2, "m", 2, 2),
        (2.004, "m", 2, 2),
        (2.006, "m", 2.01, 3),
        (250, "cm", 2.5, 3),
        (2, "mi", 3218.69, 3219),
        (10, "ft", 3.05, 4),
        (100, "in", 2.54, 3),
        ("7.50", "m", 7.5, 8),
        (None, None, None, None),
        (None, "m", None, None),
        (7, None, None, None),
    ],
)
def test_cable_lengths_are_rounded_up_to_metres(netbox, length, unit, metres, rounded):
    netbox[1][0].update(length=length, length_unit=unit and {"value": unit})
    assert link(netbox)["length_m"] == metres
    assert port(netbox).get("cable_m") == rounded


def test_a_cable_that_is_not_listed_has_no_length(netbox):
    assert link((netbox[0], []))["length_m"] is None


def test_all_links_have_their_ends_in_the_order_of_the_cables(netbox):
    found = read_links(*netbox)
    site = sites.site()
    names = interfaces(site)
    assert sorted(each["ends"] for each in found["links"]) == sorted(
        [[end.name, names[end.name, port]] for end, port in ((c.a, c.a_port), (c.b, c.b_port))] for c in site.cables
    )
    assert {(each["speed_gbit_s"], each["infiniband"]) for each in found["links"]} == {(100, False)}
    assert found["left_out"] == []
    # The labels are the ports' names in the blueprint; the interface management has the first address.
    assert found["interfaces"]["gpu01"] == {
        "ens1f0np0": {"label": "mlx5_0", "management": False},
        "ens1f1np0": {"label": "mlx5_1", "management": False},
        "ens2f0np0": {"label": "mlx5_2", "management": False},
        "ens2f1np0": {"label": "mlx5_3", "management": False},
        "management": {"label": "management", "management": False},
    }


@pytest.mark.parametrize(
    "change",
    [
        {"connected_endpoints": None},
        {"connected_endpoints": []},
        {"connected_endpoints_type": "circuits.circuittermination"},
    ],
)
def test_an_interface_without_another_interface_at_its_cable_has_no_link(netbox, change):
    for each in (interface(netbox), interface(netbox, "leaf1-1", "Ethernet0")):
        each.update(change)
    found = read_links(*netbox)
    assert (len(found["links"]), found["left_out"]) == (31, [])


def test_a_far_interface_that_is_not_listed_has_its_name_from_the_near_one(netbox):
    netbox[0].remove(interface(netbox, "leaf1-1", "Ethernet0"))
    assert link(netbox)["ends"] == [["gpu01", "ens1f0np0"], ["leaf1-1", "Ethernet0"]]
    interface(netbox).update(speed=None, type={"value": "other"})
    assert link(netbox)["speed_gbit_s"] == 0


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
    found = read_links(*netbox)
    assert found["left_out"] == ["a device ens1f0np0: a device on its cable has no name"]
    assert len(found["links"]) == 31
    interface(netbox, None)["device"]["name"] = "gpu01"
    interface(netbox, "leaf1-1", "Ethernet0")["device"]["name"] = None
    assert read_links(*netbox)["left_out"] == ["gpu01 ens1f0np0: a device on its cable has no name"]


def test_a_response_without_an_expected_field_is_refused():
    with raises(SiteError, "NetBox", "'device'", "4.0"):
        read_links([{"id": 1}], [])


def test_the_ports_of_switches_and_the_nics_of_hosts_are_those_of_the_inventory(netbox):
    site = sites.site()
    wanted = {
        name: {key: value for key, value in each["vars"].items() if key.startswith("roce")}
        for name, each in inventory(site)["hosts"].items()
    }
    assert roce_variables(read_links(*netbox), SWITCHES, HOSTS) == wanted


def test_the_planned_cables_have_the_infiniband_names_of_their_ports():
    paths = netbox_api.filled(sites.harbour()).paths
    found = planned_in_netbox(read_links(paths["dcim/interfaces"], paths["dcim/cables"]))
    assert found.infiniband["gpu1-001", "mlx5_4"] == ("gpu1-001", "ib0")
    assert found.infiniband["gpu1-001", "5"] == ("gpu1-001", "ib1")
    assert found.infiniband["ib2", "ib6"] == found.infiniband["ib2", "6"] == ("ib2", "ib6")
    assert ("gpu1-001", "bmc") in found.hidden
