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
    Floor,
    Kind,
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
    given = Section(source or Source(), (), data)
    given.only(*SETTINGS)
    name = given.text("site")
    if not GROUP.fullmatch(name):
        raise given.refuse_setting(
            "site", f"{name!r} is not a valid group name", "use lower case letters, digits and underscores"
        )
    domain = given.text("domain", "")
    if domain and not HOST_NAME.fullmatch(domain):
        raise given.refuse_setting("domain", f"{domain!r} is not a valid domain", "write it like gpu.example.com")
    blocks: dict[str, BlockSpec] = {}
    for each, section in given.sections("blocks"):
        blocks[each] = _read_block(each, section, blocks)
    if not any(block.rack for block in blocks.values()):
        raise given.refuse_setting("blocks", "no block is a rack", "set units for at least one block")
    networks: dict[str, NetworkSpec] = {}
    for each, section in given.sections("networks"):
        networks[each] = _read_network(each, section, blocks)
    models = {each: read_model(each, section) for each, section in given.sections("models")}
    kinds: dict[str, Kind] = {}
    for each, section in given.sections("devices"):
        kinds[each] = _read_kind(each, section, name, blocks, models, networks, kinds)
    if not kinds:
        raise given.refuse_setting("devices", "there are no devices", "describe at least one kind")
    media = read_media(given.section("media"))
    links = tuple(_read_link(each, section, kinds, media) for each, section in given.sections("links"))
    promises = tuple(_read_promise(each, section, kinds, links) for each, section in given.sections("checks"))
    return Blueprint(
        name, domain, _read_floor(given.section("floor")), blocks, networks, kinds, links, promises, given.source
    )


def _read_floor(given: Section) -> Floor:
    given.only("racks_per_row", "rack_width_m", "row_pitch_m", "tray_m", "slack_m")
    return Floor(
        given.whole("racks_per_row", 10, 1, 1000),
        given.number("rack_width_m", 0.6, 0.1, 10),
        given.number("row_pitch_m", 2.4, 0.1, 50),
        given.number("tray_m", 0.5, 0, 20),
        given.number("slack_m", 1, 0, 20),
    )


def _group(name: str, given: Section, taken: Mapping[str, Any]) -> None:
    if not GROUP.fullmatch(name):
        raise given.refuse("not a valid name", "use lower case letters, digits and underscores")
    if name in taken or name in (SITE, "all", "ungrouped", *NUMBERS):
        raise given.refuse("the name is taken", "use another one")


def _read_block(name: str, given: Section, blocks: Mapping[str, BlockSpec]) -> BlockSpec:
    _group(name, given, {})
    given.only("inside", "count", "new_row", "name", "units", "supplies", "supply_watts", "brake_s", "breaker_s")
    inside = given.text("inside", SITE)
    if inside != SITE and inside not in blocks:
        raise given.refuse_setting(
            "inside", f"no block {inside!r} is defined before it", "define the outer blocks first"
        )
    if inside != SITE and blocks[inside].rack:
        raise given.refuse_setting("inside", f"{inside} is a rack, which cannot contain blocks", "name another block")
    rack = None
    if "units" in given.data:
        rack = RackSpec(
            given.whole("units", least=1, most=100),
            given.whole("supplies", 0, 0, 16),
            given.number("supply_watts", 0),
            given.number("brake_s", 0),
            given.number("breaker_s", 0),
        )
    else:
        for setting in ("supplies", "supply_watts", "brake_s", "breaker_s"):
            if setting in given.data:
                raise given.refuse_setting(
                    setting, "only a rack can have this setting", "set units for the block, or remove the setting"
                )
    label = given.text("name", f"{name.replace('_', '-')}-{{n}}")
    _check_template(given, "name", label, NUMBERS)
    return BlockSpec(name, inside, given.whole("count", 1), given.flag("new_row"), label, rack)


def _check_template(given: Section, setting: str, text: str, known: tuple[str, ...]) -> None:
    try:
        template(text, known)
    except ValueError as error:
        raise given.refuse_setting(setting, str(error), "write it like gpu-{n:03}") from None


