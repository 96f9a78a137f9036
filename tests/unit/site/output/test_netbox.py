# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Objects of NetBox, as the modules of netbox.netbox take them."""

from __future__ import annotations

import argument_specs
import pytest
import sites
import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.netbox import netbox, slug

PLAY = yaml.safe_load((sites.PROJECT / "playbooks/netbox.yml").read_text())[0]
# By the playbook: kind of object -> module.
MODULES = {
    task["loop"].split(".")[1].split()[0]: next(name for name in task if name.startswith("netbox."))
    for task in PLAY["tasks"]
    if "loop" in task
}


def faults(module, data):
    given = {"netbox_url": "https://netbox.example.com", "netbox_token": "token", "data": data}
    return argument_specs.faults(module, "NetboxAnsibleModule", given)


def test_the_playbook_writes_all_kinds_in_the_order_in_which_they_need_each_other():
    assert list(MODULES) == list(netbox(sites.site(), "various"))


def test_the_modules_take_the_arguments():
    for kind, objects in netbox(sites.site(), "various").items():
        assert objects
        assert [fault for each in objects for fault in faults(MODULES[kind], each)] == []
    # The check notices what is wrong.
    assert faults(MODULES["cables"], {"label": "a"})
    assert faults(MODULES["racks"], {"name": "a", "unit": 1})


def test_objects():
    found = netbox(sites.site(), "various")
    assert found["sites"] == [{"name": "test", "slug": "test"}]
    assert found["devices"][1] == {
        "name": "gpu02",
        "device_type": "server",
        "device_role": "node",
        "site": "test",
        "rack": "rack-1",
        "position": 9,
        "face": "front",
    }
    assert found["prefixes"][1]["description"] == "rail 1"
    first = {"device": "gpu01", "name": "ens1f0np0"}
    assert {**first, "type": "100gbase-x-qsfp28", "speed": 100_000_000, "label": "mlx5_0"} in found["interfaces"]
    assert {"device": "leaf1-1", "name": "Ethernet0", "type": "100gbase-x-qsfp28", "speed": 100_000_000} in found[
        "interfaces"
    ]
    assert found["cables"][0] == {
        "termination_a_type": "dcim.interface",
        "termination_a": first,
        "termination_b_type": "dcim.interface",
        "termination_b": {"device": "leaf1-1", "name": "Ethernet0"},
        "type": "dac-passive",
        "label": "fabric-000001",
        "length": 3,
        "length_unit": "m",
    }


def test_ports_that_a_system_does_not_see_are_for_management():
    found = netbox(sites.example("small"), "various")["interfaces"]
    assert {each["name"] for each in found if each.get("mgmt_only")} == {"bmc"}


def test_addresses_are_at_the_interfaces_that_have_them():
    found = netbox(sites.site(), "various")
    assert {
        "address": "10.1.1.1/24",
        "assigned_object": {"device": "gpu01", "name": "ens1f1np0"},
        "dns_name": "gpu01-rail-1.example.com",
    } in found["addresses"]
    # For the first address, the blueprint names no port.
    assert {
        "address": "10.0.0.11/24",
        "assigned_object": {"device": "gpu01", "name": "management"},
        "dns_name": "gpu01.example.com",
    } in found["addresses"]
    assert {"device": "gpu01", "name": "management", "type": "virtual"} in found["interfaces"]
    assert {"name": "gpu01", "site": "test", "primary_ip4": "10.0.0.11/24"} in found["primary_addresses"]
    assert len(found["primary_addresses"]) == len(found["devices"])
    interfaces = {(each["device"], each["name"]) for each in found["interfaces"]}
    assert all(
        (each["assigned_object"]["device"], each["assigned_object"]["name"]) in interfaces
        for each in found["addresses"]
    )
    assert len(interfaces) == len(found["interfaces"])
    # A port with the name of a network, such as bmc, has its address.
    small = netbox(sites.example("small"), "various")["interfaces"]
    assert [each["type"] for each in small if (each["device"], each["name"]) == ("gpu01", "bmc")] == ["1000base-t"]


def test_an_address_of_ipv6():
    found = netbox(sites.site(networks__management__network="fd00::/64"), "various")
    assert {"name": "gpu01", "site": "test", "primary_ip6": "fd00::b/64"} in found["primary_addresses"]


def test_each_end_of_a_cable_is_an_interface_and_each_other_interface_is_virtual():
    found = netbox(sites.site(), "various")
    ends = [
        (cable[end]["device"], cable[end]["name"])
        for cable in found["cables"]
        for end in ("termination_a", "termination_b")
    ]
    ports = [each for each in found["interfaces"] if each["type"] != "virtual"]
    assert sorted(ends) == sorted((each["device"], each["name"]) for each in ports)
    assert len(set(ends)) == len(ends)


def test_slugs():
    assert slug("GPU server, 8 x H100") == "gpu-server-8-x-h100"


@pytest.mark.parametrize(
    ("speed_gbit_s", "medium", "infiniband", "kind"),
    [
        (0.1, "cat6a", False, "other"),
        (1, "cat6a", False, "1000base-t"),
        (2.5, "cat6a", False, "other"),
        (10, "dac", False, "10gbase-x-sfpp"),
        (25, "dac", False, "25gbase-x-sfp28"),
        (40, "mmf", False, "40gbase-x-qsfpp"),
        (100, "mmf", False, "100gbase-x-qsfp28"),
        (200, "mmf", False, "200gbase-x-qsfp56"),
        (400, "smf", False, "400gbase-x-qsfpdd"),
        (800, "smf", False, "800gbase-x-qsfpdd"),
        (100, "mmf", True, "infiniband-edr"),
        (200, "mmf", True, "infiniband-hdr"),
        (400, "ndr-mmf", True, "infiniband-ndr"),
        (800, "smf", True, "infiniband-xdr"),
    ],
)
def test_the_type_of_an_interface_is_netboxs_word_for_its_speed(speed_gbit_s, medium, infiniband, kind):
    site = sites.site(
        models__leaf__ports__up__speed_gbit_s=speed_gbit_s,
        models__spine__ports__down__speed_gbit_s=speed_gbit_s,
        links__uplink={
            **sites.DATA["links"]["uplink"],
            "medium": medium,
            "roce": not infiniband,
            "infiniband": infiniband,
        },
    )
    interfaces = netbox(site, "various")["interfaces"]
    found = [each for each in interfaces if each["device"] == "spine1" and each["type"] != "virtual"]
    assert {(each["type"], each["speed"]) for each in found} == {(kind, int(speed_gbit_s * 1_000_000))}


@pytest.mark.parametrize(
    ("medium", "kind"),
    [("dac", "dac-passive"), ("aoc", "aoc"), ("mmf", "mmf"), ("smf", "smf"), ("own", None)],
)
def test_a_cable_of_a_site_s_own_medium_has_no_type(medium, kind):
    site = sites.site(links__uplink__medium=medium, media={"own": {"most_m": {100: 90}}})
    assert {cable.get("type") for cable in netbox(site, "various")["cables"]} == {"dac-passive", kind}
