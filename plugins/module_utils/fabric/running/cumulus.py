# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the QoS of any NVUE configuration. Sources: ``systems.cumulus``.

One file because its sections refer to each other: profiles, maps and queues are understood together.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax import block_yaml
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.json_text import DECODER
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import (
    BUFFER,
    CUMULUS,
    LINK,
    QUEUE,
    SIZE,
    statements,
)

SYSTEM = "cumulus"
OURS = "sailloft-"  # the prefix of this project's profiles, before a digest of their content
ALL_PORTS = "default-global"
HALF_PERCENT = 50
SIZES = ("port-buffer", "xoff-threshold", "xon-threshold")  # of a port's headroom
DEFAULT_CABLE_M = 10
DEFAULT_MTU_BYTES = 9216  # ifupdown2's (user guide, "Switch Port Attributes")
SECTIONS = ("mapping", "egress-scheduler", "congestion-control", "pfc")
# This section is read and removed, because the port where a packet enters decides whether its DSCP is rewritten where
# it leaves (NVUE reference, "nv set qos remark").
REWRITING = "remark"
INDEXED = {"dscp": DSCPS, "pcp": CLASSES, "traffic-class": CLASSES, "switch-priority": CLASSES}
ECMP_HASH, LAG_HASH = "ecmp-hash", "lag-hash"  # sections of system forwarding
ECMP = {  # ECMP_FIELDS -> NVUE
    "destination_ip": "destination-ip",
    "destination_port": "destination-port",
    "protocol": "ip-protocol",
    "source_ip": "source-ip",
    "source_port": "source-port",
}
ALPHAS = {
    f"alpha_1_{1 << -exponent}" if exponent < 0 else f"alpha_{1 << exponent}": exponent for exponent in range(-7, 7)
}
ON, OFF = ("on", "enable", "enabled", "true"), ("off", "disable", "disabled", "false")
SPEED = re.compile(r"(\d+)G")
BREAKOUT = re.compile(r"(\d+)x(?:(\d+)G)?")  # "4x", earlier "4x100G"
PARTS = 8  # into which a port can be split: its lanes
# The sections with statements that can change what packets get, of the switch and of an interface.
CHANGING = {"": ("nve", "qos", "system"), "interface": ("link", "qos", "router", "storm-control")}
PORT = re.compile(r"swp\d+(s\d+)?")
SVI = re.compile(r"vlan(\d+)")
RANGE = re.compile(r"(.*?)(\d+)-(\d+)")
MOST_IN_A_RANGE = 4096
POLLING_MS = (100, 5000)  # nv list-commands: qos pfc-watchdog polling-interval 100-5000, robustness 1-1000
ROBUSTNESS = (1, 1000)

DEFAULT_DSCP = tuple(dscp // 8 for dscp in range(DSCPS))
DEFAULT_WATCHDOG = (100, 3)  # polling interval in ms, robustness
DEFAULT_ECN = Ecn(150_000, 1_500_000, 100)
DEFAULT_PERCENT = {queue: 12 + queue % 2 for queue in range(CLASSES)}
ROCE_QUEUES = {3: 3, 6: 6}
ROCE_MODES = ("lossless", "lossless-single-ipool", "lossy")

Held = TypeVar("Held")  # the settings that one section's profile results in
Tree = dict[str, Any]


def document(text: str, name: str) -> Tree:
    """Return the tree of settings, in which ranges are not yet expanded."""
    place = f"{name}: NVUE configuration"
    try:
        content = DECODER.decode(text) if text.lstrip()[:1] in ("[", "{") else block_yaml.read(text)
    except (ValueError, block_yaml.YamlError, RecursionError) as error:
        raise FabricError(
            f"neither JSON nor YAML ({error})", "give all of what `nv config show -o json` prints", subject=place
        ) from None
    if isinstance(content, list):
        if not all(isinstance(part, dict) and set(part) <= {"set", "header"} for part in content) or not content:
            raise FabricError(
                "a list of items other than header and set",
                "give what `nv config show` prints, not a patch",
                subject=place,
            )
        merged: Tree = {}
        for part in content:
            merge(merged, part.get("set") or {}, place)
        content = merged
    if not isinstance(content, dict) or not {"interface", "qos"} & set(content):
        raise FabricError("it contains no settings", "give what `nv config show -o json` prints", subject=place)
    return content


def merge(target: Tree, added: Any, place: str) -> None:
    for key, value in items(added, place):
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value, f"{place} {key}")
        else:
            target[key] = copy.deepcopy(value)


