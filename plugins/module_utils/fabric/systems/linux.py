# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Linux machine as the switch: ``tc`` (iproute2 6.1, kernel 6.1 or later).

The text is a shell script of ``ip``, ``tc`` and ``sysctl`` commands, which may run again: a port's queueing is
rebuilt. parse reads such a script, or what the script READING prints on the machine: one JSON document of
``ip -j link show``, ``tc -d -j qdisc show``, ``tc -j filter show`` by device, and sysctls.

A port's egress: ``ets`` at the root, strict bands first (the highest queue number first), then those that share the
bandwidth by DRR with a quantum of 100 bytes a percent (tc-ets(8)). ``flower`` filters lead a DSCP, of IPv4 and of IPv6,
to a band; all else goes by a priomap of one number to the band of the class with the most DSCPs. A band's qdisc is
``red`` with ECN or ``pfifo``; its handle 10QC: gives the queue (Q) and the traffic class (C). In trees that others
made, queue and class are 7 less the band's number, as the drivers of switches count bands (band 0 is served first).

RED, from tc-red(8) and tc_red_eval_ewma in iproute2's tc/tc_red.c:

* ``min``, ``max``: Ecn's. ``probability``: Ecn's, but 0.9999999 for 100%, as tc makes 2^32 of 1.0, which is 0 in the 32
  bits that it sends (seen: it then shows "Plog 21", which between 150,000 and 1,500,000 bytes is 64%).
* ``burst`` and ``avpkt`` set only the weight of the average, 2^-wlog: the first wlog of 1, 2, … with
  burst + 1 - min/avpkt <= (1 - (1 - 2^-wlog)^burst) * 2^wlog. ASICs at weight 0 mark by the queue as it is; the nearest
  that tc can ask for is wlog 1, half of the way with each packet. The manual's avpkt 1000 gives it with
  burst = ceil(min/1000) where min is above 10,000; below, burst = max(1, round(min/1000)) with avpkt = ceil(min/burst)
  does (tested for all).
* tc refuses a curve that is too flat (tc_red_eval_P): max - min must be below probability * 2^31 bytes.
* ``limit``: 4 * max, the inverse of tc's default max = limit/4; the manual wants "a few times higher than max".
* ``bandwidth`` counts for the average after an idle time only; 10gbit, whatever the link's.
* Packets without ECT are dropped where others are marked ("nodrop" is not set).

The kernel takes thresholds below 2^30 at wlog 1 (red_check_params in include/net/red.h: fls(max) + wlog < 32).
``pfifo limit 1000``: the queue that an Ethernet device has by default (its txqueuelen).

