# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each rule of a blueprint: what is refused, with its message, and what is still accepted."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read

NAME = "use lower case letters, digits and underscores"
GROUP = "is not a valid name for an additional group; use another one"
ONLY_RACK = "only a rack can have this setting; set units for the block, or remove the setting"
NUMBERS = ("count", "total", "unit", "spare_percent")
VM = {"runs_on": "node", "name": "vm{n}"}
BOX = {"model": "spine", "rack": "network", "name": "box{n}"}
NIC = sites.DATA["models"]["server"]["ports"]["nic"]
UPLINK = sites.DATA["links"]["uplink"]

REFUSED = [
    ({"site": "Test"}, f"site: 'Test' is not a valid group name; {NAME}"),
    ({"blocks": {"hall": {}}}, "blocks: no block is a rack; set units for at least one block"),
    ({"devices": {}, "links": {}, "checks": {}}, "devices: there are no devices; describe at least one kind"),
    ({"blocks": []}, "blocks: not a dictionary; write it as name: value pairs"),
    ({"domain": 5}, "domain: 5 is not text; write it in quotes"),
    # Blocks.
    ({"blocks__Rack": {"units": 42}}, f"blocks.Rack: not a valid name; {NAME}"),
    *(
        ({f"blocks__{name}": {"units": 42}}, f"blocks.{name}: the name is taken; use another one")
        for name in ("site", "all", "ungrouped", "n", "i")
    ),
    (
        {"blocks__rack__inside": "row"},
        "blocks.rack.inside: no block 'row' is defined before it; define the outer blocks first",
    ),
    (
        {"blocks__rack__inside": "network"},
        "blocks.rack.inside: network is a rack, which cannot contain blocks; name another block",
    ),
    *(
        ({"blocks__hall": {setting: 2}}, f"blocks.hall.{setting}: {ONLY_RACK}")
        for setting in ("supplies", "supply_watts", "brake_s", "breaker_s")
    ),
    (
        {"blocks__rack__name": "rack{x}"},
        "blocks.rack.name: {x} is not a known number; valid numbers: n, i; write it like gpu-{n:03}",
    ),
    # Networks.
    (
        {"networks__management__gateway": 256},
        "networks.management.gateway: 10.0.0.0/24 has no address 256; use a smaller offset",
    ),
    (
        {"networks__management__network": "10.0.0.0/33"},
        "networks.management.network: '10.0.0.0/33' does not appear to be an IPv4 or IPv6 network; "
        "write it like 10.0.0.0/20",
    ),
    (
        {"networks__management__per": "hall"},
        "networks.management.per: 'hall' is unknown; valid values: site, network, rack",
    ),
    # Models.
    (
        {"models__leaf__ports__up__nic_ports": 3},
        "models.leaf.ports.up.nic_ports: 4 ports are not a multiple of nic_ports; correct names or nic_ports",
    ),
    ({"models__leaf__ports__up__names": []}, "models.leaf.ports.up.names: [] is not text; write it in quotes"),
    # Media.
    ({"media": {"own": {"most_m": {"fast": 5}}}}, "media.own.most_m: 'fast' is not a speed; write a number in Gbit/s"),
    *(
        (
            {"media": {"own": {"most_m": 5, "stock_m": stock}}},
            f"media.own.stock_m: {stock!r} is not a list of lengths; write it like [1, 2, 3, 5]",
        )
        for stock in (5, [1, "2"], [0], [1, -1], [True])
    ),
    # Kinds of devices.
    ({"devices__Box": BOX}, f"devices.Box: not a valid name; {NAME}"),
    *(
        ({f"devices__{name}": BOX}, f"devices.{name}: the name is taken; use another one")
        for name in ("test", "site", "all", "ungrouped", "n", "i")
    ),
    *(
        (
            {"devices__vm": {**VM, setting: value}},
            f"devices.vm.{setting}: a device that runs on node cannot have this setting; remove it",
        )
        for setting, value in (("model", "leaf"), ("per", "rack"), ("rack", "rack"), *((each, 1) for each in NUMBERS))
    ),
    (
        {"devices__vm": {**VM, "runs_on": "box"}},
        "devices.vm.runs_on: 'box' is unknown; valid values: node, leaf, spine",
    ),
    ({"devices__box": {**BOX, "rack": "hall"}}, "devices.box.rack: 'hall' is unknown; valid values: network, rack"),
    (
        {"devices__box": {**BOX, "per": "rack"}},
        "devices.box.rack: per is rack, which is itself a rack; remove this setting",
    ),
    (
        {"blocks__hall": {}, "devices__box": {**BOX, "per": "hall"}},
        "devices.box.rack: no network is inside a hall; name a rack that is",
    ),
    *(
        ({"devices__leaf__groups": [name]}, f"devices.leaf.groups: {name!r} {GROUP}")
        for name in ("Group", "node", "leaf", "test", "all", "ungrouped")
    ),
    (
        {"devices__box": {**BOX, "serves": "management"}},
        "devices.box.serves: a server needs its own address; add it as the first of addresses",
    ),
    (
        {"devices__node__serves": "management", "devices__node__addresses": {"rail": {"first": 1, "ports": "nic"}}},
        "devices.node.serves: a server needs its own address; add it as the first of addresses",
    ),
    *(
        (
            {
                "networks__six": {"network": "fd00::/64"},
                "devices__box": {**BOX, "serves": served, "addresses": {first: 9}},
            },
            "devices.box.serves: nodes boot over IPv4 only; name one of IPv4, here and first in addresses",
        )
        for served, first in (("six", "management"), ("management", "six"))
    ),
    ({"devices__node__serves": "lan"}, "devices.node.serves: 'lan' is unknown; valid values: management, rail"),
    # Addresses.
    (
        {"devices__leaf__addresses": {"lan": 1}},
        "devices.leaf.addresses.lan: unknown network; valid networks: management, rail",
    ),
    (
        {"devices__leaf__addresses": {"rail": 1}},
        "devices.leaf.addresses.rail: rail is 4 networks, one for each port; write {first: 1, ports: GROUP}",
    ),
    (
        {"networks__rail__count": 2, "devices__leaf__addresses": {"rail": 1}, "devices__node__addresses": None},
        "devices.leaf.addresses.rail: rail is 2 networks, one for each port; write {first: 1, ports: GROUP}",
    ),
    (
        {"devices__leaf__addresses": {"rail": {"first": 1, "ports": "nic"}}},
        "devices.leaf.addresses.rail.ports: 'nic' is unknown; valid values: down, up",
    ),
    (
        {"devices__vm": {**VM, "addresses": {"rail": {"first": 1, "ports": "nic"}}}},
        "devices.vm.addresses.rail.ports: 'nic' is unknown; valid values: none",
    ),
    # Links.
    ({"links__uplink__from": ["leaf", "x"]}, "links.uplink.from: 'x' is unknown; valid values: node, leaf, spine"),
    (
        {"devices__vm": VM, "links__uplink__from": "vm"},
        "links.uplink.from: 'vm' is unknown; valid values: node, leaf, spine",
    ),
    ({"links__uplink__from": []}, "links.uplink: from is missing; name the kinds of devices at which the link begins"),
    ({"links__uplink__to_ports": "x"}, "links.uplink.to_ports: spine has no ports 'x'; valid values: down"),
    (
        {"models__spine__ports": None},
        "links.uplink.to_ports: spine has no ports 'down'; valid values: none",
    ),
    (
        {"links__uplink__medium": "x"},
        "links.uplink.medium: 'x' is unknown; valid values: dac, ndr-dac, ndr-acc, ndr-mmf, aoc, mmf, smf, cat6a",
    ),
    # Checks.
    ({"links": {}}, "checks.fabric: no link belongs to this fabric; valid fabrics: none"),
    (
        {"checks__fabric__survives": ["node"]},
        "checks.fabric.survives: 'node' is not part of fabric; valid values: nic, leaf, spine",
    ),
]


