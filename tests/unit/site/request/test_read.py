# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Blueprints are read, and each error names file, line, setting, the rule and the next step."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import RackSpec


def test_a_complete_blueprint_is_read():
    blueprint = read(sites.DATA)
    assert list(blueprint.kinds) == ["node", "leaf", "spine"]
    assert blueprint.kinds["node"].model.ports["nic"].interfaces == ("ens1f0np0", "ens1f1np0", "ens2f0np0", "ens2f1np0")
    assert blueprint.blocks["rack"].rack.breaker_s == 5
    assert blueprint.links[1].fabric == "fabric"
    assert blueprint.promises[0].survives == ("nic", "leaf", "spine")


ERRORS = {
    # The replaced text, its replacement, and the message of the error.
    "unknown": ("domain:", "domian:", "3: domian: unknown setting; valid settings: blocks, checks, "),
    "twice": ("domain: example.com", "site: other", "3: site: the setting is listed twice; remove one"),
    "no yaml": ("site: test", "site: [", "not valid YAML: "),
    "type": ("count: 2, units: 42, supplies", "count: two, units: 42, supplies", "6: blocks.rack.count: 'two' is not "),
    "no rack": ("supplies: 2, supply_watts: 8000, brake", "supplies: 99, brake", "6: blocks.rack.supplies: 99 is not"),
    "range": ("Ethernet[0:12:4]", "Ethernet[12:0:4]", "18: models.leaf.ports.down.names: the range [12:0:4] is empty"),
    "ports twice": (
        "Ethernet[16:28:4]",
        "Ethernet[12:24:4]",
        "19: models.leaf.ports.up.names: port Ethernet12 is listed",
    ),
    "interfaces": ("ens[1:2]f[0:1]np0", "ens[1:4]f[0:1]np0", "13: models.server.ports.nic.interfaces: there are 8 "),
    "capped": ("capped_watts: 3000", "capped_watts: 9000", "11: models.server.capped_watts: 9000 is not valid; use"),
    "network": ("10.0.0.0/24", "10.0.0.1/24", "22: networks.management.network: 10.0.0.1/24 has host bits set"),
    "overlap": ("10.1.0.0/24", "10.0.0.0/24", "networks.rail.network: 10.0.0.0/24 overlaps with management"),
    "per": (
        "per: rack, count: 4}",
        "per: row, count: 4}",
        "23: networks.rail.per: 'row' is unknown; valid values: site, ",
    ),
    "rails": ("per: rack, count: 4}", "per: rack, count: 3}", "32: devices.node.addresses.rail.ports: 4 ports need 4"),
    "model": (
        "model: server",
        "model: sever",
        "26: devices.node.model: 'sever' is unknown; valid values: server, leaf",
    ),
    "name": (
        "gpu{n:02}",
        "gpu{m}",
        "29: devices.node.name: {m} is not a known number; valid numbers: n, i, site, rack",
    ),
    "same name": ("gpu{n:02}", "gpu{i}", "29: devices.node.name: two devices are called gpu1: number 1 of node and "),
    "group": (
        "groups: [nodes, roce_hosts]",
        "groups: [no-des]",
        "30: devices.node.groups: 'no-des' is not a valid name for a",
    ),
    "addresses": (
        "management: 101",
        "management: 13",
        "devices.leaf.addresses.management: 10.0.0.13 is assigned twice, to",
    ),
    "gateway": ("management: 11,", "management: 1,", "10.0.0.1 is assigned twice, to the gateway and gpu01; start one"),
    "full": ("management: 201", "management: 254", "spine2 would have address 255 of 10.0.0.0/24, which is not usable"),
    "link": ("to: spine,", "to: spin,", "39: links.uplink.to: 'spin' is unknown; valid values: node, leaf, spine"),
    "group of ports": ("ports: nic, to", "ports: nics, to", "38: links.fabric.ports: server has no ports 'nics'"),
    "speed": (
        'Ethernet[0:28:4]", speed_gbit_s: 100',
        'Ethernet[0:28:4]", speed_gbit_s: 400',
        "39: links.uplink: leaf has 100 Gbit/s, but spine has 400; name ports of the same speed",
    ),
    "domain": (
        "example.com",
        "example_com",
        "3: domain: 'example_com' is not a valid domain; write it like gpu.example.com",
    ),
    "from": ("{from: leaf, ", "{", "39: links.uplink: from is missing; "),
    "both ends": (
        "to: spine, to_ports: down, each: 2,",
        "to: leaf, to_ports: up,",
        "39: links.uplink.to: leaf is at both ends; set each to the number of links between any two, and remove planes",
    ),
    "both ends in planes": (
        "to: spine, to_ports: down, each: 2,",
        "to: leaf, to_ports: up, each: 2, planes: 2,",
        "39: links.uplink.to: leaf is at both ends; ",
    ),
    "planes without each": ("each: 2,", "planes: 2,", "39: links.uplink.planes: planes is valid only with each; "),
    "infiniband": (
        "fabric: fabric, roce: true",
        "fabric: fabric, roce: true, infiniband: true",
        "39: links.uplink.infiniband: a link cannot be both RoCE and InfiniBand; remove one of them",
    ),
    "medium": (
        "medium: dac",
        "medium: cat6a",
        "38: links.fabric.medium: cat6a does not support 100 Gbit/s; name another",
    ),
    "exhausted": (
        "Ethernet[0:12:4]",
        "Ethernet[0:8:4]",
        "38: links.fabric: ports exhausted: leaf1-1 has 3 ports down, ",
    ),
    "planes": (
        "each: 2,",
        "each: 2, planes: 3,",
        "39: links.uplink.planes: 2 spine cannot be divided into 3 equal planes; correct",
    ),
    "fabric": (
        "checks:\n  fabric:",
        "checks:\n  fabrik:",
        "41: checks.fabrik: no link belongs to this fabric; valid fabrics:",
    ),
    "survives": (
        "[nic, leaf, spine]",
        "[nic, core]",
        "41: checks.fabric.survives: 'core' is not part of fabric; valid",
    ),
}


