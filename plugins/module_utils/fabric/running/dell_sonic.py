# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the QoS from what Dell's modules gather, of any configuration. Sources: ``systems.dell_sonic``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    Ecn,
    Octet,
    Override,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.json_text import DECODER
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import (
    DELL_SONIC,
    QUEUE,
    statements,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import (
    natural_sort_key,
    paused_priorities,
    queues_of,
)

SYSTEM = "dell_sonic"
MODULES = (
    "sonic_qos_buffer",
    "sonic_qos_maps",
    "sonic_qos_wred",
    "sonic_qos_scheduler",
    "sonic_qos_pfc",
    "sonic_qos_interfaces",
    "sonic_interfaces",
    "sonic_ecmp_load_share",
)
NOT_RENDERED = ("fbs_policies", "lag_interfaces")  # gathered, but not part of a policy
SPEED = re.compile(r"SPEED_(\d+)GB")
CABLES_M = (5, 40, 300)
ECN_BYTES = (1000, 12_480_000)

# The maps of sonic_qos_maps: the list, the key and the value of an entry, and the option of sonic_qos_interfaces that
# names a map.
DSCP_MAP = ("dscp_maps", "dscp", "fwd_group", "dscp_fwd_group")
QUEUE_MAP = ("fwd_group_queue_maps", "fwd_group", "queue_index", "fwd_group_queue")
GROUP_MAP = ("fwd_group_pg_maps", "fwd_group", "pg_index", "fwd_group_pg")
PFC_QUEUE_MAP = ("pfc_priority_queue_maps", "dot1p", "queue_index", "pfc_priority_queue")
PFC_GROUP_MAP = ("pfc_priority_pg_maps", "dot1p", "pg_index", "pfc_priority_pg")
REWRITING = "fwd_group_dscp"  # a port's option: packets leave with the DSCP of their forwarding group
# ECMP_FIELDS -> the options of sonic_ecmp_load_share without "ipv4_" and "ipv6_".
HASH = {
    "destination_ip": ("dst_ip", "dst_ip"),
    "destination_port": ("l4_dst_port", "l4_dst_port"),
    "protocol": ("ip_proto", "next_hdr"),
    "source_ip": ("src_ip", "src_ip"),
    "source_port": ("l4_src_port", "l4_src_port"),
}


class DellSonicReader:
    """A reader that reads each profile and map once, and gives ports that are alike one object."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        remedy = "gather the switch's network resources again (dellemc.enterprise_sonic.sonic_facts)"
        try:
            data = DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise FabricError(f"{name}: configuration", f"not JSON ({error})", remedy) from None
        if not isinstance(data, dict):
            raise FabricError(
                f"{name}: configuration", f"a JSON {type(data).__name__}, not an object of modules", remedy
            )
        self.not_rendered = {resource: data.get(resource) for resource in NOT_RENDERED}
        self.config: dict[str, Any] = {}
        for module in MODULES:
            arguments = data.get(module)
            if arguments is None:
                self.config[module] = data.get(module[len("sonic_") :])
            elif isinstance(arguments, dict):
                self.config[module] = arguments.get("config")
            else:
                raise FabricError(f"{name}: {module}", f"{arguments!r} are not arguments", remedy)
        self.maps = {
            kind: self._named("sonic_qos_maps", self.options("sonic_qos_maps", "", self.config["sonic_qos_maps"]), kind)
            for kind, *_rest in (DSCP_MAP, QUEUE_MAP, GROUP_MAP, PFC_QUEUE_MAP, PFC_GROUP_MAP)
        }
        # Since version 4 the collection has "all" colours in place of "green": the same without a policer.
        self.wred = {
            name: {**profile, "ecn": "green"} if profile.get("ecn") == "all" else profile
            for name, profile in self._named("sonic_qos_wred", self.config).items()
        }
        self.schedulers = self._named("sonic_qos_scheduler", self.config)
        self.interfaces = self._named("sonic_qos_interfaces", self.config)
        self.mtus = self._named("sonic_interfaces", self.config)

    def switch(self) -> Switch:
        distinct: dict[PortQos, PortQos] = {}
        ports = {}
        for port in sorted({*self.interfaces, *self.mtus}, key=natural_sort_key):
            if port.startswith("Eth"):  # not a VLAN, port channel, loopback or CPU
                qos = self._port(port)
                ports[port] = distinct.setdefault(qos, qos)
        speeds = {port: SPEED.fullmatch(str(settings.get("speed"))) for port, settings in self.mtus.items()}
        lags = self.lags()
        return Switch(
            self.name,
            SYSTEM,
            ports,
            self.ecmp_fields(),
            overrides=(*self.overrides(ports), *self.overrides_of_lags(lags), *self.overrides_of_buffers()),
            speeds_gbit_s={port: int(match[1]) for port, match in speeds.items() if match},
            lags=lags,
            lag_ip_mtu_bytes={lag: mtu for lag in lags if (mtu := self.mtu(lag)) is not None},
        )

    def lags(self) -> dict[str, tuple[str, ...]]:
        """Return the members of each port channel."""
        return {
            str(lag.get("name")): tuple(
                str(member.get("member"))
                for member in self.entries("lag_interfaces", "", (lag.get("members") or {}).get("interfaces"))
            )
            for lag in self.entries("lag_interfaces", "", self.not_rendered["lag_interfaces"])
        }

    def overrides_of_lags(self, lags: dict[str, tuple[str, ...]]) -> Iterator[Override]:
        """Return the options of port channels that a member does not have."""
        for lag, members in lags.items():
            for option in ("qos_maps", "queues", "scheduler_policy"):
                of_lag, *of_members = (
                    [*statements(self.interfaces.get(port, {}).get(option), option)] for port in (lag, *members)
                )
                for statement in of_lag:
                    if any(statement not in of_member for of_member in of_members):
                        yield Override(f"qos_interfaces {lag} {statement}", QUEUE, (lag,))

    def mtu(self, port: str) -> int | None:
        """Return the MTU of a port or port channel."""
        return self._number("sonic_interfaces", port, self.mtus.get(port, {}), "mtu", 1280, 9216)

    def overrides_of_buffers(self) -> Iterator[Override]:
        """Return the pools and profiles that are not as the system makes them. What uses a profile is not gathered."""
        module = "sonic_qos_buffer"
        buffers = self.options(module, "", self.config[module])
        for option in ("buffer_pools", "buffer_profiles"):
            for entry in self.entries(module, option, buffers.get(option)):
                limits = {key: entry.get(key) for key in ("xoff", "static_threshold", "dynamic_threshold")}
                place = " ".join(str(entry[key]) for key in ("name", "pool") if entry.get(key))
                for statement in [*statements(limits, f"qos_buffer {place}")] or [f"qos_buffer {place}"]:
                    effect = DELL_SONIC.effect(statement)
                    if effect:
                        yield Override(statement, effect)

    def overrides(self, ports: dict[str, PortQos]) -> Iterator[Override]:
        """Return the options that can change what packets get and that are not read."""
        for port, settings in self.mtus.items():
            speeds = [f"SPEED_{str(speed).removesuffix('000')}GB" for speed in settings.get("advertised_speed") or ()]
            if settings.get("enabled") is False:
                yield from _overrides("interfaces", {"enabled": False}, (port,))
            if settings.get("auto_negotiate") is True and speeds != [settings.get("speed")]:
                yield from _overrides("interfaces", {"auto_negotiate": True}, (port,))
        for port, settings in self.interfaces.items():
            bound = {option: settings.get(option) for option in ("pfc", "qos_maps")}
            yield from _overrides("qos_interfaces", bound, (port,))
            for queue in self.entries("sonic_qos_interfaces", f"{port} queues", settings.get("queues")):
                name = str(queue.get("wred_profile"))
                served = dict(enumerate(ports[port].queues)).get(queue.get("id", 0)) if port in ports else None
                if served is not None and served.strict and name in self.wred and self.wred[name].get("ecn") != "green":
                    yield from _overrides("qos_wred", {"green": self.wred[name].get("green")}, (port,), name)
        ports_by_policy: dict[str, list[str]] = {}
        for port, settings in self.interfaces.items():
            ports_by_policy.setdefault(str(settings.get("scheduler_policy")), []).append(port)
        for policy, named_ports in ports_by_policy.items():
            schedulers = [
                *self.entries("sonic_qos_scheduler", policy, self.schedulers.get(policy, {}).get("schedulers"))
            ]
            first = [
                {"strict sequence": scheduler.get("sequence")}
                for scheduler in schedulers
                if scheduler.get("scheduler_type") == "strict"
            ]
            yield from _overrides("qos_scheduler", [*schedulers, *first], tuple(named_ports), policy)
        yield from _overrides("fbs_policies", self.not_rendered["fbs_policies"], ())

    def _refuse(self, module: str, subject: str, cause: str, remedy: str = "correct it on the switch") -> FabricError:
        return FabricError(f"{self.name}: {module}{subject and ' '}{subject}", cause, remedy)

    def options(self, module: str, subject: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._refuse(module, subject, f"{value!r} is not an object of options", "gather it again")
        return value

    def entries(self, module: str, subject: str, value: Any) -> Iterator[dict[str, Any]]:
        if value is None:
            return
        if not isinstance(value, list):
            raise self._refuse(module, subject, f"{value!r} is not a list", "gather it again")
        for element in value:
            yield self.options(module, subject, element)

    def _named(self, module: str, holder: dict[str, Any], option: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the elements of a list of options by their names."""
        by_name: dict[str, dict[str, Any]] = {}
        for element in self.entries(module, option or "", holder.get(option or module)):
            name = element.get("name")
            if not isinstance(name, str):
                raise self._refuse(module, option or "", f"{element!r} has no name", "gather it again")
            if name in by_name:
                raise self._refuse(module, name, "it is listed twice", "gather it again")
            by_name[name] = element
        return by_name

    def _number(
        self, module: str, subject: str, holder: dict[str, Any], option: str, minimum: int, maximum: int
    ) -> int | None:
        value = holder.get(option)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
            raise self._refuse(module, subject, f"{option} {value!r} is not a whole number from {minimum} to {maximum}")
        return number

    def _port(self, port: str) -> PortQos:
        module = "sonic_qos_interfaces"
        interface = self.interfaces.get(port, {})
        bound = self.options(module, f"{port} qos_maps", interface.get("qos_maps"))
        pfc = self.options(module, f"{port} pfc", interface.get("pfc"))
        paused = self.paused(port, pfc)
        groups = self.bound_map(port, bound, GROUP_MAP) or (None,) * CLASSES
        group_of = self.bound_map(port, bound, PFC_GROUP_MAP) or tuple(range(CLASSES))
        return PortQos(
            dscp_to_class=self.bound_map(port, bound, DSCP_MAP) or (None,) * DSCPS,
            rewrites_dscp=bound.get(REWRITING) is not None,
            class_to_queue=self.bound_map(port, bound, QUEUE_MAP) or (None,) * CLASSES,
            class_to_priority=paused_priorities(groups, group_of, paused),
            priority_to_queue=self.bound_map(port, bound, PFC_QUEUE_MAP) or (None,) * CLASSES,
            queues=self.queues(port, interface),
            pfc=paused,
            watchdog=self._watchdog(port, pfc),
            ip_mtu_bytes=self.mtu(port),
            cable_m=self._cable(port, interface.get("cable_length")),
        )

    def paused(self, port: str, pfc: dict[str, Any]) -> tuple[int, ...]:
        """Return the priorities that have PFC, ascending."""
        module, subject = "sonic_qos_interfaces", f"{port} priorities"
        return tuple(
            sorted(
                dot1p
                for entry in self.entries(module, subject, pfc.get("priorities"))
                for dot1p in [self._number(module, subject, entry, "dot1p", 0, CLASSES - 1)]
                if dot1p is not None and entry.get("enable") is True
            )
        )

    def bound_map(self, port: str, bound: dict[str, Any], form: tuple[str, str, str, str]) -> Octet | None:
        """Return the map that a port's option names; None where it names none."""
        kind, key, value, option = form
        name = bound.get(option)
        if name is None:
            return None
        if not isinstance(name, str) or name not in self.maps[kind]:
            raise self._refuse(
                "sonic_qos_interfaces",
                f"{port} {option}",
                f"{kind} has no map {name!r}",
                f"add it to {kind}, or set {option} to an existing one",
            )
        values: list[int | None] = [None] * (DSCPS if key == "dscp" else CLASSES)
        for entry in self.entries("sonic_qos_maps", name, self.maps[kind][name].get("entries")):
            index = self._number("sonic_qos_maps", name, entry, key, 0, len(values) - 1)
            if index is None:
                raise self._refuse("sonic_qos_maps", name, f"an entry has no {key}", "gather it again")
            values[index] = self._number("sonic_qos_maps", name, entry, value, 0, CLASSES - 1)
        return tuple(values)

    def by_key(self, kind: str, name: str, key: str) -> dict[str, dict[str, Any]]:
        """Return the entries of a map by their key; none where there is no such map."""
        entries = {}
        for entry in self.entries("sonic_qos_maps", name, self.maps[kind].get(name, {}).get("entries")):
            if key not in entry:
                raise self._refuse("sonic_qos_maps", name, f"an entry has no {key}", "gather it again")
            entries[str(entry[key])] = entry
        return entries

    def queues(self, port: str, interface: dict[str, Any]) -> tuple[Queue | None, ...]:
        module = "sonic_qos_interfaces"
        policy = interface.get("scheduler_policy")
        if policy is not None and str(policy) not in self.schedulers:
            raise self._refuse(
                module, f"{port} scheduler_policy", f"sonic_qos_scheduler has no policy {policy!r}", "add it there"
            )
        read: dict[int, tuple[bool, int | None, Ecn | None]] = {}
        schedulers = self.schedulers[str(policy)].get("schedulers") if policy is not None else None
        for scheduler in self.entries("sonic_qos_scheduler", str(policy), schedulers):
            number = self._number("sonic_qos_scheduler", str(policy), scheduler, "sequence", 0, 255)
            if number is not None and number < CLASSES:  # 255 is the port's shaper
                kind = scheduler.get("scheduler_type")
                if kind not in (None, "dwrr", "strict", "wrr"):
                    raise self._refuse("sonic_qos_scheduler", str(policy), f"scheduler_type {kind!r} is unknown")
                strict = kind == "strict"
                weight = self._number("sonic_qos_scheduler", str(policy), scheduler, "weight", 1, 100)
                read[number] = strict, None if strict else weight, None
        for queue in self.entries(module, f"{port} queues", interface.get("queues")):
            number = self._number(module, f"{port} queues", queue, "id", 0, 47)
            profile = queue.get("wred_profile")
            if number is None or number >= CLASSES or profile is None:
                continue
            if str(profile) not in self.wred:
                cause = f"sonic_qos_wred has no profile {profile!r}"
                raise self._refuse(module, f"{port} queue {number}", cause, "add it there")
            strict, weight, _ecn = read.get(number, (False, None, None))
            read[number] = strict, weight, self._ecn(str(profile))
        return queues_of(read)

    def _ecn(self, name: str) -> Ecn | None:
        """Return the marking; None where green packets (all that no policer coloured) are not marked."""
        module = "sonic_qos_wred"
        profile = self.wred[name]
        green = self.options(module, name, profile.get("green"))
        minimum = self._number(module, name, green, "min_threshold", 0, ECN_BYTES[1])
        maximum = self._number(module, name, green, "max_threshold", 0, ECN_BYTES[1])
        probability = self._number(module, name, green, "drop_probability", 0, 100)
        if minimum is None or maximum is None or profile.get("ecn") != "green" or green.get("enable") is not True:
            return None
        if minimum > maximum:
            raise self._refuse(module, name, f"min_threshold {minimum} is above max_threshold {maximum}")
        # When the module gathers, it leaves out a probability of 0.
        return Ecn(minimum, maximum, probability or 0)

    def _watchdog(self, port: str, pfc: dict[str, Any]) -> Watchdog | None:
        module, subject = "sonic_qos_interfaces", f"{port} pfc"
        detection = self._number(module, subject, pfc, "watchdog_detect_time", 100, 5000)
        restoration = self._number(module, subject, pfc, "watchdog_restore_time", 100, 60000)
        action = pfc.get("watchdog_action", "drop")
        if action not in ("alert", "drop", "forward"):
            raise self._refuse(module, subject, f"watchdog_action {action!r} is unknown")
        return None if detection is None or restoration is None else Watchdog(detection, restoration, action)

    def _cable(self, port: str, length: Any) -> int | None:
        if length is None:
            return None
        lengths = {f"{length_m}m": length_m for length_m in CABLES_M}
        if str(length) not in lengths:
            raise self._refuse(
                "sonic_qos_interfaces", port, f"cable_length {length!r} is not one of {', '.join(lengths)}"
            )
        return lengths[str(length)]

    def ecmp_fields(self) -> tuple[str, ...] | None:
        """Return the packet fields of the hash for both IP versions; None where neither is set."""
        module = "sonic_ecmp_load_share"
        config = self.options(module, "", self.config[module])
        fields_of_all: set[str] | None = None
        for family_index, family in enumerate(("ipv4", "ipv6")):
            if config.get(family) not in (None, {}):
                options = self.options(module, family, config[family])
                of_family = {
                    field for field, names in HASH.items() if options.get(f"{family}_{names[family_index]}") is True
                }
                fields_of_all = of_family if fields_of_all is None else fields_of_all & of_family
        return None if fields_of_all is None else tuple(sorted(fields_of_all))


def _overrides(module: str, options: Any, ports: tuple[str, ...], name: str = "") -> Iterator[Override]:
    for statement in statements(options, module):
        effect = DELL_SONIC.effect(statement)
        if effect:
            yield Override(statement.replace(module, f"{module} {name}".strip(), 1), effect, ports)
