# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dell Enterprise SONiC: the arguments of the resource modules of the collection dellemc.enterprise_sonic, as JSON.

``{"sonic_qos_maps": {"config": ..., "state": "merged"}, ...}`` by module, to be applied in the order of ``MODULES``.
Read back is either that, or what the modules gather: ansible_network_resources, ``{"qos_maps": ..., ...}``. Options,
ranges and defaults are those of the modules' documentation, version 3.2.0.

Differences from the community's SONiC:

- No buffer profile can be bound to a priority group. With ``buffer_init`` the system computes headroom itself from each
  port's speed and ``cable_length``. Changing ``buffer_init`` restarts the switch.
- At most two priorities of a port can have PFC, and there is one map from priorities to queues for all ports.
- ``state: merged`` removes nothing: ``remediation`` has steps of ``state: deleted`` for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    Ecn,
    Octet,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.sonic_terms import (
    OWN,
    named,
    natural,
    paused_priorities,
    queues_of,
)

__all__ = ["MODULES", "NOT_HELD", "PORT", "PORT_EXAMPLE", "SYSTEM", "parse", "remediation", "render"]

SYSTEM = "dell_sonic"
NOT_HELD: dict[str, str] = {
    "headroom": "the system reckons it from the port's speed and cable_length, and no module binds a buffer profile",
    "cable_m": "held as 5, 40 or 300 m, the least that is not shorter",
}
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
CABLES_M = (5, 40, 300)
# From sonic-buildimage's device/dell: Z9264F, Z9332F, Z9664F, Z9864F, S5200F and Z9432F.
ASICS = ("tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4")
PORT = re.compile(r"Eth\d+(/\d+){1,2}|Ethernet\d+")
PORT_EXAMPLE = "Eth1/1, or Ethernet0 where interface naming is native"
MOST_PFC = 2
ECN_BYTES = (1000, 12_480_000)
POLL_INTERVAL_MS = 100  # the least, so that the watchdog's shortest time can be kept
PFC_MAP = f"{OWN}PFC"

# sonic_qos_maps: its list, the key and the value of an entry, and which option of sonic_qos_interfaces names one.
_DSCP = ("dscp_maps", "dscp", "fwd_group", "dscp_fwd_group")
_QUEUE = ("fwd_group_queue_maps", "fwd_group", "queue_index", "fwd_group_queue")
_GROUP = ("fwd_group_pg_maps", "fwd_group", "pg_index", "fwd_group_pg")
_PFC_QUEUE = ("pfc_priority_queue_maps", "dot1p", "queue_index", "pfc_priority_queue")
_PFC_GROUP = ("pfc_priority_pg_maps", "dot1p", "pg_index", "pfc_priority_pg")
_REWRITING = "fwd_group_dscp"  # a port's option: packets leave with the DSCP of their forwarding group
_KINDS = {"dscp_maps": "DSCP", "fwd_group_queue_maps": "QUEUE", "fwd_group_pg_maps": "TCPG"}
# ECMP_FIELDS -> the options of sonic_ecmp_load_share without "ipv4_" and "ipv6_".
_HASH = {
    "destination_ip": ("dst_ip", "dst_ip"),
    "destination_port": ("l4_dst_port", "l4_dst_port"),
    "protocol": ("ip_proto", "next_hdr"),
    "source_ip": ("src_ip", "src_ip"),
    "source_port": ("l4_src_port", "l4_src_port"),
}


def held_cable_m(cable_m: int) -> int:
    """Return the length given to the system for a cable; a cable longer than all of CABLES_M keeps its own length."""
    return next((each for each in CABLES_M if cable_m <= each), cable_m)


def render(switch: Switch) -> str:
    """Return the arguments of all modules, keys sorted. Raises FabricError for what this system cannot have."""
    alike: dict[int, int] = {}
    distinct: list[PortQos] = []
    kinds = []
    for qos in switch.ports.values():
        if id(qos) not in alike:
            alike[id(qos)] = len(distinct)
            distinct.append(qos)
        kinds.append(alike[id(qos)])
    for qos in distinct:
        port = next(name for name, each in switch.ports.items() if each is qos)
        _check(switch.name, port, qos)
    if len({qos.priority_to_queue for qos in distinct}) > 1:
        raise FabricError(
            switch.name,
            "its ports differ in the queues of their priorities, and it has one map for all",
            "make them alike",
        )
    return _text(tuple(switch.ports), tuple(kinds), tuple(distinct), switch.ecmp_fields)


