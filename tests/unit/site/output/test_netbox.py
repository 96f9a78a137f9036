# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Objects of NetBox, as the modules of netbox.netbox take them."""

from __future__ import annotations

import argument_specs
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
    assert {**first, "type": "100gbase-x-qsfp28", "speed": 100_000_000} in found["interfaces"]
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


def test_each_end_of_a_cable_is_an_interface_and_each_interface_has_a_cable():
    found = netbox(sites.site(), "various")
    ends = [
        (cable[end]["device"], cable[end]["name"])
        for cable in found["cables"]
        for end in ("termination_a", "termination_b")
    ]
    assert sorted(ends) == sorted((each["device"], each["name"]) for each in found["interfaces"])
    assert len(set(ends)) == len(ends)


def test_slugs():
    assert slug("GPU server, 8 x H100") == "gpu-server-8-x-h100"
