# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The limits and defaults of each setting, the settings that each section has, and those that it must have."""

from __future__ import annotations

import sys
from ipaddress import ip_network

import pytest
import sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.media import MEDIA
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import (
    AddressSpec,
    BlockSpec,
    DeviceKind,
    Floor,
    LinkRule,
    Medium,
    Model,
    NetworkSpec,
    PortGroup,
    Promise,
    RackSpec,
)

# Parts of a blueprint that no other part needs: any of their settings may change.
OTHERS = {
    "models__other": {"watts": 100, "ports": {"lan": {"names": "p[1:16]", "speed_gbit_s": 10}}},
    "media__other": {"most_m": {10: 90}},
    "networks__other": {"network": "10.64.0.0/10"},
    "devices__other": {"model": "other", "rack": "network", "name": "other{n}"},
    "links__other": {"from": "leaf", "ports": "up", "to": "spine", "to_ports": "down", "each": 1, "medium": "mmf"},
    "checks__other": {},
}


def changed(path, value):
    """Return the small blueprint with the other parts, and with one setting changed ("floor.tray_m")."""
    return sites.changed(**OTHERS, **{path.replace(".", "__"): value})


def refusal(data):
    with pytest.raises(SiteError) as caught:
        read(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "least", "most"),
    [
        ("floor.racks_per_row", 1, 1000),
        ("blocks.rack.count", 1, 1_000_000),
        ("blocks.rack.units", 1, 100),
        ("blocks.rack.supplies", 0, 16),
        ("models.other.units", 1, 60),
        ("networks.other.count", 1, 1_000_000),
        ("networks.other.gateway", 0, 1_000_000),
        ("devices.other.count", 1, 1_000_000),
        ("devices.other.total", 1, 1_000_000),
        ("devices.other.unit", 1, 100),
        ("devices.other.spare_percent", 1, 50),
        ("links.other.each", 1, 64),
        ("links.other.planes", 1, 1024),
    ],
)
def test_a_whole_number_is_accepted_from_its_least_to_its_greatest_value(setting, least, most):
    for number in (least, most):
        read(changed(setting, number))
    for number in (least - 1, most + 1, float(least), True, str(most)):
        assert refusal(changed(setting, number)) == Mentions(setting, repr(number), least, most)


@pytest.mark.parametrize(
    ("setting", "least", "most"),
    [
        ("floor.rack_width_m", 0.1, 10),
        ("floor.row_pitch_m", 0.1, 50),
        ("floor.tray_m", 0, 20),
        ("floor.slack_m", 0, 20),
        ("blocks.rack.supply_watts", 0, 1_000_000),
        ("blocks.rack.brake_s", 0, 1_000_000),
        ("blocks.rack.breaker_s", 0, 1_000_000),
        ("models.other.watts", 0, 1_000_000),
        ("models.other.capped_watts", 0, 100),
        ("models.other.ports.lan.speed_gbit_s", 0.1, 3200),
        ("media.other.most_m", 0.1, 100_000),
        ("checks.other.oversubscription", 0.01, 1000),
    ],
)
def test_a_number_is_accepted_from_its_least_to_its_greatest_value(setting, least, most):
    for number in (least, least + 0.05, most):
        read(changed(setting, number))
    for number in (least - 0.001, most + 0.001, True, str(most)):
        assert refusal(changed(setting, number)) == Mentions(setting, repr(number), least, most)


@pytest.mark.parametrize("number", [1, 2, 4, 8, 16])
def test_a_card_has_up_to_16_ports(number):
    assert read(changed("models.other.ports.lan.nic_ports", number))
    assert refusal(changed("models.other.ports.lan.nic_ports", 17)) == Mentions(
        "models.other.ports.lan.nic_ports", "17", "1", "16"
    )
    assert refusal(changed("models.other.ports.lan.nic_ports", 0)) == Mentions(
        "models.other.ports.lan.nic_ports", "0", "1", "16"
    )


@pytest.mark.parametrize("setting", ["devices.leaf.addresses.management", "devices.node.addresses.rail.first"])
def test_the_first_address_is_a_whole_number_from_0_on(setting):
    for number in (0, 1_000_000):
        read(changed(setting, number))
    assert refusal(changed(setting, -1)) == Mentions(setting, "-1", "0", "1000000")


@pytest.mark.parametrize(
    "setting",
    [
        "blocks.rack.new_row",
        "models.other.ports.lan.lldp",
        "links.other.roce",
        "links.other.infiniband",
        "checks.other.nic_ports_apart",
        "checks.other.rail_aligned",
    ],
)
def test_a_flag_is_true_or_false(setting):
    for flag in (True, False):
        read(changed(setting, flag))
    assert refusal(changed(setting, 1)) == Mentions(setting, "1", "true", "false")


SETTINGS = {
    "blueprint": ["blocks", "checks", "devices", "domain", "floor", "links", "media", "models", "networks", "site"],
    "floor": ["rack_width_m", "racks_per_row", "row_pitch_m", "slack_m", "tray_m"],
    "blocks.rack": [
        *("brake_s", "breaker_s", "count", "inside", "name", "new_row", "supplies", "supply_watts", "units"),
    ],
    "models.other": ["capped_watts", "part", "ports", "units", "watts"],
    "models.other.ports.lan": ["interfaces", "lldp", "names", "nic_ports", "speed_gbit_s"],
    "media.other": ["most_m", "stock_m"],
    "networks.other": ["count", "gateway", "network", "per"],
    "devices.other": [
        *("addresses", "count", "groups", "model", "name", "per", "rack", "runs_on", "serves", "spare_percent"),
        *("total", "unit", "vars"),
    ],
    "devices.node.addresses.rail": ["first", "ports"],
    "links.other": [
        *("each", "fabric", "from", "infiniband", "medium", "planes", "ports", "roce", "to", "to_ports"),
    ],
    "checks.other": ["nic_ports_apart", "oversubscription", "rail_aligned", "survives"],
}