def _check(name: str, port: str, qos: PortQos) -> None:
    subject = f"{name}: {port}"
    if len(qos.pfc) > MOST_PFC:
        raise FabricError(
            subject,
            f"PFC on priorities {', '.join(map(str, qos.pfc))}, and this system takes {MOST_PFC} a port",
            "make another class lossy",
        )
    for queue in qos.queues:
        for each in (queue.ecn.minimum_bytes, queue.ecn.maximum_bytes) if queue and queue.ecn else ():
            if not ECN_BYTES[0] <= each <= ECN_BYTES[1]:
                raise FabricError(
                    subject,
                    f"an ECN threshold of {each} bytes, and this system takes {ECN_BYTES[0]} to {ECN_BYTES[1]}",
                    "give the class thresholds in that range",
                )
    if qos.cable_m is not None and qos.cable_m > CABLES_M[-1]:
        raise FabricError(
            subject,
            f"a cable of {qos.cable_m} m, and this system has headroom for {CABLES_M[-1]} m",
            "use a shorter one",
        )


@lru_cache(maxsize=64)
def _text(
    ports: tuple[str, ...], kinds: tuple[int, ...], distinct: tuple[PortQos, ...], ecmp: tuple[str, ...] | None
) -> str:
    """Return the text of all switches whose ports have these names and these kinds."""
    maps: dict[str, dict[str, Any]] = {}
    wred: dict[str, Any] = {}
    schedulers: dict[str, Any] = {}
    interfaces = [_interface(qos, maps, wred, schedulers) for qos in distinct]
    lossless = any(qos.pfc for qos in distinct)
    config: dict[str, Any] = {
        "sonic_qos_buffer": {"buffer_init": True} if lossless else None,
        "sonic_qos_maps": {kind: _by_name(entries) for kind, entries in maps.items()},
        "sonic_qos_wred": _by_name(wred),
        "sonic_qos_scheduler": _by_name(schedulers),
        "sonic_qos_pfc": {"counter_poll": True, "poll_interval": POLL_INTERVAL_MS}
        if any(qos.watchdog for qos in distinct)
        else None,
        "sonic_qos_interfaces": [{"name": port, **interfaces[kind]} for port, kind in zip(ports, kinds)],
        "sonic_interfaces": [
            {"name": port, "mtu": distinct[kind].ip_mtu_bytes}
            for port, kind in zip(ports, kinds)
            if distinct[kind].ip_mtu_bytes is not None
        ],
        "sonic_ecmp_load_share": None if ecmp is None else _hash(ecmp),
    }
    arguments = {module: {"config": each, "state": "merged"} for module, each in config.items() if each}
    return json.dumps(arguments, indent=2, sort_keys=True) + "\n"


