# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a Junos configuration has beside the terms of a port: overrides, speeds, port channels, the buffer's parts.

Source of the parts: Juniper's statement pages buffer-partition (ingress: 9% lossless, 45% headroom by default; egress:
50% lossless).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Buffers, BufferShares, Override
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import COS, Line
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import JUNOS, QUEUE

_SECTIONS = (*COS, "interfaces", "firewall", "security")  # with statements that can change what packets get
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
PARTS = (*COS, "shared-buffer")
LOSSLESS, HEADROOM = ("ingress", "buffer-partition", "lossless"), ("ingress", "buffer-partition", "lossless-headroom")
EGRESS_LOSSLESS = ("egress", "buffer-partition", "lossless")
PERCENTS: dict[Line, int] = {LOSSLESS: 9, HEADROOM: 45, EGRESS_LOSSLESS: 50}
_PERCENT = re.compile(r"\d{1,2}|100")  # as in syntax/overrides.py
_SPEED = re.compile(r"(\d+)g")
_CHASSIS_SPEED = re.compile(
    r"chassis fpc (\d+) pic (\d+) port(?:-range)? (\d{1,4})(?: (\d{1,4}))? (?:channel-)?speed (\d+)g"
)
_RANGE = ("interfaces", "interface-range")
_NAME = re.compile(r"(?!interface-range)[\w/:-]+")  # of one interface, such as the management port
_ROUTED = "irb"  # the interfaces between VLANs


def speeds_gbit_s(lines: Sequence[Line]) -> dict[str, int]:
    """Return the configured speeds of ports."""
    speeds = {}
    for line in lines:
        if line[0] == "interfaces" and line[-2:-1] == ("speed",) and (match := _SPEED.fullmatch(line[-1])):
            speeds[line[1]] = int(match[1])
        elif line[0] == "chassis" and (match := _CHASSIS_SPEED.fullmatch(" ".join(line))):
            fpc, pic, first, last, speed = match.groups()
            ports = range(int(first), int(last or first) + 1)
            speeds.update({f"et-{fpc}/{pic}/{port}": int(speed) for port in ports})
    return speeds


def lags(lines: Sequence[Line]) -> dict[str, tuple[str, ...]]:
    """Return the members of each aggregated interface."""
    members: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if line[0] == "interfaces" and line[-2:-1] == ("802.3ad",):
            members[line[-1]] = (*members.get(line[-1], ()), line[1])
    return members


def buffers(lines: Sequence[Line], name: str) -> Buffers | None:
    """Return the configured parts of the buffer; None where the switch has the default ones.

    Lossless packets are in the ingress and in the egress part at once, so the smaller one is theirs.
    """
    configured: dict[Line, int] = {
        line[len(PARTS) : -2]: int(line[-1])
        for line in lines
        if line[: len(PARTS)] == PARTS and line[-2] == "percent" and _PERCENT.fullmatch(line[-1])
    }
    if PERCENTS.keys().isdisjoint(configured):
        return None
    percents: dict[Line, int] = {**PERCENTS, **configured}
    lossless = min(percents[LOSSLESS], percents[EGRESS_LOSSLESS])
    if lossless == 0:
        refusal = FabricError(
            f"{name}: {' '.join(PARTS)}",
            "it leaves lossless packets no buffer, so no class can be lossless",
            "make the classes lossy, or set a larger lossless partition of ingress and egress while no traffic has to "
            "pass, because changing it stops all ports",
        )
        return Buffers(refusal=refusal)
    return Buffers(shares=BufferShares(lossless, percents[HEADROOM]))


def overrides(lines: Sequence[Line], attached: Mapping[str, Collection[str | None]]) -> tuple[Override, ...]:
    """Return the statements that can change what packets get and that are not read.

    ``attached``: port -> the profiles of its class of service. Groups that are applied and interface-ranges, which are
    here only where the switch was not asked to expand them, count with all that a port could inherit from them.
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
    return tuple(Override(text, effect, ports) for (text, effect), ports in ports_by_statement.items())


def _ports(line: Line, lines: Sequence[Line], attached: Mapping[str, Collection[str | None]]) -> tuple[str, ...] | None:
    """Return the ports that a statement concerns, () for the whole switch; None where nothing refers to it."""
    line = (*line, "", "", "")  # a damaged line is shorter
    if line[0] == "firewall":
        name = line[line.index("filter") + 1] if "filter" in line else ""
        bound = [
            other
            for other in lines
            if other[0] not in ("firewall", "groups") and "filter" in other and name in other[other.index("filter") :]
        ]
        if any(other[0] != "interfaces" for other in bound):  # of a VLAN, or of all that is forwarded
            return ()
        return tuple(dict.fromkeys(other[1] for other in bound)) or None
    if line[0] == "interfaces":
        return (line[1],)
    if line[0] == "security":
        return (line[3],)
    if line[1] == "interfaces":
        named = [port for port in attached if fnmatchcase(port, "*" if line[2] == "all" else line[2])]
        return tuple(named) or (line[2],)
    if line[1] in ("schedulers", "congestion-notification-profile"):
        return tuple(port for port, names in attached.items() if line[2] in names) or None
    return ()
