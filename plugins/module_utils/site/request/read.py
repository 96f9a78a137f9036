# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a blueprint, which is plain data from YAML, into the description of a site. Pure.

Every name that a setting uses must be defined. Errors name file, line and setting.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.names import HOST_NAME, template
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.parts import read_media, read_model
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.settings import Section, Source
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import (
    SITE,
    AddressSpec,
    BlockSpec,
    Blueprint,
    DeviceKind,
    Floor,
    LinkRule,
    Medium,
    Model,
    NetworkSpec,
    Promise,
    RackSpec,
)

SETTINGS = ("site", "domain", "floor", "blocks", "models", "media", "networks", "devices", "links", "checks")
# Ansible requires a group's name to be a valid name of a variable.
GROUP = re.compile(r"[a-z_][a-z0-9_]*")
# The numbers of a device that a name may use, besides the numbers of its blocks.
NUMBERS = ("n", "i")
# The largest sites have some 100,000 devices; many more indicate a mistake in a count.
DEVICES_MAX = 400_000


def read(data: Any, source: Source | None = None) -> Blueprint:
    """Return the blueprint. Raises SiteError at the first error."""
    settings = Section(source or Source(), (), data)
    settings.only(*SETTINGS)
    name = settings.text("site")
    if not GROUP.fullmatch(name):
        raise settings.refuse_setting(
            "site", f"{name!r} is not a valid group name", "use lower case letters, digits and underscores"
        )
    domain = settings.text("domain", "")
    if domain and not HOST_NAME.fullmatch(domain):
        raise settings.refuse_setting("domain", f"{domain!r} is not a valid domain", "write it like gpu.example.com")
    blocks: dict[str, BlockSpec] = {}
    for key, section in settings.sections("blocks"):
        blocks[key] = _read_block(key, section, blocks)
    if not any(block.rack for block in blocks.values()):
        raise settings.refuse_setting("blocks", "no block is a rack", "set units for at least one block")
    networks: dict[str, NetworkSpec] = {}
    for key, section in settings.sections("networks"):
        networks[key] = _read_network(key, section, blocks)
    models = {key: read_model(key, section) for key, section in settings.sections("models")}
    kinds: dict[str, DeviceKind] = {}
    for key, section in settings.sections("devices"):
        kinds[key] = _read_kind(key, section, name, blocks, models, networks, kinds)
    if not kinds:
        raise settings.refuse_setting("devices", "there are no devices", "describe at least one kind")
    media = read_media(settings.part("media"))
    links = tuple(_read_link(key, section, kinds, media) for key, section in settings.sections("links"))
    promises = tuple(_read_promise(key, section, kinds, links) for key, section in settings.sections("checks"))
    return Blueprint(
        name, domain, _read_floor(settings.part("floor")), blocks, networks, kinds, links, promises, settings.source
    )


def _read_floor(settings: Section) -> Floor:
    settings.only("racks_per_row", "rack_width_m", "row_pitch_m", "tray_m", "slack_m")
    return Floor(
        settings.integer("racks_per_row", 10, 1, 1000),
        settings.number("rack_width_m", 0.6, 0.1, 10),
        settings.number("row_pitch_m", 2.4, 0.1, 50),
        settings.number("tray_m", 0.5, 0, 20),
        settings.number("slack_m", 1, 0, 20),
    )


def _group(name: str, settings: Section, groups: Mapping[str, Any]) -> None:
    if not GROUP.fullmatch(name):
        raise settings.refuse("not a valid name", "use lower case letters, digits and underscores")
    if name in groups or name in (SITE, "all", "ungrouped", *NUMBERS):
        raise settings.refuse("the name is taken", "use another one")


def _read_block(name: str, settings: Section, blocks: Mapping[str, BlockSpec]) -> BlockSpec:
    _group(name, settings, {})
    settings.only("inside", "count", "new_row", "name", "units", "supplies", "supply_watts", "brake_s", "breaker_s")
    outer = settings.text("inside", SITE)
    if outer != SITE and outer not in blocks:
        raise settings.refuse_setting(
            "inside", f"no block {outer!r} is defined before it", "define the outer blocks first"
        )
    if outer != SITE and blocks[outer].rack:
        raise settings.refuse_setting("inside", f"{outer} is a rack, which cannot contain blocks", "name another block")
    rack = None
    if "units" in settings.data:
        rack = RackSpec(
            settings.integer("units", minimum=1, maximum=100),
            settings.integer("supplies", 0, 0, 16),
            settings.number("supply_watts", 0),
            settings.number("brake_s", 0),
            settings.number("breaker_s", 0),
        )
    else:
        for setting in ("supplies", "supply_watts", "brake_s", "breaker_s"):
            if setting in settings.data:
                raise settings.refuse_setting(
                    setting, "only a rack can have this setting", "set units for the block, or remove the setting"
                )
    label = settings.text("name", f"{name.replace('_', '-')}-{{n}}")
    _check_template(settings, "name", label, NUMBERS)
    return BlockSpec(name, outer, settings.integer("count", 1), settings.flag("new_row"), label, rack)


