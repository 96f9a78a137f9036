# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the patch from one NVUE configuration to another. Sources: ``systems.cumulus``."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.cumulus import (
    ALL_PORTS,
    ECMP,
    ECMP_HASH,
    INDEXED,
    LAG_HASH,
    OFF,
    ON,
    OURS,
    REWRITING,
    SECTIONS,
    NvueReader,
    Tree,
    document,
    items,
    merge,
    names_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.cumulus_render import text_of, tree_of


def remediation(running: str, wanted: Switch) -> str:
    """Return the patch that changes a running configuration to ``wanted``; "" where nothing differs.

    It is a document like render's, in which null removes a key. Settings that are not this project's stay, except those
    that contradict the policy.
    """
    reader = NvueReader(wanted.name, document(running, wanted.name))
    have = _normal(reader)
    want = tree_of(wanted)
    patch: Tree = {}
    _difference(patch, want, have, ())
    _remove_from_switch(patch, reader, want, have["qos"], wanted)
    if any(wanted.ports.keys() & set(reader.members(settings)) for settings in have["interface"].values()):
        for lag_field in sorted({*(wanted.ecmp_fields or ())} - {*reader.hashed(LAG_HASH)}):
            _put(patch, ("system", "forwarding", LAG_HASH, ECMP[lag_field]), "on")
    for port, settings in want["interface"].items():
        _remove_from_port(patch, reader, port, settings.get("qos", {}), have.get("interface", {}).get(port, {}))
    return text_of(patch) if patch else ""


def _remove_from_switch(patch: Tree, reader: NvueReader, want: Tree, qos: Tree, wanted: Switch) -> None:
    """Remove settings of all ports that contradict the policy, and this project's profiles that are not wanted."""
    if reader.roce:
        _remove(patch, "qos", "roce")
    if wanted.ports and "roce-lossless" in qos.get("traffic-pool", {}):
        _remove(patch, "qos", "traffic-pool", "roce-lossless")  # a switch has one lossless pool
    for section in SECTIONS:
        wanted_profiles = want.get("qos", {}).get(section, {})
        for profile in qos.get(section, {}):
            if profile.startswith(OURS) and profile not in wanted_profiles:
                _remove(patch, "qos", section, profile)
    wanted_priorities = want.get("qos", {}).get("egress-queue-mapping", {}).get(ALL_PORTS, {}).get("switch-priority")
    for priority in reader.explicit if wanted_priorities else ():
        if str(priority) not in wanted_priorities:  # it would lead other traffic into a class's queue
            _remove(patch, "qos", "egress-queue-mapping", ALL_PORTS, "switch-priority", str(priority))
    if qos.get("pfc", {}).get(ALL_PORTS) and any(not port.pfc for port in wanted.ports.values()):
        _remove(patch, "qos", "pfc", ALL_PORTS)  # it would make a port pause that must not
    if reader.rewriting(reader.below(reader.qos, REWRITING, ALL_PORTS, place="qos"), f"qos {REWRITING}", ALL_PORTS):
        _remove(patch, "qos", REWRITING, ALL_PORTS, "rewrite")


def _remove_from_port(patch: Tree, reader: NvueReader, port: str, want: Tree, have: Tree) -> None:
    """Remove settings of a port that contradict the policy. ``want``: its wanted QoS; ``have``: all its settings."""
    existing = reader.below(have, "qos", place=f"interface {port}")
    extra = [section for section in (*SECTIONS, "pfc-watchdog") if section in existing and section not in want]
    if REWRITING in existing and reader.port(port, have).rewrites_dscp:
        extra.append(REWRITING)
    if "pfc" in want and "link-pause" in existing:
        extra.append("link-pause")  # a port has one of the two
    for section in extra:
        _remove(patch, "interface", port, "qos", section)


def restoration(backup: str, running: str, name: str) -> str:
    """Return the patch from ``running`` back to ``backup`` in all that a policy can change; "" where nothing differs.

    It has the form of remediation's patch. Other settings (passwords, which NVUE does not show) are not in it.
    """
    old, new = (_policy_settings(document(text, name), f"{name}: NVUE configuration") for text in (backup, running))
    for port in new["interface"]:
        old["interface"].setdefault(port, {"qos": {}, "link": {}})
    patch = _restoring_patch(old, new)
    return text_of(patch) if patch else ""