def items(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Return the settings below a node; a single word or a list of words means keys without settings."""
    if node is None or node == "":
        return iter(())
    if isinstance(node, Mapping):
        return ((str(key), value) for key, value in node.items())
    if isinstance(node, list) and all(isinstance(word, (str, int)) for word in node):
        return ((str(word), {}) for word in node)
    if isinstance(node, (str, int)) and not isinstance(node, bool):
        return iter([(str(node), {})])
    raise FabricError(
        f"{str(node)[:60]!r} where settings are expected", "compare it with `nv config show`", subject=place
    )


def names_of(key: str, place: str) -> list[str]:
    """Return the names of a range: "swp1-2,5,swp7s0-1" is swp1, swp2, swp5, swp7s0, swp7s1."""
    if "-" not in key and "," not in key:
        return [key]
    names: list[str] = []
    previous_stem = ""
    for part in key.split(","):
        match = RANGE.fullmatch(part)
        first = match[1] + match[2] if match else part
        if first.isdecimal():
            first = previous_stem + first
        stem = first.rstrip("0123456789")
        if match:
            low, high = int(match[2]), int(match[3])
            if not 0 <= high - low < MOST_IN_A_RANGE:
                raise FabricError(
                    f"{key!r} is not a range", f"write it ascending, of at most {MOST_IN_A_RANGE}", subject=place
                )
            names += [f"{stem}{number}" for number in range(low, high + 1)]
        else:
            names.append(first)
        previous_stem = stem
    return names


class NvueReader:
    """A reader of one configuration; it reads each profile once."""

    def __init__(self, name: str, tree: Tree) -> None:
        self.name = name
        self.tree = tree
        self.place = f"{name}: NVUE configuration"
        self.qos = self.below(tree, "qos")
        self.roce = self.read_roce()
        self.profiles: dict[tuple[str, str], Any] = {}
        self.ports: dict[tuple[Any, ...], PortQos] = {}
        mapping = self.below(self.qos, "egress-queue-mapping", ALL_PORTS, place="qos")
        mapped_priorities = self.indexed(mapping, "switch-priority", f"qos egress-queue-mapping {ALL_PORTS}")
        self.queue_of = {
            priority: ROCE_QUEUES.get(priority, 0) if self.roce else priority for priority in range(CLASSES)
        }
        self.explicit = set(mapped_priorities)
        for priority, value in mapped_priorities.items():
            path = f"qos egress-queue-mapping {ALL_PORTS} switch-priority {priority}"
            self.queue_of[priority] = self.number(value, "traffic-class", path, 0, CLASSES - 1)
        self.watchdog = self.read_watchdog()

    def refuse(
        self, path: str, cause: str, remedy: str = "compare it with the switch's `nv config show`"
    ) -> FabricError:
        return FabricError(cause, remedy, subject=f"{self.place}: {path}")

    def below(self, node: Any, *path: str, place: str = "") -> Tree:
        """Return the settings at a path; empty where there are none."""
        for key in path:
            node = dict(items(node, f"{self.place}: {place}")).get(key)
            place = f"{place} {key}".strip()
        return dict(items(node, f"{self.place}: {place}"))

    def indexed(self, node: Tree, key: str, path: str) -> dict[int, Any]:
        """Return the settings by number below ``key``, with ranges and lists expanded."""
        settings_by_number: dict[int, Any] = {}
        for numbers, value in items(node.get(key), f"{self.place}: {path} {key}"):
            for number in names_of(numbers.replace(" ", ""), f"{self.place}: {path} {key}"):
                if not number.isdecimal() or int(number) >= INDEXED[key]:
                    raise self.refuse(f"{path} {key}", f"{number!r} is not a number below {INDEXED[key]}")
                earlier = settings_by_number.get(int(number))
                if isinstance(earlier, dict) and isinstance(value, dict):
                    value = {**earlier, **value}
                settings_by_number[int(number)] = value
        return settings_by_number

    def number(self, node: Any, key: str, path: str, minimum: int, maximum: int, default: int | None = None) -> int:
        value = dict(items(node, f"{self.place}: {path}")).get(key, default)
        text = str(value)
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,15}", text) or not minimum <= int(text) <= maximum:
            raise self.refuse(path, f"{key} {value!r} is not a number from {minimum} to {maximum}")
        return int(text)

    def is_on(self, value: Any, path: str) -> bool:
        word = str(value).lower()
        if word in ON:
            return True
        if word in OFF:
            return False
        raise self.refuse(path, f"{value!r} is neither on nor off")

    def read_roce(self) -> str | None:
        """Return the mode of ``qos roce``; None where it is off."""
        if "roce" not in self.qos:
            return None
        roce = self.below(self.qos, "roce", place="qos")
        if not self.is_on(roce.get("enable", roce.get("state", "on")), "qos roce enable"):
            return None
        mode = str(roce.get("mode", ROCE_MODES[0]))
        if mode not in ROCE_MODES:
            raise self.refuse(
                "qos roce mode", f"{mode!r} is not understood", f"use {', '.join(ROCE_MODES)}, or settings, not a mode"
            )
        return mode

    def read_watchdog(self) -> Watchdog:
        watchdog = self.below(self.qos, "pfc-watchdog", place="qos")
        path = "qos pfc-watchdog"
        interval = self.number(watchdog, "polling-interval", path, *POLLING_MS, default=DEFAULT_WATCHDOG[0])
        robustness = self.number(watchdog, "robustness", path, *ROBUSTNESS, default=DEFAULT_WATCHDOG[1])
        return Watchdog(interval * robustness, interval, "drop")

    def has_lossless_pool(self) -> bool:
        if self.roce in ("lossless", "lossless-single-ipool"):
            return True
        for pool in ("default-lossless", "roce-lossless"):
            settings = self.below(self.qos, "traffic-pool", pool, place="qos")
            if settings and self.number(settings, "memory-percent", f"qos traffic-pool {pool}", 0, 100, default=0):
                return True
        return False

    def pools_unlike(self, pfc: set[int]) -> Iterator[Override]:
        """Yield the pools that have priorities of another kind: lossless ones are those that pause (``pfc``)."""
        for pool, value in items(self.qos.get("traffic-pool"), f"{self.place}: qos traffic-pool"):
            path = f"qos traffic-pool {pool}"
            priorities = set(self.indexed(dict(items(value, f"{self.place}: {path}")), "switch-priority", path))
            if priorities & pfc if pool.endswith("lossy") else pfc and priorities and priorities != pfc:
                yield Override(f"{path} switch-priority {format_ranges(sorted(priorities))}", BUFFER)

    def switch(self) -> Switch:
        interfaces: dict[str, Tree] = {}
        overrides: dict[tuple[str, str], list[str]] = {}
        lags: dict[str, tuple[str, ...]] = {}
        for key, value in items(self.tree.get("interface"), f"{self.place}: interface"):
            settings = dict(items(value, f"{self.place}: interface {key}"))
            unread = self.unread(settings, f"interface {key}")
            for port in names_of(key, f"{self.place}: interface {key}"):
                for override in unread:
                    overrides.setdefault(override, []).append(port)
                if members := self.members(settings):
                    lags[port] = (*lags.get(port, ()), *members)
                if port in interfaces:
                    merge(interfaces[port], settings, f"{self.place}: interface {port}")
                elif PORT.fullmatch(port) or "qos" in settings:
                    interfaces[port] = _picked(settings)
        ports = {port: self.port(port, settings) for port, settings in interfaces.items()}
        for lag, ports_of_lag in lags.items():
            lag_qos = interfaces.get(lag, {}).get("qos")
            if lag_qos and any(lag_qos != interfaces.get(member, {}).get("qos") for member in ports_of_lag):
                overrides[f"interface {lag} qos", QUEUE] = [lag]
        links = {port: self.below(settings, "link", place=f"interface {port}") for port, settings in interfaces.items()}
        matches = {port: SPEED.fullmatch(str(link.get("speed"))) for port, link in links.items()}
        speeds = {port: int(match[1]) for port, match in matches.items() if match}
        breakouts = [
            (port, mode) for port, link in links.items() for mode, _lanes in items(link.get("breakout"), self.place)
        ]
        for port, mode in breakouts:
            speeds.update(_speeds_of_parts(port, mode))
        return Switch(
            self.name,
            SYSTEM,
            ports,
            self.hashed(ECMP_HASH),
            overrides=tuple(Override(text, effect, tuple(names)) for (text, effect), names in overrides.items())
            + tuple(Override(text, effect) for text, effect in self.unread(self.tree))
            + tuple(self.pools_unlike({priority for port in ports.values() for priority in port.pfc}))
            + tuple(_missing_ports(port, mode) for port, mode in breakouts)
            + tuple(self.upper_mtus()),
            speeds_gbit_s=speeds,
            lags=lags,
            lag_fields=dict.fromkeys(lags, self.hashed(LAG_HASH)),
        )

    def members(self, settings: Tree) -> list[str]:
        """Return the members of a bond."""
        members = self.below(settings, "bond").get("member")
        return [name for key, _value in items(members, f"{self.place}: bond") for name in names_of(key, self.place)]

    def upper_mtus(self) -> Iterator[Override]:
        """Yield the MTUs of interfaces above ports (swp1.10, vlan10, br_default), each with the ports below it."""
        vlans_by_domain: dict[str, dict[str, set[str]]] = {}  # domain -> port -> its VLANs; "all" for the domain's
        upper: dict[str, Tree] = {}
        for key, value in items(self.tree.get("interface"), f"{self.place}: interface"):
            settings = dict(items(value, f"{self.place}: interface {key}"))
            domains = self.below(settings, "bridge", "domain", place=f"interface {key}")
            mtu = self.below(settings, "link", place=f"interface {key}").get("mtu")
            for name in names_of(key, f"{self.place}: interface {key}"):
                for domain in domains:
                    vlans = self.vlans(self.below(domains, domain, place=f"interface {key} bridge domain"))
                    vlans_by_domain.setdefault(domain, {})[name] = vlans
                if mtu is not None and not PORT.fullmatch(name):
                    upper[name] = settings
        bridged = {port: vlans for ports in vlans_by_domain.values() for port, vlans in ports.items()}
        for name, settings in upper.items():
            base, vlan = str(settings.get("base-interface", name.rpartition(".")[0])), SVI.fullmatch(name)
            number = str(settings.get("vlan", vlan[1] if vlan else ""))
            if name in vlans_by_domain:
                ports = tuple(vlans_by_domain[name])
            elif vlan or settings.get("type") == "svi":
                in_domain = vlans_by_domain.get(base, bridged)
                ports = tuple(port for port, vlans in in_domain.items() if vlans & {number, "all"})
            else:
                ports = (name,) if "bond" in settings else (base,) if base else ()
            mtu = self.mtu(settings, f"interface {name}")
            if ports:
                yield Override(f"interface {name} link mtu {mtu}", SIZE, ports, mtu)
        vxlan = self.below(self.tree, "nve", "vxlan")
        if bridged and "mtu" in vxlan:
            mtu = self.number(vxlan, "mtu", "nve vxlan", 1, 65535)
            yield Override(f"nve vxlan mtu {mtu}", SIZE, tuple(bridged), mtu)

    def vlans(self, settings: Tree) -> set[str]:
        """Return the VLANs of a port in a bridge; "all" for those of the bridge."""
        if "access" in settings:
            return {str(settings["access"])}
        if "vlan" not in settings:
            return {"all"}
        ranges = [key for key, _value in items(settings["vlan"], self.place)]
        return {
            str(settings.get("untagged", "1")),
            *(name for key in ranges for name in names_of(key.replace(" ", ""), self.place)),
        }

    def unread(self, node: Any, path: str = "") -> list[tuple[str, str]]:
        """Return the statements of the switch or of an interface that are not read, with what they can change."""
        unread = []
        for section in CHANGING["interface" if path else ""]:
            for statement in statements(dict(items(node, self.place)).get(section), f"{path} {section}".strip()):
                effect = CUMULUS.effect(statement)
                if effect:
                    unread.append((statement, effect))
        for name, _direction in items(self.below(node, "acl", place=path), self.place) if path else ():
            for statement in statements(self.below(self.tree, "acl").get(name), f"acl {name}"):
                effect = CUMULUS.effect(statement)
                if effect:
                    unread.append((statement, effect))
        return unread

    def hashed(self, section: str) -> tuple[str, ...]:
        """Return the fields that a hash has: each is on where it is not set. Source: ``systems.cumulus``."""
        hash_settings = self.below(self.tree, "system", "forwarding", section)
        path = f"system forwarding {section}"
        return tuple(
            sorted(field for field, key in ECMP.items() if self.is_on(hash_settings.get(key, "on"), f"{path} {key}"))
        )

    def port(self, port: str, settings: Tree) -> PortQos:
        path = f"interface {port}"
        qos = self.below(settings, "qos", place=path)
        names: dict[str, str] = {}
        for section in (*SECTIONS, REWRITING):
            profile = str(self.below(qos, section, place=f"{path} qos").get("profile", ALL_PORTS))
            if profile != ALL_PORTS and profile not in self.below(self.qos, section, place="qos"):
                raise self.refuse(
                    f"{path} qos {section}",
                    f"profile {profile!r} is not defined",
                    f"define qos {section} {profile}, or unset it on the port",
                )
            names[section] = profile
        watchdog = qos.get("pfc-watchdog", "off")
        on = not isinstance(watchdog, (str, type(None)))  # `set interface swp1 qos pfc-watchdog` alone turns it on
        if on:
            state = self.below(qos, "pfc-watchdog", place=f"{path} qos").get("state", "on")
            on = self.is_on(state, f"{path} qos pfc-watchdog state")
        mtu = self.mtu(settings, path)
        key = (*names.values(), on, mtu)
        if key not in self.ports:
            self.ports[key] = self.port_qos(names, on, mtu)
        return self.ports[key]

    def mtu(self, settings: Tree, path: str) -> int:
        link = self.below(settings, "link", place=path)
        return self.number(link, "mtu", f"{path} link", 1, 65535, default=DEFAULT_MTU_BYTES)

    def profile(self, section: str, profile: str, reader: Callable[[Tree, str, str], Held]) -> Held:
        key = (section, profile)
        if key not in self.profiles:
            settings = self.below(self.qos, section, place="qos").get(profile)
            path = f"qos {section} {profile}"
            self.profiles[key] = reader(dict(items(settings, f"{self.place}: {path}")), path, profile)
        result: Held = self.profiles[key]
        return result

    def port_qos(self, names: Mapping[str, str], watched: bool, mtu: int) -> PortQos:
        """Return the QoS of a port whose sections have the profiles ``names``."""
        dscps = self.profile("mapping", names["mapping"], self.mapping)
        shares, set_shares = self.profile("egress-scheduler", names["egress-scheduler"], self.scheduler)
        ecn, set_ecn = self.profile("congestion-control", names["congestion-control"], self.marking)
        pfc, cable = self.profile("pfc", names["pfc"], self.pausing)
        rewrites = self.profile(REWRITING, names[REWRITING], self.rewriting)
        classes = self.explicit | {entry for entry in dscps if entry is not None}
        class_to_queue = tuple(self.queue_of[priority] if priority in classes else None for priority in range(CLASSES))
        seen = {queue for queue in class_to_queue if queue is not None}
        seen |= (set(shares) if set_shares else set()) | (set(ecn) if set_ecn else set())
        return PortQos(
            dscp_to_class=dscps,
            rewrites_dscp=rewrites,
            class_to_queue=class_to_queue,
            class_to_priority=tuple(priority if priority in classes else None for priority in range(CLASSES)),
            priority_to_queue=class_to_queue,
            queues=tuple(
                Queue(*shares.get(queue, (False, 0)), ecn.get(queue)) if queue in seen else None
                for queue in range(CLASSES)
            ),
            pfc=pfc,
            watchdog=self.watchdog if watched else None,
            ip_mtu_bytes=mtu,
            cable_m=cable if pfc else None,
        )

    def mapping(self, settings: Tree, path: str, profile: str) -> Octet:
        roce = self.roce and profile == ALL_PORTS
        trust = str(settings.get("trust", "both" if roce else "l2"))
        if trust == "port":
            return (self.number(settings, "port-default-sp", path, 0, CLASSES - 1, default=0),) * DSCPS
        if trust not in ("l2", "l3", "both"):
            raise self.refuse(path, f"trust {trust!r} is unknown", "valid values: l2, l3, both, port")
        if trust == "l2":
            return (None,) * DSCPS
        dscps = list(DEFAULT_DSCP)
        for dscp, value in self.indexed(settings, "dscp", path).items():
            dscps[dscp] = self.number(value, "switch-priority", f"{path} dscp {dscp}", 0, CLASSES - 1)
        return tuple(dscps)

    def rewriting(self, settings: Tree, path: str, _profile: str) -> bool:
        rewrite = str(settings.get("rewrite", "l2"))
        if rewrite not in ("l2", "l3", "both"):
            raise self.refuse(path, f"rewrite {rewrite!r} is unknown", "valid values: l2, l3, both")
        return rewrite != "l2"

    def scheduler(
        self, profile_settings: Tree, path: str, profile: str
    ) -> tuple[dict[int, tuple[bool, int | None]], bool]:
        """Return (strict, percent) by queue, and whether anything but a default sets it."""
        roce = bool(self.roce) and profile == ALL_PORTS
        shares: dict[int, tuple[bool, int | None]] = {}
        if roce:
            shares = {0: (False, HALF_PERCENT), 3: (False, HALF_PERCENT), 6: (True, None)}
        by_queue = self.indexed(profile_settings, "traffic-class", path)
        if not by_queue and not roce and profile == ALL_PORTS:
            return {queue: (False, percent) for queue, percent in DEFAULT_PERCENT.items()}, False
        for queue, value in by_queue.items():
            queue_settings = dict(items(value, f"{self.place}: {path} traffic-class {queue}"))
            was_strict, was_percent = shares.get(queue, (False, 0))
            mode = str(queue_settings.get("mode", "strict" if was_strict else "dwrr"))
            if mode == "strict":
                shares[queue] = (True, None)
            elif mode == "dwrr":
                queue_path = f"{path} traffic-class {queue}"
                shares[queue] = (
                    False,
                    self.number(queue_settings, "bw-percent", queue_path, 0, 100, default=was_percent or 0),
                )
            else:
                raise self.refuse(
                    f"{path} traffic-class {queue}", f"mode {mode!r} is unknown", "valid values: dwrr, strict"
                )
        return shares, True

    def marking(self, profile_settings: Tree, path: str, profile: str) -> tuple[dict[int, Ecn | None], bool]:
        """Return ECN by queue, and whether anything but a default sets it."""
        roce = bool(self.roce) and profile == ALL_PORTS
        ecn: dict[int, Ecn | None] = {0: DEFAULT_ECN, 3: DEFAULT_ECN} if roce else {}
        by_queue = self.indexed(profile_settings, "traffic-class", path)
        if not by_queue and not roce and profile == ALL_PORTS:
            return {0: DEFAULT_ECN}, False
        for queue, value in by_queue.items():
            queue_path = f"{path} traffic-class {queue}"
            queue_settings = dict(items(value, f"{self.place}: {queue_path}"))
            if not self.is_on(queue_settings.get("ecn", "enable"), f"{queue_path} ecn"):
                ecn[queue] = None
                continue
            limit = 1 << 40
            marking = ecn[queue] = Ecn(
                self.number(queue_settings, "min-threshold", queue_path, 0, limit, default=DEFAULT_ECN.minimum_bytes),
                self.number(queue_settings, "max-threshold", queue_path, 0, limit, default=DEFAULT_ECN.maximum_bytes),
                self.number(queue_settings, "probability", queue_path, 0, 100, default=DEFAULT_ECN.probability_percent),
            )
            if marking.minimum_bytes > marking.maximum_bytes:
                raise self.refuse(queue_path, "min-threshold is above max-threshold", "correct it on the switch")
        return ecn, True

    def pausing(self, settings: Tree, path: str, profile: str) -> tuple[tuple[int, ...], int | None]:
        """Return the priorities that pause, and the cable for which Cumulus computes their headroom.

        None where the profile has sizes of its own instead, or lossless packets have no pool.
        """
        lossless = self.roce in ("lossless", "lossless-single-ipool") and profile == ALL_PORTS
        pfc = tuple(sorted(self.indexed(settings, "switch-priority", path)))
        if not pfc and lossless:
            pfc = (3,)
        if not all(self.is_on(settings.get(direction, "enable"), f"{path} {direction}") for direction in ("rx", "tx")):
            return (), None
        if any(size in settings for size in SIZES) or not self.has_lossless_pool():
            return pfc, None
        return pfc, self.number(settings, "cable-length", path, 0, 1 << 20, default=DEFAULT_CABLE_M)


def _picked(settings: Tree) -> Tree:
    """Return the relevant part of an interface's settings, as a copy to which a later range may add."""
    return {key: copy.deepcopy(settings[key]) for key in ("qos", "link") if key in settings}


def _speeds_of_parts(port: str, mode: str) -> dict[str, int]:
    """Return the speed of each part of a port, where its breakout names it ("4x100G")."""
    match = BREAKOUT.fullmatch(mode)
    parts = int(match[1]) if match and match[2] else 0
    names = [f"{port}s{number}" for number in range(parts)] if parts > 1 else [port][:parts]
    return {name: int(match[2]) for name in names} if match else {}


def _missing_ports(port: str, mode: str) -> Override:
    """Return what a breakout leaves without a port: the port itself, and the parts beyond its number.

    Other modes ("disabled", "loopback") leave none.
    """
    match = BREAKOUT.fullmatch(mode)
    parts = int(match[1]) if match else 0
    names = [port] if parts != 1 else []
    names += [f"{port}s{number}" for number in range(parts if parts > 1 else 0, PARTS)]
    return Override(f"interface {port} link breakout {mode}", LINK, tuple(names))