def _check_template(settings: Section, setting: str, text: str, numbers: tuple[str, ...]) -> None:
    try:
        template(text, numbers)
    except ValueError as error:
        raise settings.refuse_setting(setting, str(error), "write it like gpu-{n:03}") from None


def _read_network(name: str, settings: Section, blocks: Mapping[str, BlockSpec]) -> NetworkSpec:
    settings.only("network", "per", "count", "gateway")
    text = settings.text("network")
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise settings.refuse_setting("network", str(error), "write it like 10.0.0.0/20") from None
    per = _known(settings, "per", SITE, (SITE, *blocks))
    spec = NetworkSpec(name, network, per, settings.integer("count", 1), settings.integer("gateway", 0, 0))
    if spec.gateway >= network.num_addresses:
        raise settings.refuse_setting("gateway", f"{network} has no address {spec.gateway}", "use a smaller offset")
    return spec


def _known(settings: Section, setting: str, default: Any, choices: tuple[str, ...]) -> str:
    value = settings.text(setting, *(() if default is None else (default,)))
    if value and value not in choices:
        raise settings.refuse_setting(setting, f"{value!r} is unknown", f"valid values: {', '.join(choices) or 'none'}")
    return value


def _read_kind(
    name: str,
    settings: Section,
    site: str,
    blocks: Mapping[str, BlockSpec],
    models: Mapping[str, Model],
    networks: Mapping[str, NetworkSpec],
    kinds: Mapping[str, DeviceKind],
) -> DeviceKind:
    _group(name, settings, {**kinds, site: None})
    physical = ("model", "per", "count", "total", "rack", "unit", "spare_percent")
    settings.only(*physical, "name", "runs_on", "serves", "groups", "vars", "addresses")
    on = _known(settings, "runs_on", "", tuple(kinds))
    racks = tuple(block.name for block in blocks.values() if block.rack)
    if on:
        for setting in physical:
            if setting in settings.data:
                raise settings.refuse_setting(
                    setting, f"a device that runs on {on} cannot have this setting", "remove it"
                )
        model, per, rack = None, kinds[on].per, kinds[on].rack
    else:
        model = models[_known(settings, "model", None, tuple(models))]
        per = _known(settings, "per", SITE, (SITE, *blocks))
        rack = _known(settings, "rack", per if per in racks else None, racks)
        if rack != per and per in racks:
            raise settings.refuse_setting("rack", f"per is {per}, which is itself a rack", "remove this setting")
        if per not in (SITE, *_around(rack, blocks)):
            raise settings.refuse_setting("rack", f"no {rack} is inside a {per}", "name a rack that is")
    groups = settings.texts("groups")
    for group in groups:
        if not GROUP.fullmatch(group) or group in kinds or group in (name, site, "all", "ungrouped"):
            raise settings.refuse_setting(
                "groups", f"{group!r} is not a valid name for an additional group", "use another one"
            )
    label = settings.text("name")
    _check_template(settings, "name", label, (*NUMBERS, SITE, *_around(rack, blocks)))
    addresses = tuple(_read_address(network, settings, networks, model) for network in settings.part("addresses").data)
    served = _known(settings, "serves", "", tuple(networks))
    if served and (not addresses or addresses[0].ports):
        raise settings.refuse_setting("serves", "a server needs its own address", "add it as the first of addresses")
    if served and any(networks[network].network.version != 4 for network in (served, addresses[0].network)):
        raise settings.refuse_setting(
            "serves", "nodes boot over IPv4 only", "name one of IPv4, here and first in addresses"
        )
    return DeviceKind(
        name,
        model,
        per,
        settings.integer("count", 1),
        settings.integer("total", sys.maxsize),
        label,
        rack,
        settings.integer("unit", 1, 1, 100),
        on,
        served,
        groups,
        settings.part("vars").data,
        addresses,
        settings.integer("spare_percent", 0, 1, 50),
    )


def _around(block: str, blocks: Mapping[str, BlockSpec]) -> tuple[str, ...]:
    """Return a kind of block and the kinds around it, from the inside out, without the site."""
    kinds = []
    while block != SITE:
        kinds.append(block)
        block = blocks[block].inside
    return tuple(kinds)


