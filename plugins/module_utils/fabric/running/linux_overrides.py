# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a Linux machine has beside the queues of its ports: overrides, bonds, bridges and VLANs.

Sources: ``syntax.overrides``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import ECMP_FIELDS, Override
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import Model
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import LINUX, SIZE

# Keys of nft's JSON, and names of iptables' extensions: matches of some packets only, by rate, number or chance; what
# drops a packet; what decides where it goes on; matches of packets that are not UDP.
RATES = {
    *("limit", "quota", "meter", "ct count", "numgen"),
    *("connbytes", "connlimit", "hashlimit", "rateest", "statistic"),
}
DROPS = {"drop", "reject", "DROP", "REJECT"}
VERDICTS = {*DROPS, "accept", "return", "jump", "goto", "queue", "ACCEPT", "RETURN"}
# xmit_hash_policy -> what it hashes of packets that are UDP, as RoCE's are; nothing of them: "layer2", "vlan+srcmac".
BOND_FIELDS = {
    **dict.fromkeys(("layer3+4", "encap3+4"), ECMP_FIELDS),
    **dict.fromkeys(("layer2+3", "encap2+3"), ("destination_ip", "source_ip")),
}
# The kinds of devices whose packets ports send unchanged.
ON_PORTS = (None, "bond", "bridge", "ipvlan", "macvlan", "team", "vlan")
OTHERS = {"icmp", "icmpv6", "ipv6-icmp", "igmp", "sctp", "tcp"}


def overrides(model: Model) -> tuple[Override, ...]:
    """Return what can change what packets get and is not read: qdiscs, states of links, actions of filters, rules."""
    statements = [
        (f"qdisc {qdisc.get('kind')}", (port,)) for port, listed in model["qdiscs"].items() for qdisc in listed
    ]
    lower, bonds = model.get("lower", {}), lags(model)
    for port, (flags, _master) in model.get("flags", {}).items():
        if port not in lower or port in bonds:  # no packet passes a bridge or a VLAN that is down
            statements += [(f"link {state}", (port,)) for state in _states(flags)]
    statements += [
        (f"filter action {action.get('kind')}", (port,))
        for port, listed in model["filters"].items()
        for filter_entry in listed
        for action in filter_entry["options"].get("actions", ())
    ]
    kinds = model.get("kinds", {})
    for lag in bonds:
        kind = kinds.get(lag, {})
        statements.append((f"{kind.get('info_kind')} {kind.get('info_data', {}).get('mode', '')}".strip(), (lag,)))
    statements += [(f"link {name} tagged", (name,)) for name in model.get("tagged", ())]
    statements += model.get("rules", [])
    seen = [
        Override(text, effect, ports) for text, ports in dict.fromkeys(statements) if (effect := LINUX.effect(text))
    ]
    for name in lower:  # a tunnel's packets are others than those of the ports below
        if name in model["links"] and kinds.get(name, {}).get("info_kind") in ON_PORTS:
            mtu = model["links"][name]
            seen.append(Override(f"link {name} mtu {mtu}", SIZE, (name,), mtu))
    placed = [replace(override, ports=_all_ports_below(override.ports, lower)) for override in seen]
    return tuple(on_ports for on_devices, on_ports in zip(seen, placed) if on_ports.ports or not on_devices.ports)


