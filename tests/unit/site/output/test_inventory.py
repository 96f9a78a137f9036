# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory's groups and variables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.tables import cable_list

# SAILLOFT_WRITE_SITES=1 writes the files again.
FILES = Path(__file__).parent / "harbour"


def test_groups_have_their_children_and_variables():
    groups = inventory(sites.site())["groups"]
    assert groups["test"]["children"] == ["node", "leaf", "spine"]
    assert groups["roce_switches"]["children"] == ["leaf", "spine"]
    assert groups["nodes"]["children"] == ["node"]
    assert groups["node"]["vars"] == {"ansible_user": "root"}


def test_spares_are_distributed_evenly_and_kept_when_the_site_grows():
    def spares(**changes):
        hosts = inventory(sites.site(**changes))["hosts"]
        return {name for name, host in hosts.items() if host["vars"].get("site_spare")}

    assert spares() == set()
    few = spares(devices__node__spare_percent=25)
    assert few == {"gpu04"}
    more = {"blocks__rack__count": 4, "models__spine__ports__down__names": "Ethernet[0:60:4]"}
    assert spares(devices__node__spare_percent=25, **more) == {"gpu04", "gpu08"}
    hosts = inventory(sites.site(devices__node__spare_percent=25, devices__spine__spare_percent=50))["hosts"]
    assert hosts["gpu04"]["vars"]["site_spare"] is True
    assert hosts["spine2"]["vars"]["site_spare"] is True


def test_a_host_has_its_place_addresses_and_links_as_variables():
    hosts = inventory(sites.site())["hosts"]
    assert hosts["gpu02"]["group"] == "node"
    variables = hosts["gpu02"]["vars"]
    nic = {"speed_gbit_s": 100, "cable_m": 3}
    assert variables["ansible_host"] == "10.0.0.12"
    assert variables["site_rack"] == "rack-1"
    assert variables["site_unit"] == 9
    assert variables["site_blocks"] == {"rack": 1}
    assert variables["roce_host_nics"] == {f"mlx5_{port}": nic for port in range(4)}
    assert hosts["leaf1-1"]["vars"]["roce_switch_ports"]["Ethernet8"] == {
        **nic,
        "peer": {"host": "gpu02", "port": "mlx5_0"},
    }
    assert hosts["spine1"]["vars"]["roce_switch_ports"]["Ethernet0"]["peer"] == {
        "switch": "leaf1-1",
        "port": "Ethernet16",
    }


def test_a_host_has_the_ports_of_its_system_with_peer_and_cable():
    hosts = inventory(sites.site())["hosts"]
    ports = hosts["gpu02"]["vars"]["site_ports"]
    assert set(ports) == {f"mlx5_{number}" for number in range(4)}
    assert ports["mlx5_0"] == {
        "speed_gbit_s": 100,
        "infiniband": False,
        "peer": "leaf1-1 Ethernet8",
        "cable": cable_list_label("gpu02", "mlx5_0"),
        "rail": 0,
    }
    assert "site_ports" not in hosts["leaf1-1"]["vars"]


def cable_list_label(device, port):
    """Return the label of a cable in the cable list."""
    rows = csv.DictReader(cable_list(sites.site()).splitlines())
    return next(row["label"] for row in rows if (row["from"], row["from_port"]) == (device, port))


def test_virtual_machines_have_the_place_of_their_host():
    vms = {"runs_on": "node", "name": "vm{n}", "groups": ["gpu_guests"], "addresses": {"management": 51}}
    found = inventory(sites.site(devices__vms=vms))
    assert found["hosts"]["vm3"] == {
        "group": "vms",
        "vars": {
            "ansible_host": "10.0.0.53",
            "site_addresses": {"management": "10.0.0.53"},
            "site_host": "gpu03",
            "site_rack": "rack-2",
            "site_blocks": {"rack": 2},
        },
    }