def _read_network(name: str, given: Section, blocks: Mapping[str, BlockSpec]) -> NetworkSpec:
    given.only("network", "per", "count", "gateway")
    text = given.text("network")
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise given.refuse_setting("network", str(error), "write it like 10.0.0.0/20") from None
    per = _known(given, "per", SITE, (SITE, *blocks))
    spec = NetworkSpec(name, network, per, given.whole("count", 1), given.whole("gateway", 0, 0))
    if spec.gateway >= network.num_addresses:
        raise given.refuse_setting("gateway", f"{network} has no address {spec.gateway}", "use a smaller offset")
    return spec


def _known(given: Section, setting: str, default: Any, known: tuple[str, ...]) -> str:
    value = given.text(setting, *(() if default is None else (default,)))
    if value and value not in known:
        raise given.refuse_setting(setting, f"{value!r} is unknown", f"valid values: {', '.join(known) or 'none'}")
    return value


def _read_kind(
    name: str,
    given: Section,
    site: str,
    blocks: Mapping[str, BlockSpec],
    models: Mapping[str, Model],
    networks: Mapping[str, NetworkSpec],
    kinds: Mapping[str, Kind],
) -> Kind:
    _group(name, given, {**kinds, site: None})
    own = ("model", "per", "count", "total", "rack", "unit", "spare_percent")
    given.only(*own, "name", "runs_on", "serves", "groups", "vars", "addresses")
    on = _known(given, "runs_on", "", tuple(kinds))
    racks = tuple(block.name for block in blocks.values() if block.rack)
    if on:
        for setting in own:
            if setting in given.data:
                raise given.refuse_setting(setting, f"a device that runs on {on} cannot have this setting", "remove it")
        model, per, rack = None, kinds[on].per, kinds[on].rack
    else:
        model = models[_known(given, "model", None, tuple(models))]
        per = _known(given, "per", SITE, (SITE, *blocks))
        rack = _known(given, "rack", per if per in racks else None, racks)
        if rack != per and per in racks:
            raise given.refuse_setting("rack", f"per is {per}, which is itself a rack", "remove this setting")
        if per not in (SITE, *_around(rack, blocks)):
            raise given.refuse_setting("rack", f"no {rack} is inside a {per}", "name a rack that is")
    groups = given.texts("groups")
    for group in groups:
        if not GROUP.fullmatch(group) or group in kinds or group in (name, site, "all", "ungrouped"):
            raise given.refuse_setting(
                "groups", f"{group!r} is not a valid name for an additional group", "use another one"
            )
    label = given.text("name")
    _check_template(given, "name", label, (*NUMBERS, SITE, *_around(rack, blocks)))
    addresses = tuple(_read_address(each, given, networks, model) for each in given.section("addresses").data)
    served = _known(given, "serves", "", tuple(networks))
    if served and (not addresses or addresses[0].ports):
        raise given.refuse_setting("serves", "a server needs its own address", "add it as the first of addresses")
    return Kind(
        name,
        model,
        per,
        given.whole("count", 1),
        given.whole("total", sys.maxsize),
        label,
        rack,
        given.whole("unit", 1, 1, 100),
        on,
        served,
        groups,
        given.section("vars").data,
        addresses,
        given.whole("spare_percent", 0, 1, 50),
    )


def _around(block: str, blocks: Mapping[str, BlockSpec]) -> tuple[str, ...]:
    """Return a kind of block and the kinds around it, from the inside out, without the site."""
    found = []
    while block != SITE:
        found.append(block)
        block = blocks[block].inside
    return tuple(found)


