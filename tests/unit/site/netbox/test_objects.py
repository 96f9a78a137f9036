# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Objects of NetBox, as its REST API takes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.objects import Ref, netbox, slug


def shown(value):
    """Return a field's value as text: a reference is KIND/KEY."""
    if isinstance(value, list):
        return [shown(each) for each in value]
    return f"{value.kind}/{value}" if isinstance(value, Ref) else value


def test_the_objects_of_a_site_equal_the_stored_file():
    """A change of the objects shows as a diff of files. SAILLOFT_WRITE_SITES=1 writes the file again."""
    found = {
        f"{kind} {' - '.join(map(' '.join, key)) if kind == 'cables' else Ref(kind, key)}": fields
        for kind, objects in netbox(sites.harbour(), "Makers & Co.").items()
        for key, fields in objects.items()
    }
    rows = [
        f"{json.dumps(name)}: {json.dumps({field: shown(value) for field, value in fields.items()})}"
        for name, fields in found.items()
    ]
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    assert text == sites.stored(Path(__file__).parent / "harbour/objects.json", text)


def test_a_site_is_converted_to_netbox_objects():
    found = netbox(sites.site(), "Various makers")
    assert found["sites"] == {("test",): {"name": "test", "slug": "test"}}
    assert found["manufacturers"] == {("various-makers",): {"name": "Various makers", "slug": "various-makers"}}
    assert found["devices"]["gpu02",] == {
        "name": "gpu02",
        "device_type": Ref("device_types", ("server",)),
        "role": Ref("device_roles", ("node",)),
        "site": Ref("sites", ("test",)),
        "rack": Ref("racks", ("rack-1",)),
        "position": 9,
        "face": "front",
    }
    assert [each["description"] for each in found["prefixes"].values()][1] == "rail 1"
    first = ("gpu01", "ens1f0np0")
    assert found["interfaces"][first] == {
        "device": Ref("devices", ("gpu01",)),
        "name": "ens1f0np0",
        "type": "100gbase-x-qsfp28",
        "speed": 100_000_000,
        "label": "mlx5_0",
    }
    assert "label" not in found["interfaces"]["leaf1-1", "Ethernet0"]
    assert found["cables"][first, ("leaf1-1", "Ethernet0")] == {
        "a_terminations": [Ref("interfaces", first)],
        "b_terminations": [Ref("interfaces", ("leaf1-1", "Ethernet0"))],
        "type": "dac-passive",
        "label": "fabric-000001",
        "length": 3,
        "length_unit": "m",
    }


@pytest.mark.parametrize("name", ["small", "vela", "blue_vela"])
def test_each_object_refers_only_to_earlier_objects(name):
    found = netbox(sites.example(name), "various")
    before = set()
    for kind, objects in found.items():
        refs = {
            ref
            for each in objects.values()
            for value in each.values()
            for ref in (value if isinstance(value, list) else [value])
            if isinstance(ref, Ref)
        }
        assert refs <= before
        before |= {Ref(kind, key) for key in objects}


def test_ports_that_a_system_does_not_see_are_management_only():
    found = netbox(sites.example("small"), "various")["interfaces"]
    assert {name for (_device, name), each in found.items() if each.get("mgmt_only")} == {"bmc"}


def test_addresses_are_assigned_to_their_interfaces():
    found = netbox(sites.site(), "various")
    assert found["addresses"]["10.1.1.1",] == {
        "address": "10.1.1.1/24",
        "assigned_object_type": "dcim.interface",
        "assigned_object_id": Ref("interfaces", ("gpu01", "ens1f1np0")),
        "dns_name": "gpu01-rail-1.example.com",
    }
    # The blueprint names no port for the first address.
    assert found["addresses"]["10.0.0.11",] == {
        "address": "10.0.0.11/24",
        "assigned_object_type": "dcim.interface",
        "assigned_object_id": Ref("interfaces", ("gpu01", "management")),
        "dns_name": "gpu01.example.com",
    }
    assert found["interfaces"]["gpu01", "management"]["type"] == "virtual"
    assert found["primary_addresses"]["gpu01",] == {"primary_ip4": Ref("addresses", ("10.0.0.11",))}
    assert len(found["primary_addresses"]) == len(found["devices"])
    # A port with the name of a network, such as bmc, has its address.
    assert netbox(sites.example("small"), "various")["interfaces"]["gpu01", "bmc"]["type"] == "1000base-t"


def test_an_ipv6_address_is_the_primary_ip6():
    found = netbox(sites.site(networks__management__network="fd00::/64"), "various")
    assert found["addresses"]["fd00::b",]["address"] == "fd00::b/64"
    assert found["primary_addresses"]["gpu01",] == {"primary_ip6": Ref("addresses", ("fd00::b",))}


def test_each_end_of_a_cable_is_an_interface_and_each_other_interface_is_virtual():
    found = netbox(sites.site(), "various")
    ends = [end for cable in found["cables"] for end in cable]
    assert sorted(ends) == sorted(key for key, each in found["interfaces"].items() if each["type"] != "virtual")
    assert len(set(ends)) == len(ends)


def test_a_slug_is_lower_case_with_hyphens():
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
def test_the_netbox_type_of_an_interface_is_selected_by_its_speed(speed_gbit_s, medium, infiniband, kind):
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
    found = [each for (name, _port), each in interfaces.items() if name == "spine1" and each["type"] != "virtual"]
    assert {(each["type"], each["speed"]) for each in found} == {(kind, int(speed_gbit_s * 1_000_000))}


@pytest.mark.parametrize(
    ("medium", "kind"),
    [("dac", "dac-passive"), ("aoc", "aoc"), ("mmf", "mmf"), ("smf", "smf"), ("own", None)],
)
def test_a_cable_has_the_netbox_type_of_its_medium_if_the_medium_is_known(medium, kind):
    site = sites.site(links__uplink__medium=medium, media={"own": {"most_m": {100: 90}}})
    assert {cable.get("type") for cable in netbox(site, "various")["cables"].values()} == {"dac-passive", kind}
