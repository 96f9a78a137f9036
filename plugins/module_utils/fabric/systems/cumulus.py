# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA Cumulus Linux 5.4 to 5.14: the document that ``nv config patch`` takes and ``nv config show`` prints (NVUE).

Rendered as JSON, which is YAML as well: ``[{"set": TREE}]``, and TREE is the body of a PATCH on the REST API's root.
Ranges (``swp1-4``, ``24-31``) are read, never written: the REST API has each key separately.

Sources: Cumulus Linux 5.14 user guide, "Quality of Service" (every command and default used here), "RDMA over Converged
Ethernet" (what ``qos roce`` sets), "Equal Cost Multipath" (hash fields), "NVUE API"; NVUE reference, "QoS" (ranges);
key names and types as in a filled configuration that the API of 5.5.1 returned.

A switch priority (SP) is the packet's class inside the switch and the priority by which PFC pauses. NVUE has
no other class, so a policy is rendered only where traffic class and priority of a class are one number. NVUE's
"traffic-class" is what this project calls a queue.

Explicit settings, not ``qos roce mode``. That mode would set, for the whole switch: trust of PCP and DSCP with eight
DSCPs a priority, SP 3 to queue 3, SP 6 to queue 6 and all others to queue 0; queue 6 strict, 3 and 0 with 50% each; ECN
on queues 0 and 3 with 150,000 and 1,500,000 bytes at 100%; an LLDP TLV for UDP 4791; with lossless PFC on SP 3 and a
lossless pool. It has no second class and no thresholds by port, and it marks all other traffic too. What it sets is
understood when read (modes lossless, lossless-single-ipool, lossy).

Buffers of a lossless port: ``port-buffer`` is reserved for it, a pause is sent when ``xoff-threshold`` of it is
used, and ends ``xon-threshold`` below that. So xoff-threshold is Headroom.reserved_bytes, xon-threshold is
xon_offset_bytes (and xon_bytes is the rest of xoff-threshold, as in Spectrum's profiles), and port-buffer is
reserved_bytes + xoff_bytes: the rest takes what arrives after the pause was sent.
The alpha is the switch's (``advance-buffer-config default-global ingress-lossless-buffer shared-alpha``). Half of the
memory is the lossless pool's, as in the guide's example and in ``qos roce``.

Watchdog: a storm is seen after ``robustness`` polling intervals and is over after one interval without a pause; its
packets are dropped. MTU: ``link mtu`` is the IP packet's; no header is added to it (ifupdown2's mtu, as on Linux).

From memory: that a profile on a port replaces ``default-global`` there as a whole, and that null removes a key.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    CLASSES,
    DSCPS,
    BufferShares,
    Ecn,
    Headroom,
    Octet,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax import block_yaml

SYSTEM = "cumulus"
NOT_HELD: dict[str, str] = {}
# Cumulus Linux runs on NVIDIA's switches alone (NVIDIA's hardware compatibility list).
ASICS = ("spectrum", "spectrum2", "spectrum3", "spectrum4")
PORT_EXAMPLE = "swp1, or swp1s0 for a part of one"
OURS = "sailloft-"  # the prefix of this project's profiles, before a digest of their content
ALL_PORTS = "default-global"
HALF_PERCENT = 50
BUFFER_SHARES = BufferShares(HALF_PERCENT)  # as rendered: traffic-pool default-lossless memory-percent
SECTIONS = ("mapping", "egress-scheduler", "congestion-control", "pfc")
# Read, and removed: the port where a packet enters decides whether its DSCP is rewritten where it leaves (NVUE
# reference, "nv set qos remark").
REWRITING = "remark"
INDEXED = {"dscp": DSCPS, "pcp": CLASSES, "traffic-class": CLASSES, "switch-priority": CLASSES}
ECMP = {  # ECMP_FIELDS -> NVUE
    "destination_ip": "destination-ip",
    "destination_port": "destination-port",
    "protocol": "ip-protocol",
    "source_ip": "source-ip",
    "source_port": "source-port",
}
ALPHAS = {f"alpha_1_{1 << -at}" if at < 0 else f"alpha_{1 << at}": at for at in range(-7, 7)}
ON, OFF = ("on", "enable", "enabled", "true"), ("off", "disable", "disabled", "false")
PORT = re.compile(r"swp\d+(s\d+)?")
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


# Render


def render(switch: Switch) -> str:
    """Return the document of ``switch``; see the module. Raises FabricError for what NVUE cannot hold."""
    return _text(_tree(switch))


