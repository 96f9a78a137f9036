# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the module calls from the gathered settings to the wanted ones. Sources: ``systems.dell_sonic``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    ECMP_FIELDS,
    Ecn,
    Octet,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.dell_sonic import (
    DSCP_MAP,
    GROUP_MAP,
    PFC_GROUP_MAP,
    PFC_QUEUE_MAP,
    QUEUE_MAP,
    REWRITING,
    SYSTEM,
    DellSonicReader,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.sonic_terms import OWN
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.dell_sonic_render import render

Config = dict[str, Any]
_BOUND = (DSCP_MAP, QUEUE_MAP, GROUP_MAP, PFC_QUEUE_MAP)
CABLE_UNSET = "40m"  # what the modules gather, and write, where no cable is set


def remediation(running: str, wanted: Switch) -> str:
    """Return the modules' calls, in order, that change what was gathered to ``wanted``; "" where nothing differs.

    The calls are JSON: a list of ``{"module": ..., "config": ..., "state": "merged" or "deleted"}``. A port keeps
    settings that already mean the same, under any name. Settings of a wanted port that contradict the policy are
    deleted, and so are objects of this project that no port uses any more.
    """
    want = {module: call["config"] for module, call in json.loads(render(wanted)).items()}
    return _text(_Change(DellSonicReader(running, wanted.name), wanted, want).steps())


def restoration(backup: str, running: str, name: str) -> str:
    """Return the calls, in the form of remediation's, that change ``running`` back to ``backup``; "" if equal.

    Two settings of the whole switch stay: buffer_init, which restarts the switch, and a polling interval where
    ``backup`` has none, because the modules cannot remove it.
    """
    former, reader = DellSonicReader(backup, name), DellSonicReader(running, name)
    ports = {**dict.fromkeys(reader.switch().ports, PortQos()), **former.switch().ports}
    interfaces = {port: {"name": port, "cable_length": CABLE_UNSET} for port in ports}
    for port, interface in former.interfaces.items():
        interfaces.setdefault(port, {}).update(interface)
        bound = interface.get("qos_maps", {})
        if PFC_GROUP_MAP[3] in bound and port in ports:  # the map itself, not seen through that one
            groups = former.bound_map(port, bound, GROUP_MAP) or (None,) * CLASSES
            ports[port] = replace(ports[port], class_to_priority=groups)
    want = {
        **{module: config for module, config in former.config.items() if config},
        "sonic_qos_interfaces": list(interfaces.values()),
        "sonic_interfaces": [
            {"name": port, "mtu": interface["mtu"]} for port, interface in former.mtus.items() if "mtu" in interface
        ],
    }
    steps = _Change(reader, Switch(name, SYSTEM, ports, former.ecmp_fields()), want).steps()
    module = "sonic_ecmp_load_share"
    # To delete them, the module sets its defaults, which are all fields.
    if former.ecmp_fields() is None and reader.ecmp_fields() not in (None, ECMP_FIELDS):
        steps.append({"module": module, "state": "deleted", "config": reader.config[module]})
    return _text(steps)


def _text(steps: list[Config]) -> str:
    return json.dumps(steps, indent=2, sort_keys=True) + "\n" if steps else ""


class _Change:
    """The differences between a switch's settings and the wanted ones."""

    def __init__(self, reader: DellSonicReader, wanted: Switch, want: dict[str, Any]) -> None:
        """Compare ``reader`` with ``wanted``. ``want``: the configurations of the modules that make it, by module."""
        self.reader = reader
        self.wanted = wanted
        self.want = want
        self.used: set[tuple[str, str]] = set()  # what ports refer to after the change, by kind and name
        self.new: set[tuple[str, str]] = set()  # the part of it that the change gives to a port

    def steps(self) -> list[Config]:
        """Return the calls: objects, then ports, contradictions before wanted settings, and unused objects last."""
        steps: list[Config] = []

        def add(module: str, state: str, config: Any) -> None:
            if config:
                steps.append({"module": module, "state": state, "config": config})

        removed_settings, merged_settings = self.ports()
        if self.want.get("sonic_qos_buffer") and self.reader.config["sonic_qos_buffer"].get("buffer_init") is not True:
            add("sonic_qos_buffer", "merged", self.want["sonic_qos_buffer"])
        extra, lacking = self.maps()
        add("sonic_qos_maps", "deleted", extra)
        add("sonic_qos_maps", "merged", lacking)
        add("sonic_qos_wred", "merged", self.objects("sonic_qos_wred", self.reader.wred))
        add("sonic_qos_scheduler", "deleted", self.sequences())
        add("sonic_qos_scheduler", "merged", self.objects("sonic_qos_scheduler", self.reader.schedulers))
        existing = self.reader.config["sonic_qos_pfc"]
        if any(existing.get(option) != value for option, value in self.want.get("sonic_qos_pfc", {}).items()):
            add("sonic_qos_pfc", "merged", self.want["sonic_qos_pfc"])
        add("sonic_qos_interfaces", "deleted", removed_settings)
        add("sonic_qos_interfaces", "merged", merged_settings)
        add("sonic_interfaces", "merged", self.mtus())
        if self.wanted.ecmp_fields is not None and self.reader.ecmp_fields() != self.wanted.ecmp_fields:
            add("sonic_ecmp_load_share", "merged", self.want["sonic_ecmp_load_share"])
        for module, config in self.leftovers():
            add(module, "deleted", config)
        return steps

    def ports(self) -> tuple[list[Config], list[Config]]:
        """Return (to delete, to merge) of sonic_qos_interfaces, and record what is used."""
        to_delete, to_merge = [], []
        interfaces = {interface["name"]: interface for interface in self.want.get("sonic_qos_interfaces", [])}
        for port, interface in self.reader.interfaces.items():
            if port not in self.wanted.ports:
                self.record_uses(interface)
        for port in self.wanted.ports:
            removed, merged = self.port(port, interfaces.get(port, {}))
            if removed:
                to_delete.append({"name": port, **removed})
            if merged:
                to_merge.append({"name": port, **merged})
        return to_delete, to_merge

    def port(self, port: str, want: Config) -> tuple[Config, Config]:
        existing = self.reader.interfaces.get(port, {})
        removed: Config = {}
        merged: Config = {}
        self.bindings(port, existing, want, removed, merged)
        self.queues(port, existing, want, removed, merged)
        self.pfc(port, existing, want, removed, merged)
        cable = existing.get("cable_length") or CABLE_UNSET
        if want.get("cable_length", cable) != cable:
            merged["cable_length"] = want["cable_length"]
        elif merged:  # otherwise the module writes its default
            merged["cable_length"] = cable
        return removed, merged

    def bindings(self, port: str, existing: Config, want: Config, removed: Config, merged: Config) -> None:
        """Add the changes of a port's maps to ``removed`` and ``merged``, and record what is used."""
        qos = self.wanted.ports[port]
        octets = (qos.dscp_to_class, qos.class_to_queue, qos.class_to_priority, qos.priority_to_queue)
        bound = existing.get("qos_maps", {})
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
        if REWRITING in bound:
            drop[REWRITING] = bound[REWRITING]
        kind, _key, _value, option = PFC_GROUP_MAP
        if option in names:  # only of a backup
            self.used.add((kind, names[option]))
            if bound.get(option) != names[option]:
                put[option] = names[option]
        elif bound.get(option) is not None:
            if self.octet(port, bound, PFC_GROUP_MAP) == tuple(range(CLASSES)):
                self.used.add((kind, str(bound[option])))
            else:
                drop[option] = bound[option]
        removed.update({"qos_maps": drop} if drop else {})
        merged.update({"qos_maps": put} if put else {})

    def octet(self, port: str, bound: Config, form: tuple[str, str, str, str]) -> Octet | None:
        """Return the content of a map that a port names; None where it cannot be understood and so is replaced."""
        try:
            bound_map = self.reader.bound_map(port, bound, form)
        except FabricError:
            return None
        return (None,) * (DSCPS if form is DSCP_MAP else CLASSES) if bound_map is None else bound_map

    def queues(self, port: str, existing: Config, want: Config, removed: Config, merged: Config) -> None:
        """Add the changes of a port's scheduler policy and WRED profiles to ``removed`` and ``merged``; record both."""
        try:
            seen = self.reader.queues(port, existing)
        except FabricError:
            seen = None
        wanted = self.wanted.ports[port].queues
        policy = existing.get("scheduler_policy")
        if seen is not None and [_scheduling(queue) for queue in seen] == [_scheduling(queue) for queue in wanted]:
            if policy is not None:
                self.used.add(("scheduler", str(policy)))
        elif "scheduler_policy" in want:
            merged["scheduler_policy"] = want["scheduler_policy"]
            self.used.add(("scheduler", want["scheduler_policy"]))
            self.new.add(("scheduler", want["scheduler_policy"]))
        elif policy is not None:
            removed["scheduler_policy"] = policy
        profiles, existing_profiles = (
            {queue["id"]: queue["wred_profile"] for queue in options.get("queues", []) if "wred_profile" in queue}
            for options in (want, existing)
        )
        drop, put = [], []
        for number in range(CLASSES):
            is_marked = seen is not None and _marking(seen[number]) == _marking(wanted[number])
            if number in profiles and not is_marked:
                put.append({"id": number, "wred_profile": profiles[number]})
                self.used.add(("wred", profiles[number]))
                self.new.add(("wred", profiles[number]))
            elif number in existing_profiles and (
                not is_marked or (number not in profiles and existing_profiles[number] in profiles.values())
            ):
                drop.append(
                    {"id": number, "wred_profile": existing_profiles[number]}
                )  # it marks, or would after this change
            elif number in existing_profiles:
                self.used.add(("wred", str(existing_profiles[number])))
        removed.update({"queues": drop} if drop else {})
        merged.update({"queues": put} if put else {})

    def pfc(self, port: str, existing: Config, want: Config, removed: Config, merged: Config) -> None:
        """Add the changes of a port's pauses and watchdog to ``removed`` and ``merged``."""
        pfc = existing.get("pfc", {})
        wanted = self.wanted.ports[port].pfc
        paused = self.reader.paused(port, pfc)
        drop: Config = {}
        put: Config = {}
        off = [{"dot1p": priority, "enable": True} for priority in paused if priority not in wanted]
        on = [{"dot1p": priority, "enable": True} for priority in wanted if priority not in paused]
        if off:
            drop["priorities"] = off
        if on:
            put["priorities"] = on
        asymmetric = want.get("pfc", {}).get("asymmetric")
        if wanted and asymmetric is not None and (pfc.get("asymmetric") is True) != asymmetric:
            put["asymmetric"] = asymmetric
        action = pfc.get("watchdog_action", "drop")
        watchdog = {option: value for option, value in want.get("pfc", {}).items() if option.startswith("watchdog")}
        for option in ("watchdog_detect_time", "watchdog_restore_time"):
            if option not in watchdog and pfc.get(option) is not None:
                drop[option] = pfc[option]
            elif option in watchdog and pfc.get(option) != watchdog[option]:
                put[option] = watchdog[option]
        if put or watchdog.get("watchdog_action", action) != action:  # otherwise the module writes its default
            put["watchdog_action"] = watchdog.get("watchdog_action", action)
            if asymmetric:
                put["asymmetric"] = True
        removed.update({"pfc": drop} if drop else {})
        merged.update({"pfc": put} if put else {})

    def maps(self) -> tuple[Config, Config]:
        """Return (entries to delete, maps to merge) of sonic_qos_maps, for the maps that ports are given."""
        extra: Config = {}
        lacking: Config = {}
        for kind, key, _value, _option in _BOUND:
            for wanted_map in self.want.get("sonic_qos_maps", {}).get(kind, []):
                name, entries = wanted_map["name"], wanted_map.get("entries", [])
                if (kind, name) not in self.new:
                    continue
                existing = self.reader.by_key(kind, name, key)
                unwanted = sorted(existing.keys() - {str(entry[key]) for entry in entries})
                missing = [entry for entry in entries if existing.get(str(entry[key])) != entry]
                if unwanted:
                    extra.setdefault(kind, []).append(
                        {"name": name, "entries": [{key: existing[key_value][key]} for key_value in unwanted]}
                    )
                if missing or name not in self.reader.maps[kind]:
                    lacking.setdefault(kind, []).append({"name": name, "entries": missing})
        return extra, lacking

    def objects(self, module: str, existing: dict[str, Config]) -> list[Config]:
        """Return the profiles or policies that ports are given and that are missing or different."""
        kind = module.rpartition("_")[2]
        return [
            wanted_object
            for wanted_object in self.want.get(module, [])
            if (kind, wanted_object["name"]) in self.new and existing.get(wanted_object["name"]) != wanted_object
        ]

    def sequences(self) -> list[Config]:
        """Return, for policies that ports are given, the queues to delete: extra ones, and those of another type."""
        surplus = []
        for policy in self.objects("sonic_qos_scheduler", self.reader.schedulers):
            wanted = {
                wanted_queue["sequence"]: wanted_queue.get("scheduler_type", "dwrr")
                for wanted_queue in policy.get("schedulers", [])
            }
            unwanted = [
                {"sequence": queue["sequence"]}
                for queue in self.reader.schedulers.get(policy["name"], {}).get("schedulers", [])
                if queue["sequence"] in range(CLASSES)
                and wanted.get(queue["sequence"]) != queue.get("scheduler_type", "dwrr")
            ]
            if unwanted:
                surplus.append({"name": policy["name"], "schedulers": unwanted})
        return surplus

    def mtus(self) -> list[Config]:
        return [
            interface
            for interface in self.want.get("sonic_interfaces", [])
            if self.reader.mtus.get(interface["name"], {}).get("mtu") != interface["mtu"]
        ]

    def record_uses(self, interface: Config) -> None:
        """Record the objects that a port outside the plan uses."""
        bound = interface.get("qos_maps", {})
        self.used |= {(kind, str(bound.get(option))) for kind, _key, _value, option in (*_BOUND, PFC_GROUP_MAP)}
        self.used.add(("scheduler", str(interface.get("scheduler_policy"))))
        for queue in interface.get("queues", []):
            self.used.add(("wred", str(queue.get("wred_profile"))))

    def leftovers(self) -> Iterator[tuple[str, Any]]:
        """Return this project's objects that nothing uses."""

        def unused(kind: str, objects: dict[str, Config]) -> list[Config]:
            return [
                {"name": name} for name in sorted(objects) if name.startswith(OWN) and (kind, name) not in self.used
            ]

        yield "sonic_qos_scheduler", unused("scheduler", self.reader.schedulers)
        yield "sonic_qos_wred", unused("wred", self.reader.wred)
        kinds = {kind: unused(kind, objects) for kind, objects in sorted(self.reader.maps.items())}
        yield "sonic_qos_maps", {kind: unused_maps for kind, unused_maps in kinds.items() if unused_maps}


def _scheduling(queue: Queue | None) -> tuple[bool, int | None]:
    """Return how a queue is served; a queue that only marks is served like a missing one."""
    return (False, None) if queue is None else (queue.strict, queue.bandwidth_percent)


def _marking(queue: Queue | None) -> Ecn | None:
    return queue.ecn if queue else None
