# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the tables that opensm writes with log_flags 0x40: links, forwarding tables, order of the HCAs, its log. Pure.

The forms are those of opensm 3.3.23: osm_dump.c, osm_ucast_ftree.c, osm_ucast_mgr.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, LinkEnd, SwitchPort
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    AGGREGATION_NODE,
    infiniband_device,
)

NO_PORT = 255
ACTIVE = "ACT"
_NODE = (
    r"\{ (CA|SW)(?:-SM)? Ports:[0-9A-F]+ \S+ NodeGUID:(\S+) PortGUID:(\S+) .*?\{(.*?)\} "
    r"LID:([0-9A-F]+) PN:([0-9A-F]+) \}"
)
_LINK = re.compile(rf"{_NODE} {_NODE} PHY=\S+ LOG=(\S+)")
# The line of a free place of a leaf in the order of ftree.
_FREE_PLACE = "DUMMY"
_SWITCH = re.compile(r"Unicast lids \[.*\] of switch Lid \d+ guid 0x([0-9a-f]{16}) \('(.*)'\):")
_ENTRY = re.compile(r"0x([0-9a-f]+) (\d+) ")
_TABLE_END = re.compile(r"\d+ lids dumped")
_ENGINE = re.compile(r"osm_ucast_mgr_process: (\S+) tables configured on all switches")
_REFUSAL = re.compile(r"-> (.*(?:ERR AB|not (?:a )?fat-tree|Fabric rank is|Failed ranking|valid compute nodes).*)")


class SubnetNode(NamedTuple):
    """A node of the subnet: its kind (CA or SW), GUID, description, LID, and the port at this end of a link."""

    kind: str
    guid: str
    description: str
    lid: int
    port: int


class SubnetLink(NamedTuple):
    """A link of the subnet, read at one of its ends, and its logical state: DWN, INI, ARM or ACT."""

    near: SubnetNode
    far: SubnetNode
    state: str


class SwitchTable(NamedTuple):
    """A switch: its name, the far end of each port, and its forwarding table (LID -> port)."""

    name: str
    far: dict[int, SubnetNode]
    ports: bytearray


class Tables(NamedTuple):
    """A subnet as its manager configured it.

    ``hcas``: LID by HCA. ``order``: the HCAs in the engine's order, None for a free place of a leaf. ``links``: the
    state of each link, by its two ends.
    """

    switches: dict[str, SwitchTable]
    hcas: dict[Hca, int]
    order: list[Hca | None]
    links: dict[frozenset[LinkEnd], str]


def read_tables(links: str, forwarding: str, order: str = "") -> Tables:
    """Return the tables in opensm-subnet.lst, opensm-lfts.dump and opensm-ftree-ca-order.dump, which only ftree writes.

    Raises InfinibandError for a switch that only one of the first two has, and for a text that is cut off.
    """
    far_ends: dict[str, dict[int, SubnetNode]] = {}
    seen_once: set[frozenset[SubnetNode]] = set()
    hcas: dict[Hca, int] = {}
    states: dict[frozenset[LinkEnd], str] = {}
    for near_node, far_node, state in read_links(links):
        if AGGREGATION_NODE in (near_node.description, far_node.description):
            continue
        ends = frozenset((_end(near_node), _end(far_node)))
        seen_once ^= {frozenset((near_node, far_node))}
        # The ends of a link that is coming up can have different states.
        if states.setdefault(ends, state) == ACTIVE:
            states[ends] = state
        if near_node.kind == "SW":
            far_ends.setdefault(near_node.guid, {})[near_node.port] = far_node
        else:
            hcas[Hca(*infiniband_device(near_node.description))] = near_node.lid
    if seen_once:
        names = sorted(f"{node.description} port {node.port}" for node in min(seen_once, key=sorted))
        raise InfinibandError(
            cause="opensm-subnet.lst has it from one end only", remedy="read the dumps again", subject=" - ".join(names)
        )
    switches = {}
    for guid, name, ports in _forwarding(forwarding):
        if guid in switches:
            raise InfinibandError(
                "opensm-lfts.dump has two tables of it", "provide the dump of one sweep", subject=name
            )
        if guid not in far_ends:
            raise InfinibandError(
                "opensm-lfts.dump has this switch, but opensm-subnet.lst has no link of it",
                "read both again",
                subject=name,
            )
        switches[guid] = SwitchTable(infiniband_device(name)[0], far_ends.pop(guid), ports)
    if far_ends:
        raise InfinibandError(
            "opensm-lfts.dump has no table of it", "read the dumps again", subject=f"switch 0x{next(iter(far_ends))}"
        )
    lines = [line.split("\t", 1) for line in order.splitlines()]
    if any(len(line) < 2 for line in lines):
        cause = "a line of it is cut off"
        raise InfinibandError(cause=cause, remedy="read the dumps again", subject="opensm-ftree-ca-order.dump")
    names = [line[1] for line in lines]
    places = [
        None if name == _FREE_PLACE else Hca(*infiniband_device(name)) for name in names if name != AGGREGATION_NODE
    ]
    return Tables(switches, hcas, places, states)


