# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names, addresses and neighbours."""

from __future__ import annotations

import json

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_plan import plan as boot_plan
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import (
    boot_nodes_file,
    hosts_file,
    interface,
    neighbours_file,
)


def test_every_address_has_one_name():
    lines = hosts_file(sites.site()).splitlines()
    assert lines[0] == "10.0.0.11 gpu01.example.com gpu01"
    assert lines[1] == "10.1.0.1 gpu01-rail-0.example.com gpu01-rail-0"
    assert len(lines) == 4 * 5 + 4 + 2
    assert len({line.split()[0] for line in lines}) == len({line.split()[1] for line in lines}) == len(lines)


def test_the_node_list_is_valid_for_the_boot_server():
    nodes = json.loads(boot_nodes_file(sites.site()))
    assert nodes == [{"name": f"gpu0{at}", "address": f"10.0.0.1{at}"} for at in range(1, 5)]
    served = [{**node, "mac": f"52:54:00:00:00:0{at}", "architecture": "x86_64"} for at, node in enumerate(nodes)]
    assert boot_plan("10.0.0.8", "255.255.255.0", "10.0.0.1", (), served)["networks"]


def test_neighbours_have_the_names_of_the_systems_and_are_symmetric():
    site = sites.site()
    ports = json.loads(neighbours_file(site))
    assert ports["gpu02"]["ens1f1np0"] == ["leaf1-2", "Ethernet8"]
    assert ports["leaf1-2"]["Ethernet8"] == ["gpu02", "ens1f1np0"]
    for device, interfaces in ports.items():
        for name, (far, far_name) in interfaces.items():
            assert ports[far][far_name] == [device, name]
    assert interface(site.devices["gpu01"], "mlx5_3") == "ens2f1np0"


def test_a_hosts_file_without_a_domain_has_one_name_in_each_line():
    text = hosts_file(sites.site(domain=None))
    assert text.splitlines()[:2] == ["10.0.0.11 gpu01", "10.1.0.1 gpu01-rail-0"]
