# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the inventory's switches and their links, and refuse invalid ones before anything is planned.

An error of one switch, or of a link, concerns the switches whose variables have it: the others can be planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asics import (
    ABOVE_0_BYTES,
    ASICS_VARIABLE,
    CABLE_M,
    MOST_BYTES,
    find_asic,
    read_asics,
    read_speed,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

HOST, SWITCH = "host", "switch"
LONGEST_PORT_NAME = 64
SLOW_GBIT_S = 25  # a port of a switch's own services, which some switches have beside those of the chip's bandwidth
LEAST_QUEUE_BUFFER_BYTES = 100_000  # ten packets; a smaller number must be in kilobytes


@dataclass(frozen=True)
class Peer:
    """The far end of a port's link. ``port``: as its owner calls it; of a host, the RDMA device ("mlx5_0")."""

    kind: str  # HOST or SWITCH
    name: str
    port: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}'s {self.port}"


@dataclass(frozen=True)
class PortSpec:
    """One port as given in the inventory."""

    speed_gbit_s: int
    cable_m: int | None
    peer: Peer | None


@dataclass(frozen=True)
class SwitchSpec:
    """One switch as given in the inventory. ``asic`` is None only where the system sends no pauses.

    ``own_headroom``: the user's xoff in bytes, by (speed, longest cable).
    ``queue_buffer_bytes``: the bytes that one queue can fill, for systems with thresholds in percent of it, else None.
    """

    name: str
    system: SwitchSystem
    asic: Asic | None
    ports: Mapping[str, PortSpec]
    own_headroom: Mapping[tuple[int, int], int]
    queue_buffer_bytes: int | None

    @property
    def speeds_gbit_s(self) -> dict[str, int]:
        """Return the speed of each port."""
        return {name: port.speed_gbit_s for name, port in self.ports.items()}

    @property
    def needs_headroom(self) -> bool:
        """Return true where headroom is planned: the system gets its bytes, or the cable to compute them from."""
        return not self.system.sizes_headroom

    @property
    def sizes_headroom(self) -> bool:
        """Return true where the system computes headroom itself; the planned value then only bounds ECN."""
        return "headroom" in self.system.not_held

    def held_cable_m(self, cable_m: int) -> int:
        """Return the cable length for which the system keeps headroom if the cable has ``cable_m``."""
        return self.system.held_cable_m(cable_m)


class Inventory(NamedTuple):
    """The valid switches, and why the others are not, by name.

    ``fabric``: the links of all switches, as far as those of switches that are not valid can be read. They contradict
    no link of a valid one.
    """

    specs: list[SwitchSpec]
    refused: dict[str, FabricError]
    fabric: Cabling


def read_switches(
    switches: Mapping[str, Any],
    hosts: Mapping[str, Any] | None = None,
    asics: Any = None,
    systems: Mapping[str, SwitchSystem] | None = None,
) -> list[SwitchSpec]:
    """Return the switches of ``read_inventory``. Raises FabricError for the first error."""
    inventory = read_inventory(switches, hosts, asics, systems)
    for error in inventory.refused.values():
        raise error
    return inventory.specs


def read_inventory(
    switches: Mapping[str, Any],
    hosts: Mapping[str, Any] | None = None,
    asics: Any = None,
    systems: Mapping[str, SwitchSystem] | None = None,
) -> Inventory:
    """Return the inventory's switches, in its order, each checked alone and against the others.

    ``switches``: name -> system, asic, ports, headroom and queue_buffer_bytes, each as in the variable of that name
    (roce_switch_system, ...). ``hosts``: name -> roce_host_nics of all hosts, None for a host without that variable. If
    ``hosts`` is None, the hosts at the far ends are not checked. ``asics``: roce_asics. Raises FabricError for an error
    that is not that of one switch or link.
    """
    if not isinstance(switches, Mapping) or not switches:
        raise FabricError("there are none", "put switches into the inventory's group roce_switches", subject="switches")
    known_asics = read_asics(asics)
    specs: dict[str, SwitchSpec] = {}
    refused: dict[str, FabricError] = {}
    for name, data in switches.items():
        if values.FORBIDDEN.search(str(name)):
            raise FabricError(
                "its name has a character that cannot be printed", "remove it", subject=f"switch {name!r}"
            )
        try:
            specs[name] = _read_switch(name, data, known_asics, SYSTEMS if systems is None else systems)
        except FabricError as error:
            refused[name] = error
    errors = [*_link_errors(specs, refused.keys()), *(_host_errors(specs, hosts) if hosts is not None else ())]
    for name, link_error in errors:
        refused.setdefault(name, link_error)
    fabric = Cabling(_consistent_links(switches, specs, refused.keys()), switches)
    return Inventory([spec for name, spec in specs.items() if name not in refused], refused, fabric)


