# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Blueprints are read, and each error names file, line, setting, the rule and the next step."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read


def test_a_complete_blueprint_is_read():
    blueprint = read(sites.DATA)
    assert list(blueprint.kinds) == ["node", "leaf", "spine"]
    assert blueprint.kinds["node"].model.ports["nic"].interfaces == ("ens1f0np0", "ens1f1np0", "ens2f0np0", "ens2f1np0")
    assert blueprint.blocks["rack"].rack.breaker_s == 5
    assert blueprint.links[1].fabric == "fabric"
    assert blueprint.promises[0].survives == ("nic", "leaf", "spine")


ERRORS = {
    # The replaced text, its replacement, and the message after the file's name.
    "unknown": (
        "domain:",
        "domian:",
        "3: domian: unknown setting; did you mean domain?",
    ),
    "twice": (
        "domain: example.com",
        "site: other",
        "3: site: the setting is listed twice; remove one of them",
    ),
    "no yaml": (
        "site: test",
        "site: [",
        "4: blueprint: not valid YAML: did not find expected ',' or ']'; correct the line",
    ),
    "type": (
        "count: 2, units: 42, supplies",
        "count: two, units: 42, supplies",
        "6: blocks.rack.count: 'two' is not valid; use a whole number from 1 to 1000000",
    ),
    "no rack": (
        "supplies: 2, supply_watts: 8000, brake",
        "supplies: 99, brake",
        "6: blocks.rack.supplies: 99 is not valid; use a whole number from 0 to 16",
    ),
    "range": (
        "Ethernet[0:12:4]",
        "Ethernet[12:0:4]",
        "18: models.leaf.ports.down.names: the range [12:0:4] is empty; write it like Ethernet[0:248:8]",
    ),
    "ports twice": (
        "Ethernet[16:28:4]",
        "Ethernet[12:24:4]",
        "19: models.leaf.ports.up.names: port Ethernet12 is listed twice, also in down; correct "
        "the range of one of them",
    ),
    "interfaces": (
        "ens[1:2]f[0:1]np0",
        "ens[1:4]f[0:1]np0",
        "13: models.server.ports.nic.interfaces: there are 8 interfaces and 4 names; give one interface for each name",
    ),
    "capped": (
        "capped_watts: 3000",
        "capped_watts: 9000",
        "11: models.server.capped_watts: 9000 is not valid; use a number from 0 to 6000",
    ),
    "network": (
        "10.0.0.0/24",
        "10.0.0.1/24",
        "22: networks.management.network: 10.0.0.1/24 has host bits set; write it like 10.0.0.0/20",
    ),
    "overlap": (
        "10.1.0.0/24",
        "10.0.0.0/24",
        "23: networks.rail.network: 10.0.0.0/24 overlaps with management, which is 10.0.0.0/24 to "
        "10.0.0.0/24; move one of them",
    ),
    "per": (
        "per: rack, count: 4}",
        "per: row, count: 4}",
        "23: networks.rail.per: 'row' is unknown; valid values: site, network, rack",
    ),
    "rails": (
        "per: rack, count: 4}",
        "per: rack, count: 3}",
        "32: devices.node.addresses.rail.ports: 4 ports need 4 networks, but rail has 3; set networks.rail.count to 4",
    ),
    "model": (
        "model: server",
        "model: sever",
        "26: devices.node.model: 'sever' is unknown; valid values: server, leaf, spine",
    ),
    "name": (
        "gpu{n:02}",
        "gpu{m}",
        "29: devices.node.name: {m} is not a known number; valid numbers: n, i, site, rack; write it like gpu-{n:03}",
    ),
    "same name": (
        "gpu{n:02}",
        "gpu{i}",
        "29: devices.node.name: two devices are called gpu1: number 1 of node and number 3 of "
        "node; name the devices by {n}, or by {i} and their block",
    ),
    "group": (
        "groups: [nodes, roce_hosts]",
        "groups: [no-des]",
        "30: devices.node.groups: 'no-des' is not a valid name for an additional group; use another one",
    ),
    "addresses": (
        "management: 101",
        "management: 13",
        "34: devices.leaf.addresses.management: 10.0.0.13 is assigned twice, to gpu03 and leaf1-1; "
        "start one kind of device after the last address of the other",
    ),
    "gateway": (
        "management: 11,",
        "management: 1,",
        "32: devices.node.addresses.management: 10.0.0.1 is assigned twice, to the gateway and "
        "gpu01; start one kind of device after the last address of the other",
    ),
    "full": (
        "management: 201",
        "management: 254",
        "36: devices.spine.addresses.management: spine2 would have address 255 of 10.0.0.0/24, "
        "which is not usable; use a larger network or a lower first",
    ),
    "link": (
        "to: spine,",
        "to: spin,",
        "39: links.uplink.to: 'spin' is unknown; valid values: node, leaf, spine",
    ),
    "group of ports": (
        "ports: nic, to",
        "ports: nics, to",
        "38: links.fabric.ports: server has no ports 'nics'; valid values: nic",
    ),
    "speed": (
        'Ethernet[0:28:4]", speed_gbit_s: 100',
        'Ethernet[0:28:4]", speed_gbit_s: 400',
        "39: links.uplink: leaf has 100 Gbit/s, but spine has 400; name ports of the same speed, "
        "and the parts of a divided port",
    ),
    "domain": (
        "example.com",
        "example_com",
        "3: domain: 'example_com' is not a valid domain; write it like gpu.example.com",
    ),
    "from": (
        "{from: leaf, ",
        "{",
        "39: links.uplink: from is missing; name the kinds of devices at which the link begins",
    ),
    "both ends": (
        "to: spine, to_ports: down, each: 2,",
        "to: leaf, to_ports: up,",
        "39: links.uplink.to: leaf is at both ends; set each to the number of links between any two, and remove planes",
    ),
    "both ends in planes": (
        "to: spine, to_ports: down, each: 2,",
        "to: leaf, to_ports: up, each: 2, planes: 2,",
        "39: links.uplink.to: leaf is at both ends; set each to the number of links between any two, and remove planes",
    ),
    "planes without each": (
        "each: 2,",
        "planes: 2,",
        "39: links.uplink.planes: planes is valid only with each; add each, or remove planes",
    ),
    "infiniband": (
        "fabric: fabric, roce: true",
        "fabric: fabric, roce: true, infiniband: true",
        "39: links.uplink.infiniband: a link cannot be both RoCE and InfiniBand; remove one of them",
    ),
    "medium": (
        "medium: dac",
        "medium: cat6a",
        "38: links.fabric.medium: cat6a does not support 100 Gbit/s; name another medium",
    ),
    "exhausted": (
        "Ethernet[0:12:4]",
        "Ethernet[0:8:4]",
        "38: links.fabric: ports exhausted: leaf1-1 has 3 ports down, all used by fabric; add a "
        "leaf, or use a model with more ports",
    ),
    "planes": (
        "each: 2,",
        "each: 2, planes: 3,",
        "39: links.uplink.planes: 2 spine cannot be divided into 3 equal planes; correct either number",
    ),
    "fabric": (
        "checks:\n  fabric:",
        "checks:\n  fabrik:",
        "41: checks.fabrik: no link belongs to this fabric; valid fabrics: fabric",
    ),
    "survives": (
        "[nic, leaf, spine]",
        "[nic, core]",
        "41: checks.fabric.survives: 'core' is not part of fabric; valid values: nic, leaf, spine",
    ),
}


@pytest.mark.parametrize(("old", "new", "told"), ERRORS.values(), ids=ERRORS)
def test_each_error_names_the_line_and_the_cause(old, new, told):
    assert old in sites.TEXT
    with pytest.raises(SiteError) as caught:
        sites.from_text(sites.TEXT.replace(old, new, 1), "site.yml")
    assert str(caught.value) == f"site.yml:{told}"


def test_yaml_tags_of_ansible_are_accepted():
    vault = "\n      password: !vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        33\n      name: !unsafe '{{'"
    text = sites.TEXT.replace("{ansible_user: root}", vault)
    assert "gpu01" in sites.from_text(text).devices


@pytest.mark.parametrize("text", ["", "[1, 2]", "word", "a: b: c", "\t"])
def test_text_that_is_not_a_blueprint_is_refused(text):
    with pytest.raises(SiteError):
        sites.from_text(text, "site.yml")