MTU: a Linux device's is the IP packet's; no header is added to it. ECMP: ``fib_multipath_hash_policy`` 3 and a mask of
fields (Documentation/networking/ip-sysctl.rst: 1 source address, 2 destination address, 4 protocol, 16 source port,
32 destination port; policy 0 is addresses, 1 all five).
"""

from __future__ import annotations

import json
import math
import re
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
)

SYSTEM = "linux"
NO_PFC = "the kernel's bridge and router send and obey no PFC"
NOT_HELD = {
    "class_to_priority": NO_PFC,
    "priority_to_queue": NO_PFC,
    "pfc": NO_PFC,
    "headroom": NO_PFC,
    "cable_m": NO_PFC,
    "watchdog": NO_PFC,
}
LOST_AT_BOOT = True  # so the rendered script has to run at every boot
# A packet's DSCP is classified by the filters of the port where it leaves, whichever port it entered by.
CLASSIFIES_AT_EGRESS = True
QUANTUM_BYTES_A_PERCENT = 100
PRIORITIES = 16  # TC_PRIO_MAX + 1
MOST_BYTES = 1 << 30
FLATTEST_BYTES = 1 << 31  # at 100%
ALMOST_ALL = 0.9999999
DEVICE = PORT = re.compile(r"[A-Za-z0-9_.-]{1,15}")
PORT_EXAMPLE = "enp1s0f0np0: 15 letters, digits, '_', '.' and '-' at most"
CHILD = re.compile(r"10([0-7])([0-7]):")
ECMP_BITS = {"source_ip": 1, "destination_ip": 2, "protocol": 4, "source_port": 16, "destination_port": 32}
ECMP_POLICIES = {0: 1 | 2, 1: 1 | 2 | 4 | 16 | 32}
FAMILIES = ("ipv4", "ipv6")
# The default qdisc of a device, restored when its root qdisc is deleted (sch_generic.c, net.core.default_qdisc).
DEFAULTS = ("noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo", "bfifo", "sfq")
RED_FLAGS = ("ecn", "harddrop", "adaptive", "nodrop")
COMPARED = {  # the options that make a difference, by kind of qdisc
    "ets": ("bands", "strict", "quanta", "priomap"),
    "red": ("limit", "min", "max", "probability", "ewma", *RED_FLAGS),
}
HASH = "net.{}.fib_multipath_hash_{}"
PROTOCOLS = {"ip": 1, "ipv6": 2}  # -> the preference of its filters: one preference has one protocol
# Run with sh on the machine, it prints what parse reads.
READING = r"""printf '{"links":'; ip -j link show; printf ',"qdiscs":'; tc -d -j qdisc show; printf ',"filters":{'
comma=; for dev in $(ls /sys/class/net); do found=$(tc -j filter show dev "$dev"); printf '%s"%s":%s' "$comma" "$dev" \
"${found:-[]}"; comma=,; done; printf '},"sysctl":{'; comma=
for key in net.ipv4.fib_multipath_hash_policy net.ipv4.fib_multipath_hash_fields net.ipv6.fib_multipath_hash_policy \
net.ipv6.fib_multipath_hash_fields; do printf '%s"%s":"%s"' "$comma" "$key" "$(sysctl -n "$key")"; comma=,; done
printf '}}\n'
"""

# The exceptions raised when input of another shape is read as tc's output.
NOT_OF_TC = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

Model = dict[str, Any]  # READING's output; for a script, the part of it that the script determines


# Render


def render(switch: Switch) -> str:
    """Return the script of ``switch``; see the module. Raises FabricError for what Linux cannot hold."""
    lines = ["#!/bin/sh", "set -eu"]
    by_qos: dict[int, list[str]] = {}
    for port, wanted in switch.ports.items():
        if not DEVICE.fullmatch(port):
            raise FabricError(
                f"{switch.name}: port {port!r}", "not a name of a Linux device", "give it as `ip link` shows it"
            )
        if id(wanted) not in by_qos:
            by_qos[id(wanted)] = _port_lines(f"{switch.name}: {port}", wanted)
        lines += [line.replace("DEV", port) for line in by_qos[id(wanted)]]
    return "\n".join([*lines, *_ecmp_lines(switch)]) + "\n"


def _ecmp_lines(switch: Switch) -> list[str]:
    if switch.ecmp_fields is None:
        return []
    mask = sum(ECMP_BITS[field] for field in switch.ecmp_fields)
    lines = []
    for family in FAMILIES:  # the fields first: policy 3 takes those that are there
        lines.append(f"sysctl -q -w {HASH.format(family, 'fields')}={mask}")
        lines.append(f"sysctl -q -w {HASH.format(family, 'policy')}=3")
    return lines


def _port_lines(subject: str, wanted: PortQos) -> list[str]:
    """Return a port's commands; DEV stands for its name."""
    lines = [] if wanted.ip_mtu_bytes is None else [f"ip link set dev DEV mtu {wanted.ip_mtu_bytes}"]
    queues = {number: queue for number, queue in enumerate(wanted.queues) if queue is not None}
    if not queues and not any(entry is not None for entry in wanted.dscp_to_class):
        return lines
    classes = {queue: at for at, queue in enumerate(wanted.class_to_queue) if queue is not None}
    if len(classes) != CLASSES - wanted.class_to_queue.count(None) or set(classes) != set(queues):
        raise FabricError(
            subject, "not every queue has one class of its own, as the bands of tc have", "give each class its queue"
        )
    class_of = [at for at in wanted.dscp_to_class if at is not None]  # by DSCP
    if len(class_of) < len(wanted.dscp_to_class) or not set(class_of) <= set(classes.values()):
        raise FabricError(subject, "a DSCP has no class with a queue", "give every DSCP one")
    strict = sorted((number for number, queue in queues.items() if queue.strict), reverse=True)
    sharing = sorted((number for number, queue in queues.items() if not queue.strict), reverse=True)
    shares = [queues[number].bandwidth_percent or 0 for number in sharing]
    if sharing and (min(shares) < 1 or sum(shares) != 100):
        raise FabricError(
            subject,
            f"the queues that are not strict share {sum(shares)}% ({', '.join(map(str, shares))})",
            "make it 100% in all, and 1% or more each",
        )
    band = {number: at for at, number in enumerate(strict + sharing)}
    band_of = {classes[number]: at for number, at in band.items()}  # by class
    default = max(sorted(set(class_of)), key=class_of.count)
    root = f"tc qdisc add dev DEV root handle 1: ets bands {len(band)}"
    if strict:
        root += f" strict {len(strict)}"
    if sharing:
        root += " quanta " + " ".join(str(share * QUANTUM_BYTES_A_PERCENT) for share in shares)
    root += " priomap " + " ".join([str(band_of[default])] * PRIORITIES)
    lines += ["tc qdisc del dev DEV root 2>/dev/null || true", root]
    for number, at in band.items():
        own = f"tc qdisc add dev DEV parent 1:{at + 1:x} handle 10{number}{classes[number]}:"
        lines.append(f"{own} {_band_qdisc(subject, queues[number].ecn)}")
    for protocol, preference in PROTOCOLS.items():
        for dscp, at in enumerate(class_of):
            if at != default:
                lines.append(
                    f"tc filter add dev DEV parent 1: protocol {protocol} pref {preference} "
                    f"flower ip_tos {dscp << 2:#04x}/0xfc classid 1:{band_of[at] + 1:x}"
                )
    return lines