def _read_switch(name: str, data: Any, asics: Mapping[str, Asic], systems: Mapping[str, SwitchSystem]) -> SwitchSpec:
    record = Settings(FabricError, f"switch {name}", data)
    record.only("system", "asic", "ports", "headroom", "queue_buffer_bytes")
    system_name = record.data.get("system")
    system = systems.get(system_name) if isinstance(system_name, str) else None
    if system is None:
        raise record.refuse(
            f"system {system_name!r} is unknown" if system_name is not None else "roce_switch_system is missing",
            f"valid values: {', '.join(sorted(systems))}",
        )
    asic = None
    if "asic" in record.data or "pfc" not in system.not_held:
        asic = find_asic(asics, record.data.get("asic"), record.subject)
        _check_runs_on(record, system, asic)
    port_settings = record.part("ports").data
    if not port_settings:
        raise record.refuse("no ports are given", "name each with its speed_gbit_s and cable_m in roce_switch_ports")
    ports: dict[str, PortSpec] = {}
    spelled: dict[str, str] = {}
    for port, port_data in port_settings.items():
        _check_port_name(record.subject, port, system)
        first = spelled.setdefault(port.casefold(), port)
        if first != port:
            raise record.refuse(f"port {port} is listed twice, also as {first}", "keep one of them")
        ports[port] = _read_port(f"{record.subject}: port {port}", port_data)
    if asic is not None:
        _check_speeds(record, system, asic, ports)
    buffer = None
    if system.attainable:
        if "queue_buffer_bytes" not in record.data:
            raise record.refuse(
                "roce_switch_queue_buffer_bytes is missing, but this system's thresholds are percentages of it",
                "set it",
            )
        buffer = record.value("queue_buffer_bytes", values.within(LEAST_QUEUE_BUFFER_BYTES, MOST_BYTES))
    return SwitchSpec(name, system, asic, ports, _read_headroom(record), buffer)


def _check_runs_on(record: Settings, system: SwitchSystem, asic: Asic) -> None:
    """Refuse an ASIC of the table that no switch with this system has. A user's own ASIC is not checked."""
    runs_on = system.asics
    if runs_on is None or asic.name in runs_on or ASICS.get(asic.name) is not asic:
        return
    reason = system.not_asics.get(asic.name, f"{system.name} runs on no switch with {asic.title}")
    choices = f"valid values: {', '.join(runs_on)}; or give" if runs_on else "give"
    raise record.refuse(reason, f"{choices} the switch's own numbers and their source in {ASICS_VARIABLE}")


def _check_speeds(record: Settings, system: SwitchSystem, asic: Asic, ports: Mapping[str, PortSpec]) -> None:
    """Refuse ports that the ASIC cannot have. A speed without headroom is refused where headroom is planned."""
    fastest = max((speed for speed, _cable in asic.headroom), default=None)
    for name, port in ports.items():
        if system.sizes_headroom and fastest is not None and port.speed_gbit_s > fastest:
            raise FabricError(
                f"speed_gbit_s {port.speed_gbit_s} is above {fastest}, the fastest port of {asic.title}",
                "correct it, or roce_switch_asic",
                subject=f"{record.subject}: port {name}",
            )
    fast_gbit_s = sum(port.speed_gbit_s for port in ports.values() if port.speed_gbit_s > SLOW_GBIT_S)
    # A user's own ASIC may stand for a chassis of several.
    if ASICS.get(asic.name) is asic and asic.bandwidth_gbit_s is not None and fast_gbit_s > asic.bandwidth_gbit_s:
        raise record.refuse(
            f"its ports have {fast_gbit_s} Gbit/s together, but {asic.title} has {asic.bandwidth_gbit_s}",
            "correct speed_gbit_s or roce_switch_asic, or list only the ports that exist",
        )


