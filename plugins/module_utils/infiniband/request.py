# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user's settings of a fabric: its subnet managers, routing, partitions and service levels, each checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import nearest
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, Hca
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.opensm_options import OPTIONS

OPENSM, NVIDIA = "opensm", "nvidia"
# opensm 3.3.23, osm_opensm.c; NVIDIA's additional ones: UFM's manual, "Appendix: Routing Chains".
ENGINES = ("ftree", "updn", "dnup", "minhop", "dfsssp", "sssp", "lash", "dor", "torus-2QoS", "nue")
NVIDIA_ENGINES = ("ar_updn", "ar_ftree", "ar_torus", "ar_dor", "pqft", "kdor-hc", "kdor-ghc")
DEFAULT_ROUTING = {OPENSM: ("ftree", "updn"), NVIDIA: ("ar_updn",)}
# These spread paths over virtual lanes, which needs QoS (opensm.8).
NEED_QOS = ("dfsssp", "torus-2QoS")
# IBA volume 1, PortInfo.MTUCap: bytes -> code.
MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
FULL, LIMITED = "full", "limited"
DEFAULT_PKEY, MEMBER_BIT = 0x7FFF, 0x8000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")
# The highest of opensm's values of sm_priority; opensm elects the highest, then the lowest GUID.
TOP_PRIORITY = 15
# The options of opensm.conf that follow from another setting.
_PLANNED_OPTIONS = {
    "guid": "managers",
    "sm_priority": "managers",
    "routing_engine": "routing",
    "root_guid_file": "directory",
    "partition_config_file": "directory",
    "node_name_map_name": "directory",
}
# opensm.conf has "name value" lines.
_OPTION = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class InfinibandPartition:
    """A partition besides the default one: its P_Key without the bit of membership, and its members by HCA."""

    name: str
    pkey: int
    members: Mapping[Hca, str]
    ipoib: bool = False
    index0: bool = False
    mtu: int = 0
    service_level: int = 0


@dataclass(frozen=True)
class ServiceLevel:
    """A service level's virtual lane, the lane's weight in the arbitration, and its table: high or low priority."""

    lane: int
    weight: int
    high: bool = False


@dataclass(frozen=True)
class Request:
    """All settings. ``default`` is the membership of all HCAs in the default partition."""

    manager: str
    managers: tuple[Hca, ...]
    routing: tuple[str, ...]
    default: str
    default_ipoib: bool
    partitions: tuple[InfinibandPartition, ...]
    service_levels: Mapping[int, ServiceLevel]
    options: Mapping[str, str]
    folder: str


def read(data: Mapping[str, Any], fabric: Fabric, groups: Mapping[str, list[str]]) -> Request:
    """Return the checked settings; ``groups`` has the hosts of each group. Raises InfinibandError."""
    settings = Settings(InfinibandError, f"fabric {fabric.name}", data)
    settings.only(
        "subnet_manager", "managers", "routing", "default", "partitions", "service_levels", "options", "directory"
    )
    manager = settings.value("subnet_manager", values.among(OPENSM, NVIDIA), OPENSM)
    levels = _service_levels(settings)
    routing = _routing(settings, fabric, manager, bool(levels))
    partitions = _partitions(settings, fabric, groups, levels)
    default = settings.part("default")
    default.only("membership", "ipoib")
    return Request(
        manager=manager,
        managers=tuple(_managers(settings, fabric)),
        routing=routing,
        default=default.value("membership", values.among(FULL, LIMITED), LIMITED if partitions else FULL),
        default_ipoib=default.value("ipoib", values.flag, True),
        partitions=partitions,
        service_levels=levels,
        options=_options(settings, routing, manager),
        folder=settings.value("directory", _folder, "/etc/opensm"),
    )