@pytest.mark.parametrize(("old", "new", "told"), ERRORS.values(), ids=ERRORS)
def test_each_error_names_the_line_and_the_cause(old, new, told):
    assert old in sites.TEXT
    with pytest.raises(SiteError) as caught:
        sites.from_text(sites.TEXT.replace(old, new, 1), "site.yml")
    text = str(caught.value)
    assert text.startswith("site.yml:")
    assert told in text
    assert caught.value.where.split(":")[1].isdecimal()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"blocks__rack__inside": "row"}, "blocks.rack.inside: no block 'row' is defined before it; define the outer "),
        (
            {"blocks__rack__inside": "network"},
            "blocks.rack.inside: network is a rack, which cannot contain blocks; name ",
        ),
        (
            {"blocks__hall": {"supplies": 2}},
            "blocks.hall.supplies: only a rack can have this setting; set units for the block, or remove",
        ),
        (
            {"blocks__hall": {"breaker_s": 2}},
            "blocks.hall.breaker_s: only a rack can have this setting; set units for the block, or ",
        ),
        ({"blocks__site": {"units": 42}}, "blocks.site: the name is taken; use another one"),
        ({"blocks__Rack": {"units": 42}}, "blocks.Rack: not a valid name; use lower case letters, digits and "),
        ({"networks__management__gateway": 256}, "networks.management.gateway: 10.0.0.0/24 has no address 256; use "),
    ],
)
def test_invalid_blocks_and_networks_are_refused(changes, told):
    with pytest.raises(SiteError) as caught:
        read(sites.changed(**changes))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("setting", "least", "most"),
    [
        ("floor__racks_per_row", 1, 1000),
        ("floor__rack_width_m", 0.1, 10),
        ("floor__row_pitch_m", 0.1, 50),
        ("floor__tray_m", 0, 20),
        ("floor__slack_m", 0, 20),
        ("blocks__network__units", 1, 100),
        ("blocks__network__supplies", 0, 16),
        ("networks__management__gateway", 0, 255),
        ("links__uplink__each", 1, 64),
    ],
)
def test_numbers_have_limits(setting, least, most):
    for number in (least, most):
        read(sites.changed(**{setting: number}))
    for number in (least - 1, most + 1):
        with pytest.raises(SiteError) as caught:
            read(sites.changed(**{setting: number}))
        assert str(caught.value).startswith(setting.replace("__", "."))


def test_omitted_settings_of_a_floor_have_defaults():
    floor = read(sites.changed(floor={})).floor
    assert (floor.racks_per_row, floor.rack_width_m, floor.row_pitch_m, floor.tray_m, floor.slack_m) == (
        10,
        0.6,
        2.4,
        0.5,
        1,
    )


def test_a_rack_without_supplies_has_no_limits():
    assert read(sites.changed(blocks__network={"units": 42})).blocks["network"].rack == RackSpec(42, 0, 0, 0, 0)


def test_yaml_tags_of_ansible_are_accepted():
    vault = "\n      password: !vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        33\n      name: !unsafe '{{'"
    text = sites.TEXT.replace("{ansible_user: root}", vault)
    assert "gpu01" in sites.from_text(text).devices


@pytest.mark.parametrize("text", ["", "[1, 2]", "word", "a: b: c", "\t"])
def test_text_that_is_not_a_blueprint_is_refused(text):
    with pytest.raises(SiteError):
        sites.from_text(text, "site.yml")
