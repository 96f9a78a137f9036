# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a Junos configuration has beside the terms of a port: hash, overrides, speeds, port channels."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Override
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import (
    COS,
    ETHERNET_BYTES,
    HASH,
    MTU_BYTES,
    NOT_HASHED,
    Line,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.parts.junos_buffers import small_egress_part
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import (
    JUNOS,
    LINK,
    QUEUE,
    SIZE,
)

# With statements that can change what packets get.
_SECTIONS = (*COS, "firewall", "forwarding-options", "interfaces", "security")
# The sections of class of service that are read wholly, or have an effect only where an interface refers to them.
READ = (
    "apply-macro",
    "classifiers",
    "code-point-aliases",
    "drop-profiles",
    "forwarding-class-sets",
    "forwarding-classes",
    "loss-priority-maps",
    "loss-priority-rewrites",
    "rewrite-rules",
    "scheduler-map-forwarding-class-sets",
    "scheduler-maps",
    "traffic-control-profiles",
    "virtual-channel-groups",
)
_CHASSIS_PORT = re.compile(r"chassis fpc (\d+) pic (\d+) port(?:-range)? (\d{1,4})(?: (\d{1,4}))? (\D.*)")
_SPEED, _CHANNEL_SPEED = re.compile(r"(?:^| )speed (\d+)g\b"), re.compile(r"\bchannel-speed (\d+)g\b")
_SUB_PORTS, _UNUSED = re.compile(r"\bnumber-of-sub-ports (\d+)\b"), re.compile(r"^unused$")
_TYPES = ("et", "xe")  # of the names of ports that [edit chassis] has by their numbers
MOST_SUB_PORTS = 8  # lanes of a port
_RANGE = ("interfaces", "interface-range")
_NAME = re.compile(r"(?!interface-range)[\w/:-]+")  # of one interface, such as the management port
_ROUTED = "irb"  # the interfaces between VLANs


def hashed_fields(lines: Sequence[Line]) -> tuple[str, ...] | None:
    """Return what ECMP hashes: all that no line excludes. None where it is not understood or differs by family."""
    hash_lines = [line[3:] if line[2:3] == ("family",) else line[2:] for line in lines if line[:2] == HASH]
    if ("hash-mode", "layer2-header") in hash_lines or any(line[:2] == (HASH[0], "hash-key") for line in lines):
        return None
    fields_by_family = [
        tuple(sorted(field for field, word in words.items() if (family, word) not in hash_lines))
        for family, words in NOT_HASHED.items()
    ]
    return fields_by_family[0] if fields_by_family[0] == fields_by_family[1] else None


@dataclass
class _Port:
    """A physical port as configured. ``sub_ports``: 0 where their number is not given; ``statement``: the last one."""

    speed_gbit_s: int | None = None
    is_split: bool = False
    sub_ports: int = 0
    is_unused: bool = False
    statement: str = ""


def _ports_as_split(lines: Sequence[Line]) -> dict[str, _Port]:
    """Return the physical ports with a speed, parts (et-0/0/1:0 and so on) or without use, by name ("et-0/0/1").

    Sources: Juniper, "Port Speed", "Channelizing Interfaces", statements number-of-sub-ports, channel-speed, unused.
    """
    ports: dict[str, _Port] = {}
    for line in lines:
        names: Iterable[str] = ()
        settings = ""
        if line[0] == "interfaces" and len(line) > 2 and ":" not in line[1]:
            if line[-2] in ("speed", "number-of-sub-ports") or line[2] == "unused":
                names, settings = line[1:2], " ".join(line[2:])
        elif line[0] == "chassis" and (match := _CHASSIS_PORT.fullmatch(" ".join(line))):
            fpc, pic, first, last, settings = match.groups()
            numbers = range(int(first), int(last or first) + 1)
            names = [f"{kind}-{fpc}/{pic}/{number}" for number in numbers for kind in _TYPES]
        for name in names:
            port = ports.setdefault(name, _Port())
            if speed := _SPEED.search(settings) or _CHANNEL_SPEED.search(settings):
                port.speed_gbit_s = int(speed[1])
            if count := _SUB_PORTS.search(settings):
                port.sub_ports = int(count[1])
            port.is_split = port.is_split or port.sub_ports > 1 or bool(_CHANNEL_SPEED.search(settings))
            port.is_unused = port.is_unused or bool(_UNUSED.search(settings))
            if count or _CHANNEL_SPEED.search(settings) or _UNUSED.search(settings):
                port.statement = " ".join(line)
    return ports


def speeds_gbit_s(lines: Sequence[Line]) -> dict[str, int]:
    """Return the configured speeds of ports, and of the parts of a port."""
    speeds = {}
    for name, port in _ports_as_split(lines).items():
        if port.speed_gbit_s is not None:
            parts = [f":{number}" for number in range(port.sub_ports or MOST_SUB_PORTS)] if port.is_split else [""]
            speeds.update({f"{name}{part}": port.speed_gbit_s for part in parts})
    for line in lines:  # of a part
        is_speed = line[0] == "interfaces" and line[-2:-1] == ("speed",) and ":" in line[1]
        if is_speed and (speed := _SPEED.search(" ".join(line[2:]))):
            speeds[line[1]] = int(speed[1])
    return speeds


def _missing_ports(lines: Sequence[Line]) -> Iterator[Override]:
    """Yield the statements by which a port or parts of it are not there: it is split, into fewer parts, or unused."""
    for name, port in _ports_as_split(lines).items():
        parts = tuple(f"{name}:{number}" for number in range(MOST_SUB_PORTS))
        if port.is_unused:
            yield Override(port.statement, LINK, (name, *parts))
        elif port.is_split:
            yield Override(port.statement, LINK, (name, *(parts[port.sub_ports :] if port.sub_ports else ())))


def lags(lines: Sequence[Line]) -> dict[str, tuple[str, ...]]:
    """Return the members of each aggregated interface."""
    members: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if line[0] == "interfaces" and line[-2:-1] == ("802.3ad",):
            members[line[-1]] = (*members.get(line[-1], ()), line[1])
    return members


def _filters_with(name: str, lines: Sequence[Line]) -> set[str]:
    """Return a filter and those that have it as a term's filter (firewall ... filter F term T filter NAME)."""
    inner_to_outer = [
        (line[-1], line[line.index("filter") + 1]) for line in lines if line[0] == "firewall" and line[-2] == "filter"
    ]
    names: set[str] = set()
    following = {name}
    while following:
        names |= following
        following = {outer for inner, outer in inner_to_outer if inner in following} - names
    return names


def overrides(
    lines: Sequence[Line], interfaces: Mapping[str, Sequence[Line]], attached: Mapping[str, Collection[str | None]]
) -> Iterator[Override]:
    """Yield what can undo a policy. ``interfaces``: lines by interface; ``attached``: the profiles of a port's QoS."""
    yield from _unread(lines, attached)
    yield from _missing_ports(lines)
    yield from small_egress_part(lines)
    yield from _routed_mtus(lines, interfaces)


def _unread(lines: Sequence[Line], attached: Mapping[str, Collection[str | None]]) -> Iterator[Override]:
    """Yield the statements that can change what packets get and that are not read.

    Groups that are applied and interface-ranges, which are here only where the switch was not asked to expand them,
    count with all that a port could inherit from them.
    """
    ports_by_statement: dict[tuple[str, str], tuple[str, ...]] = {}
    applied = {line[-1] for line in lines if line[-2:-1] == ("apply-groups",)}
    not_ports = {_ROUTED, *(line[2] for line in lines if line[:2] == _RANGE and len(line) > 2)}
    for line in lines:
        if line[:2] == _RANGE or (line[0] == "groups" and applied.intersection(line[1:2])):
            words = line[2:] if line[0] == "groups" else ("interfaces", *line[2:])
            effect = JUNOS.effect(" ".join(words)) or JUNOS.effect(" ".join(line))
            if effect:
                is_named = line[2:3] == ("interfaces",) and _NAME.fullmatch("".join(line[3:4]))
                ports_by_statement[" ".join(line), effect] = line[3:4] if is_named else ()
        elif line[:2] == (*COS, "interfaces") and not_ports.intersection(line[2:3]):
            text = " ".join(line)
            ports_by_statement[text, JUNOS.effect(text) or QUEUE] = ()
        elif line[0] in _SECTIONS and (line[:1] != COS or (line[1:] and line[1] not in READ)):
            effect = JUNOS.effect(" ".join(line))
            ports = _ports(line, lines, attached) if effect else None
            if effect and ports is not None:
                ports_by_statement[" ".join(line), effect] = ports
    of_port = {line[2:] for line in lines if line[:2] == (*COS, "interfaces")}
    for lag, members in lags(lines).items():
        for words in sorted(words for words in of_port if words[:1] == (lag,)):
            if any((member, *words[1:]) not in of_port for member in members):
                ports_by_statement[" ".join((*COS, "interfaces", *words)), QUEUE] = (lag,)
    yield from (Override(text, effect, ports) for (text, effect), ports in ports_by_statement.items())


def _ports(line: Line, lines: Sequence[Line], attached: Mapping[str, Collection[str | None]]) -> tuple[str, ...] | None:
    """Return the ports that a statement concerns, () for the whole switch; None where nothing refers to it."""
    line = (*line, "", "", "")  # a damaged line is shorter
    if line[0] == "firewall":
        names = _filters_with(line[line.index("filter") + 1] if "filter" in line else "", lines)
        bound = [
            binding
            for binding in lines
            if binding[0] not in ("firewall", "groups")
            and "filter" in binding
            and not names.isdisjoint(binding[binding.index("filter") :])
        ]
        if any(binding[0] != "interfaces" for binding in bound):  # of a VLAN, or of all that is forwarded
            return ()
        return tuple(dict.fromkeys(binding[1] for binding in bound)) or None
    if line[0] == "interfaces":
        return (line[1],)
    if line[0] == "security":
        return (line[3],)
    if line[1] == "interfaces":
        matching_ports = [port for port in attached if fnmatchcase(port, "*" if line[2] == "all" else line[2])]
        return tuple(matching_ports) or (line[2],)
    if line[1] in ("schedulers", "congestion-notification-profile"):
        return tuple(port for port, names in attached.items() if line[2] in names) or None
    return ()


def _routed_mtus(lines: Sequence[Line], interfaces: Mapping[str, Sequence[Line]]) -> Iterator[Override]:
    """Yield the MTU of each interface between VLANs that ports carry (irb.10), with these ports.

    It is 1500 where none is configured, also with a larger one on the ports (Juniper, statement mtu of interfaces).
    """
    vlans = _vlans(lines)
    for gateway, names in vlans.names_by_gateway.items():
        interface, _dot, unit = gateway.partition(".")
        unit_lines = [line for line in interfaces.get(interface, ()) if line[0] != "unit" or line[1:2] == (unit,)]
        is_off = ("disable",) in unit_lines or ("unit", unit, "disable") in unit_lines
        ports = tuple(port for port, words in vlans.words_by_port.items() if vlans.carries(words, names))
        if is_off or not ports or not any(line[0] == "unit" for line in unit_lines):
            continue
        mtus: dict[Line, int] = {}
        for line in unit_lines:
            if line[-2:-1] == ("mtu",) and line[-1].isdecimal():
                if line[0] == "mtu":
                    mtus[line] = int(line[-1]) - ETHERNET_BYTES
                elif line[2:4] in (("family", "inet"), ("family", "inet6")):
                    mtus[line] = int(line[-1])
        if not any(line[0] == "mtu" for line in mtus):
            mtus["unit", unit, "without", "mtu", str(MTU_BYTES)] = MTU_BYTES
        line, mtu = min(mtus.items(), key=lambda entry: entry[1])
        yield Override(f"interfaces {interface} {' '.join(line)}", SIZE, ports, mtu)


@dataclass
class _Vlans:
    """VLANs: the names of those with an interface between VLANs; their numbers; what a port names of them."""

    names_by_gateway: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, set[str]] = field(default_factory=dict)  # by name; a range as "10-20"
    words_by_port: dict[str, set[str]] = field(default_factory=dict)  # names, numbers, ranges, "all"

    def carries(self, words: Collection[str], names: Collection[str]) -> bool:
        """Return true where one of a port's words is one of these VLANs."""
        if "all" in words or not set(names).isdisjoint(words):
            return True
        ids = [_numbers(id_text) for name in names for id_text in self.ids.get(name, ())]
        carried = [_numbers(word) for word in words]
        return any(id_range[0] <= word[-1] and word[0] <= id_range[-1] for id_range in ids for word in carried)


