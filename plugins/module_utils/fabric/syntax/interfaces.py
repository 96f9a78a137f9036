# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make a switch of the interfaces of EOS or NX-OS: ports, port channels, subinterfaces and VLAN interfaces.

The packets of a port also pass its port channel, its subinterfaces, and the interfaces of the VLANs that it carries.
What these have and the port has not can undo the policy on that port. From memory, not checked: a port without lines is
in VLAN 1; a subinterface or a VLAN interface without an MTU has 1500, or on EOS that of ``interface defaults``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Override, PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import MTU, CliSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import (
    CLASS,
    LINK,
    QUEUE,
    SIZE,
    OverrideRules,
)

_SHUT_BY_DEFAULT = ("interface defaults ethernet shutdown", "system default switchport shutdown")
_ACCESS = "switchport access vlan "
_ALLOWED = re.compile(r"switchport trunk allowed vlan (add |except )?(\S+)")


class Parsed(Protocol):
    """A parsed configuration."""

    rules: OverrideRules
    ports: dict[str, Any]
    vlan_interfaces: dict[int, CliSettings]
    lag_hashes: list[str]
    default_mtu_bytes: int
    overrides: dict[tuple[str, str], list[str]]
    lag_prefix: str

    @property
    def ecmp_fields(self) -> tuple[str, ...]: ...

    def port_qos(self, port: str) -> PortQos: ...

    def qos_of(self, settings: Any) -> PortQos: ...

    def record_overrides(self) -> None: ...


def switch_of(model: Parsed, name: str, system: str) -> Switch:
    """Return the switch of a parsed configuration; ports that are alike share one object. Raises FabricError."""
    ports = {port: model.port_qos(port) for port in model.ports}
    distinct: dict[PortQos, PortQos] = {}
    shared = {id(qos): distinct.setdefault(qos, qos) for qos in {id(qos): qos for qos in ports.values()}.values()}
    model.record_overrides()
    _record_shut_by_default(model)
    lags, subinterfaces = _lags(model), dict(_subinterfaces(model.ports))
    _record_hashes(model, lags)
    _record_subinterfaces(model, ports, subinterfaces)
    _record_sizes(model, ports, lags, subinterfaces)
    lag_mtus = {lag: ports[lag].ip_mtu_bytes for lag in lags if lag in ports}
    return Switch(
        name,
        system,
        {port: shared[id(qos)] for port, qos in ports.items()},
        model.ecmp_fields,
        overrides=(
            *(Override(text, effect, tuple(names)) for (text, effect), names in model.overrides.items()),
            *(Override(f"{lag} mtu {mtu}", SIZE, (lag,), mtu) for lag, mtu in lag_mtus.items() if mtu is not None),
        ),
        speeds_gbit_s={
            port: settings.speed_gbit_s for port, settings in model.ports.items() if settings.speed_gbit_s is not None
        },
        lags=lags,
    )


def is_as_wanted(model: Parsed, port: str, qos: PortQos, not_held: Collection[str]) -> bool:
    """Return true where ``port`` has the wanted settings; a port that cannot be understood has not."""
    if port not in model.ports:
        return False
    try:
        seen = model.port_qos(port)
    except FabricError:
        return False
    return all(getattr(seen, name) == value for name, value in vars(qos).items() if name not in not_held)


def _record_shut_by_default(model: Parsed) -> None:
    """Record the statements that shut ports, or NX-OS's switched ports, for those that no line opens."""
    for text in _SHUT_BY_DEFAULT:
        if model.overrides.pop((text, LINK), None) is None:
            continue
        closed = [
            port
            for port, settings in model.ports.items()
            if port.startswith("Ethernet")
            and not settings.is_up
            and not ("switchport" in text and "no switchport" in settings.switchport)
        ]
        if closed:
            model.overrides[text, LINK] = closed