def _end(node: SubnetNode) -> LinkEnd:
    device, hca = infiniband_device(node.description)
    return Hca(device, hca) if node.kind == "CA" else SwitchPort(device, node.port)


def read_links(text: str) -> Iterator[SubnetLink]:
    """Return the links in opensm-subnet.lst, once from each end."""
    for line in text.splitlines():
        match = _LINK.match(line)
        if match:
            yield SubnetLink(_node(match.groups()[:6]), _node(match.groups()[6:12]), match[13])


def _node(fields: tuple[str, ...]) -> SubnetNode:
    kind, guid, _port_guid, description, lid, port = fields
    return SubnetNode(kind, guid.lower(), description, int(lid, 16), int(port, 16))


def _forwarding(text: str) -> Iterator[tuple[str, str, bytearray]]:
    """Return GUID, description and table of each switch in opensm-lfts.dump. Ports are decimal there."""
    guid = name = ""
    ports = bytearray()
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            lid = int(entry[1], 16)
            if lid >= len(ports):
                ports.extend([NO_PORT] * (lid + 1 - len(ports)))
            port = int(entry[2])
            if port > NO_PORT:
                raise InfinibandError(
                    f"opensm-lfts.dump sends LID {lid} to port {port}", "read the dump again", subject=name
                )
            ports[lid] = port
            continue
        if guid and _TABLE_END.match(line):
            yield guid, name, ports
            guid = ""
        switch = _SWITCH.match(line)
        if switch:
            if guid:
                break
            guid, name, ports = switch[1], switch[2], bytearray()
    if guid:
        raise InfinibandError(
            cause="its table in opensm-lfts.dump is cut off", remedy="read the dumps again", subject=name
        )


def routing_lines(text: str) -> str:
    """Return the lines of a log that ``engine_in_log`` reads."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if _ENGINE.search(line) or _REFUSAL.search(line))


def engine_in_log(text: str) -> tuple[str, str]:
    """Return the engine that routed last, "" if the log names none, and the first refusal since the one before it."""
    engine = reason = refusal = ""
    for line in text.splitlines():
        match = _ENGINE.search(line)
        if match:
            engine, reason, refusal = match[1], refusal, ""
        else:
            refused = _REFUSAL.search(line)
            refusal = refusal or (refused[1] if refused else "")
    return engine, reason


def read_pkeys(text: str) -> list[int]:
    """Return the table in the output of ``smpquery pkeys``: P_Key by index. Raises InfinibandError for another text."""
    if "pkeys capacity for this port" not in text:
        raise InfinibandError("this is not what smpquery pkeys prints", "provide its complete output", subject="P_Keys")
    rows = (line.partition(":")[2] for line in text.splitlines())
    return [int(value, 16) for row in rows for value in re.findall(r"0x[0-9a-f]{4}", row)]