def _read_address(
    name: str, settings: Section, networks: Mapping[str, NetworkSpec], model: Model | None
) -> AddressSpec:
    section = settings.part("addresses")
    if name not in networks:
        raise section.refuse_setting(name, "unknown network", f"valid networks: {', '.join(networks)}")
    if isinstance(section.data[name], Mapping):
        detail = section.part(name)
        detail.only("first", "ports")
        ports = _known(detail, "ports", None, tuple(model.ports) if model else ())
        count = len(model.ports[ports].names) if model else 0
        if networks[name].count < count:
            raise detail.refuse_setting(
                "ports",
                f"{count} ports need {count} networks, but {name} has {networks[name].count}",
                f"set networks.{name}.count to {count}",
            )
        return AddressSpec(name, detail.integer("first", minimum=0), ports)
    if networks[name].count > 1:
        raise section.refuse_setting(
            name, f"{name} is {networks[name].count} networks, one for each port", "write {first: 1, ports: GROUP}"
        )
    return AddressSpec(name, section.integer(name, minimum=0), "")


def _read_link(name: str, settings: Section, kinds: Mapping[str, DeviceKind], media: Mapping[str, Medium]) -> LinkRule:
    settings.only("from", "ports", "to", "to_ports", "each", "planes", "medium", "fabric", "roce", "infiniband")
    models = {kind.name: kind.model for kind in kinds.values() if kind.model}
    physical = tuple(models)
    froms = settings.texts("from", None)
    if not froms:
        raise settings.refuse("from is missing", "name the kinds of devices at which the link begins")
    for kind_name in froms:
        if kind_name not in physical:
            raise settings.refuse_setting("from", f"{kind_name!r} is unknown", f"valid values: {', '.join(physical)}")
    to = _known(settings, "to", None, physical)
    rule = LinkRule(
        name,
        froms,
        settings.text("ports"),
        to,
        settings.text("to_ports"),
        settings.integer("each", 0, 1, 64),
        settings.integer("planes", 1, 1, 1024),
        media[_known(settings, "medium", None, tuple(media))],
        settings.text("fabric", name),
        settings.flag("roce"),
        settings.flag("infiniband"),
    )
    if rule.planes > 1 and not rule.each:
        raise settings.refuse_setting("planes", "planes is valid only with each", "add each, or remove planes")
    if to in froms and not (rule.each and rule.planes == 1):
        raise settings.refuse_setting(
            "to", f"{to} is at both ends", "set each to the number of links between any two, and remove planes"
        )
    if rule.roce and rule.infiniband:
        raise settings.refuse_setting("infiniband", "a link cannot be both RoCE and InfiniBand", "remove one of them")
    for kind, ports, setting in (
        *((kind_name, rule.ports, "ports") for kind_name in froms),
        (to, rule.to_ports, "to_ports"),
    ):
        model = models[kind]
        if ports not in model.ports:
            raise settings.refuse_setting(
                setting, f"{model.name} has no ports {ports!r}", f"valid values: {', '.join(model.ports) or 'none'}"
            )
    speeds = {kind: models[kind].ports[rule.ports].speed_gbit_s for kind in froms}
    far = models[to].ports[rule.to_ports].speed_gbit_s
    for kind, speed in speeds.items():
        if speed != far:
            raise settings.refuse(
                f"{kind} has {speed} Gbit/s, but {to} has {far}",
                "name ports of the same speed, and the parts of a divided port",
            )
        if rule.medium.limit_m(speed) is None:
            raise settings.refuse_setting(
                "medium", f"{rule.medium.name} does not support {speed:g} Gbit/s", "name another medium"
            )
    return rule


def _read_promise(
    name: str, settings: Section, kinds: Mapping[str, DeviceKind], links: tuple[LinkRule, ...]
) -> Promise:
    settings.only("oversubscription", "survives", "nic_ports_apart", "rail_aligned")
    fabrics = {link.fabric for link in links}
    if name not in fabrics:
        raise settings.refuse(
            "no link belongs to this fabric", f"valid fabrics: {', '.join(sorted(fabrics)) or 'none'}"
        )
    survives = settings.texts("survives")
    switches = sorted({link.to for link in links if link.fabric == name})
    for part in survives:
        if part != "nic" and part not in switches:
            raise settings.refuse_setting(
                "survives", f"{part!r} is not part of {name}", f"valid values: nic, {', '.join(switches)}"
            )
    return Promise(
        name,
        settings.number("oversubscription", 0, 0.01, 1000),
        survives,
        settings.flag("nic_ports_apart"),
        settings.flag("rail_aligned"),
    )
