# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A site is written to a simulated NetBox: only missing or different objects, and many of them per request."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import netbox_api
import pytest
import sites
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.objects import netbox

WRITTEN = ("POST", "PATCH")


@pytest.fixture
def box():
    """Return a NetBox with the small site."""
    return netbox_api.filled(sites.site())


def changes(found):
    return {
        kind: (each["created"], each["updated"])
        for kind, each in found["objects"].items()
        if each["created"] or each["updated"]
    }


def named(box, path, name):
    return next(each for each in box.paths[path] if each["name"] == name)


def test_all_objects_are_written_and_a_second_run_changes_nothing():
    box, site = netbox_api.NetBox(), sites.site()
    numbers = {kind: len(objects) for kind, objects in netbox(site, "various").items()}
    found = netbox_api.write(box, site)
    assert found["changed"]
    assert {kind: each["created"] or each["updated"] for kind, each in found["objects"].items()} == numbers
    assert all(each["primary_ip4"] for each in box.paths["dcim/devices"])
    box.asked.clear()
    found = netbox_api.write(box, site)
    assert (found["changed"], found["diff"]) == (False, {"before": "", "after": ""})
    assert {kind: each["same"] for kind, each in found["objects"].items()} == numbers
    assert {method for method, _path in box.asked} == {"GET"}


def test_a_token_that_may_not_write_all_kinds_is_refused_before_the_first_one():
    box, site = netbox_api.NetBox(), sites.site()
    box.forbidden = {("POST", "dcim/cables"), ("PATCH", "dcim/devices")}
    netbox_api.write(box, site, check=True)
    with raises(SiteError, "token", "add dcim/cables", "change dcim/devices"):
        netbox_api.write(box, site)
    assert not any(box.paths.values())
    box.forbidden.clear()
    netbox_api.write(box, site)
    box.forbidden = {(method, path) for method in WRITTEN for path in box.paths}
    assert not netbox_api.write(box, site)["changed"]


@pytest.mark.parametrize("name", ["small", pytest.param("vela", marks=pytest.mark.long)])
def test_the_number_of_requests_is_limited(name):
    box, site = netbox_api.NetBox(), sites.example(name)
    objects = sum(map(len, netbox(site, "various").values()))
    netbox_api.write(box, site)
    assert len(box.asked) < 40 + objects / 50
    box.asked.clear()
    assert not netbox_api.write(box, site)["changed"]
    assert len(box.asked) < 20 + objects / 500


def test_check_mode_on_an_empty_netbox_predicts_the_run():
    box, site = netbox_api.NetBox(), sites.site()
    checked = netbox_api.write(box, site, check=True)
    assert not any(box.paths.values())
    assert {method for method, _path in box.asked} == {"GET"}
    done = netbox_api.write(box, site)
    assert checked["objects"] == done["objects"]
    assert checked["diff"]["after"] == done["diff"]["after"]
    assert "devices gpu01 rack: rack-1\n" in checked["diff"]["after"]
    assert checked["diff"]["before"] == ""


def test_differing_values_are_changed_and_values_outside_the_blueprint_are_kept(box):
    device = named(box, "dcim/devices", "gpu01")
    device.update(position=20.0, serial="S1")
    named(box, "dcim/devices", "leaf1-1")["rack"] = dict(named(box, "dcim/devices", "leaf2-1")["rack"])
    named(box, "dcim/devices", "gpu02")["primary_ip4"] = None
    box.paths["dcim/cables"][0].update(length=9.5, type="aoc")
    named(box, "dcim/interfaces", "ens1f0np0")["label"] = ""
    found = netbox_api.write(box, sites.site(), check=True)
    wanted = {"devices": (0, 2), "primary_addresses": (0, 1), "interfaces": (0, 1), "cables": (0, 1)}
    assert changes(found) == wanted
    assert found["objects"]["devices"] == {"created": 0, "updated": 2, "same": 8}
    assert device["position"] == 20.0
    assert found["diff"] == {
        "before": "devices gpu01 position: 20\ndevices leaf1-1 rack: rack-2\n"
        "interfaces gpu01 ens1f0np0 label: \ndevices gpu02 primary_ip4: None\n"
        "cables fabric-000001 type: aoc\ncables fabric-000001 length: 9.5\n",
        "after": "devices gpu01 position: 1\ndevices leaf1-1 rack: rack-1\n"
        "interfaces gpu01 ens1f0np0 label: mlx5_0\ndevices gpu02 primary_ip4: 10.0.0.12\n"
        "cables fabric-000001 type: dac-passive\ncables fabric-000001 length: 3\n",
    }
    assert changes(netbox_api.write(box, sites.site())) == wanted
    assert (device["position"], device["serial"]) == (1.0, "S1")
    assert changes(netbox_api.write(box, sites.site())) == {}