def _check_port_name(subject: str, port: Any, system: SwitchSystem) -> None:
    try:
        text = values.text(port, LONGEST_PORT_NAME)
    except values.InvalidValueError as error:
        raise FabricError(error.cause, error.remedy, subject=f"{subject}: port {port!r}") from None
    if not system.port.fullmatch(text):
        raise FabricError(
            "not a valid port name on this system",
            f"write it as {system.port_example}",
            subject=f"{subject}: port {port}",
        )


def _read_port(subject: str, data: Any) -> PortSpec:
    record = Settings(FabricError, subject, data)
    record.only("speed_gbit_s", "cable_m", "peer")
    return PortSpec(read_speed(record), record.value("cable_m", CABLE_M), _read_peer(record))


def _read_peer(record: Settings) -> Peer | None:
    if "peer" not in record.data:
        return None
    peer = record.part("peer")
    peer.only(HOST, SWITCH, "port")
    if (HOST in peer.data) == (SWITCH in peer.data):
        raise peer.refuse("not one host or one switch", "write {switch: spine1, port: Ethernet0}")
    kind = HOST if HOST in peer.data else SWITCH
    return Peer(kind, peer.value(kind, values.text), peer.required("port", values.text))


def _read_headroom(record: Settings) -> dict[tuple[int, int], int]:
    own_xoff: dict[tuple[int, int], int] = {}
    for row in record.parts("headroom"):
        row.only("speed_gbit_s", "cable_m", "headroom_bytes")
        key = read_speed(row), row.required("cable_m", CABLE_M)
        if key in own_xoff:
            raise row.refuse(f"{key[0]} Gbit/s and {key[1]} m are listed twice", "keep one of the rows")
        own_xoff[key] = row.required("headroom_bytes", ABOVE_0_BYTES)
    return own_xoff


def _peers(name: str, data: Any, spec: SwitchSpec | None) -> Iterator[tuple[End, Peer]]:
    """Yield the peers of a switch's ports; of one without ``spec``, those that can be read."""
    if spec is not None:
        yield from ((End(name, port), settings.peer) for port, settings in spec.ports.items() if settings.peer)
        return
    ports = data.get("ports") if isinstance(data, Mapping) else None
    for port, settings in (ports if isinstance(ports, Mapping) else {}).items():
        try:
            peer = _read_peer(Settings(FabricError, f"port {port}", settings))
        except FabricError:
            continue
        if peer is not None:
            yield End(name, str(port)), peer


def _consistent_links(
    switches: Mapping[str, Any], specs: Mapping[str, SwitchSpec], refused: Collection[str]
) -> Iterator[tuple[End, End]]:
    """Yield the links, those of valid switches first, without those that contradict an earlier one."""
    far_ends: dict[End, End] = {}
    for name in sorted(switches, key=lambda name: name in refused):
        for near_end, peer in _peers(name, switches[name], specs.get(name)):
            far = End(peer.name, peer.port)
            is_in_site = (peer.kind == SWITCH) == (peer.name in switches) and peer.name != name
            if is_in_site and far_ends.get(near_end, far) == far and far_ends.get(far, near_end) == near_end:
                far_ends.update({near_end: far, far: near_end})
                yield near_end, far