def _managers(settings: Settings, fabric: Fabric) -> list[Hca]:
    hcas = {str(hca): hca for hca in fabric.hcas}
    names = settings.value("managers", values.distinct(values.text), [])
    for name in names:
        if name not in hcas:
            example = next(iter(hcas), "node-0001 mlx5_0")
            raise settings.refuse_setting(
                "managers", f"{name!r} is no HCA of the fabric", f"write host and RDMA device, like {example}"
            )
    if len(names) > TOP_PRIORITY:
        raise settings.refuse_setting(
            "managers", f"{len(names)} managers are more than opensm has priorities", f"name {TOP_PRIORITY} at most"
        )
    hosts = [hcas[name].host for name in names]
    if len(set(hosts)) < len(hosts):
        raise settings.refuse_setting("managers", "two managers are on one host", "take different hosts")
    return [hcas[name] for name in names]


def _routing(settings: Settings, fabric: Fabric, manager: str, qos: bool) -> tuple[str, ...]:
    valid = ENGINES if manager == OPENSM else (*NVIDIA_ENGINES, *ENGINES)
    engines = settings.value("routing", values.distinct(values.among(*valid)), list(DEFAULT_ROUTING[manager]))
    if not engines:
        raise settings.refuse_setting("routing", "the list is empty", "name an engine, or leave it out")
    refusals = fabric.ftree_refusals() if "ftree" in engines else []
    if refusals and engines[0] == "ftree":
        raise settings.refuse_setting("routing", f"ftree refuses this tree: {refusals[0]}", "use updn first")
    lanes = next((engine for engine in engines if engine in NEED_QOS), "")
    if lanes and not qos:
        raise settings.refuse_setting("routing", f"{lanes} needs QoS", "set service_levels")
    return tuple(engines)


def _service_levels(settings: Settings) -> dict[int, ServiceLevel]:
    levels = {}
    part = settings.part("service_levels")
    for name in part.data:
        try:
            number = values.integer(int(name) if isinstance(name, str) and name.isdecimal() else name, 0, 15)
        except InvalidValueError as error:
            raise part.refuse(error.cause, error.remedy) from error
        if number in levels:
            raise part.refuse(f"{number} is there twice, as a number and as text", "keep one")
        level = part.part(name)
        level.only("lane", "weight", "high")
        levels[number] = ServiceLevel(
            level.required("lane", values.within(0, 14)),
            # A weight of 0 would starve the lane (IBA volume 1, 7.6.9).
            level.value("weight", values.within(1, 255), 64),
            level.value("high", values.flag, False),
        )
    if levels and 0 not in levels:
        raise part.refuse("service level 0 is missing, which is everything that asks for none", "add it")
    by_lane: dict[int, ServiceLevel] = {}
    for number, entry in levels.items():
        if by_lane.setdefault(entry.lane, entry) != entry:
            raise part.refuse(
                f"{number} gives lane {entry.lane} another weight or table than another level", "give both the same"
            )
    return levels


def pkey_number(value: Any) -> int:
    """Return a P_Key's number without the bit of membership, from a number or a text like 0x0012."""
    try:
        number = int(value, 0) if isinstance(value, str) else value
        return values.integer(number, 1, DEFAULT_PKEY - 1)
    except (ValueError, InvalidValueError):
        remedy = "use 0x0001 to 0x7ffe; full or limited sets the highest bit"
        raise InvalidValueError(f"{value!r} is no P_Key of a partition", remedy) from None


