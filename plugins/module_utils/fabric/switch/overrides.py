# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Statements of a switch's configuration that can undo the policy on the ports of the inventory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Override, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import LINK, QUEUE

OVERRIDDEN = "no statement that is not understood can change the {} of packets"
UNKNOWN = "the path is not known beyond it"
LINE_RATE, LINE_RATE_WRONG = "the port has the inventory's speed", "headroom and thresholds are for another speed"
COMPUTED_HEADROOM = "the switch has computed the headroom of priority {}"
HEADROOM_CONSEQUENCE = "what arrives between a pause and its effect may be dropped"
MEMBERS, MEMBER_UNKNOWN = (
    "all members of the port channel are in the inventory",
    "packets also take ports that were not checked",
)
UPPER_MTU = "an interface above the port (a port channel, a unit, a VLAN, a bridge) lets pass what the port lets pass"
TOO_LARGE = "larger packets are dropped"
LAG_HASH = "the port channel spreads packets by the fields of the policy"
ONE_MEMBER = "many flows can take one member, and the others are idle"

_ROUTED = re.compile(r"(?i)vlan|irb$")  # interfaces between VLANs, whose packets pass by any port


def overrides_of(seen: Switch, speeds_gbit_s: Mapping[str, float]) -> Iterator[Override]:
    """Return the overrides that concern the inventory's ports (name -> speed), each with those ports; () for all.

    An inventory has the members of a port channel, or the port channel itself. Of the latter, the lines that its
    members do not have are its QoS, which is read.
    """
    lags = [lag for lag in seen.lags if lag in speeds_gbit_s]
    read = tuple(f"{words} {lag} " for lag in lags for words in ("interface", "class-of-service interfaces"))
    lag_of = {member: lag for lag, members in seen.lags.items() for member in members}
    for override in seen.overrides:
        if override.effect == QUEUE and override.statement.startswith(read):
            continue
        names = dict.fromkeys(
            name for port in override.ports for name in (port, *seen.lags.get(port, ()), lag_of.get(port, port))
        )
        ports = tuple(name for name in names if name in speeds_gbit_s)
        if any(map(_ROUTED.match, names)) and override.effect != LINK:
            yield replace(override, ports=())
        elif ports or not override.ports:
            yield replace(override, ports=ports)


def problems(
    seen: Switch, speeds_gbit_s: Mapping[str, float], wanted: Switch | None
) -> Iterator[tuple[tuple[str, ...], str, str, str, str]]:
    """Return what can undo the policy on the inventory's ports: ports, claim, wanted, seen and consequence.

    No port is named where it concerns all. ``wanted``: the switch as planned; None where that is not compared.
    """
    if wanted is not None and seen.buffers is not None and seen.buffers.computed_xoff_bytes is not None:
        yield from _computed_headroom(seen.buffers.computed_xoff_bytes, wanted)
    for override in overrides_of(seen, speeds_gbit_s):
        if override.ip_mtu_bytes is not None:
            needed_bytes = _ip_mtu_bytes(wanted, override.ports)
            if override.ip_mtu_bytes < needed_bytes:
                yield override.ports, UPPER_MTU, f"IP packets of {needed_bytes} bytes", override.statement, TOO_LARGE
            continue
        yield (
            override.ports,
            OVERRIDDEN.format(override.effect),
            "none",
            override.statement,
            ("packets may not pass here" if override.effect == LINK else UNKNOWN),
        )
    for port, speed in seen.speeds_gbit_s.items():
        if speed != speeds_gbit_s.get(port, speed):
            yield (port,), LINE_RATE, f"{speeds_gbit_s[port]:g} Gbit/s", f"{speed:g} Gbit/s", LINE_RATE_WRONG
    for lag, members in seen.lags.items():
        planned_ports = tuple(member for member in (lag, *members) if member in speeds_gbit_s)
        unplanned = [member for member in members if member not in speeds_gbit_s and lag not in speeds_gbit_s]
        if planned_ports and unplanned:
            yield planned_ports, MEMBERS, "none other", f"{lag}: {', '.join(unplanned)}", MEMBER_UNKNOWN
        hashed, needed = seen.lag_fields.get(lag), (wanted.ecmp_fields if wanted is not None else None) or ()
        if planned_ports and hashed is not None and not set(needed) <= set(hashed):
            yield planned_ports, LAG_HASH, ", ".join(needed), f"{lag}: {', '.join(hashed) or 'none'}", ONE_MEMBER


def _ip_mtu_bytes(wanted: Switch | None, ports: Iterable[str]) -> int:
    """Return the largest IP packet that a planned switch lets pass by some ports, or by any; 0 without a plan."""
    planned = wanted.ports if wanted is not None else {}
    return max((planned[port].ip_mtu_bytes or 0 for port in ports or planned if port in planned), default=0)


def _computed_headroom(
    xoff_bytes: Mapping[tuple[str, int], int], wanted: Switch
) -> Iterator[tuple[tuple[str, ...], str, str, str, str]]:
    """Return the ports whose switch computed less headroom than may be needed, or none that was read."""
    ports: dict[tuple[str, str, str], list[str]] = {}
    for port, floor in wanted.least_xoff_bytes.items():
        for priority in wanted.ports[port].pfc:
            computed = xoff_bytes.get((port, priority))
            if computed is None or computed < floor:
                texts = COMPUTED_HEADROOM.format(priority), f"{floor} bytes or more", f"{computed or 'not read'}"
                ports.setdefault(texts, []).append(port)
    for (claim, needed_text, computed_text), names in ports.items():
        yield tuple(names), claim, needed_text, computed_text, HEADROOM_CONSEQUENCE