def _band_qdisc(subject: str, ecn: Ecn | None) -> str:
    if ecn is None:
        return "pfifo limit 1000"
    if not 1 <= ecn.minimum_bytes <= ecn.maximum_bytes < MOST_BYTES or not 1 <= ecn.probability_percent <= 100:
        raise FabricError(
            subject,
            f"RED cannot mark between {ecn.minimum_bytes} and {ecn.maximum_bytes} bytes with "
            f"{ecn.probability_percent}%",
            f"give 1 <= minimum_bytes <= maximum_bytes < {MOST_BYTES} and 1% to 100%",
        )
    probability = ALMOST_ALL if ecn.probability_percent == 100 else ecn.probability_percent / 100
    if ecn.maximum_bytes - ecn.minimum_bytes >= probability * FLATTEST_BYTES:
        raise FabricError(
            subject,
            f"{ecn.probability_percent}% over {ecn.maximum_bytes - ecn.minimum_bytes} bytes is too flat for tc's RED",
            "raise probability_percent, or bring minimum_bytes and maximum_bytes nearer to each other",
        )
    burst, average = math.ceil(ecn.minimum_bytes / 1000), 1000
    if ecn.minimum_bytes <= 10_000:
        burst = max(1, round(ecn.minimum_bytes / 1000))
        average = math.ceil(ecn.minimum_bytes / burst)
    return (
        f"red limit {4 * ecn.maximum_bytes} min {ecn.minimum_bytes} max {ecn.maximum_bytes} "
        f"avpkt {average} burst {burst} bandwidth 10gbit probability {probability} ecn"
    )


def _wlog(minimum: int, burst: int, average: int) -> int:
    """Return the weight that tc asks the kernel for (tc_red_eval_ewma), 0 where it refuses."""
    room = burst + 1 - minimum / average
    for wlog in range(1, 32):
        if 1 <= room <= (1 - (1 - 0.5**wlog) ** burst) * 2**wlog:
            return wlog
    return 0