def _lags(model: Parsed) -> dict[str, tuple[str, ...]]:
    """Return the members of each port channel, and record its lines that they do not have."""
    lags: dict[str, tuple[str, ...]] = {}
    for port, settings in model.ports.items():
        if settings.lag:
            lag = f"{model.lag_prefix}{settings.lag}"
            lags[lag] = (*lags.get(lag, ()), port)
            for text in model.ports[lag].lines_unlike(settings) if lag in model.ports else ():
                model.overrides[f"interface {lag} {text}", QUEUE] = [lag]
    return lags


def _record_hashes(model: Parsed, lags: Mapping[str, Sequence[str]]) -> None:
    """Record by what port channels of several members spread packets, where it can be less than their ports."""
    spreading = [lag for lag, members in lags.items() if len(members) > 1]
    for text in model.lag_hashes if spreading else ():
        effect = model.rules.effect(text)
        if effect:
            model.overrides[text, effect] = spreading


def _subinterfaces(ports: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return each subinterface that is not shut, with its port or port channel."""
    for name, settings in ports.items():
        parent, dot, _number = name.partition(".")
        if dot and parent in ports and not settings.is_shut:
            yield name, parent


def _record_subinterfaces(model: Parsed, ports: Mapping[str, PortQos], subinterfaces: Mapping[str, str]) -> None:
    """Record the lines of subinterfaces that give their packets other settings than those of their port."""
    for name, parent in subinterfaces.items():
        settings, parent_settings = model.ports[name], model.ports[parent]
        qos = replace(model.qos_of(settings.merged_onto(parent_settings)), ip_mtu_bytes=ports[parent].ip_mtu_bytes)
        for text in settings.lines_unlike(parent_settings) if qos != ports[parent] else ():
            model.overrides[f"interface {name} {text}", CLASS] = [parent]


def _record_sizes(
    model: Parsed,
    ports: Mapping[str, PortQos],
    lags: Mapping[str, Sequence[str]],
    subinterfaces: Mapping[str, str],
) -> None:
    """Record the MTUs of subinterfaces and VLAN interfaces that are smaller than those of the ports below them."""
    interfaces = [(name, model.ports[name], [parent]) for name, parent in subinterfaces.items()]
    for vlan, settings in model.vlan_interfaces.items():
        carriers = [
            port for port, port_settings in model.ports.items() if "." not in port and _carries(port_settings, vlan)
        ]
        interfaces.append((f"Vlan{vlan}", settings, carriers))
    for name, settings, carriers in interfaces:
        mtu = settings.get(MTU) or model.default_mtu_bytes
        if settings.is_shut or not (settings.routes or MTU in settings.values):
            continue
        larger = [
            port
            for port in carriers
            if any((ports[member].ip_mtu_bytes or 0) > mtu for member in lags.get(port, (port,)))
        ]
        if larger:
            model.overrides[f"interface {name} mtu {mtu}", SIZE] = larger


def _carries(settings: CliSettings, vlan: int) -> bool:
    """Return true where a port carries ``vlan``; a member of a port channel carries what that has."""
    lines = settings.switchport
    if settings.lag or "no switchport" in lines:
        return False
    if not any(line.startswith("switchport mode ") and "trunk" in line for line in lines):
        access = [line[len(_ACCESS) :] for line in lines if line.startswith(_ACCESS)]
        return str(vlan) in access if access else vlan == 1
    allowed = [match for match in map(_ALLOWED.fullmatch, lines) if match]
    return not allowed or any(_is_in(vlan, match[2]) != (match[1] == "except ") for match in allowed)


def _is_in(vlan: int, listed: str) -> bool:
    """Return true where a list such as "10,20-29", "all" or "none" has ``vlan``."""
    if not re.fullmatch(r"[\d,-]+", listed):
        return listed != "none"
    bounds = (word.partition("-") for word in listed.split(",") if word)
    return any(int(first or 0) <= vlan <= int(last or first or 0) for first, _dash, last in bounds)