def _by_name(entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [entries[name] for name in sorted(entries)]


def _interface(
    qos: PortQos, maps: dict[str, dict[str, Any]], wred: dict[str, Any], schedulers: dict[str, Any]
) -> dict[str, Any]:
    """Return one port's options of sonic_qos_interfaces, and add to the other modules what they refer to."""
    bound = {}
    for (kind, key, value, option), octet in (
        (_DSCP, qos.dscp_to_class),
        (_QUEUE, qos.class_to_queue),
        (_GROUP, qos.class_to_priority),
        (_PFC_QUEUE, qos.priority_to_queue),
    ):
        entries = [_entry(key, at, value, number) for at, number in enumerate(octet) if number is not None]
        if entries:
            name = named(_KINDS[kind], entries) if kind in _KINDS else PFC_MAP
            maps.setdefault(kind, {})[name] = {"name": name, "entries": entries}
            bound[option] = name
    queues = []
    policy = []
    for number, queue in enumerate(qos.queues):
        if queue is None:
            continue
        if queue.ecn:
            profile = _wred(queue.ecn)
            wred[profile["name"]] = profile
            queues.append({"id": number, "wred_profile": profile["name"]})
        if queue.strict or queue.bandwidth_percent is not None:
            policy.append(_scheduler(number, queue))
    interface: dict[str, Any] = {"pfc": _pfc(qos), "qos_maps": bound, "queues": queues}
    if policy:
        name = named("SCHEDULER", policy)
        schedulers[name] = {"name": name, "schedulers": policy}
        interface["scheduler_policy"] = name
    if qos.cable_m is not None:
        interface["cable_length"] = f"{held_cable_m(qos.cable_m)}m"
    return {option: each for option, each in interface.items() if each}


def _entry(key: str, at: int, value: str, number: int) -> dict[str, Any]:
    """Return one entry of a map. Forwarding groups are text in the modules; all other values are numbers."""
    return {option: str(each) if option == "fwd_group" else each for option, each in ((key, at), (value, number))}


def _wred(ecn: Ecn) -> dict[str, Any]:
    green = {
        "enable": True,
        "min_threshold": ecn.minimum_bytes,
        "max_threshold": ecn.maximum_bytes,
        "drop_probability": ecn.probability_percent,
    }
    return {"name": named("ECN", green), "ecn": "green", "green": green}


def _scheduler(number: int, queue: Queue) -> dict[str, Any]:
    if queue.strict:
        return {"sequence": number, "scheduler_type": "strict"}
    return {"sequence": number, "scheduler_type": "dwrr", "weight": queue.bandwidth_percent}


def _pfc(qos: PortQos) -> dict[str, Any]:
    pfc: dict[str, Any] = {}
    if qos.pfc:
        pfc = {"asymmetric": False, "priorities": [{"dot1p": each, "enable": True} for each in qos.pfc]}
    if qos.watchdog:
        pfc["watchdog_action"] = qos.watchdog.action
        pfc["watchdog_detect_time"] = qos.watchdog.detection_ms
        pfc["watchdog_restore_time"] = qos.watchdog.restoration_ms
    return pfc


def _hash(ecmp: tuple[str, ...]) -> dict[str, Any]:
    """Return all five options, on or off: an omitted option would stay as it is."""
    return {
        family: {f"{family}_{options[at]}": field in ecmp for field, options in _HASH.items()}
        for at, family in enumerate(("ipv4", "ipv6"))
    }


def parse(text: str, name: str) -> Switch:
    """Parse the QoS of all Ethernet ports from the modules' arguments or from what they gather.

    Raises FabricError for the first error.
    """
    return _Reader(text, name).switch()


class _Reader:
    """A reader that reads each profile and map once, and gives ports that are alike one object."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        mend = "gather the switch's network resources again (dellemc.enterprise_sonic.sonic_facts)"
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FabricError(f"{name}: configuration", f"not JSON ({error})", mend) from None
        if not isinstance(data, dict):
            raise FabricError(f"{name}: configuration", f"a JSON {type(data).__name__}, no object of modules", mend)
        self.config: dict[str, Any] = {}
        for module in MODULES:
            arguments = data.get(module)
            if arguments is None:
                self.config[module] = data.get(module[len("sonic_") :])
            elif isinstance(arguments, dict):
                self.config[module] = arguments.get("config")
            else:
                raise FabricError(f"{name}: {module}", f"{arguments!r} are no arguments", mend)
        self.maps = {
            kind: self._named("sonic_qos_maps", self.options("sonic_qos_maps", "", self.config["sonic_qos_maps"]), kind)
            for kind, *_rest in (_DSCP, _QUEUE, _GROUP, _PFC_QUEUE, _PFC_GROUP)
        }
        self.wred = self._named("sonic_qos_wred", self.config)
        self.schedulers = self._named("sonic_qos_scheduler", self.config)
        self.interfaces = self._named("sonic_qos_interfaces", self.config)
        self.mtus = self._named("sonic_interfaces", self.config)

    def switch(self) -> Switch:
        alike: dict[PortQos, PortQos] = {}
        ports = {}
        for port in sorted({*self.interfaces, *self.mtus}, key=natural):
            if port.startswith("Eth"):  # and no VLAN, port channel, loopback or CPU
                qos = self._port(port)
                ports[port] = alike.setdefault(qos, qos)
        return Switch(self.name, SYSTEM, ports, self.ecmp_fields())

    def _refuse(self, module: str, what: str, why: str, mend: str = "correct it on the switch") -> FabricError:
        return FabricError(f"{self.name}: {module}{what and ' '}{what}", why, mend)

    def options(self, module: str, what: str, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._refuse(module, what, f"{value!r} is no object of options", "gather it again")
        return value

    def entries(self, module: str, what: str, value: Any) -> Iterator[dict[str, Any]]:
        if value is None:
            return
        if not isinstance(value, list):
            raise self._refuse(module, what, f"{value!r} is no list", "gather it again")
        for each in value:
            yield self.options(module, what, each)

    def _named(self, module: str, holder: dict[str, Any], option: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the elements of a list of options by their names."""
        found: dict[str, dict[str, Any]] = {}
        for each in self.entries(module, option or "", holder.get(option or module)):
            name = each.get("name")
            if not isinstance(name, str):
                raise self._refuse(module, option or "", f"{each!r} has no name", "gather it again")
            if name in found:
                raise self._refuse(module, name, "it stands there twice", "gather it again")
            found[name] = each
        return found

    def _number(self, module: str, what: str, holder: dict[str, Any], option: str, least: int, most: int) -> int | None:
        value = holder.get(option)
        if value is None:
            return None
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise self._refuse(module, what, f"{option} {value!r} is not a whole number of {least} to {most}")
        return number

    def _port(self, port: str) -> PortQos:
        module = "sonic_qos_interfaces"
        interface = self.interfaces.get(port, {})
        bound = self.options(module, f"{port} qos_maps", interface.get("qos_maps"))
        pfc = self.options(module, f"{port} pfc", interface.get("pfc"))
        paused = self.paused(port, pfc)
        groups = self.bound_map(port, bound, _GROUP) or (None,) * CLASSES
        group_of = self.bound_map(port, bound, _PFC_GROUP) or tuple(range(CLASSES))
        mtu = self._number("sonic_interfaces", port, self.mtus.get(port, {}), "mtu", 1280, 9216)
        return PortQos(
            dscp_to_class=self.bound_map(port, bound, _DSCP) or (None,) * DSCPS,
            rewrites_dscp=bound.get(_REWRITING) is not None,
            class_to_queue=self.bound_map(port, bound, _QUEUE) or (None,) * CLASSES,
            class_to_priority=paused_priorities(groups, group_of, paused),
            priority_to_queue=self.bound_map(port, bound, _PFC_QUEUE) or (None,) * CLASSES,
            queues=self.queues(port, interface),
            pfc=paused,
            watchdog=self._watchdog(port, pfc),
            ip_mtu_bytes=mtu,
            cable_m=self._cable(port, interface.get("cable_length")),
        )

    def paused(self, port: str, pfc: dict[str, Any]) -> tuple[int, ...]:
        """Return the priorities that have PFC, ascending."""
        module, what = "sonic_qos_interfaces", f"{port} priorities"
        return tuple(
            sorted(
                dot1p
                for each in self.entries(module, what, pfc.get("priorities"))
                for dot1p in [self._number(module, what, each, "dot1p", 0, CLASSES - 1)]
                if dot1p is not None and each.get("enable") is True
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
                f"add it to {kind}, or let {option} name one that is there",
            )
        values: list[int | None] = [None] * (DSCPS if key == "dscp" else CLASSES)
        for each in self.entries("sonic_qos_maps", name, self.maps[kind][name].get("entries")):
            at = self._number("sonic_qos_maps", name, each, key, 0, len(values) - 1)
            if at is None:
                raise self._refuse("sonic_qos_maps", name, f"an entry has no {key}", "gather it again")
            values[at] = self._number("sonic_qos_maps", name, each, value, 0, CLASSES - 1)
        return tuple(values)

    def by_key(self, kind: str, name: str, key: str) -> dict[str, dict[str, Any]]:
        """Return the entries of a map by their key; none where there is no such map."""
        found = {}
        for each in self.entries("sonic_qos_maps", name, self.maps[kind].get(name, {}).get("entries")):
            if key not in each:
                raise self._refuse("sonic_qos_maps", name, f"an entry has no {key}", "gather it again")
            found[str(each[key])] = each
        return found

    def queues(self, port: str, interface: dict[str, Any]) -> tuple[Queue | None, ...]:
        module = "sonic_qos_interfaces"
        policy = interface.get("scheduler_policy")
        if policy is not None and str(policy) not in self.schedulers:
            raise self._refuse(
                module, f"{port} scheduler_policy", f"sonic_qos_scheduler has no policy {policy!r}", "add it there"
            )
        read: dict[int, tuple[bool, int | None, Ecn | None]] = {}
        schedulers = self.schedulers[str(policy)].get("schedulers") if policy is not None else None
        for each in self.entries("sonic_qos_scheduler", str(policy), schedulers):
            number = self._number("sonic_qos_scheduler", str(policy), each, "sequence", 0, 255)
            if number is not None and number < CLASSES:  # 255 is the port's shaper
                kind = each.get("scheduler_type")
                if kind not in (None, "dwrr", "strict", "wrr"):
                    raise self._refuse("sonic_qos_scheduler", str(policy), f"scheduler_type {kind!r} is unknown")
                strict = kind == "strict"
                weight = self._number("sonic_qos_scheduler", str(policy), each, "weight", 1, 100)
                read[number] = strict, None if strict else weight, None
        for each in self.entries(module, f"{port} queues", interface.get("queues")):
            number = self._number(module, f"{port} queues", each, "id", 0, 47)
            profile = each.get("wred_profile")
            if number is None or number >= CLASSES or profile is None:
                continue
            if str(profile) not in self.wred:
                why = f"sonic_qos_wred has no profile {profile!r}"
                raise self._refuse(module, f"{port} queue {number}", why, "add it there")
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
        # The module leaves a probability of 0 out when it gathers.
        return Ecn(minimum, maximum, probability or 0)

    def _watchdog(self, port: str, pfc: dict[str, Any]) -> Watchdog | None:
        module, what = "sonic_qos_interfaces", f"{port} pfc"
        detection = self._number(module, what, pfc, "watchdog_detect_time", 100, 5000)
        restoration = self._number(module, what, pfc, "watchdog_restore_time", 100, 60000)
        action = pfc.get("watchdog_action", "drop")
        if action not in ("alert", "drop", "forward"):
            raise self._refuse(module, what, f"watchdog_action {action!r} is unknown")
        return None if detection is None or restoration is None else Watchdog(detection, restoration, action)

    def _cable(self, port: str, length: Any) -> int | None:
        if length is None:
            return None
        lengths = {f"{each}m": each for each in CABLES_M}
        if str(length) not in lengths:
            raise self._refuse("sonic_qos_interfaces", port, f"cable_length {length!r} is none of {', '.join(lengths)}")
        return lengths[str(length)]

    def ecmp_fields(self) -> tuple[str, ...] | None:
        """Return the packet fields of the hash for both IP versions; None where neither is set."""
        module = "sonic_ecmp_load_share"
        config = self.options(module, "", self.config[module])
        taken: set[str] | None = None
        for at, family in enumerate(("ipv4", "ipv6")):
            if config.get(family) is not None:
                options = self.options(module, family, config[family])
                of_family = {field for field, names in _HASH.items() if options.get(f"{family}_{names[at]}") is True}
                taken = of_family if taken is None else taken & of_family
        return None if taken is None else tuple(sorted(taken))


# Remediate

Config = dict[str, Any]
_BOUND = (_DSCP, _QUEUE, _GROUP, _PFC_QUEUE)
CABLE_UNSET = "40m"  # what the modules gather, and write, where no cable is set


def remediation(running: str, wanted: Switch) -> str:
    """Return the modules' calls, in order, that change what was gathered to ``wanted``: JSON, a list of ``{"module":
    ..., "config": ..., "state": "merged" or "deleted"}``; "" where nothing differs.

    A port keeps settings that already mean the same, under any name. Settings that contradict on a wanted port are
    deleted, and so are objects of this project that no port uses any more.
    """
    steps = _Remedy(_Reader(running, wanted.name), wanted).steps()
    return json.dumps(steps, indent=2, sort_keys=True) + "\n" if steps else ""


class _Remedy:
    """The differences between a switch's settings and the wanted ones."""

    def __init__(self, reader: _Reader, wanted: Switch) -> None:
        self.reader = reader
        self.wanted = wanted
        self.want = {module: each["config"] for module, each in json.loads(render(wanted)).items()}
        self.used: set[tuple[str, str]] = set()  # what each port refers to in the end, by kind and name
        self.new: set[tuple[str, str]] = set()  # the part of it that a port is given

    def steps(self) -> list[Config]:
        """Return the calls: objects, then ports, contradictions before wanted settings, and unused objects last."""
        steps: list[Config] = []

        def add(module: str, state: str, config: Any) -> None:
            if config:
                steps.append({"module": module, "state": state, "config": config})

        taken, given = self.ports()
        if self.want.get("sonic_qos_buffer") and self.has("sonic_qos_buffer").get("buffer_init") is not True:
            add("sonic_qos_buffer", "merged", self.want["sonic_qos_buffer"])
        extra, lacking = self.maps()
        add("sonic_qos_maps", "deleted", extra)
        add("sonic_qos_maps", "merged", lacking)
        add("sonic_qos_wred", "merged", self.objects("sonic_qos_wred", self.reader.wred))
        add("sonic_qos_scheduler", "deleted", self.sequences())
        add("sonic_qos_scheduler", "merged", self.objects("sonic_qos_scheduler", self.reader.schedulers))
        has = self.has("sonic_qos_pfc")
        if any(has.get(option) != each for option, each in self.want.get("sonic_qos_pfc", {}).items()):
            add("sonic_qos_pfc", "merged", self.want["sonic_qos_pfc"])
        add("sonic_qos_interfaces", "deleted", taken)
        add("sonic_qos_interfaces", "merged", given)
        add("sonic_interfaces", "merged", self.mtus())
        if self.wanted.ecmp_fields is not None and self.reader.ecmp_fields() != self.wanted.ecmp_fields:
            add("sonic_ecmp_load_share", "merged", self.want["sonic_ecmp_load_share"])
        for module, config in self.leftovers():
            add(module, "deleted", config)
        return steps

    def has(self, module: str) -> Config:
        return self.reader.options(module, "", self.reader.config[module])

    def ports(self) -> tuple[list[Config], list[Config]]:
        """Return (to delete, to merge) of sonic_qos_interfaces, and record what is used."""
        taken, given = [], []
        interfaces = {each["name"]: each for each in self.want.get("sonic_qos_interfaces", [])}
        for port, interface in self.reader.interfaces.items():
            if port not in self.wanted.ports:
                self.uses(port, interface)
        for port in self.wanted.ports:
            less, more = self.port(port, interfaces.get(port, {}))
            if less:
                taken.append({"name": port, **less})
            if more:
                given.append({"name": port, **more})
        return taken, given

    def port(self, port: str, want: Config) -> tuple[Config, Config]:
        has = self.reader.interfaces.get(port, {})
        less: Config = {}
        more: Config = {}
        self.bindings(port, has, want, less, more)
        self.queues(port, has, want, less, more)
        self.pfc(port, has, want, less, more)
        cable = has.get("cable_length") or CABLE_UNSET
        if want.get("cable_length", cable) != cable:
            more["cable_length"] = want["cable_length"]
        elif more:  # or the module writes its default
            more["cable_length"] = cable
        return less, more

    def bindings(self, port: str, has: Config, want: Config, less: Config, more: Config) -> None:
        """Return the maps of a port."""
        qos = self.wanted.ports[port]
        octets = (qos.dscp_to_class, qos.class_to_queue, qos.class_to_priority, qos.priority_to_queue)
        bound = self.reader.options("sonic_qos_interfaces", f"{port} qos_maps", has.get("qos_maps"))
        names = want.get("qos_maps", {})
        drop: Config = {}
        put: Config = {}
        for form, octet in zip(_BOUND, octets):
            kind, _key, _value, option = form
            if self.octet(port, bound, form) == octet:
                if option in bound:
                    self.used.add((kind, str(bound[option])))
            elif option in names:
                put[option] = names[option]
                self.used.add((kind, names[option]))
                self.new.add((kind, names[option]))
            else:
                drop[option] = bound[option]
        if bound.get(_REWRITING) is not None:
            drop[_REWRITING] = bound[_REWRITING]
        kind, _key, _value, option = _PFC_GROUP
        if bound.get(option) is not None:
            if self.octet(port, bound, _PFC_GROUP) == tuple(range(CLASSES)):
                self.used.add((kind, str(bound[option])))
            else:
                drop[option] = bound[option]
        less.update({"qos_maps": drop} if drop else {})
        more.update({"qos_maps": put} if put else {})

    def octet(self, port: str, bound: Config, form: tuple[str, str, str, str]) -> Octet | None:
        """Return the content of a map that a port names; None where it cannot be understood, and is replaced."""
        try:
            found = self.reader.bound_map(port, bound, form)
        except FabricError:
            return None
        return (None,) * (DSCPS if form is _DSCP else CLASSES) if found is None else found

    def queues(self, port: str, has: Config, want: Config, less: Config, more: Config) -> None:
        """Return the scheduler policy and the WRED profiles of a port."""
        try:
            seen = self.reader.queues(port, has)
        except FabricError:
            seen = None
        wanted = self.wanted.ports[port].queues
        policy = has.get("scheduler_policy")
        if seen is not None and [_served(each) for each in seen] == [_served(each) for each in wanted]:
            if policy is not None:
                self.used.add(("scheduler", str(policy)))
        elif "scheduler_policy" in want:
            more["scheduler_policy"] = want["scheduler_policy"]
            self.used.add(("scheduler", want["scheduler_policy"]))
            self.new.add(("scheduler", want["scheduler_policy"]))
        else:
            less["scheduler_policy"] = policy
        profiles = {each["id"]: each["wred_profile"] for each in want.get("queues", [])}
        there = {
            each.get("id"): each["wred_profile"]
            for each in self.reader.entries("sonic_qos_interfaces", f"{port} queues", has.get("queues"))
            if each.get("wred_profile") is not None and each.get("id") in range(CLASSES)
        }
        drop, put = [], []
        for number in range(CLASSES):
            same = seen is not None and _marks(seen[number]) == _marks(wanted[number])
            if number in profiles and not same:
                put.append({"id": number, "wred_profile": profiles[number]})
                self.used.add(("wred", profiles[number]))
                self.new.add(("wred", profiles[number]))
            elif number in there and (not same or (number not in profiles and there[number] in profiles.values())):
                drop.append({"id": number, "wred_profile": there[number]})  # what marks, or would from now on
            elif number in there:
                self.used.add(("wred", str(there[number])))
        less.update({"queues": drop} if drop else {})
        more.update({"queues": put} if put else {})

    def pfc(self, port: str, has: Config, want: Config, less: Config, more: Config) -> None:
        """Return the pauses and the watchdog of a port."""
        pfc = self.reader.options("sonic_qos_interfaces", f"{port} pfc", has.get("pfc"))
        wanted = self.wanted.ports[port].pfc
        paused = self.reader.paused(port, pfc)
        drop: Config = {}
        put: Config = {}
        off = [{"dot1p": each, "enable": True} for each in paused if each not in wanted]
        on = [{"dot1p": each, "enable": True} for each in wanted if each not in paused]
        if off:
            drop["priorities"] = off
        if on:
            put["priorities"] = on
        if wanted and pfc.get("asymmetric") is True:
            put["asymmetric"] = False
        action = pfc.get("watchdog_action", "drop")
        dog = {option: each for option, each in want.get("pfc", {}).items() if option.startswith("watchdog")}
        for option in ("watchdog_detect_time", "watchdog_restore_time"):
            if option not in dog and pfc.get(option) is not None:
                drop[option] = pfc[option]
            elif option in dog and pfc.get(option) != dog[option]:
                put[option] = dog[option]
        if put or dog.get("watchdog_action", action) != action:  # or the module writes its default
            put["watchdog_action"] = dog.get("watchdog_action", action)
        less.update({"pfc": drop} if drop else {})
        more.update({"pfc": put} if put else {})

    def maps(self) -> tuple[Config, Config]:
        """Return (entries to delete, maps to merge) of sonic_qos_maps, for the maps that ports are given."""
        extra: Config = {}
        lacking: Config = {}
        for kind, key, _value, _option in _BOUND:
            for each in self.want.get("sonic_qos_maps", {}).get(kind, []):
                name, entries = each["name"], each["entries"]
                if (kind, name) not in self.new:
                    continue
                there = self.reader.by_key(kind, name, key)
                gone = sorted(there.keys() - {str(entry[key]) for entry in entries})
                missing = [entry for entry in entries if there.get(str(entry[key])) != entry]
                if gone:
                    extra.setdefault(kind, []).append({"name": name, "entries": [{key: there[at][key]} for at in gone]})
                if missing:
                    lacking.setdefault(kind, []).append({"name": name, "entries": missing})
        return extra, lacking

    def objects(self, module: str, there: dict[str, Config]) -> list[Config]:
        """Return the profiles or policies that ports are given and that are missing or different."""
        kind = module.rpartition("_")[2]
        return [
            each
            for each in self.want.get(module, [])
            if (kind, each["name"]) in self.new and there.get(each["name"]) != each
        ]

    def sequences(self) -> list[Config]:
        """Return, for policies that ports are given, the queues that were added or given another kind of service."""
        found = []
        for policy in self.objects("sonic_qos_scheduler", self.reader.schedulers):
            wanted = {each["sequence"]: each["scheduler_type"] for each in policy["schedulers"]}
            there = self.reader.schedulers.get(policy["name"], {}).get("schedulers")
            gone = [
                {"sequence": each["sequence"]}
                for each in self.reader.entries("sonic_qos_scheduler", policy["name"], there)
                if each.get("sequence") in range(CLASSES)
                and wanted.get(each["sequence"]) != each.get("scheduler_type", "dwrr")
            ]
            if gone:
                found.append({"name": policy["name"], "schedulers": gone})
        return found

    def mtus(self) -> list[Config]:
        return [
            each
            for each in self.want.get("sonic_interfaces", [])
            if self.reader.mtus.get(each["name"], {}).get("mtu") != each["mtu"]
        ]

    def uses(self, port: str, interface: Config) -> None:
        """Record the objects that a port uses for which nothing is wanted."""
        bound = self.reader.options("sonic_qos_interfaces", f"{port} qos_maps", interface.get("qos_maps"))
        self.used |= {(kind, str(bound.get(option))) for kind, _key, _value, option in (*_BOUND, _PFC_GROUP)}
        self.used.add(("scheduler", str(interface.get("scheduler_policy"))))
        for each in self.reader.entries("sonic_qos_interfaces", f"{port} queues", interface.get("queues")):
            self.used.add(("wred", str(each.get("wred_profile"))))

    def leftovers(self) -> Iterator[tuple[str, Any]]:
        """Return this project's objects that nothing uses."""

        def unused(kind: str, there: dict[str, Config]) -> list[Config]:
            return [{"name": name} for name in sorted(there) if name.startswith(OWN) and (kind, name) not in self.used]

        yield "sonic_qos_scheduler", unused("scheduler", self.reader.schedulers)
        yield "sonic_qos_wred", unused("wred", self.reader.wred)
        kinds = {kind: unused(kind, there) for kind, there in sorted(self.reader.maps.items())}
        yield "sonic_qos_maps", {kind: each for kind, each in kinds.items() if each}


def _served(queue: Queue | None) -> tuple[bool, int | None]:
    """Return how a queue is served; one that only marks is served like one that is not there."""
    return (False, None) if queue is None else (queue.strict, queue.bandwidth_percent)


def _marks(queue: Queue | None) -> Ecn | None:
    return queue.ecn if queue else None