def test_a_site_that_grows_adds_objects_and_keeps_the_existing_ones():
    links = {**sites.DATA["links"]["uplink"], "each": 1}
    box = netbox_api.filled(sites.site(links__uplink=links))
    before = {path: [each["id"] for each in objects] for path, objects in box.paths.items()}
    grown = sites.site(links__uplink=links, blocks__rack={**sites.DATA["blocks"]["rack"], "count": 3})
    found = changes(netbox_api.write(box, grown))
    assert found["racks"] == (1, 0)
    assert found["devices"] == (4, 0)
    # The labels of cables are numbers in the order of the file, so those after the new ones are changed.
    assert found["cables"] == (8 + 4, 8)
    assert all({each["id"] for each in objects} >= set(before[path]) for path, objects in box.paths.items())


def test_two_sites_may_have_racks_and_devices_of_the_same_names(box):
    other = sites.site(site="other", networks__management__network="10.2.0.0/24", networks__rail__network="10.3.0.0/24")
    found = changes(netbox_api.write(box, other))
    kinds = {"sites", "racks", "prefixes", "devices", "interfaces", "addresses", "primary_addresses", "cables"}
    assert set(found) == kinds
    assert changes(netbox_api.write(box, sites.site())) == changes(netbox_api.write(box, other)) == {}


def test_the_ends_of_a_cable_may_be_exchanged(box):
    cable = box.paths["dcim/cables"][0]
    cable["a_terminations"], cable["b_terminations"] = cable["b_terminations"], cable["a_terminations"]
    assert changes(netbox_api.write(box, sites.site())) == {}


def test_an_address_with_another_prefix_length_is_changed(box):
    address = next(each for each in box.paths["ipam/ip-addresses"] if each["address"] == "10.0.0.11/24")
    address["address"] = "10.0.0.11/32"
    assert changes(netbox_api.write(box, sites.site())) == {"addresses": (0, 1)}
    assert address["address"] == "10.0.0.11/24"


def test_interfaces_that_netbox_creates_from_a_device_type_are_updated(box, monkeypatch):
    """NetBox makes the interfaces of a type when it makes a device: they are read after the devices are written."""
    box, write = netbox_api.NetBox(), netbox_api.NetBox.store

    def with_interface(self, path, given):
        made = write(self, path, given)
        if path == "dcim/devices" and made["name"] == "gpu01" and "name" in given:
            write(self, "dcim/interfaces", {"device": made["id"], "name": "ens1f0np0", "type": "other"})
        return made

    monkeypatch.setattr(netbox_api.NetBox, "store", with_interface)
    found = netbox_api.write(box, sites.site())
    assert found["objects"]["interfaces"]["updated"] == 1


def test_an_interface_with_another_cable_is_refused(box):
    cables = box.paths["dcim/cables"]
    one, other = cables[:2]
    one["b_terminations"], other["b_terminations"] = other["b_terminations"], one["b_terminations"]
    ports = ("gpu01 ens1f0np0", "leaf1-1 Ethernet0", "gpu01 ens1f1np0", "leaf1-2 Ethernet0")
    with raises(SiteError, "NetBox", *ports, "fabric-000001", "fabric-000002"):
        netbox_api.write(box, sites.site())


@pytest.mark.parametrize(("pairs", "more"), [(2, ""), (3, "; and 4 others")])
def test_up_to_eight_interfaces_with_another_cable_are_listed(box, pairs, more):
    cables = box.paths["dcim/cables"]
    for one, other in zip(cables[: 2 * pairs : 2], cables[1 : 2 * pairs : 2]):
        one["b_terminations"], other["b_terminations"] = other["b_terminations"], one["b_terminations"]
    with pytest.raises(SiteError) as told:
        netbox_api.write(box, sites.site())
    text = str(told.value)
    assert text.count("has the cable") == 8
    assert text.endswith(f"but fabric-000004 is planned{more}; remove these cables in NetBox")