def _text(tree: Tree) -> str:
    """Return JSON with one line for each port and for each kind of profile, so that a reader can compare.

    json's own indentation would take longer than the rest of this function.
    """
    known: dict[int, str] = {}  # ports that are alike share one tree
    sections = []
    for key, section in tree.items():
        lines = []
        for name, settings in section.items():
            if id(settings) not in known:
                known[id(settings)] = json.dumps(settings)
            lines.append(f"  {json.dumps(name)}: {known[id(settings)]}")
        sections.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
    return '[{"set": {\n' + ",\n".join(sections) + "\n}}]\n"


def _tree(switch: Switch) -> Tree:
    qos: Tree = {}
    interfaces: Tree = {}
    by_port: dict[int, Tree] = {}
    for port, wanted in switch.ports.items():
        settings = by_port.get(id(wanted))
        if settings is None:
            settings = by_port[id(wanted)] = _port_tree(f"{switch.name}: {port}", wanted, qos)
        interfaces[port] = settings
    tree: Tree = {"interface": interfaces}
    _whole_switch(switch, qos)
    if qos:
        tree["qos"] = {key: qos[key] for key in sorted(qos)}
    if switch.ecmp_fields is not None:
        fields = {key: "on" if field in switch.ecmp_fields else "off" for field, key in ECMP.items()}
        tree["system"] = {"forwarding": {"ecmp-hash": fields}}
    return tree


def _port_tree(subject: str, wanted: PortQos, qos: Tree) -> Tree:
    """Return a port's own settings; its profiles are added to ``qos``."""
    _check_one_number(subject, wanted)
    contents: dict[str, Tree] = {}
    if any(entry is not None for entry in wanted.dscp_to_class):
        if None in wanted.dscp_to_class:
            raise FabricError(
                subject, "some DSCPs have a class and some have none", "give every DSCP a class, as NVUE does"
            )
        dscps = {str(dscp): {"switch-priority": entry} for dscp, entry in enumerate(wanted.dscp_to_class)}
        contents["mapping"] = {"trust": "l3", "dscp": dscps}
    queues = {str(number): queue for number, queue in enumerate(wanted.queues) if queue is not None}
    if queues:
        contents["egress-scheduler"] = {
            "traffic-class": {
                number: {"mode": "strict"}
                if queue.strict
                else {"mode": "dwrr", "bw-percent": _percent(subject, queue.bandwidth_percent)}
                for number, queue in queues.items()
            }
        }
        # A profile without a queue would mark nothing, where default-global marks queue 0.
        contents["congestion-control"] = {
            "traffic-class": {number: _ecn_tree(queue.ecn) for number, queue in queues.items()}
        }
    if wanted.pfc:
        contents["pfc"] = _pfc_tree(subject, wanted)
    settings: Tree = {}
    for section, content in contents.items():
        profile = OURS + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
        qos.setdefault(section, {})[profile] = content
        settings[section] = {"profile": profile}
    if wanted.watchdog is not None:
        settings["pfc-watchdog"] = {"state": "enable"}
    found: Tree = {"qos": settings} if settings else {}
    if wanted.ip_mtu_bytes is not None:
        found["link"] = {"mtu": wanted.ip_mtu_bytes}
    return found


def _check_one_number(subject: str, wanted: PortQos) -> None:
    own = tuple(number if queue is not None else None for number, queue in enumerate(wanted.class_to_queue))
    if wanted.class_to_priority != own or wanted.priority_to_queue != wanted.class_to_queue:
        raise FabricError(
            subject,
            "a class has another traffic class than priority, and NVUE has one number for both, the switch priority",
            "give each class of roce_policy the same traffic_class and priority",
        )


def _percent(subject: str, percent: int | None) -> int:
    if percent is None or not 1 <= percent <= 100:
        raise FabricError(
            subject, f"a queue that is not strict has {percent} as its share", "give it bandwidth_percent of 1 to 100"
        )
    return percent


def _ecn_tree(ecn: Ecn | None) -> Tree:
    if ecn is None:
        return {"ecn": "disable"}
    return {
        "ecn": "enable",
        "min-threshold": ecn.minimum_bytes,
        "max-threshold": ecn.maximum_bytes,
        "probability": ecn.probability_percent,
    }