def _read_address(name: str, given: Section, networks: Mapping[str, NetworkSpec], model: Model | None) -> AddressSpec:
    section = given.section("addresses")
    if name not in networks:
        raise section.refuse_setting(name, "unknown network", f"valid networks: {', '.join(networks)}")
    if isinstance(section.data[name], Mapping):
        detail = section.section(name)
        detail.only("first", "ports")
        ports = _known(detail, "ports", None, tuple(model.ports) if model else ())
        count = len(model.ports[ports].names) if model else 0
        if networks[name].count < count:
            raise detail.refuse_setting(
                "ports",
                f"{count} ports need {count} networks, but {name} has {networks[name].count}",
                f"set networks.{name}.count to {count}",
            )
        return AddressSpec(name, detail.whole("first", least=0), ports)
    if networks[name].count > 1:
        raise section.refuse_setting(
            name, f"{name} is {networks[name].count} networks, one for each port", "write {first: 1, ports: GROUP}"
        )
    return AddressSpec(name, section.whole(name, least=0), "")


def _read_link(name: str, given: Section, kinds: Mapping[str, Kind], media: Mapping[str, Medium]) -> LinkRule:
    given.only("from", "ports", "to", "to_ports", "each", "planes", "medium", "fabric", "roce", "infiniband")
    models = {kind.name: kind.model for kind in kinds.values() if kind.model}
    physical = tuple(models)
    froms = given.texts("from", None)
    if not froms:
        raise given.refuse("from is missing", "name the kinds of devices at which the link begins")
    for each in froms:
        if each not in physical:
            raise given.refuse_setting("from", f"{each!r} is unknown", f"valid values: {', '.join(physical)}")
    to = _known(given, "to", None, physical)
    rule = LinkRule(
        name,
        froms,
        given.text("ports"),
        to,
        given.text("to_ports"),
        given.whole("each", 0, 1, 64),
        given.whole("planes", 1, 1, 1024),
        media[_known(given, "medium", None, tuple(media))],
        given.text("fabric", name),
        given.flag("roce"),
        given.flag("infiniband"),
    )
    if rule.planes > 1 and not rule.each:
        raise given.refuse_setting("planes", "planes is valid only with each", "add each, or remove planes")
    if to in froms and not (rule.each and rule.planes == 1):
        raise given.refuse_setting(
            "to", f"{to} is at both ends", "set each to the number of links between any two, and remove planes"
        )
    if rule.roce and rule.infiniband:
        raise given.refuse_setting("infiniband", "a link cannot be both RoCE and InfiniBand", "remove one of them")
    for kind, ports, setting in (*((each, rule.ports, "ports") for each in froms), (to, rule.to_ports, "to_ports")):
        model = models[kind]
        if ports not in model.ports:
            raise given.refuse_setting(
                setting, f"{model.name} has no ports {ports!r}", f"valid values: {', '.join(model.ports) or 'none'}"
            )
    speeds = {kind: models[kind].ports[rule.ports].speed_gbit_s for kind in froms}
    far = models[to].ports[rule.to_ports].speed_gbit_s
    for kind, speed in speeds.items():
        if speed != far:
            raise given.refuse(
                f"{kind} has {speed} Gbit/s, but {to} has {far}",
                "name ports of the same speed, and the parts of a divided port",
            )
        if rule.medium.limit_m(speed) is None:
            raise given.refuse_setting(
                "medium", f"{rule.medium.name} does not support {speed:g} Gbit/s", "name another medium"
            )
    return rule


def _read_promise(name: str, given: Section, kinds: Mapping[str, Kind], links: tuple[LinkRule, ...]) -> Promise:
    given.only("oversubscription", "survives", "nic_ports_apart", "rail_aligned")
    fabrics = {link.fabric for link in links}
    if name not in fabrics:
        raise given.refuse("no link belongs to this fabric", f"valid fabrics: {', '.join(sorted(fabrics)) or 'none'}")
    survives = given.texts("survives")
    switches = sorted({link.to for link in links if link.fabric == name})
    for each in survives:
        if each != "nic" and each not in switches:
            raise given.refuse_setting(
                "survives", f"{each!r} is not part of {name}", f"valid values: nic, {', '.join(switches)}"
            )
    return Promise(
        name,
        given.number("oversubscription", 0, 0.01, 1000),
        survives,
        given.flag("nic_ports_apart"),
        given.flag("rail_aligned"),
    )