@pytest.mark.parametrize(("changes", "told"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_blueprint_that_breaks_a_rule_is_refused(changes, told):
    with pytest.raises(SiteError) as caught:
        read(sites.changed(**changes))
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "changes",
    [
        {"networks__management__gateway": 255},
        {"networks__rail__count": 5},
        {"models__server__ports__nic": {**NIC, "nic_ports": 4}},
        {"media": {"own": {"most_m": {100: 5, "0.5": 6}, "stock_m": [0.5, 1]}}},
        {"devices__box": {**BOX, "serves": "management", "addresses": {"management": 150}}},
        {"blocks__hall": {}, "blocks__room": {"inside": "hall", "units": 9}, "devices__box": {**BOX, "per": "site"}},
        {
            "blocks__hall": {},
            "blocks__room": {"inside": "hall", "units": 9},
            "devices__box": {**BOX, "per": "hall", "rack": "room", "name": "box{hall}-{room}-{n}"},
        },
        {"devices__box": {**BOX, "per": "network"}},
        {"networks__rail__count": 1, "devices__leaf__addresses": {"rail": 50}, "devices__node__addresses": None},
        {"links__uplink": {**UPLINK, "from": "leaf", "to": "leaf", "to_ports": "up", "planes": 1}, "checks": None},
        {"links__uplink": {**UPLINK, "roce": False, "infiniband": True}},
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_blueprint_within_the_rules_is_read(changes):
    read(sites.changed(**changes))


def test_a_setting_that_is_null_counts_as_missing():
    data = sites.changed()
    data["blocks"]["rack"]["inside"] = None
    data["domain"] = None
    blueprint = read(data)
    assert (blueprint.blocks["rack"].inside, blueprint.domain) == ("site", "")