def _pfc_tree(subject: str, wanted: PortQos) -> Tree:
    found: Tree = {
        "switch-priority": {str(priority): {} for priority in wanted.pfc},
        "rx": "enable",
        "tx": "enable",
    }
    rooms = {wanted.headroom[priority] for priority in wanted.pfc}
    others = [priority for priority, room in enumerate(wanted.headroom) if room and priority not in wanted.pfc]
    if len(rooms) > 1 or others:
        raise FabricError(
            subject,
            "its priorities have different headroom, and NVUE keeps one for all lossless priorities of a port",
            "give each lossless priority, and no other, the same headroom",
        )
    room = rooms.pop()
    if room is not None:
        if room.xon_bytes != max(0, room.reserved_bytes - room.xon_offset_bytes):
            raise FabricError(
                subject,
                f"its pauses are to end at {room.xon_bytes} bytes whenever they began, and NVUE knows only how far "
                "below their beginning",
                "name in roce_switch_asic the Spectrum that the switch has; in roce_asics, leave xon_bytes out",
            )
        found["port-buffer"] = room.reserved_bytes + room.xoff_bytes
        found["xoff-threshold"] = room.reserved_bytes
        found["xon-threshold"] = room.xon_offset_bytes
    return found


def _whole_switch(switch: Switch, qos: Tree) -> None:
    """Return the settings that NVUE keeps once for all ports."""
    every = list({id(port): port for port in switch.ports.values()}.values())
    if not every:
        return
    classes = _the_same(switch, "the queue of a class", [port.class_to_queue for port in every])
    if any(queue is not None for queue in classes):
        mapping = {str(at): {"traffic-class": queue} for at, queue in enumerate(classes) if queue is not None}
        qos["egress-queue-mapping"] = {ALL_PORTS: {"switch-priority": mapping}}
    rooms = [room for port in every for room in port.headroom if room is not None]
    if any(port.pfc for port in every):
        qos["traffic-pool"] = {
            "default-lossless": {"memory-percent": HALF_PERCENT},
            "default-lossy": {"memory-percent": 100 - HALF_PERCENT},
        }
    if rooms:
        exponent = _the_same(switch, "the alpha of lossless priorities", [room.alpha_exponent for room in rooms])
        names = [name for name, known in ALPHAS.items() if known == exponent]
        if not names:
            raise FabricError(
                switch.name,
                f"alpha_exponent {exponent} is not one of NVUE's",
                f"give one of {min(ALPHAS.values())} to {max(ALPHAS.values())}",
            )
        qos["advance-buffer-config"] = {ALL_PORTS: {"ingress-lossless-buffer": {"shared-alpha": names[0]}}}
    watchdogs = [port.watchdog for port in every if port.watchdog is not None]
    if watchdogs:
        qos["pfc-watchdog"] = _watchdog_tree(switch, _the_same(switch, "the PFC watchdog", watchdogs))


def _the_same(switch: Switch, what: str, values: list[Any]) -> Any:
    if any(value != values[0] for value in values):
        raise FabricError(
            switch.name,
            f"{what} differs between its ports, and NVUE keeps one for the whole switch",
            "give all ports the same",
        )
    return values[0]


def _watchdog_tree(switch: Switch, watchdog: Watchdog) -> Tree:
    interval, rest = watchdog.restoration_ms, watchdog.detection_ms % watchdog.restoration_ms
    robustness = watchdog.detection_ms // interval
    if (
        watchdog.action != "drop"
        or rest
        or not POLLING_MS[0] <= interval <= POLLING_MS[1]
        or not ROBUSTNESS[0] <= robustness <= ROBUSTNESS[1]
    ):
        raise FabricError(
            switch.name,
            f"its PFC watchdog cannot be {watchdog.action} after {watchdog.detection_ms} ms until "
            f"{watchdog.restoration_ms} ms: Cumulus drops, and ends after one of its polling intervals",
            f"give action drop, restoration_ms of {POLLING_MS[0]} to {POLLING_MS[1]}, and a multiple of it as "
            "detection_ms",
        )
    return {"polling-interval": interval, "robustness": robustness}


# Read


def parse(text: str, name: str) -> Switch:
    """Parse the switch ``name`` from a running configuration: the output of ``nv config show -o json`` or ``-o yaml``,
    or what the API returns, filled with defaults or not. Raises FabricError where it is none.

    ``ports`` are the front ports (swp…) and all others with QoS of their own. Defaults are returned for the
    classes that some DSCP leads to; the MTU only where it is set.
    """
    return _Reader(name, _document(text, name)).switch()


