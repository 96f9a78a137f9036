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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.thresholds import (
    PROFILE_IP_MTU_BYTES,
    floor_bytes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_buffers import IMAGE_PROFILE
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.json_text import DECODER
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import (
    DELL_SONIC,
    QUEUE,
    SIZE,
    statements,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import (
    natural_sort_key,
    paused_priorities,
    queues_of,
)

SYSTEM = "dell_sonic"
SPEED = re.compile(r"SPEED_(\d+)(MB|GB)")
LIMITS = ("xoff", "static_threshold", "dynamic_threshold", "pause_threshold")  # of pools and profiles
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
NAME, NUMBER, KEY = (str,), (int,), (int, str)  # of options that each element has
# Module -> the shape of what it gathers: a dict of options, a list of elements, or the types of a mandatory option.
# Other options are scalars or not read. What has no "sonic_" is not part of a policy.
SHAPES: dict[str, Any] = {
    "sonic_qos_buffer": {"buffer_pools": [{}], "buffer_profiles": [{}]},
    "sonic_qos_maps": {
        kind: [{"name": NAME, "entries": [{key: KEY}]}]
        for kind, key, *_rest in (DSCP_MAP, QUEUE_MAP, GROUP_MAP, PFC_QUEUE_MAP, PFC_GROUP_MAP)
    },
    "sonic_qos_wred": [{"name": NAME, "green": {}}],
    "sonic_qos_scheduler": [{"name": NAME, "schedulers": [{"sequence": NUMBER}]}],
    "sonic_qos_pfc": {},
    "sonic_qos_interfaces": [
        {"name": NAME, "qos_maps": {}, "pfc": {"priorities": [{"dot1p": NUMBER}]}, "queues": [{"id": NUMBER}]}
    ],
    "sonic_interfaces": [{"name": NAME, "advertised_speed": [NAME]}],
    "sonic_ecmp_load_share": {"ipv4": {}, "ipv6": {}},
    "lag_interfaces": [{"name": NAME, "members": {"interfaces": [{"member": NAME}]}}],
    "fbs_policies": [{}],
}


class DellSonicReader:
    """A reader that reads each profile and map once, and gives ports that are alike one object."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        remedy = "gather the switch's network resources again (dellemc.enterprise_sonic.sonic_facts)"
        try:
            data = DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise FabricError(f"not JSON ({error})", remedy, subject=f"{name}: configuration") from None
        if not isinstance(data, dict):
            raise FabricError(
                f"a JSON {type(data).__name__}, not an object of modules", remedy, subject=f"{name}: configuration"
            )
        self.config: dict[str, Any] = {}  # by module, without options that are null
        for module, shape in SHAPES.items():
            gathered, arguments = data.get(module.removeprefix("sonic_")), data.get(module)
            if arguments is not None and module.startswith("sonic_"):
                gathered = self._shaped(module, "", arguments, {}).get("config")
            self.config[module] = self._shaped(module, "", gathered, shape)
        maps = self.config["sonic_qos_maps"]
        self.maps = {kind: self._named("sonic_qos_maps", maps.get(kind, [])) for kind in SHAPES["sonic_qos_maps"]}
        # Since version 4 the collection has "all" colours in place of "green": the same without a policer.
        self.wred = {
            name: {**profile, "ecn": "green"} if profile.get("ecn") == "all" else profile
            for name, profile in self._of("sonic_qos_wred").items()
        }
        self.schedulers = self._of("sonic_qos_scheduler")
        self.interfaces = self._of("sonic_qos_interfaces")
        self.mtus = self._of("sonic_interfaces")

    def switch(self) -> Switch:
        distinct: dict[PortQos, PortQos] = {}
        ports = {}
        for port in sorted({*self.interfaces, *self.mtus}, key=natural_sort_key):
            if port.startswith("Eth"):  # not a VLAN, port channel, loopback or CPU
                qos = self._port(port)
                ports[port] = distinct.setdefault(qos, qos)
        lags = self.lags()
        return Switch(
            self.name,
            SYSTEM,
            ports,
            self.ecmp_fields(),
            overrides=(*self.overrides(ports), *self.overrides_of_lags(lags), *self.overrides_of_buffers()),
            speeds_gbit_s={port: speed for port in self.mtus if (speed := self.speed_gbit_s(port)) is not None},
            lags=lags,
        )

    def lags(self) -> dict[str, tuple[str, ...]]:
        """Return the members of each port channel."""
        return {
            name: tuple(member["member"] for member in lag.get("members", {}).get("interfaces", []))
            for name, lag in self._of("lag_interfaces").items()
        }

    def speed_gbit_s(self, port: str) -> float | None:
        """Return the speed of a port; None where none is set."""
        speed = self.mtus[port].get("speed")
        if speed is None:
            return None
        match = SPEED.fullmatch(str(speed))
        if not match:
            raise self._refuse("sonic_interfaces", port, f"speed {speed!r} is unknown")
        return int(match[1]) / (1 if match[2] == "GB" else 1000)

    def overrides_of_lags(self, lags: dict[str, tuple[str, ...]]) -> Iterator[Override]:
        """Return the options of port channels that a member does not have."""
        for lag, members in lags.items():
            gathered = self._of("lag_interfaces")[lag].get("graceful_shutdown")
            yield from _overrides("lag_interfaces", {"graceful_shutdown": gathered}, (lag,), lag)
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
        for option in ("buffer_pools", "buffer_profiles"):
            for entry in self.config["sonic_qos_buffer"].get(option, []):
                limits = {key: entry.get(key) for key in LIMITS}
                place = " ".join(["qos_buffer", *(str(entry[key]) for key in ("name", "pool") if entry.get(key))])
                few = " too few" if self._has_little_headroom(entry) else ""
                for statement in [*statements(limits, f"{place}{few}")] or [place]:
                    effect = DELL_SONIC.effect(statement)
                    if effect:
                        yield Override(statement, effect)

    def _has_little_headroom(self, profile: dict[str, Any]) -> bool:
        """Return whether a profile of a speed and cable holds less than what arrives before a pause has its effect."""
        match = IMAGE_PROFILE.fullmatch(str(profile.get("name")))
        xoff = self._number("sonic_qos_buffer", str(profile.get("name")), profile, "pause_threshold", 0, 1 << 32)
        if not match or xoff is None:
            return False
        return xoff < floor_bytes(int(match[1]), int(match[2]), PROFILE_IP_MTU_BYTES)

    def overrides(self, ports: dict[str, PortQos]) -> Iterator[Override]:
        """Return the options that can change what packets get and that are not read."""
        for port, settings in self.mtus.items():
            mtu, parent = self.mtu(port), port.partition(".")[0]
            if mtu is not None and (
                port.startswith(("PortChannel", "Vlan")) or parent != port
            ):  # which ports a VLAN has is not gathered
                yield Override(f"interfaces {port} mtu {mtu}", SIZE, (parent,), mtu)
            speeds = [f"SPEED_{speed.removesuffix('000')}GB" for speed in settings.get("advertised_speed", [])]
            if settings.get("enabled") is False:
                yield from _overrides("interfaces", {"enabled": False}, (port,))
            if settings.get("auto_negotiate") is True and speeds != [settings.get("speed")]:
                yield from _overrides("interfaces", {"auto_negotiate": True}, (port,))
        for port, settings in self.interfaces.items():
            bound = {option: settings.get(option) for option in ("pfc", "qos_maps")}
            yield from _overrides("qos_interfaces", bound, (port,))
            for queue in settings.get("queues", []):
                name = str(queue.get("wred_profile"))
                served = dict(enumerate(ports[port].queues)).get(queue["id"]) if port in ports else None
                if served is not None and served.strict and name in self.wred and self.wred[name].get("ecn") != "green":
                    yield from _overrides("qos_wred", {"green": self.wred[name].get("green")}, (port,), name)
        ports_by_policy: dict[str, list[str]] = {}
        for port, settings in self.interfaces.items():
            ports_by_policy.setdefault(str(settings.get("scheduler_policy")), []).append(port)
        for policy, named_ports in ports_by_policy.items():
            schedulers = self.schedulers.get(policy, {}).get("schedulers", [])
            first = [
                {"strict sequence": row["sequence"]} for row in schedulers if row.get("scheduler_type") == "strict"
            ]
            yield from _overrides("qos_scheduler", [*schedulers, *first], tuple(named_ports), policy)
        yield from _overrides("fbs_policies", self.config["fbs_policies"], ())

    def _refuse(self, module: str, subject: str, cause: str, remedy: str = "correct it on the switch") -> FabricError:
        return FabricError(cause, remedy, subject=f"{self.name}: {module}{subject and ' '}{subject}")

    def _shaped(self, module: str, place: str, value: Any, shape: Any) -> Any:
        """Return what a module gathered, without options that are null; refuse it in another shape than this."""
        remedy = "gather it again"
        if isinstance(shape, tuple):
            if shape == NUMBER and isinstance(value, str) and value.isascii() and value.isdecimal():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, shape):
                cause = "it is missing" if value is None else f"{value!r} is not valid"
                raise self._refuse(module, place, cause, remedy)
            return value
        if isinstance(shape, list):
            if not isinstance(value, (list, type(None))):
                raise self._refuse(module, place, f"{value!r} is not a list", remedy)
            return [self._shaped(module, place, element, shape[0]) for element in value or ()]
        if not isinstance(value, (dict, type(None))):
            raise self._refuse(module, place, f"{value!r} is not an object of options", remedy)
        options = {option: content for option, content in (value or {}).items() if content is not None}
        name = options.get("name")
        place = f"{place} {name}".strip() if isinstance(name, str) else place
        for option, inner in shape.items():
            if option in options or isinstance(inner, tuple):
                inner_place = f"{place} {option}".strip()
                options[option] = self._shaped(module, inner_place, options.get(option), inner)
        return options

    def _of(self, module: str) -> dict[str, dict[str, Any]]:
        """Return the elements that a module gathered by their names."""
        return self._named(module, self.config[module])

    def _named(self, module: str, elements: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        by_name: dict[str, dict[str, Any]] = {}
        for element in elements:
            if by_name.setdefault(element["name"], element) is not element:
                raise self._refuse(module, element["name"], "it is listed twice", "gather it again")
        return by_name

    def _number(
        self, module: str, subject: str, holder: dict[str, Any], option: str, minimum: int, maximum: int
    ) -> int | None:
        value = holder.get(option)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
        if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
            raise self._refuse(module, subject, f"{option} {value!r} is not a whole number from {minimum} to {maximum}")
        return number

    def _port(self, port: str) -> PortQos:
        interface = self.interfaces.get(port, {})
        bound, pfc = interface.get("qos_maps", {}), interface.get("pfc", {})
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
        numbers = {
            self._number(module, subject, entry, "dot1p", 0, CLASSES - 1): entry.get("enable") is True
            for entry in pfc.get("priorities", [])
        }
        return tuple(sorted(number for number, enabled in numbers.items() if enabled and number is not None))

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
        for entry in self.maps[kind][name].get("entries", []):
            index = self._number("sonic_qos_maps", name, entry, key, 0, len(values) - 1)
            if index is not None:
                values[index] = self._number("sonic_qos_maps", name, entry, value, 0, CLASSES - 1)
        return tuple(values)

    def by_key(self, kind: str, name: str, key: str) -> dict[str, dict[str, Any]]:
        """Return the entries of a map by their key; none where there is no such map."""
        return {str(entry[key]): entry for entry in self.maps[kind].get(name, {}).get("entries", [])}

    def queues(self, port: str, interface: dict[str, Any]) -> tuple[Queue | None, ...]:
        module = "sonic_qos_interfaces"
        policy = interface.get("scheduler_policy")
        if policy is not None and str(policy) not in self.schedulers:
            raise self._refuse(
                module, f"{port} scheduler_policy", f"sonic_qos_scheduler has no policy {policy!r}", "add it there"
            )
        read: dict[int, tuple[bool, int | None, Ecn | None]] = {}
        for scheduler in self.schedulers.get(str(policy), {}).get("schedulers", []):
            number = self._number("sonic_qos_scheduler", str(policy), scheduler, "sequence", 0, 255)
            if number is not None and number < CLASSES:  # 255 is the port's shaper
                kind = scheduler.get("scheduler_type")
                if kind not in (None, "dwrr", "strict", "wrr"):
                    raise self._refuse("sonic_qos_scheduler", str(policy), f"scheduler_type {kind!r} is unknown")
                strict = kind == "strict"
                weight = self._number("sonic_qos_scheduler", str(policy), scheduler, "weight", 1, 100)
                read[number] = strict, None if strict else weight, None
        for queue in interface.get("queues", []):
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
        green = profile.get("green", {})
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
        hashed = [
            {field for field, names in HASH.items() if options.get(f"{family}_{names[index]}") is True}
            for index, family in enumerate(("ipv4", "ipv6"))
            if (options := self.config["sonic_ecmp_load_share"].get(family))
        ]
        return tuple(sorted(set.intersection(*hashed))) if hashed else None


def _overrides(module: str, options: Any, ports: tuple[str, ...], name: str = "") -> Iterator[Override]:
    for statement in statements(options, module):
        effect = DELL_SONIC.effect(statement)
        if effect:
            yield Override(statement.replace(module, f"{module} {name}".strip(), 1), effect, ports)