def _link_errors(specs: Mapping[str, SwitchSpec], unread: Collection[str]) -> Iterator[tuple[str, FabricError]]:
    """Yield the links whose ends do not agree, and NICs at two ports, each with the switch that it concerns.

    ``unread``: switches whose ports are not known.
    """
    port_of_nic: dict[Peer, tuple[str, str]] = {}  # the switch, and the port in words
    for spec in specs.values():
        for name, port in spec.ports.items():
            peer, subject = port.peer, f"switch {spec.name}: port {name}"
            if peer is None or peer.name in unread:
                continue
            if peer.kind == SWITCH:
                texts = _link_error(specs, spec, name, peer)
                if texts is not None:
                    yield spec.name, FabricError(*texts, subject=subject)
            elif peer.name in specs:
                remedy = f"write {{switch: {peer.name}, port: ...}}"
                yield spec.name, FabricError(f"its peer, host {peer.name}, is a switch", remedy, subject=subject)
            else:
                other_switch, other_subject = port_of_nic.setdefault(peer, (spec.name, subject))
                if other_subject != subject:
                    remedy = "correct the one that is wrong"
                    yield (
                        spec.name,
                        FabricError(f"{peer} is also connected to {other_subject}", remedy, subject=subject),
                    )
                    yield (
                        other_switch,
                        FabricError(f"{peer} is also connected to {subject}", remedy, subject=other_subject),
                    )


def _link_error(specs: Mapping[str, SwitchSpec], spec: SwitchSpec, name: str, peer: Peer) -> tuple[str, str] | None:
    """Return how the ends of a link between switches disagree, and the remedy; None where they agree."""
    if peer.name == spec.name:
        return "its peer is a port of the same switch", "correct the peer"
    port, peer_spec = spec.ports[name], specs.get(peer.name)
    if peer_spec is None:
        return f"its peer, switch {peer.name}, is not in the inventory", "add it, or correct the name"
    far = peer_spec.ports.get(peer.port)
    if far is None:
        return f"its peer, switch {peer.name}, has no port {peer.port}", "add it, or correct the name"
    if far.peer != Peer(SWITCH, spec.name, name):
        cause = f"it names {peer} as its peer, but that port names {far.peer or 'none'}"
        return cause, "correct the one that is wrong"
    for setting, near_value, far_value in (
        ("speed_gbit_s", port.speed_gbit_s, far.speed_gbit_s),
        ("cable_m", port.cable_m, far.cable_m),
    ):
        if near_value != far_value:
            cause = f"its {setting} is {near_value}, but {far_value} at the other end, {peer}"
            return cause, "give both ends the same value"
    return None


def _host_errors(specs: Mapping[str, SwitchSpec], hosts: Mapping[str, Any]) -> Iterator[tuple[str, FabricError]]:
    """Yield the ports whose host does not exist, or has not that NIC with that speed, each with its switch."""
    for spec in specs.values():
        for name, port in spec.ports.items():
            if port.peer is None or port.peer.kind != HOST:
                continue
            try:
                _check_nic(f"switch {spec.name}: port {name}", port, port.peer, hosts)
            except FabricError as error:
                yield spec.name, error


def _check_nic(subject: str, port: PortSpec, peer: Peer, hosts: Mapping[str, Any]) -> None:
    if peer.name not in hosts:
        raise FabricError(
            f"its peer, host {peer.name}, is not in the inventory", "add it, or correct the name", subject=subject
        )
    if hosts[peer.name] is None:
        return
    nics = Settings(FabricError, f"host {peer.name}: roce_host_nics", hosts[peer.name]).data
    if peer.port not in nics:
        raise FabricError(
            f"its peer, host {peer.name}, has no NIC {peer.port} in roce_host_nics",
            f"valid names: {', '.join(sorted(nics))}" if nics else f"describe {peer.name}'s NICs there",
            subject=subject,
        )
    settings = Settings(FabricError, f"host {peer.name}: roce_host_nics: {peer.port}", nics[peer.port]).data
    speed = settings.get("speed_gbit_s")
    if speed is not None and speed != port.speed_gbit_s:
        raise FabricError(
            f"its speed_gbit_s is {port.speed_gbit_s}, but {speed} at the other end, {peer}",
            "give both ends the same value",
            subject=subject,
        )