def _document(text: str, name: str) -> Tree:
    """Return the tree of settings, in which ranges are not yet expanded."""
    place = f"{name}: NVUE configuration"
    try:
        found = json.loads(text) if text.lstrip()[:1] in ("[", "{") else block_yaml.read(text)
    except (ValueError, RecursionError) as error:  # json's and block_yaml's are both ValueErrors
        raise FabricError(
            place, f"neither JSON nor YAML ({error})", "give all of what `nv config show -o json` prints"
        ) from None
    if isinstance(found, list):
        if not all(isinstance(each, dict) and set(each) <= {"set", "header"} for each in found) or not found:
            raise FabricError(
                place, "a list of other things than header and set", "give what `nv config show` prints, not a patch"
            )
        merged: Tree = {}
        for each in found:
            _merge(merged, each.get("set") or {}, place)
        found = merged
    if not isinstance(found, dict) or not {"interface", "qos"} & set(found):
        raise FabricError(place, "no settings in it", "give what `nv config show -o json` prints")
    return found


def _merge(into: Tree, more: Any, place: str) -> None:
    for key, value in _items(more, place):
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value, f"{place} {key}")
        else:
            into[key] = copy.deepcopy(value)


def _items(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Return the settings below a node; a lone word or a list of words stands for keys without settings."""
    if node is None or node == "":
        return iter(())
    if isinstance(node, Mapping):
        return ((str(key), value) for key, value in node.items())
    if isinstance(node, list) and all(isinstance(each, (str, int)) for each in node):
        return ((str(each), {}) for each in node)
    if isinstance(node, (str, int)) and not isinstance(node, bool):
        return iter([(str(node), {})])
    raise FabricError(place, f"{str(node)[:60]!r} where settings are expected", "compare it with `nv config show`")


def _names(key: str, place: str) -> list[str]:
    """Return the names of a range: "swp1-2,5,swp7s0-1" is swp1, swp2, swp5, swp7s0, swp7s1."""
    if "-" not in key and "," not in key:
        return [key]
    found: list[str] = []
    before = ""
    for part in key.split(","):
        match = RANGE.fullmatch(part)
        first = match[1] + match[2] if match else part
        if first.isdigit():
            first = before + first
        stem = first.rstrip("0123456789")
        if match:
            low, high = int(match[2]), int(match[3])
            if not 0 <= high - low < MOST_IN_A_RANGE:
                raise FabricError(place, f"{key!r} is not a range", f"give it ascending, {MOST_IN_A_RANGE} at most")
            found += [f"{stem}{number}" for number in range(low, high + 1)]
        else:
            found.append(first)
        before = stem
    return found


class _Reader:
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
        given = self.indexed(mapping, "switch-priority", f"qos egress-queue-mapping {ALL_PORTS}")
        self.queue_of = {at: ROCE_QUEUES.get(at, 0) if self.roce else at for at in range(CLASSES)}
        self.explicit = set(given)
        for priority, value in given.items():
            where = f"qos egress-queue-mapping {ALL_PORTS} switch-priority {priority}"
            self.queue_of[priority] = self.number(value, "traffic-class", where, 0, CLASSES - 1)
        self.alpha = self.read_alpha()
        self.watchdog = self.read_watchdog()

    # Small steps

    def refuse(self, where: str, why: str, mend: str = "compare it with the switch's `nv config show`") -> FabricError:
        return FabricError(f"{self.place}: {where}", why, mend)

    def below(self, node: Any, *path: str, place: str = "") -> Tree:
        """Return the settings at a path; empty where there are none."""
        for key in path:
            node = dict(_items(node, f"{self.place}: {place}")).get(key)
            place = f"{place} {key}".strip()
        return dict(_items(node, f"{self.place}: {place}"))

    def indexed(self, node: Tree, key: str, where: str) -> dict[int, Any]:
        """Return the settings by number below ``key``, with ranges and lists expanded."""
        found: dict[int, Any] = {}
        for numbers, value in _items(node.get(key), f"{self.place}: {where} {key}"):
            for number in _names(numbers.replace(" ", ""), f"{self.place}: {where} {key}"):
                if not number.isdigit() or int(number) >= INDEXED[key]:
                    raise self.refuse(f"{where} {key}", f"{number!r} is not a number below {INDEXED[key]}")
                known = found.get(int(number))
                if isinstance(known, dict) and isinstance(value, dict):
                    value = {**known, **value}
                found[int(number)] = value
        return found

    def number(self, node: Any, key: str, where: str, least: int, most: int, default: int | None = None) -> int:
        value = dict(_items(node, f"{self.place}: {where}")).get(key, default)
        text = str(value)
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,15}", text) or not least <= int(text) <= most:
            raise self.refuse(where, f"{key} {value!r} is not a number of {least} to {most}")
        return int(text)

    def is_on(self, value: Any, where: str) -> bool:
        word = str(value).lower()
        if word in ON:
            return True
        if word in OFF:
            return False
        raise self.refuse(where, f"{value!r} is neither on nor off")

    # The switch's

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
                "qos roce mode", f"{mode!r} is not understood", f"use {', '.join(ROCE_MODES)}, or no mode but settings"
            )
        return mode

    def read_alpha(self) -> int | None:
        where = f"qos advance-buffer-config {ALL_PORTS} ingress-lossless-buffer"
        buffer = self.below(self.qos, "advance-buffer-config", ALL_PORTS, "ingress-lossless-buffer", place="qos")
        if "shared-alpha" not in buffer:
            return None
        alpha = str(buffer["shared-alpha"])
        if alpha in ("alpha_0", "alpha_infinity"):
            return None  # no power of two
        if alpha not in ALPHAS:
            raise self.refuse(where, f"shared-alpha {alpha!r} is unknown", f"there are {', '.join(ALPHAS)}")
        return ALPHAS[alpha]

    def read_watchdog(self) -> Watchdog:
        given = self.below(self.qos, "pfc-watchdog", place="qos")
        where = "qos pfc-watchdog"
        interval = self.number(given, "polling-interval", where, *POLLING_MS, default=DEFAULT_WATCHDOG[0])
        robustness = self.number(given, "robustness", where, *ROBUSTNESS, default=DEFAULT_WATCHDOG[1])
        return Watchdog(interval * robustness, interval, "drop")

    def has_lossless_pool(self) -> bool:
        if self.roce in ("lossless", "lossless-single-ipool"):
            return True
        for pool in ("default-lossless", "roce-lossless"):
            given = self.below(self.qos, "traffic-pool", pool, place="qos")
            if given and self.number(given, "memory-percent", f"qos traffic-pool {pool}", 0, 100, default=0):
                return True
        return False

    def switch(self) -> Switch:
        interfaces: dict[str, Tree] = {}
        for key, value in _items(self.tree.get("interface"), f"{self.place}: interface"):
            settings = dict(_items(value, f"{self.place}: interface {key}"))
            for port in _names(key, f"{self.place}: interface {key}"):
                if port in interfaces:
                    _merge(interfaces[port], settings, f"{self.place}: interface {port}")
                elif PORT.fullmatch(port) or "qos" in settings:
                    interfaces[port] = _picked(settings)
        ports = {port: self.port(port, settings) for port, settings in interfaces.items()}
        return Switch(self.name, SYSTEM, ports, self.ecmp())

    def ecmp(self) -> tuple[str, ...] | None:
        given = self.below(self.tree, "system", "forwarding", "ecmp-hash")
        if not any(key in given for key in ECMP.values()):
            return None
        where = "system forwarding ecmp-hash"
        return tuple(sorted(field for field, key in ECMP.items() if self.is_on(given.get(key, "on"), f"{where} {key}")))

    # A port's

    def port(self, port: str, settings: Tree) -> PortQos:
        where = f"interface {port}"
        qos = self.below(settings, "qos", place=where)
        names: dict[str, str] = {}
        for section in (*SECTIONS, REWRITING):
            profile = str(self.below(qos, section, place=f"{where} qos").get("profile", ALL_PORTS))
            if profile != ALL_PORTS and profile not in self.below(self.qos, section, place="qos"):
                raise self.refuse(
                    f"{where} qos {section}",
                    f"profile {profile!r} is not there",
                    f"define qos {section} {profile}, or unset it on the port",
                )
            names[section] = profile
        dog = qos.get("pfc-watchdog", "off")
        on = not isinstance(dog, (str, type(None)))  # `set interface swp1 qos pfc-watchdog` alone turns it on
        if on:
            state = self.below(qos, "pfc-watchdog", place=f"{where} qos").get("state", "on")
            on = self.is_on(state, f"{where} qos pfc-watchdog state")
        link = self.below(settings, "link", place=where)
        mtu = self.number(link, "mtu", f"{where} link", 1, 65535) if "mtu" in link else None
        key = (*names.values(), on, mtu)
        if key not in self.ports:
            self.ports[key] = self.assembled(names, on, mtu)
        return self.ports[key]

    def profile(self, section: str, profile: str, reader: Callable[[Tree, str, str], Held]) -> Held:
        key = (section, profile)
        if key not in self.profiles:
            given = self.below(self.qos, section, place="qos").get(profile)
            where = f"qos {section} {profile}"
            self.profiles[key] = reader(dict(_items(given, f"{self.place}: {where}")), where, profile)
        held: Held = self.profiles[key]
        return held

    def assembled(self, names: Mapping[str, str], watched: bool, mtu: int | None) -> PortQos:
        """Return the QoS of a port whose sections have the profiles ``names``."""
        dscps = self.profile("mapping", names["mapping"], self.mapping)
        shares, set_shares = self.profile("egress-scheduler", names["egress-scheduler"], self.scheduler)
        ecn, set_ecn = self.profile("congestion-control", names["congestion-control"], self.marking)
        pfc, headroom = self.profile("pfc", names["pfc"], self.pausing)
        rewrites = self.profile(REWRITING, names[REWRITING], self.rewriting)
        classes = self.explicit | {entry for entry in dscps if entry is not None}
        class_to_queue = tuple(self.queue_of[at] if at in classes else None for at in range(CLASSES))
        seen = {queue for queue in class_to_queue if queue is not None}
        seen |= (set(shares) if set_shares else set()) | (set(ecn) if set_ecn else set())
        return PortQos(
            dscp_to_class=dscps,
            rewrites_dscp=rewrites,
            class_to_queue=class_to_queue,
            class_to_priority=tuple(at if at in classes else None for at in range(CLASSES)),
            priority_to_queue=class_to_queue,
            queues=tuple(
                Queue(*shares.get(at, (False, 0)), ecn.get(at)) if at in seen else None for at in range(CLASSES)
            ),
            pfc=pfc,
            headroom=tuple(headroom if at in pfc else None for at in range(CLASSES)),
            watchdog=self.watchdog if watched else None,
            ip_mtu_bytes=mtu,
        )

    def mapping(self, given: Tree, where: str, profile: str) -> Octet:
        roce = self.roce and profile == ALL_PORTS
        trust = str(given.get("trust", "both" if roce else "l2"))
        if trust == "port":
            return (self.number(given, "port-default-sp", where, 0, CLASSES - 1, default=0),) * DSCPS
        if trust not in ("l2", "l3", "both"):
            raise self.refuse(where, f"trust {trust!r} is unknown", "there are l2, l3, both and port")
        if trust == "l2":
            return (None,) * DSCPS
        dscps = list(DEFAULT_DSCP)
        for dscp, value in self.indexed(given, "dscp", where).items():
            dscps[dscp] = self.number(value, "switch-priority", f"{where} dscp {dscp}", 0, CLASSES - 1)
        return tuple(dscps)

    def rewriting(self, given: Tree, where: str, _profile: str) -> bool:
        what = str(given.get("rewrite", "l2"))
        if what not in ("l2", "l3", "both"):
            raise self.refuse(where, f"rewrite {what!r} is unknown", "there are l2, l3 and both")
        return what != "l2"

    def scheduler(self, given: Tree, where: str, profile: str) -> tuple[dict[int, tuple[bool, int | None]], bool]:
        """Return (strict, percent) by queue, and whether anything but a default sets it."""
        roce = bool(self.roce) and profile == ALL_PORTS
        shares: dict[int, tuple[bool, int | None]] = {}
        if roce:
            shares = {0: (False, HALF_PERCENT), 3: (False, HALF_PERCENT), 6: (True, None)}
        by_queue = self.indexed(given, "traffic-class", where)
        if not by_queue and not roce and profile == ALL_PORTS:
            return {at: (False, percent) for at, percent in DEFAULT_PERCENT.items()}, False
        for queue, value in by_queue.items():
            settings = dict(_items(value, f"{self.place}: {where} traffic-class {queue}"))
            was_strict, was_percent = shares.get(queue, (False, 0))
            mode = str(settings.get("mode", "strict" if was_strict else "dwrr"))
            if mode == "strict":
                shares[queue] = (True, None)
            elif mode == "dwrr":
                at = f"{where} traffic-class {queue}"
                shares[queue] = (False, self.number(settings, "bw-percent", at, 0, 100, default=was_percent or 0))
            else:
                raise self.refuse(
                    f"{where} traffic-class {queue}", f"mode {mode!r} is unknown", "there are dwrr and strict"
                )
        return shares, True

    def marking(self, given: Tree, where: str, profile: str) -> tuple[dict[int, Ecn | None], bool]:
        """Return ECN by queue, and whether anything but a default sets it."""
        roce = bool(self.roce) and profile == ALL_PORTS
        ecn: dict[int, Ecn | None] = {0: DEFAULT_ECN, 3: DEFAULT_ECN} if roce else {}
        by_queue = self.indexed(given, "traffic-class", where)
        if not by_queue and not roce and profile == ALL_PORTS:
            return {0: DEFAULT_ECN}, False
        for queue, value in by_queue.items():
            at = f"{where} traffic-class {queue}"
            settings = dict(_items(value, f"{self.place}: {at}"))
            if not self.is_on(settings.get("ecn", "enable"), f"{at} ecn"):
                ecn[queue] = None
                continue
            most = 1 << 40
            ecn[queue] = Ecn(
                self.number(settings, "min-threshold", at, 0, most, default=DEFAULT_ECN.minimum_bytes),
                self.number(settings, "max-threshold", at, 0, most, default=DEFAULT_ECN.maximum_bytes),
                self.number(settings, "probability", at, 0, 100, default=DEFAULT_ECN.probability_percent),
            )
        return ecn, True

    def pausing(self, given: Tree, where: str, profile: str) -> tuple[tuple[int, ...], Headroom | None]:
        lossless = self.roce in ("lossless", "lossless-single-ipool") and profile == ALL_PORTS
        pfc = tuple(sorted(self.indexed(given, "switch-priority", where)))
        if not pfc and lossless:
            pfc = (3,)
        if not all(self.is_on(given.get(way, "enable"), f"{where} {way}") for way in ("rx", "tx")):
            return (), None
        sizes = ("port-buffer", "xoff-threshold", "xon-threshold")
        if self.alpha is None or not all(size in given for size in sizes) or not self.has_lossless_pool():
            return pfc, None
        whole, xoff, xon = (self.number(given, size, where, 0, 1 << 40) for size in sizes)
        if xoff > whole:
            raise self.refuse(
                where,
                f"xoff-threshold {xoff} is above port-buffer {whole}, so no pause would be sent",
                "lower xoff-threshold",
            )
        return pfc, Headroom(xoff, whole - xoff, xon, self.alpha, max(0, xoff - xon))


def _picked(settings: Tree) -> Tree:
    """Return the relevant part of an interface's settings, as a copy to which a later range may add."""
    return {key: copy.deepcopy(settings[key]) for key in ("qos", "link") if key in settings}


# Remediate


def remediation(running: str, wanted: Switch) -> str:
    """Return the patch that changes a running configuration to ``wanted``: a document like render's, in which null
    removes a key; "" where nothing differs. Settings that are not this project's stay, except those that contradict the
    policy.
    """
    reader = _Reader(wanted.name, _document(running, wanted.name))
    have = _normal(reader)
    want = _tree(wanted)
    patch: Tree = {}
    _difference(patch, want, have, ())
    qos = have.get("qos", {})
    if reader.roce:
        _remove(patch, "qos", "roce")
    if wanted.ports and "roce-lossless" in qos.get("traffic-pool", {}):
        _remove(patch, "qos", "traffic-pool", "roce-lossless")  # a switch has one lossless pool
    for section in SECTIONS:
        ours = want.get("qos", {}).get(section, {})
        for profile in qos.get(section, {}):
            if profile.startswith(OURS) and profile not in ours:
                _remove(patch, "qos", section, profile)
    known = want.get("qos", {}).get("egress-queue-mapping", {}).get(ALL_PORTS, {}).get("switch-priority")
    for priority in reader.explicit if known else ():
        if str(priority) not in known:  # it would lead other traffic into a class's queue
            _remove(patch, "qos", "egress-queue-mapping", ALL_PORTS, "switch-priority", str(priority))
    if qos.get("pfc", {}).get(ALL_PORTS) and any(not port.pfc for port in wanted.ports.values()):
        _remove(patch, "qos", "pfc", ALL_PORTS)  # it would make a port pause that must not
    if reader.rewriting(reader.below(reader.qos, REWRITING, ALL_PORTS, place="qos"), f"qos {REWRITING}", ALL_PORTS):
        _remove(patch, "qos", REWRITING, ALL_PORTS, "rewrite")
    for port, settings in want["interface"].items():
        there = have.get("interface", {}).get(port, {}).get("qos", {})
        here = settings.get("qos", {})
        extra = [section for section in (*SECTIONS, "pfc-watchdog") if section in there and section not in here]
        if REWRITING in there and reader.port(port, have["interface"][port]).rewrites_dscp:
            extra.append(REWRITING)
        if "pfc" in here and "link-pause" in there:
            extra.append("link-pause")  # a port has one of the two
        for section in extra:
            _remove(patch, "interface", port, "qos", section)
    return _text(patch) if patch else ""


def restoration(before: str, now: str, name: str) -> str:
    """Return the patch, as remediation's, from ``now`` back to ``before`` in all that a policy can change; "" where
    nothing differs. Other settings (passwords, which NVUE does not show) are not in it.
    """
    old, new = (_ours(_document(text, name)) for text in (before, now))
    for port in new["interface"]:
        old["interface"].setdefault(port, {"qos": {}, "link": {}})
    patch = _back(old, new)
    return _text(patch) if patch else ""


def _ours(tree: Tree) -> Tree:
    """Return the settings of all kinds that a policy can change."""
    hashing = ((tree.get("system") or {}).get("forwarding") or {}).get("ecmp-hash")
    ports = {
        port: settings if isinstance(settings, dict) else {} for port, settings in tree.get("interface", {}).items()
    }
    mtus = {port: (settings.get("link") or {}).get("mtu") for port, settings in ports.items()}
    return {
        "interface": {
            port: {"qos": settings.get("qos") or {}, "link": {"mtu": mtus[port]} if mtus[port] is not None else {}}
            for port, settings in ports.items()
        },
        "qos": tree.get("qos") or {},
        "system": {"forwarding": {"ecmp-hash": hashing} if hashing else {}},
    }


def _back(old: Any, new: Any) -> Tree:
    """Return a merge patch (RFC 7396) that changes ``new`` back to ``old``."""
    patch: Tree = {key: None for key in new if key not in old}
    for key, value in old.items():
        if key not in new:
            patch[key] = value
        elif isinstance(value, dict) and isinstance(new[key], dict):
            inner = _back(value, new[key])
            if inner:
                patch[key] = inner
        elif value != new[key]:
            patch[key] = value
    return patch


def _normal(reader: _Reader) -> Tree:
    """Return the running tree with ranges expanded, as far as this project writes into it."""
    tree = {key: reader.tree.get(key) or {} for key in ("interface", "qos", "system")}
    interfaces: Tree = {}
    for key, value in _items(tree["interface"], f"{reader.place}: interface"):
        for port in _names(key, f"{reader.place}: interface {key}"):
            _merge(interfaces.setdefault(port, {}), value, f"{reader.place}: interface {port}")
    return {"interface": interfaces, "qos": _apart(reader, tree["qos"], "qos"), "system": tree["system"]}


def _apart(reader: _Reader, node: Any, where: str) -> Any:
    if not isinstance(node, dict):
        return node
    found: Tree = {}
    for key, value in node.items():
        if (key in INDEXED and isinstance(value, (dict, list))) or (key == "switch-priority" and "pool" in where):
            by_number = reader.indexed(node, key, where)
            found[key] = {str(at): _apart(reader, each, f"{where} {key} {at}") for at, each in by_number.items()}
        else:
            found[key] = _apart(reader, value, f"{where} {key}")
    return found


def _difference(patch: Tree, want: Tree, have: Any, path: tuple[str, ...]) -> None:
    """Add to ``patch`` what ``want`` has and ``have`` lacks, and remove what else a profile of this project has."""
    there = have if isinstance(have, dict) else {}
    for key, value in want.items():
        if isinstance(value, dict) and value:
            _difference(patch, value, there.get(key), (*path, key))
        elif key not in there or (value != {} and not _alike(value, there[key])):
            _put(patch, (*path, key), value)
    if len(path) > 2 and path[0] == "qos" and path[2].startswith(OURS):
        for key in there:
            if key not in want:
                _put(patch, (*path, key), None)


def _alike(value: Any, other: Any) -> bool:
    """Return true where two values mean the same to NVUE: later releases say "enabled" for "enable" and "on"."""
    one, two = str(value).lower(), str(other).lower()
    return one == two or any(one in words and two in words for words in (ON, OFF))


def _put(patch: Tree, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        patch = patch.setdefault(key, {})
    patch[path[-1]] = value


def _remove(patch: Tree, *path: str) -> None:
    _put(patch, path, None)