def test_a_cable_to_a_patch_panel_takes_no_interface_of_the_site(box):
    # Its ends are a port of the panel, with the id of an interface that has a planned cable, and another interface.
    spare = {**box.paths["dcim/interfaces"][0], "id": 900, "name": "spare", "cable": None}
    box.paths["dcim/interfaces"].append(spare)
    ends = [{"object_type": "dcim.frontport", "object_id": 1}], [{"object_type": "dcim.interface", "object_id": 900}]
    cable = {**box.paths["dcim/cables"][0], "id": 901, "a_terminations": ends[0], "b_terminations": ends[1]}
    box.paths["dcim/cables"].append(cable)
    assert changes(netbox_api.write(box, sites.site())) == {}


def test_each_kind_is_read_with_the_fields_that_are_compared():
    """SAILLOFT_WRITE_SITES=1 writes the expected queries again."""
    box, asked = netbox_api.filled(sites.site()), []
    opened = box.open_url

    def recorded(url, **others):
        asked.append(f"{others['method']} {unquote(url.partition('/api/')[2])}\n")
        return opened(url, **others)

    box.open_url = recorded
    assert not netbox_api.write(box, sites.site())["changed"]
    text = "".join(asked)
    assert text == sites.stored(Path(__file__).parent / "harbour/queries.txt", text)


def test_a_new_site_is_written_kind_by_kind_in_few_requests():
    box = netbox_api.NetBox()
    netbox_api.write(box, sites.site())
    kinds = ["sites", "manufacturers", "device-types", "device-roles", "racks"]
    rights = [(method, path) for method, path in box.asked if method == "OPTIONS"]
    assert len(rights) == len(set(rights)) == 10
    assert [request for request in box.asked if request not in rights] == [
        *((method, f"dcim/{kind}") for kind in kinds for method in ("GET", "POST")),
        *(
            (method, path)
            for path in ("ipam/prefixes", "dcim/devices", "dcim/interfaces")
            for method in ("GET", "POST")
        ),
        *(("GET", "ipam/ip-addresses"), ("POST", "ipam/ip-addresses")),
        # The primary addresses of the devices.
        ("PATCH", "dcim/devices"),
        *(("GET", "dcim/cables"), ("POST", "dcim/cables")),
    ]


def test_check_mode_predicts_the_changes_of_a_site_that_grows():
    links = {**sites.DATA["links"]["uplink"], "each": 1}
    grown = sites.site(links__uplink=links, blocks__rack={**sites.DATA["blocks"]["rack"], "count": 3})
    checked = netbox_api.write(netbox_api.filled(sites.site(links__uplink=links)), grown, check=True)
    done = netbox_api.write(netbox_api.filled(sites.site(links__uplink=links)), grown)
    assert (checked["objects"], checked["diff"]["after"]) == (done["objects"], done["diff"]["after"])
    assert done["objects"]["devices"] == {"created": 4, "updated": 0, "same": 10}
    assert done["objects"]["primary_addresses"] == {"created": 0, "updated": 4, "same": 10}
    after = done["diff"]["after"].splitlines()
    assert "devices gpu05 primary_ip4: 10.0.0.15" in after
    assert "cables fabric-000017 a_terminations: gpu05 ens1f0np0" in after
    assert not any("gpu04" in line for line in after)


def test_a_duplicate_object_is_refused(box):
    box.paths["dcim/devices"].append({**named(box, "dcim/devices", "gpu02"), "id": 99})
    with raises(SiteError, "NetBox", "gpu02", "twice"):
        netbox_api.write(box, sites.site())


def test_objects_outside_the_blueprint_may_be_duplicate_or_unnamed(box):
    for number in (98, 99):
        box.paths["dcim/devices"].append({**named(box, "dcim/devices", "gpu02"), "id": number, "name": None})
    assert changes(netbox_api.write(box, sites.site())) == {}


def test_a_response_without_an_expected_field_is_refused(box):
    del named(box, "dcim/devices", "gpu01")["position"]
    with raises(SiteError, "NetBox", "'position'"):
        netbox_api.write(box, sites.site())