def _policy_settings(tree: Tree, place: str) -> Tree:
    """Return the settings of all kinds that a policy can change. Raises FabricError for ``place``."""

    def below(node: Tree, key: str) -> Tree:
        return dict(items(node.get(key), f"{place}: {key}"))

    forwarding = below(below(tree, "system"), "forwarding")
    hashing = {section: forwarding[section] for section in (ECMP_HASH, LAG_HASH) if forwarding.get(section)}
    interfaces = below(tree, "interface")
    ports = {port: below(interfaces, port) for port in interfaces}
    mtus = {port: below(settings, "link").get("mtu") for port, settings in ports.items()}
    return {
        "interface": {
            port: {"qos": below(settings, "qos"), "link": {"mtu": mtus[port]} if mtus[port] is not None else {}}
            for port, settings in ports.items()
        },
        "qos": below(tree, "qos"),
        "system": {"forwarding": hashing},
    }


def _restoring_patch(old: Any, new: Any) -> Tree:
    """Return a merge patch (RFC 7396) that changes ``new`` back to ``old``."""
    patch: Tree = {key: None for key in new if key not in old}
    for key, value in old.items():
        if key not in new:
            patch[key] = value
        elif isinstance(value, dict) and isinstance(new[key], dict):
            inner = _restoring_patch(value, new[key])
            if inner:
                patch[key] = inner
        elif value != new[key]:
            patch[key] = value
    return patch


def _normal(reader: NvueReader) -> Tree:
    """Return the parts of the running tree that this project writes, with ranges expanded."""
    interfaces: Tree = {}
    for key, value in items(reader.tree.get("interface"), f"{reader.place}: interface"):
        for port in names_of(key, f"{reader.place}: interface {key}"):
            merge(interfaces.setdefault(port, {}), value, f"{reader.place}: interface {port}")
    qos = {section: reader.below(reader.qos, section, place="qos") for section in reader.qos}
    return {
        "interface": interfaces,
        "qos": _with_single_numbers(reader, qos, "qos"),
        "system": reader.below(reader.tree, "system"),
    }


def _with_single_numbers(reader: NvueReader, node: Any, path: str) -> Any:
    if not isinstance(node, dict):
        return node
    expanded: Tree = {}
    for key, value in node.items():
        if (key in INDEXED and isinstance(value, (dict, list))) or (key == "switch-priority" and "pool" in path):
            by_number = reader.indexed(node, key, path)
            expanded[key] = {
                str(number): _with_single_numbers(reader, setting, f"{path} {key} {number}")
                for number, setting in by_number.items()
            }
        else:
            expanded[key] = _with_single_numbers(reader, value, f"{path} {key}")
    return expanded


def _difference(patch: Tree, want: Tree, have: Any, path: tuple[str, ...]) -> None:
    """Add to ``patch`` what ``want`` has and ``have`` lacks, and remove what else a profile of this project has."""
    existing = have if isinstance(have, dict) else {}
    for key, value in want.items():
        if isinstance(value, dict) and value:
            _difference(patch, value, existing.get(key), (*path, key))
        elif key not in existing or (value != {} and not _equivalent(value, existing[key])):
            _put(patch, (*path, key), value)
    if len(path) > 2 and path[0] == "qos" and path[2].startswith(OURS):
        for key in existing:
            if key not in want:
                _put(patch, (*path, key), None)


def _equivalent(value: Any, seen_value: Any) -> bool:
    """Return true where two values mean the same to NVUE: later releases say "enabled" for "enable" and "on"."""
    first, second = str(value).lower(), str(seen_value).lower()
    return first == second or any(first in synonyms and second in synonyms for synonyms in (ON, OFF))


def _put(patch: Tree, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        patch = patch.setdefault(key, {})
    patch[path[-1]] = value


def _remove(patch: Tree, *path: str) -> None:
    _put(patch, path, None)