def test_nodes_boot_from_the_nearest_servers():
    server = {"model": "spine", "serves": "management", "unit": 30}
    site = sites.site(
        devices__boot={**server, "rack": "network", "count": 2, "name": "boot{n}", "addresses": {"management": 221}},
        devices__cache={**server, "per": "rack", "name": "cache{n}", "addresses": {"management": 231}},
    )
    hosts = inventory(site)["hosts"]
    assert hosts["gpu01"]["vars"]["node_boot_server_urls"] == ["http://10.0.0.231"]
    assert hosts["gpu03"]["vars"]["node_boot_server_urls"] == ["http://10.0.0.232"]
    assert hosts["gpu03"]["vars"]["node_boot_report_url"] == "http://10.0.0.232/report"
    assert hosts["boot2"]["vars"]["boot_server_servers"] == ["http://10.0.0.221", "http://10.0.0.222"]
    assert "node_boot_server_urls" not in hosts["leaf1-1"]["vars"]
    assert hosts["boot1"]["vars"]["boot_server_netmask"] == "255.255.255.0"
    assert hosts["boot1"]["vars"]["boot_server_gateway"] == "10.0.0.1"
    assert "boot_server_subnets" not in hosts["boot1"]["vars"]


def test_nodes_ask_the_nearest_cache_before_the_servers():
    server = {"model": "spine", "serves": "management", "unit": 30}
    site = sites.site(
        devices__boot={**server, "rack": "network", "count": 2, "name": "boot{n}", "addresses": {"management": 221}},
        devices__rack_cache={
            **server,
            "per": "rack",
            "name": "cache{n}",
            "groups": ["boot_caches"],
            "addresses": {"management": 231},
        },
    )
    hosts = inventory(site)["hosts"]
    servers = ["http://10.0.0.221", "http://10.0.0.222"]
    for node, cache in (("gpu01", "http://10.0.0.231"), ("gpu03", "http://10.0.0.232")):
        assert hosts[node]["vars"]["node_boot_server_urls"] == servers
        assert hosts[node]["vars"]["node_boot_cache_urls"] == [cache]
    own = {name: value for name, value in hosts["cache2"]["vars"].items() if name.startswith("boot_server_")}
    assert own == {"boot_server_address": "10.0.0.232", "boot_server_servers": servers}


def test_a_boot_server_serves_the_networks_behind_relays():
    hosts = inventory(sites.example("blue_vela"))["hosts"]
    assert hosts["boot-2-1"]["vars"]["boot_server_address"] == "10.100.1.11"
    assert hosts["boot-2-1"]["vars"]["boot_server_gateway"] == "10.100.1.1"
    assert hosts["boot-2-1"]["vars"]["boot_server_subnets"] == [
        {"network": f"10.96.{su}.0/24", "gateway": f"10.96.{su}.1"} for su in range(4, 8)
    ]
    assert hosts["node-0129"]["vars"]["node_boot_server_urls"] == ["http://10.100.1.11", "http://10.100.1.12"]


def test_the_roce_modules_accept_the_links():
    """The modules of the RoCE policy accept both ends of each link, and each length has a row of the ASIC."""
    for name in ("vela", "small"):
        hosts = {name: each["vars"] for name, each in inventory(sites.example(name))["hosts"].items()}
        switches = {
            name: {"system": "sonic", "asic": "tomahawk4", "ports": variables["roce_switch_ports"]}
            for name, variables in hosts.items()
            if "roce_switch_ports" in variables
        }
        specs = read_switches(switches, {name: variables.get("roce_host_nics") for name, variables in hosts.items()})
        assert len(plan(read_policy(None), specs)) == len(switches)


def test_the_inventory_equals_the_stored_file():
    found = inventory(sites.harbour())
    rows = [
        f"{json.dumps(name)}: {json.dumps(each)}" for part in ("groups", "hosts") for name, each in found[part].items()
    ]
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    assert text == sites.stored(FILES / "inventory.json", text)