def _numbers(text: str) -> range:
    """Return the numbers of a VLAN ID or a range of them; -1 for a name."""
    first, _dash, last = text.partition("-")
    numbers = [int(part) for part in (first, last or first) if part.isdecimal()]
    return range(numbers[0], numbers[1] + 1) if len(numbers) > 1 and numbers[0] <= numbers[1] else range(-1, 0)


def _vlans(lines: Sequence[Line]) -> _Vlans:
    vlans = _Vlans()
    for line in lines:
        if line[0] in ("vlans", "bridge-domains", "routing-instances"):
            start = next((index for index, word in enumerate(line) if word in ("vlans", "bridge-domains")), len(line))
            name, statement, value = (*line[start + 1 : start + 4], "", "", "")[:3]
            if statement in ("l3-interface", "routing-interface"):
                vlans.names_by_gateway.setdefault(value, []).append(name)
            elif statement in ("vlan-id", "vlan-id-list"):
                vlans.ids.setdefault(name, set()).add(value)
            elif statement == "interface":
                vlans.words_by_port.setdefault(value.partition(".")[0], set()).add(name)
        elif line[0] == "interfaces" and ("ethernet-switching" in line or "bridge" in line):
            words = vlans.words_by_port.setdefault(line[1], {"default"})  # the VLAN of a port that names none
            if line[-2] in ("members", "vlan-id", "vlan-id-list"):
                words.discard("default")
                words.add(line[-1])
        elif line[0] == "interfaces" and line[2:3] == ("native-vlan-id",):
            vlans.words_by_port.setdefault(line[1], set()).add(line[-1])
    return vlans