def pauses(reading: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the pauses that ports obey or send, as far as their drivers and the machine's programs show them.

    Forms: ethtool, netlink/pause.c; iproute2, dcb/dcb_pfc.c. Raises a TypeError, KeyError or AttributeError.
    """
    for port, shown in reading.get("ethtool --json -a", {}).items():
        for row in shown or ():
            yield from (
                (f"link pause {direction}", (port,)) for direction in ("rx", "tx") if row.get(direction) is not False
            )
    for port, shown in reading.get("dcb -j pfc show dev", {}).items():
        for priority, state in enumerate(shown["prio_pfc"] if shown else ()):
            if state not in (False, "off"):
                yield f"link pfc {priority}", (port,)


def hashed_fields(model: Model) -> dict[str, tuple[str, ...]]:
    """Return the fields by which each bond spreads packets, in the modes that send a flow by one member.

    active-backup sends all flows by one. Source: the kernel's networking/bonding.
    """
    kinds = model.get("kinds", {})
    data = {lag: kinds.get(lag, {}).get("info_data", {}) for lag in lags(model)}
    return {
        lag: () if settings["mode"] == "active-backup" else BOND_FIELDS.get(str(settings.get("xmit_hash_policy")), ())
        for lag, settings in data.items()
        if settings.get("mode") in ("802.3ad", "active-backup", "balance-xor")
    }


def lower_devices(links: list[Model], vlans: list[Model] | None) -> dict[str, tuple[str, ...]]:
    """Return the devices whose packets a bridge, a bond or a VLAN's device has, by its name ("vlan10": "br0").

    ``vlans``: those of a bridge's ports, as ``bridge -j vlan show`` prints them; None where they are not known.
    """
    links_by_name = {link["ifname"]: link for link in links}
    lower: dict[str, tuple[str, ...]] = {}
    for name, link in links_by_name.items():
        if link.get("master"):
            lower[link["master"]] = (*lower.get(link["master"], ()), name)
        base = link.get("link", "")
        if base in links_by_name and links_by_name[base].get("link") != name:  # not the other end of a veth
            lower[name] = (*lower.get(name, ()), base)
    for name, link in links_by_name.items():
        number = _data(link).get("id")
        bridge = links_by_name.get(link.get("link", ""), {})
        if number is not None and vlans is not None and _data(bridge).get("vlan_filtering"):
            carrying = [port["ifname"] for port in vlans if any(_has_vlan(vlan, number) for vlan in port["vlans"])]
            lower[name] = tuple(port for port in lower.get(bridge["ifname"], ()) if port in carrying)
    return lower


def tagged_devices(links: list[Model], vlans: list[Model] | None) -> list[str]:
    """Return the devices that send packets with a VLAN's tag: filters of the protocols ip and ipv6 do not take these.

    Seen on a kernel 6.1. ``vlans``: as for ``lower_devices``.
    """
    filtering = {link["ifname"] for link in links if _data(link).get("vlan_filtering")}
    bridged = {link["ifname"] for link in links if link.get("master") in filtering}
    tagging = {
        port["ifname"]
        for port in vlans or ()
        if any("Egress Untagged" not in vlan.get("flags", ()) for vlan in port["vlans"])
    }
    above_ports = [
        link["ifname"]
        for link in links
        if (link.get("linkinfo") or {}).get("info_kind") == "vlan" and link.get("link") not in filtering
    ]
    return [*above_ports, *sorted(bridged if vlans is None else bridged & tagging)]


def _data(link: Model) -> Model:
    data: Model = (link.get("linkinfo") or {}).get("info_data") or {}
    return data


def _has_vlan(vlan: Model, number: int) -> bool:
    first = int(vlan["vlan"])
    return first <= number <= int(vlan.get("vlanEnd") or first)


def _all_ports_below(names: Collection[str], lower: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(port for name in names for port in _ports_below(name, lower)))


def _ports_below(name: str, lower: Mapping[str, tuple[str, ...]], path: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the ports by which the packets of a device pass; the device itself where it is a port."""
    if name not in lower:
        return (name,)
    lower_devices = [device for device in lower[name] if device not in path]
    return tuple(port for device in lower_devices for port in _ports_below(device, lower, (*path, name)))


def _states(flags: list[str]) -> list[str]:
    """Return the states of a link, in which it can lose or change packets."""
    return [*(["down"] if "UP" not in flags else []), *(["xdp"] if "XDP" in flags else [])]


def rules(reading: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return what the rules of nftables do, with the port that a rule names, and the tables of the old iptables.

    iptables of today makes rules of nftables; nft shows their targets by name ("xt").
    """
    statements: list[tuple[str, tuple[str, ...]]] = [
        (table.replace("_names:", " "), ()) for table in str(reading.get("tables", "")).split()
    ]
    nftables = reading.get("nftables")
    if nftables is None:
        return [*statements, ("nftables: not read, because the command nft is missing", ())]
    entries = nftables.get("nftables", [])
    maps = {
        (verdict_map["family"], verdict_map["table"], f"@{verdict_map['name']}"): verdict_map.get("elem", [])
        for verdict_map in [entry["map"] for entry in entries if "map" in entry]
    }
    rules_by_chain: dict[tuple[str, ...], list[Model]] = {}
    for rule in [entry["rule"] for entry in entries if "rule" in entry]:
        named_maps = [str(vmap.get("data")) for vmap in _values(rule["expr"], ("vmap",))]
        elements = [maps.get((rule["family"], rule["table"], name), []) for name in named_maps]
        rule = {**rule, "expr": [*rule["expr"], *({"elem": listed} for listed in elements)]}
        if not any(_is_of_others(part.get("match", {})) for part in rule["expr"]):
            rules_by_chain.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule)
    for chain in [entry["chain"] for entry in entries if "hook" in entry.get("chain", {})]:
        # "input" of a bridge has also the packets that the switch routes.
        hook = {"arp": "arp", "bridge": f"bridge_{chain['hook']}"}.get(chain["family"], chain["hook"])
        reached = _reached((chain["family"], chain["table"], chain["name"]), rules_by_chain)
        drops = chain.get("policy") == "drop" or any(_has(rule, DROPS) for rule in reached)
        device = chain.get("dev", ())
        for rule in reached:
            ports = tuple(port for part in rule["expr"] for port in _ports_of(part.get("match", {})))
            ports = ports or ((device,) if isinstance(device, str) else tuple(device))
            actions = [*_actions(rule["expr"])]
            if drops and _has(rule, RATES) and _has(rule, VERDICTS):
                actions.append("limit drop")  # what is above the rate reaches a rule, or the policy, that drops
            statements += [(f"nftables {hook} {action}", ports) for action in actions]
    return statements


def _reached(chain: tuple[str, ...], rules_by_chain: dict[tuple[str, ...], list[Model]]) -> list[Model]:
    """Return the rules of a chain and of all chains to which these jump."""
    chains = [chain]
    rules_reached = []
    for family, table, name in chains:
        for rule in rules_by_chain.get((family, table, name), ()):
            rules_reached.append(rule)
            targets = [(family, table, value["target"]) for value in _values(rule["expr"], ("jump", "goto"))]
            chains += [target for target in dict.fromkeys(targets) if target not in chains]
    return rules_reached


def _has(rule: Model, names: Collection[str]) -> bool:
    """Return true for a rule with one of these expressions of nft, matches or targets of iptables."""
    extensions = [str(value.get("name")) for value in _values(rule["expr"], ("xt",)) if isinstance(value, dict)]
    return any(True for _value in _values(rule["expr"], names)) or not set(names).isdisjoint(extensions)


def _values(node: Any, keys: Collection[str]) -> Iterator[Any]:
    """Yield the value of each of these keys anywhere in a tree."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in keys:
                yield value
            yield from _values(value, keys)
    elif isinstance(node, list):
        for element in node:
            yield from _values(element, keys)


def _is_of_others(match: dict[str, Any]) -> bool:
    """Return true for a match of packets that are not UDP, as RoCE is."""
    left, right = match.get("left"), match.get("right")
    protocol = left.get("payload", {}).get("protocol") if isinstance(left, dict) else None
    return match.get("op") == "==" and (protocol in OTHERS or (isinstance(right, str) and right in OTHERS))


def _ports_of(match: dict[str, Any]) -> tuple[str, ...]:
    """Return the port that a match of a rule names, if any."""
    key = match.get("left", {}).get("meta", {}).get("key") if isinstance(match.get("left"), dict) else None
    is_port = key in ("iifname", "oifname", "iif", "oif") and match.get("op") == "=="
    return (match["right"],) if is_port and isinstance(match["right"], str) and "*" not in match["right"] else ()


def _actions(parts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what a rule does with packets, in nft's words: "set ip dscp"."""
    for part in parts:
        key = part.get("mangle", {}).get("key", {})
        payload, meta = key.get("payload", {}), key.get("meta", {})
        if payload:
            yield f"set {payload.get('protocol') or '@' + str(payload.get('base'))} {payload.get('field', 'bits')}"
        elif meta:
            yield f"set meta {meta.get('key')}"
        elif "xt" in part and part["xt"].get("type") == "target":
            yield f"xt {part['xt'].get('name')}"


def lags(model: Model) -> dict[str, tuple[str, ...]]:
    """Return the members of each bond."""
    members: dict[str, tuple[str, ...]] = {}
    for port, (flags, master) in model.get("flags", {}).items():
        if "SLAVE" in flags and master:
            members[master] = (*members.get(master, ()), port)
    return members
