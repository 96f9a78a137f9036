# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Serial numbers and MAC addresses of accepted machines in a simulated NetBox, and what is never overwritten."""

from __future__ import annotations

import copy

import netbox_api
import pytest
import sites
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import NetboxApi
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.hardware import RecordedMachine, write_hardware

GIVEN = {"netbox_url": "https://netbox.example.com/", "netbox_token": "token", "validate_certs": True}
MACS = [f"52:54:00:00:00:0{number}" for number in range(1, 6)]
MACHINES = {
    "gpu01": RecordedMachine("S-1", {"ens1f0np0": MACS[0], "ens1f1np0": MACS[1]}, MACS[2], "10.9.1.1"),
    "gpu02": RecordedMachine("S-2", {"ens1f0np0": MACS[3]}),
}
NEW = {"gpu01": RecordedMachine("S-9", {"ens1f0np0": MACS[4]}, "", "10.9.1.9")}


@pytest.fixture
def box():
    """A NetBox with the small site, of whose node gpu01 one interface is that of the BMC."""
    box = netbox_api.filled(sites.site())
    box.store(
        "dcim/interfaces", {"device": device(box, "gpu01")["id"], "name": "bmc", "type": "other", "mgmt_only": True}
    )
    return box


def device(box, name):
    return next(each for each in box.paths["dcim/devices"] if each["name"] == name)


def write(box, machines, replace=False, check=False, query=()):
    return write_hardware(NetboxApi(GIVEN, box.open_url), machines, query, replace, check)


def shown(box):
    """Return serial number, primary MAC addresses and the BMC's address by device."""
    rows = {}
    for interface in box.paths["dcim/interfaces"]:
        mac = interface["primary_mac_address"]
        if mac:
            name = interface["device"]["name"]
            rows.setdefault(name, [device(box, name)["serial"]]).append(f"{interface['name']} {mac['mac_address']}")
    for raw in box.paths["dcim/devices"]:
        if raw["oob_ip"]:
            address = box.by_id("ipam/ip-addresses", raw["oob_ip"]["id"])
            interface = box.by_id("dcim/interfaces", address["assigned_object_id"])
            rows.setdefault(raw["name"], [raw["serial"]]).append(f"{interface['name']} {address['address']}")
    return rows


def test_a_machine_is_written_and_a_second_run_changes_nothing(box):
    box.asked.clear()
    told = write(box, MACHINES, check=True)
    assert shown(box) == {}
    assert {method for method, _path in box.asked} == {"GET"}
    done = write(box, MACHINES)
    assert (done, done["changed"], done["left_out"]) == (told, True, [])
    assert shown(box) == {
        "gpu01": ["S-1", f"ens1f0np0 {MACS[0]}", f"ens1f1np0 {MACS[1]}", f"bmc {MACS[2]}", "bmc 10.9.1.1/32"],
        "gpu02": ["S-2", f"ens1f0np0 {MACS[3]}"],
    }
    assert not write(box, MACHINES)["changed"]
    assert len(box.paths["dcim/mac-addresses"]) == 4


@pytest.mark.parametrize(
    ("machine", "facts"),
    [
        (RecordedMachine("S-9", {}), ("gpu01", "S-1", "S-9")),
        (RecordedMachine("S-1", {"ens1f0np0": MACS[4]}), ("gpu01 ens1f0np0", MACS[0], MACS[4])),
        (RecordedMachine("S-1", {"ens1f0np0": MACS[3]}), ("gpu01 ens1f0np0", MACS[3])),
        (RecordedMachine("S-1", {}, "", "10.9.1.2"), ("gpu01", "10.9.1.1", "10.9.1.2")),
    ],
)
def test_what_netbox_has_otherwise_is_refused_unless_the_machine_was_replaced(box, machine, facts):
    write(box, MACHINES)
    before = copy.deepcopy(box.paths)
    with raises(SiteError, "NetBox", "accept_nodes_replace", *facts):
        write(box, {"gpu01": machine})
    assert box.paths == before


def test_a_replaced_machine_takes_the_place_of_the_old_addresses(box):
    write(box, MACHINES)
    done = write(box, NEW, replace=True)
    assert f"interfaces gpu01 ens1f0np0 MAC address: {MACS[0]}\n" in done["diff"]["before"]
    assert shown(box)["gpu01"][:2] == ["S-9", f"ens1f0np0 {MACS[4]}"]
    assert MACS[0] not in [each["mac_address"] for each in box.paths["dcim/mac-addresses"]]
    assert shown(box)["gpu02"] == ["S-2", f"ens1f0np0 {MACS[3]}"]
    assert shown(box)["gpu01"][-1] == "bmc 10.9.1.9/32"
    assert [raw["address"] for raw in box.paths["ipam/ip-addresses"] if raw["address"] == "10.9.1.1/32"] == []