@pytest.mark.parametrize("section", SETTINGS)
def test_an_unknown_setting_is_refused_with_the_settings_of_its_section(section):
    setting = "unknown" if section == "blueprint" else f"{section}.unknown"
    assert refusal(changed(setting, 1)) == f"{setting}: unknown setting; valid settings: {', '.join(SETTINGS[section])}"


@pytest.mark.parametrize(
    "setting",
    [
        "site",
        "models.other.watts",
        "models.other.ports.lan.names",
        "models.other.ports.lan.speed_gbit_s",
        "media.other.most_m",
        "networks.other.network",
        "devices.other.model",
        "devices.other.name",
        "devices.other.rack",
        "devices.node.addresses.rail.first",
        "devices.node.addresses.rail.ports",
        "links.other.ports",
        "links.other.to",
        "links.other.to_ports",
        "links.other.medium",
    ],
)
def test_a_required_setting_that_is_missing_is_refused(setting):
    section, _dot, name = setting.rpartition(".")
    assert refusal(changed(setting, None)) == f"{section or 'blueprint'}: {name} is missing; set it"


def test_parts_with_only_required_settings_have_defaults():
    blueprint = read(sites.changed(**OTHERS, blocks__store_room={}, blocks__network={"units": 42}))
    assert blueprint.floor == Floor(10, 0.6, 2.4, 0.5, 1)
    assert blueprint.blocks["store_room"] == BlockSpec("store_room", "site", 1, False, "store-room-{n}", None)
    assert blueprint.blocks["network"].rack == RackSpec(42, 0, 0, 0, 0)
    assert blueprint.networks["other"] == NetworkSpec("other", ip_network("10.64.0.0/10"), "site", 1, 0)
    names = tuple(f"p{number}" for number in range(1, 17))
    model = Model("other", 1, 100, 100, "other", {"lan": PortGroup("lan", names, names, 10, 1, True)})
    assert blueprint.kinds["other"] == DeviceKind(
        *("other", model, "site", 1, sys.maxsize, "other{n}", "network", 1, "", "", (), {}, ()), spare_percent=0
    )
    assert blueprint.links[-1] == LinkRule(
        *("other", ("leaf",), "up", "spine", "down", 1, 1, MEDIA["mmf"]), fabric="other", roce=False, infiniband=False
    )
    assert blueprint.promises[-1] == Promise("other", 0, (), False, False)


def test_all_settings_of_a_blueprint_are_read():
    blueprint = sites.harbour().blueprint
    assert (blueprint.site, blueprint.domain) == ("harbour", "harbour.example")
    assert blueprint.floor == Floor(3, 0.7, 2.5, 0.4, 1.5)
    assert blueprint.blocks["pod"] == BlockSpec("pod", "site", 2, True, "pod-{n}", None)
    assert blueprint.blocks["rack"] == BlockSpec("rack", "pod", 2, False, "r{n:02}", RackSpec(20, 3, 5000, 2, 5))
    assert blueprint.networks["management"] == NetworkSpec("management", ip_network("10.0.0.0/26"), "pod", 1, 1)
    assert blueprint.networks["rail"] == NetworkSpec("rail", ip_network("fd00:1::/120"), "rack", 4, 0)
    node, guest, boot = (blueprint.kinds[name] for name in ("node", "guest", "boot"))
    assert (node.model.units, node.model.watts, node.model.capped_watts, node.model.part) == (
        4,
        5000,
        3500,
        "SRV & GPU",
    )
    assert node.model.ports["nic"] == PortGroup(
        *("nic", ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"), ("ens1f0np0", "ens1f1np0", "ens2f0np0", "ens2f1np0")),
        *(400, 2, True),
    )
    assert node.model.ports["bmc"] == PortGroup("bmc", ("bmc",), ("bmc",), 1, 1, False)
    addresses = (AddressSpec("management", 10, ""), AddressSpec("bmc_lan", 10, ""), AddressSpec("rail", 2, "nic"))
    assert node == DeviceKind(
        *("node", node.model, "rack", 2, 7, "gpu{pod}-{n:03}", "rack", 2, "", "", ("nodes", "roce_hosts")),
        *({"ansible_user": "root"}, addresses),
        spare_percent=30,
    )
    assert guest == DeviceKind(
        *("guest", None, "rack", 1, sys.maxsize, "vm{n:02}", "rack", 1, "node", "", ("gpu_guests",), {}),
        (AddressSpec("management", 40, ""),),
    )
    assert (boot.per, boot.rack, boot.serves, boot.unit) == ("pod", "rack", "management", 12)
    by_name = {rule.name: rule for rule in blueprint.links}
    assert by_name["cross"] == LinkRule(
        *("cross", ("spine",), "up", "top", "down", 2, 2, MEDIA["smf"], "fabric"), roce=True, infiniband=False
    )
    assert by_name["infiniband"].infiniband
    assert by_name["lan"].froms == ("node", "boot", "store")
    assert by_name["infiniband"].medium == Medium("ndr-mmf", (5, 10, 20), {400: 60})
    assert by_name["bmc_lan"].medium == Medium("own", (), {1: 80})
    assert blueprint.promises[0] == Promise("fabric", 2, ("nic", "leaf", "spine", "top"), True, True)
