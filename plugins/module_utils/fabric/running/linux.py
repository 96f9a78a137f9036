# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the QoS of any Linux machine's ports. Sources: ``systems.linux``."""

from __future__ import annotations

import json
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
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_overrides import (
    lower_devices,
    pauses,
    rules,
    tagged_devices,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import (
    PRIORITIES,
    Model,
    Script,
)

SYSTEM = "linux"
CHILD = re.compile(r"10([0-7])([0-7]):")
ECMP_BITS = {"source_ip": 1, "destination_ip": 2, "protocol": 4, "source_port": 16, "destination_port": 32}
ECMP_POLICIES = {0: 0x03, 1: 0x37}  # policy -> bits: both addresses; all five fields
FAMILIES = ("ipv4", "ipv6")
HASH = "net.{}.fib_multipath_hash_{}"
PROTOCOLS = {"ip": 1, "ipv6": 2}  # protocol -> preference of its filters; a preference has one protocol
# A script for sh on the machine. It prints what parse reads.
READING = r"""printf '{"links":'; ip -d -j link show; printf ',"qdiscs":'; tc -d -j qdisc show; printf ',"filters":{'
comma=; for dev in $(cd /sys/class/net && ls -d */ | tr -d /); do found=$(tc -j filter show dev "$dev")
printf '%s"%s":%s' "$comma" "$dev" "${found:-[]}"; comma=,; done; printf '},"sysctl":{'; comma=
for key in net.ipv4.fib_multipath_hash_policy net.ipv4.fib_multipath_hash_fields net.ipv6.fib_multipath_hash_policy \
net.ipv6.fib_multipath_hash_fields; do printf '%s"%s":"%s"' "$comma" "$key" "$(sysctl -n "$key")"; comma=,; done
printf '},"vlans":%s' "$(bridge -j vlan show 2>/dev/null || printf null)"
printf ',"nftables":'
if command -v nft >/dev/null; then printf '%s' "$(nft -j list ruleset 2>/dev/null || printf null)"
elif grep -q nf_tables_newrule /proc/kallsyms; then printf null; else printf '{}'; fi
for tool in 'ethtool --json -a' 'dcb -j pfc show dev'; do printf ',"%s":{' "$tool"; comma=
for dev in $(cd /sys/class/net && ls -d */ | tr -d /); do found=$($tool "$dev" 2>/dev/null)
printf '%s"%s":%s' "$comma" "$dev" "${found:-null}"; comma=,; done; printf '}'; done
printf ',"tables":"%s"}\n' "$(cd /proc/net && grep -s . ip_tables_names ip6_tables_names | tr '\n' ' ')"
"""


def read_model(text: str, name: str) -> Model:
    if text.lstrip()[:1] != "{":
        return Script(text, name).model
    place = f"{name}: what was read by tc"
    try:
        reading = json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise FabricError(f"not JSON ({error})", "read it again with the script READING", subject=place) from None
    shape = {"links": list, "qdiscs": list, "filters": dict, "sysctl": dict}
    for key, kind in shape.items():
        if not isinstance(reading.get(key), kind):
            raise FabricError(
                f"{key} is missing, or not in the form that tc and ip print",
                "read it with the script READING",
                subject=place,
            )
    try:
        links = {link["ifname"]: int(link["mtu"]) for link in reading["links"] if link.get("link_type") != "loopback"}
        flags = {
            link["ifname"]: (
                [*(link.get("flags") or ["UP"]), *(["XDP"] if "xdp" in link else []), *_is_member(link)],
                link.get("master"),
            )
            for link in reading["links"]
        }
        qdiscs: dict[str, list[Model]] = {}
        for qdisc in reading["qdiscs"]:
            qdiscs.setdefault(qdisc["dev"], []).append(qdisc)
        filters = {  # without tc's other entries: a heading for each preference, and u32's hash tables
            dev: [
                filter_entry
                for filter_entry in listed
                if "options" in filter_entry and "ht_divisor" not in filter_entry["options"]
            ]
            for dev, listed in reading["filters"].items()
        }
        statements = [*rules(reading), *pauses(reading)]
        lower = lower_devices(reading["links"], reading.get("vlans"))
        tagged = tagged_devices(reading["links"], reading.get("vlans"))
        kinds = {link["ifname"]: link.get("linkinfo") or {} for link in reading["links"]}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise FabricError(
            f"not in the form that tc and ip print ({error!r})", "read it with the script READING", subject=place
        ) from None
    return {
        "links": links,
        "qdiscs": qdiscs,
        "filters": filters,
        "sysctl": reading["sysctl"],
        "flags": flags,
        "rules": statements,
        "lower": lower,
        "tagged": tagged,
        "kinds": kinds,
    }


def _is_member(link: Model) -> list[str]:
    """Return the flag of a member of a bond for one of a team, which has none."""
    return ["SLAVE"] if (link.get("linkinfo") or {}).get("info_slave_kind") == "team" else []


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Several u32 matches under one key make the filter unreadable; none is silently dropped."""
    json_object = dict(pairs)
    if len(json_object) != len(pairs):
        json_object["match"] = None
    return json_object


def ecmp_of(sysctl: dict[str, Any], name: str) -> tuple[str, ...] | None:
    fields_by_family = []
    for family in FAMILIES:
        policy, fields = (sysctl.get(HASH.format(family, key)) for key in ("policy", "fields"))
        if policy is None:
            return None
        try:
            mask = int(str(fields), 0) if int(policy) == 3 else ECMP_POLICIES.get(int(policy))
        except (TypeError, ValueError):
            raise FabricError(
                f"policy {policy!r} with fields {fields!r} is not valid",
                "read it again",
                subject=f"{name}: sysctl {HASH.format(family, 'policy')}",
            ) from None
        if mask is None:
            return None
        fields_by_family.append(tuple(sorted(field for field, bit in ECMP_BITS.items() if mask & bit)))
    four, six = fields_by_family
    return four if four == six else None


class LinuxPort:
    """One device of a model."""

    def __init__(self, name: str, port: str, model: Model) -> None:
        self.place = f"{name}: {port}"
        self.mtu = model["links"][port]
        self.qdiscs = model["qdiscs"].get(port, [])
        self.filters = model["filters"].get(port)

    def refuse(self, cause: str, remedy: str = "compare it with `tc -d qdisc show` there") -> FabricError:
        return FabricError(cause, remedy, subject=self.place)

    def options(self, qdisc: Model, *keys: str) -> list[Any]:
        options = qdisc.get("options")
        values = [options.get(key) if isinstance(options, dict) else None for key in keys]
        if None in values:
            raise self.refuse(f"qdisc {qdisc.get('kind')} {qdisc.get('handle')} has no {keys[values.index(None)]}")
        return values

    def qos(self) -> PortQos:
        root = next((qdisc for qdisc in self.qdiscs if qdisc.get("root")), None)
        if root is None or root.get("kind") not in ("ets", "prio"):
            for qdisc in self.qdiscs:
                if root is None and qdisc.get("kind") not in ("ingress", "clsact"):
                    raise self.refuse(
                        f"qdisc {qdisc.get('kind')} {qdisc.get('handle')} is attached to nothing that was read"
                    )
            return PortQos(ip_mtu_bytes=self.mtu)
        bands = self.bands(root)
        children = self.children(root, len(bands))
        numbers = self.numbers(children, len(bands))
        queues: list[Queue | None] = [None] * CLASSES
        class_to_queue: list[int | None] = [None] * CLASSES
        for band, (queue, traffic_class) in enumerate(numbers):
            queues[queue] = Queue(*bands[band], self.ecn(children.get(band)))
            class_to_queue[traffic_class] = queue
        dscps = tuple(None if band is None else numbers[band][1] for band in self.dscp_to_band(root, len(bands)))
        return PortQos(
            dscp_to_class=dscps, class_to_queue=tuple(class_to_queue), queues=tuple(queues), ip_mtu_bytes=self.mtu
        )

    def numbers(self, children: dict[int, Model], count: int) -> list[tuple[int, int]]:
        """Return (queue, traffic class) by band.

        A band whose qdisc does not give them, or is missing (a script may have been stopped before it), gets the
        highest numbers that no other band has.
        """
        numbers_by_band = {}
        for band, child in children.items():
            if match := CHILD.fullmatch(child.get("handle", "")):
                numbers_by_band[band] = int(match[1]), int(match[2])
        queues, classes = ({pair[position] for pair in numbers_by_band.values()} for position in (0, 1))
        if not 1 <= count <= CLASSES or len(queues) < len(numbers_by_band) or len(classes) < len(numbers_by_band):
            raise self.refuse(
                f"{count} bands do not correspond to 1 to {CLASSES} queues and classes with different numbers"
            )
        free = zip(*(sorted(set(range(CLASSES)) - used, reverse=True) for used in (queues, classes)))
        return [numbers_by_band[band] if band in numbers_by_band else next(free) for band in range(count)]

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
        qdiscs_by_band: dict[int, Model] = {}
        for qdisc in self.qdiscs:
            major, _colon, minor = str(qdisc.get("parent", "")).partition(":")
            if qdisc.get("root") or qdisc.get("kind") in ("ingress", "clsact") or f"{major}:" != root.get("handle"):
                continue
            try:
                band = int(minor, 16) - 1
            except ValueError:
                band = -1
            if not 0 <= band < count:
                raise self.refuse(
                    f"qdisc {qdisc.get('handle')} is attached to {qdisc['parent']}, but there are {count} bands"
                )
            qdiscs_by_band[band] = qdisc
        return qdiscs_by_band

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
            raise self.refuse("red has no probability", "read it with tc -d (details)")
        if not 0 <= probability <= 1:
            raise self.refuse(f"red has the invalid probability {probability}")
        return Ecn(minimum, maximum, round(probability * 100))

    def dscp_to_band(self, root: Model, count: int) -> Octet:
        (priomap,) = self.options(root, "priomap")
        default = priomap[0] if len(priomap) == PRIORITIES and len(set(priomap)) == 1 else None
        if default is not None and not 0 <= default < count:
            raise self.refuse(f"priomap leads to band {default}, but there are {count} bands")
        if self.filters is None:
            raise self.refuse("its filters were not read", "read it with the script READING")
        by_protocol = []
        for protocol in PROTOCOLS:
            rules = [
                self.rule(filter_entry, protocol, root, count)
                for filter_entry in sorted(self.filters, key=lambda filter_entry: filter_entry.get("pref", 0))
                if filter_entry.get("protocol") in (protocol, "all")
                and filter_entry.get("parent", root["handle"]) == root["handle"]
            ]
            by_protocol.append([self.first_match(rules, dscp, default) for dscp in range(DSCPS)])
        return tuple(four if four == six else None for four, six in zip(*by_protocol))

    def rule(self, filter_entry: Model, protocol: str, root: Model, count: int) -> tuple[int | None, int, int]:
        """Return (band, value, mask) of a filter on the ToS byte; band None where it also matches other fields."""
        options = filter_entry["options"]
        target = str(options.get("classid", options.get("flowid", "")))
        major, _colon, minor = target.partition(":")
        value = mask = 0
        is_understood = False
        if filter_entry.get("kind") == "flower":
            keys = {key: value_of_key for key, value_of_key in options.get("keys", {}).items() if key != "eth_type"}
            value = keys.pop("ip_tos", 0)
            mask = int(str(keys.pop("ip_tos_mask", "ff" if "ip_tos" in options["keys"] else "0")), 16)
            is_understood = not keys
        elif filter_entry.get("kind") == "matchall":
            is_understood = True
        elif filter_entry.get("kind") == "u32" and isinstance(options.get("match"), dict):
            match, shift = options["match"], 16 if protocol == "ip" else 20  # its place in the header's first word
            value, mask = (int(str(match.get(key, "0")) or "0", 16) for key in ("value", "mask"))
            is_understood = match.get("off") == 0 and match.get("offmask", "") == "" and mask & ~(0xFF << shift) == 0
            value, mask = value >> shift & 0xFF, mask >> shift & 0xFF
        try:
            band = int(minor, 16) - 1
        except ValueError:
            is_understood, band = False, 0
        if is_understood and (f"{major}:" != root["handle"] or not 0 <= band < count):
            raise self.refuse(
                f"a filter leads to {target}, but {root['handle']} has {count} bands", "delete the filter"
            )
        return (band, value, mask) if is_understood else (None, 0, 0)

    @staticmethod
    def first_match(rules: list[tuple[int | None, int, int]], dscp: int, default: int | None) -> int | None:
        """Return the band of the first rule that takes a DSCP's packets; None where it takes only some of them."""
        for band, value, mask in rules:
            upper = mask & 0xFC
            if (dscp << 2) & upper == value & upper:
                return None if mask & 3 else band
        return default