@pytest.mark.parametrize("assigned", ["", "bmc", "ens1f0np0"])
def test_an_address_of_a_bmc_that_netbox_has_is_used_or_refused_if_another_interface_has_it(box, assigned):
    interface = next(
        (
            raw
            for raw in box.paths["dcim/interfaces"]
            if (raw["device"]["name"], raw["name"]) == ("gpu01" if assigned == "bmc" else "gpu02", assigned)
        ),
        None,
    )
    place = {"assigned_object_type": "dcim.interface", "assigned_object_id": interface["id"]} if interface else {}
    box.store("ipam/prefixes", {"prefix": "10.9.0.0/16"})
    box.store("ipam/ip-addresses", {"address": "10.9.1.1/24", **place})
    if assigned == "ens1f0np0":
        with raises(SiteError, "10.9.1.1", "gpu01"):
            write(box, MACHINES)
        assert shown(box) == {}
    else:
        write(box, MACHINES)
        assert shown(box)["gpu01"][-1] == "bmc 10.9.1.1/24"
        assert not write(box, MACHINES)["changed"]


def test_a_new_address_of_a_bmc_has_the_length_of_its_narrowest_prefix(box):
    for prefix in ("10.0.0.0/8", "10.9.1.0/24", "10.9.2.0/25"):
        box.store("ipam/prefixes", {"prefix": prefix})
    write(box, {"gpu01": RecordedMachine("S-1", {}, "", "10.9.1.1")})
    assert shown(box) == {"gpu01": ["S-1", "bmc 10.9.1.1/24"]}


def test_a_bmc_without_an_address_has_none_and_two_with_one_address_are_refused(box):
    write(box, {"gpu01": RecordedMachine("S-1", {}, "", "0.0.0.0")})
    assert shown(box) == {}
    both = {name: RecordedMachine("S-1", {}, "", "10.9.1.1") for name in MACHINES}
    with raises(SiteError, "gpu01", "gpu02", "10.9.1.1"):
        write(box, both)


RIGHTS = [
    ("PATCH", "dcim/devices"),
    ("POST", "dcim/mac-addresses"),
    ("PATCH", "dcim/interfaces"),
    ("POST", "ipam/ip-addresses"),
]


@pytest.mark.parametrize("forbidden", [*([right] for right in RIGHTS), RIGHTS])
def test_a_token_without_a_right_is_refused_by_its_name_before_anything_is_written(box, forbidden):
    before = copy.deepcopy(box.paths)
    box.forbidden = set(forbidden)
    write(box, MACHINES, check=True)
    with raises(SiteError, "token", *(path for _method, path in forbidden)):
        write(box, MACHINES)
    assert box.paths == before
    box.forbidden = {("PATCH", "dcim/mac-addresses"), ("PATCH", "ipam/ip-addresses")}
    write(box, MACHINES)


def test_the_address_of_another_device_is_refused_even_then(box):
    write(box, MACHINES)
    with raises(SiteError, MACS[3], "gpu01 ens1f0np0"):
        write(box, {"gpu01": RecordedMachine("S-1", {"ens1f0np0": MACS[3]})}, replace=True)


def test_a_run_that_is_killed_between_two_requests_is_completed(box):
    for requests in range(5):
        one, left = copy.deepcopy(box), iter(range(requests))

        def dies(url, one=one, left=left, **others):
            if others["method"] not in ("GET", "OPTIONS") and next(left, None) is None:
                raise KeyboardInterrupt
            return netbox_api.NetBox.open_url(one, url, **others)

        one.open_url = dies
        with pytest.raises(KeyboardInterrupt):
            write(one, MACHINES)
        del one.open_url
        write(one, MACHINES)
        assert len(shown(one)["gpu01"]) == 5
        assert len(one.paths["dcim/mac-addresses"]) == 4


def test_addresses_without_an_interface_are_named_and_left_out(box):
    machine = RecordedMachine("S-2", {"eth0": MACS[3]}, MACS[4])
    done = write(box, {"gpu02": machine})
    assert [(MACS[3] in line, "eth0" in line, MACS[4] in line) for line in done["left_out"]] == [
        (True, True, False),
        (False, False, True),
    ]
    assert (shown(box), device(box, "gpu02")["serial"]) == ({}, "S-2")


def test_a_device_that_netbox_does_not_have_is_named(box):
    with raises(SiteError, "gpu99", "netbox.yml"):
        write(box, {"gpu99": RecordedMachine("S", {})})