# Read


def parse(text: str, name: str) -> Switch:
    """Parse the switch ``name`` from READING's output on it, or from a script of commands. Raises FabricError.

    ``ports`` are all devices but loopback. A DSCP's class is None where IPv4's and IPv6's packets of it, or not all of
    its packets, go one way. RED counts as ECN only if it marks above its maximum too (no "harddrop") and its
    probability is constant (no "adaptive").
    """
    model = _model(text, name)
    ports = {}
    for port in model["links"]:
        try:
            ports[port] = _Port(name, port, model).qos()
        except NOT_OF_TC as error:
            raise FabricError(
                f"{name}: {port}", f"its qdiscs and filters are not as tc shows them ({error!r})", "read them again"
            ) from None
    return Switch(name, SYSTEM, ports, _ecmp(model["sysctl"], name))


def _model(text: str, name: str) -> Model:
    if text.lstrip()[:1] != "{":
        return _Script(text, name).model
    place = f"{name}: what was read by tc"
    try:
        found = json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise FabricError(place, f"not JSON ({error})", "read it again with the script READING") from None
    shape = {"links": list, "qdiscs": list, "filters": dict, "sysctl": dict}
    for key, kind in shape.items():
        if not isinstance(found.get(key), kind):
            raise FabricError(place, f"without {key}, or not as tc and ip show it", "read it with the script READING")
    try:
        links = {each["ifname"]: int(each["mtu"]) for each in found["links"] if each.get("link_type") != "loopback"}
        qdiscs: dict[str, list[Model]] = {}
        for each in found["qdiscs"]:
            qdiscs.setdefault(each["dev"], []).append(each)
        filters = {  # less what tc shows besides: a heading by preference, and u32's hash tables
            dev: [each for each in listed if "options" in each and "ht_divisor" not in each["options"]]
            for dev, listed in found["filters"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FabricError(place, f"not as tc and ip show it ({error!r})", "read it with the script READING") from None
    return {"links": links, "qdiscs": qdiscs, "filters": filters, "sysctl": found["sysctl"]}


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; several u32 matches under one key make that filter unreadable instead of shorter."""
    found = dict(pairs)
    if len(found) != len(pairs):
        found["match"] = None
    return found


def _ecmp(sysctl: dict[str, Any], name: str) -> tuple[str, ...] | None:
    found = []
    for family in FAMILIES:
        policy, fields = (sysctl.get(HASH.format(family, key)) for key in ("policy", "fields"))
        if policy is None:
            return None
        try:
            mask = int(str(fields), 0) if int(policy) == 3 else ECMP_POLICIES.get(int(policy))
        except ValueError:
            raise FabricError(
                f"{name}: sysctl {HASH.format(family, 'policy')}", f"{policy!r} with {fields!r}", "read it again"
            ) from None
        if mask is None:
            return None
        found.append(tuple(sorted(field for field, bit in ECMP_BITS.items() if mask & bit)))
    return found[0] if found[0] == found[1] else None


class _Port:
    """One device of a model."""

    def __init__(self, name: str, port: str, model: Model) -> None:
        self.place = f"{name}: {port}"
        self.mtu = model["links"][port]
        self.qdiscs = model["qdiscs"].get(port, [])
        self.filters = model["filters"].get(port)

    def refuse(self, why: str, mend: str = "compare it with `tc -d qdisc show` there") -> FabricError:
        return FabricError(self.place, why, mend)

    def options(self, each: Model, *keys: str) -> list[Any]:
        options = each.get("options")
        found = [options.get(key) if isinstance(options, dict) else None for key in keys]
        if None in found:
            raise self.refuse(f"qdisc {each.get('kind')} {each.get('handle')} without {keys[found.index(None)]}")
        return found

    def qos(self) -> PortQos:
        root = next((each for each in self.qdiscs if each.get("root")), None)
        if root is None or root.get("kind") not in ("ets", "prio"):
            for each in self.qdiscs:
                if root is None and each.get("kind") not in ("ingress", "clsact"):
                    raise self.refuse(f"qdisc {each.get('kind')} {each.get('handle')} hangs on nothing that was read")
            return PortQos(ip_mtu_bytes=self.mtu)
        bands = self.bands(root)
        children = self.children(root, len(bands))
        numbers = self.numbers(children, len(bands))
        queues: list[Queue | None] = [None] * CLASSES
        class_to_queue: list[int | None] = [None] * CLASSES
        for at, (queue, traffic_class) in enumerate(numbers):
            queues[queue] = Queue(*bands[at], self.ecn(children.get(at)))
            class_to_queue[traffic_class] = queue
        dscps = tuple(None if at is None else numbers[at][1] for at in self.dscp_to_band(root, len(bands)))
        return PortQos(
            dscp_to_class=dscps, class_to_queue=tuple(class_to_queue), queues=tuple(queues), ip_mtu_bytes=self.mtu
        )

    def numbers(self, children: dict[int, Model], count: int) -> list[tuple[int, int]]:
        """Return (queue, traffic class) by band. A band whose qdisc does not give them, or is missing (a script may
        have been stopped before it), gets the highest that no other band has.
        """
        named = {}
        for at, child in children.items():
            if match := CHILD.fullmatch(child.get("handle", "")):
                named[at] = int(match[1]), int(match[2])
        queues, classes = ({pair[which] for pair in named.values()} for which in (0, 1))
        if not 1 <= count <= CLASSES or len(queues) < len(named) or len(classes) < len(named):
            raise self.refuse(f"{count} bands are not 1 to {CLASSES} queues and classes, each with a number of its own")
        free = zip(*(sorted(set(range(CLASSES)) - taken, reverse=True) for taken in (queues, classes)))
        return [named[at] if at in named else next(free) for at in range(count)]

    def bands(self, root: Model) -> list[tuple[bool, int | None]]:
        """Return (strict, percent) by band."""
        (count,) = self.options(root, "bands")
        if root["kind"] == "prio":
            return [(True, None)] * count
        strict = root["options"].get("strict", 0)
        quanta = root["options"].get("quanta", [])
        if not isinstance(quanta, list) or strict + len(quanta) != count or not all(quanta):
            raise self.refuse(f"ets has {count} bands, {strict} strict, and quanta {quanta}")
        return [(True, None)] * strict + [(False, round(quantum * 100 / sum(quanta))) for quantum in quanta]

    def children(self, root: Model, count: int) -> dict[int, Model]:
        """Return the qdiscs of the bands, by band."""
        found: dict[int, Model] = {}
        for each in self.qdiscs:
            major, _colon, minor = str(each.get("parent", "")).partition(":")
            if each.get("root") or each.get("kind") in ("ingress", "clsact") or f"{major}:" != root.get("handle"):
                continue
            try:
                at = int(minor, 16) - 1
            except ValueError:
                at = -1
            if not 0 <= at < count:
                raise self.refuse(f"qdisc {each.get('handle')} hangs on {each['parent']}, and there are {count} bands")
            found[at] = each
        return found

    def ecn(self, child: Model | None) -> Ecn | None:
        if child is None or child.get("kind") != "red":
            return None
        minimum, maximum = self.options(child, "min", "max")
        options = child["options"]
        if not options.get("ecn") or options.get("harddrop") or options.get("adaptive"):
            return None
        if "probability" in options:
            probability = options["probability"]
        elif "Plog" in options:  # include/net/red.h: max_P = (max - min) / 2^Plog
            probability = (maximum - minimum) / 2 ** options["Plog"]
        else:
            raise self.refuse("red without its probability", "read it with tc's -d (details)")
        if not 0 <= probability <= 1:
            raise self.refuse(f"red with probability {probability}")
        return Ecn(minimum, maximum, round(probability * 100))

    def dscp_to_band(self, root: Model, count: int) -> Octet:
        (priomap,) = self.options(root, "priomap")
        default = priomap[0] if len(priomap) == PRIORITIES and len(set(priomap)) == 1 else None
        if self.filters is None:
            raise self.refuse("its filters were not read", "read it with the script READING")
        by_protocol = []
        for protocol in PROTOCOLS:
            rules = [
                self.rule(each, protocol, root, count)
                for each in sorted(self.filters, key=lambda each: each.get("pref", 0))
                if each.get("protocol") in (protocol, "all") and each.get("parent", root["handle"]) == root["handle"]
            ]
            by_protocol.append([self.first(rules, dscp, default) for dscp in range(DSCPS)])
        return tuple(four if four == six else None for four, six in zip(*by_protocol))

    def rule(self, each: Model, protocol: str, root: Model, count: int) -> tuple[int | None, int, int]:
        """Return (band, value, mask) of a filter on the ToS byte; band None where it matches more than that."""
        options = each["options"]
        target = str(options.get("classid", options.get("flowid", "")))
        major, _colon, minor = target.partition(":")
        value, mask = 0, 0
        known = False
        if each.get("kind") == "flower":
            keys = {key: found for key, found in options.get("keys", {}).items() if key != "eth_type"}
            value = keys.pop("ip_tos", 0)
            mask = int(str(keys.pop("ip_tos_mask", "ff" if "ip_tos" in options["keys"] else "0")), 16)
            known = not keys
        elif each.get("kind") == "matchall":
            known = True
        elif each.get("kind") == "u32" and isinstance(options.get("match"), dict):
            match, shift = options["match"], 16 if protocol == "ip" else 20  # where the header's first word has it
            value, mask = (int(str(match.get(key, "0")) or "0", 16) for key in ("value", "mask"))
            known = match.get("off") == 0 and match.get("offmask", "") == "" and mask & ~(0xFF << shift) == 0
            value, mask = value >> shift & 0xFF, mask >> shift & 0xFF
        try:
            band = int(minor, 16) - 1
        except ValueError:
            known, band = False, 0
        if known and (f"{major}:" != root["handle"] or not 0 <= band < count):
            raise self.refuse(
                f"a filter leads to {target}, and {root['handle']} has {count} bands", "delete the filter"
            )
        return (band, value, mask) if known else (None, 0, 0)

    @staticmethod
    def first(rules: list[tuple[int | None, int, int]], dscp: int, default: int | None) -> int | None:
        """Return the band of the first rule that takes a DSCP's packets; None where it takes only some of them."""
        for band, value, mask in rules:
            upper = mask & 0xFC
            if (dscp << 2) & upper == value & upper:
                return None if mask & 3 else band
        return default


class _Script:
    """A shell script's commands in the form of READING's output on a machine that ran them."""

    def __init__(self, text: str, name: str) -> None:
        self.model: Model = {"links": {}, "qdiscs": {}, "filters": {}, "sysctl": {}}
        self.place = f"{name}: tc script"
        known = 0
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split("2>")[0].split("||")[0].split()
            try:
                known += self.command(words)
            except (IndexError, KeyError, ValueError) as error:
                raise FabricError(
                    f"{self.place}: line {number}", f"{line[:80]!r} is not understood ({error})", "see tc(8)"
                ) from None
        if not known or not text.endswith("\n"):
            raise FabricError(
                self.place,
                "cut off in its last line" if known else "no command of tc, ip link or sysctl in it",
                "give a whole script, or what the script READING prints",
            )

    def command(self, words: list[str]) -> bool:
        if words[:3] == ["ip", "link", "set"]:
            return self.link(words[3:])
        if words[:1] == ["sysctl"]:
            for word in words[1:]:
                if "=" in word:
                    key, _equals, value = word.partition("=")
                    self.model["sysctl"][key] = value
            return True
        if words[:1] == ["tc"]:
            what, action, rest = words[1], words[2], words[3:]
            dev = rest[rest.index("dev") + 1]
            rest.remove("dev")
            rest.remove(dev)
            if what not in ("qdisc", "filter") or action not in ("add", "replace", "del"):
                raise ValueError(f"{what} {action}")
            self.model["links"].setdefault(dev, None)
            {"qdisc": self.qdisc, "filter": self.filter}[what](dev, action, rest)
            return True
        return False

    def link(self, words: list[str]) -> bool:
        if "mtu" not in words:
            return False
        dev = words[words.index("dev") + 1] if "dev" in words else words[0]
        self.model["links"][dev] = int(words[words.index("mtu") + 1])
        return True

    def qdisc(self, dev: str, action: str, words: list[str]) -> None:
        qdiscs = self.model["qdiscs"].setdefault(dev, [])
        found: Model = {"dev": dev}
        while words and words[0] in ("root", "parent", "handle"):
            key = words.pop(0)
            found[key] = True if key == "root" else words.pop(0)
        if not found.keys() & {"root", "parent"}:
            raise ValueError("neither root nor parent")
        if found.get("root"):  # the qdiscs under the old one are removed with it
            qdiscs.clear()
            self.model["filters"][dev] = []
        else:
            qdiscs[:] = [each for each in qdiscs if each.get("parent") != found["parent"]]
        if action == "del":
            return
        found["kind"] = words.pop(0)
        found["options"] = {"ets": _ets_words, "red": _red_words}.get(found["kind"], lambda _words: {})(words)
        qdiscs.append(found)

    def filter(self, dev: str, action: str, words: list[str]) -> None:
        if action != "add":
            raise ValueError(f"filter {action}")
        found: Model = {"options": {"keys": {}}, "pref": 0}
        while words[0] in ("parent", "protocol", "pref", "prio"):
            key = words.pop(0)
            found["pref" if key == "prio" else key] = words.pop(0)
        found["pref"] = int(found["pref"])
        found["kind"] = words.pop(0)
        if found["kind"] not in ("flower", "matchall"):
            raise ValueError(f"filter {found['kind']}")
        for key, value in zip(words[::2], words[1::2]):
            if key in ("classid", "flowid"):
                found["options"]["classid"] = value
            elif key == "ip_tos":
                tos, _slash, mask = value.partition("/")
                found["options"]["keys"]["ip_tos"] = int(tos, 16)
                found["options"]["keys"]["ip_tos_mask"] = mask or "ff"
            else:
                found["options"]["keys"][key] = value
        self.model["filters"].setdefault(dev, []).append(found)


def _ets_words(words: list[str]) -> Model:
    lists: dict[str, list[int]] = {}
    key = ""
    for word in words:
        if word in COMPARED["ets"]:
            key = word
            lists[key] = []
        else:
            lists[key].append(int(word))
    strict = lists.get("strict", [0])[0]
    quanta = lists.get("quanta", [])
    bands = lists.get("bands", [strict + len(quanta)])[0]
    priomap = lists.get("priomap", [])
    return {
        "bands": bands,
        "strict": strict,
        "quanta": quanta,
        "priomap": [*priomap, *[bands - 1] * (PRIORITIES - len(priomap))],
    }


def _red_words(words: list[str]) -> Model:
    flags = {word: word in words for word in RED_FLAGS}
    given = [word for word in words if word not in flags]
    values = dict(zip(given[::2], given[1::2]))
    limit, average = (int(values[key]) for key in ("limit", "avpkt"))
    maximum = int(values.get("max", limit // 4))  # tc-red(8)
    minimum = int(values.get("min", maximum // 3))
    burst = int(values.get("burst", (2 * minimum + maximum) // (3 * average)))
    wlog = _wlog(minimum, burst, average)
    if not wlog:
        raise ValueError("tc finds no weight for this burst and avpkt")
    return {
        **flags,
        "limit": limit,
        "min": minimum,
        "max": maximum,
        "ewma": wlog,
        "probability": float(values.get("probability", 0.02)),
    }


# Remediate


def remediation(running: str, wanted: Switch) -> str:
    """Return the commands that change a machine as it was read (READING), or a script's, to ``wanted``; "" where
    nothing differs. A port whose queueing differs in anything is rebuilt; other ports and devices are left alone.
    """
    have = _model(running, wanted.name)
    missing = [port for port in wanted.ports if port not in have["links"]]
    if missing and running.lstrip()[:1] == "{":  # a script may leave devices out, a reading has them all
        raise FabricError(
            f"{wanted.name}: {missing[0]}", "the machine has no such device", f"it has {', '.join(have['links'])}"
        )
    script = render(wanted)
    want = _Script(script, wanted.name).model
    same: dict[str, bool] = {}
    lines = []
    for line in script.splitlines()[2:]:
        words = line.split()
        if words[0] == "sysctl":
            key, _equals, value = words[-1].partition("=")
            if str(have["sysctl"].get(key)) != value:
                lines.append(line)
            continue
        port = words[words.index("dev") + 1]
        if words[0] == "ip":
            if have["links"].get(port) != want["links"][port]:
                lines.append(line)
        elif port not in same:
            try:
                same[port] = _shape(have, port) == _shape(want, port)
            except NOT_OF_TC as error:
                raise FabricError(
                    f"{wanted.name}: {port}", f"not as tc shows it ({error!r})", "read it again"
                ) from None
        if words[0] == "tc" and not same[port]:
            lines.append(line)
    return "\n".join([*script.splitlines()[:2], *lines]) + "\n" if lines else ""


def restoration(before: str, now: str, name: str) -> str:
    """Return the commands that bring a machine back from ``now`` to ``before``, both as READING prints them; "" where
    nothing differs. Raises FabricError for a device whose qdiscs this project did not build, since it cannot build them
    again.
    """
    old, new = _model(before, name), _model(now, name)
    lines = []
    for port, mtu in old["links"].items():
        if port not in new["links"]:
            continue  # removed automatically
        if new["links"][port] != mtu:
            lines.append(f"ip link set dev {port} mtu {mtu}")
        if _shape(old, port) != _shape(new, port):
            lines += _queueing(old, port, name)
    for key, value in old["sysctl"].items():
        if new["sysctl"].get(key) != value:
            lines.append(f"sysctl -q -w {key}={value}")
    return "\n".join(["#!/bin/sh", "set -eu", *lines]) + "\n" if lines else ""


def _queueing(model: Model, port: str, name: str) -> list[str]:
    root = next((each for each in model["qdiscs"].get(port, []) if each.get("root")), None)
    if root is None or root.get("kind") in DEFAULTS:
        return [f"tc qdisc del dev {port} root 2>/dev/null || true"]
    qos = _Port(name, port, model).qos()
    script = render(Switch(name, SYSTEM, {port: qos}))
    if _shape(_Script(script, name).model, port) != _shape(model, port):
        raise FabricError(
            f"{name}: {port}", f"its qdisc {root.get('kind')} was not this project's", "set it up again by hand"
        )
    return [line for line in script.splitlines()[2:] if line.startswith("tc ")]


def _shape(model: Model, port: str) -> Any:
    """Return all relevant parts of a port's queueing, in a fixed order; parts that are off or missing are left out."""
    qdiscs = []
    for each in model["qdiscs"].get(port, []):
        if each.get("kind") in ("ingress", "clsact"):
            continue
        options = each.get("options") or {}
        known = {key: options[key] for key in COMPARED.get(each.get("kind", ""), ()) if options.get(key)}
        if "probability" in known:
            known["probability"] = round(known["probability"] * 100)
        place = "root" if each.get("root") else each.get("parent")
        qdiscs.append((each.get("kind"), each.get("handle"), place, sorted(known.items())))
    filters = []
    for each in model["filters"].get(port) or []:
        options = each["options"]
        keys = {key: value for key, value in (options.get("keys") or {}).items() if key != "eth_type"}
        mask = int(str(keys.pop("ip_tos_mask", "ff")), 16)
        filters.append((each.get("protocol"), each.get("kind"), options.get("classid"), mask, sorted(keys.items())))
    return sorted(qdiscs, key=str), sorted(filters, key=str)
