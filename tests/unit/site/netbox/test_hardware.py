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
    "gpu01": RecordedMachine("S-1", {"ens1f0np0": MACS[0], "ens1f1np0": MACS[1]}, MACS[2]),
    "gpu02": RecordedMachine("S-2", {"ens1f0np0": MACS[3]}),
}
NEW = {"gpu01": RecordedMachine("S-9", {"ens1f0np0": MACS[4]})}


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
    """Return serial number and primary MAC addresses by device."""
    rows = {}
    for interface in box.paths["dcim/interfaces"]:
        mac = interface["primary_mac_address"]
        if mac:
            name = interface["device"]["name"]
            rows.setdefault(name, [device(box, name)["serial"]]).append(f"{interface['name']} {mac['mac_address']}")
    return rows


def test_a_machine_is_written_and_a_second_run_changes_nothing(box):
    box.asked.clear()
    told = write(box, MACHINES, check=True)
    assert shown(box) == {}
    assert {method for method, _path in box.asked} == {"GET"}
    done = write(box, MACHINES)
    assert (done, done["changed"], done["left_out"]) == (told, True, [])
    assert shown(box) == {
        "gpu01": ["S-1", f"ens1f0np0 {MACS[0]}", f"ens1f1np0 {MACS[1]}", f"bmc {MACS[2]}"],
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


def test_the_address_of_another_device_is_refused_even_then(box):
    write(box, MACHINES)
    with raises(SiteError, MACS[3], "gpu01 ens1f0np0"):
        write(box, {"gpu01": RecordedMachine("S-1", {"ens1f0np0": MACS[3]})}, replace=True)


def test_a_run_that_is_killed_between_two_requests_is_completed(box):
    for requests in range(3):
        one, left = copy.deepcopy(box), [requests]

        def dies(url, one=one, left=left, **others):
            if others["method"] != "GET":
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
            return netbox_api.NetBox.open_url(one, url, **others)

        one.open_url = dies
        with pytest.raises(KeyboardInterrupt):
            write(one, MACHINES)
        del one.open_url
        write(one, MACHINES)
        assert len(shown(one)["gpu01"]) == 4
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