def _partitions(
    settings: Settings, fabric: Fabric, groups: Mapping[str, list[str]], levels: Mapping[int, ServiceLevel]
) -> tuple[InfinibandPartition, ...]:
    partitions: list[InfinibandPartition] = []
    part = settings.part("partitions")
    hosts = {hca.host for hca in fabric.hcas}
    for name in part.data:
        spec = part.part(name)
        # partitions.conf has the default partition under that name.
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() == "default":
            raise spec.refuse(
                f"{name!r} is not valid", "use 1 to 32 letters, digits, '_', '-' and '.', and not 'default'"
            )
        spec.only("pkey", "members", "ipoib", "index0", "mtu", "service_level")
        partition = InfinibandPartition(
            name,
            spec.required("pkey", pkey_number),
            _members(spec, fabric, groups, hosts),
            spec.value("ipoib", values.flag, False),
            spec.value("index0", values.flag, False),
            spec.value("mtu", values.among(*MTU_CODES), 0),
            spec.value("service_level", values.within(0, 15), 0),
        )
        if partition.service_level and partition.service_level not in levels:
            raise spec.refuse_setting("service_level", f"{partition.service_level} is not in service_levels", "add it")
        if partition.mtu and not partition.ipoib:
            raise spec.refuse_setting("mtu", "it is that of the broadcast group, which needs ipoib", "set ipoib, too")
        for first in partitions:
            if first.pkey == partition.pkey:
                raise spec.refuse_setting("pkey", f"{first.name} has 0x{first.pkey:04x}, too", "use another one")
            shared = partition.index0 and first.index0 and sorted({*partition.members} & {*first.members})
            if shared:
                raise spec.refuse_setting(
                    "index0", f"{shared[0]} is in {first.name}, too, which has it", "set it for one"
                )
        partitions.append(partition)
    return tuple(partitions)


def _members(settings: Settings, fabric: Fabric, groups: Mapping[str, list[str]], hosts: set[str]) -> dict[Hca, str]:
    """Return the membership of each HCA of the hosts and groups in ``members``."""
    hcas_of: dict[str, list[Hca]] = {}
    for hca in fabric.hcas:
        hcas_of.setdefault(hca.host, []).append(hca)
    members: dict[Hca, str] = {}
    source: dict[Hca, str] = {}
    part = settings.part("members")
    settings.need("members")
    for name in part.data:
        membership = part.value(name, values.among(FULL, LIMITED))
        if name not in groups and name not in hosts:
            raise part.refuse(f"{name!r} is neither a group nor a host of the fabric", "correct the name")
        of_fabric = [host for host in groups.get(name, [name]) if host in hosts]
        if not of_fabric:
            raise part.refuse(f"no host of {name} has an HCA in {fabric.name}", "correct the name, or leave it out")
        for hca in (hca for host in of_fabric for hca in hcas_of[host]):
            if members.setdefault(hca, membership) != membership:
                raise part.refuse(
                    f"{hca.host} is {members[hca]} by {source[hca]} and {membership} by {name}", "keep one"
                )
            source[hca] = name
    return members


def _folder(value: Any) -> str:
    return _conf_value(values.path(value))


def _conf_value(value: Any) -> str:
    """Return a value as opensm.conf has it."""
    if not isinstance(value, (str, bool, int, float)):
        raise InvalidValueError(f"{value!r} is not one value", "write it as opensm -c writes it")
    text = values.text({True: "TRUE", False: "FALSE"}[value] if isinstance(value, bool) else str(value))
    if "#" in text:
        raise InvalidValueError(f"{text!r} has a '#', which begins a comment in opensm.conf", "use another name")
    return text


def _options(settings: Settings, routing: tuple[str, ...], manager: str) -> dict[str, str]:
    """Return the further options of opensm.conf. NVIDIA's opensm has more than those that are known here."""
    part = settings.part("options")
    options = {}
    for name in part.data:
        if not isinstance(name, str) or not _OPTION.fullmatch(name):
            raise part.refuse(f"{name!r} is no option of opensm.conf", "write it as opensm -c writes it")
        if name not in OPTIONS and manager == OPENSM:
            suggestion = nearest(name, OPTIONS)
            remedy = f"did you mean {suggestion}?" if suggestion else "opensm -c FILE writes all of them"
            raise part.refuse(f"opensm has no option {name!r} and would ignore it", remedy)
        if name in _PLANNED_OPTIONS:
            raise part.refuse_setting(name, "it is planned", f"use {_PLANNED_OPTIONS[name]}")
        options[name] = part.value(name, _conf_value)
    if "ftree" in routing and options.get("lmc", "0") != "0":
        raise part.refuse_setting("lmc", "ftree refuses several LIDs for a port", "leave it out, or use updn only")
    return options
