# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The readings of a node with Storage Scale: outputs of commands with -Y, mounted file systems, RDMA ports. Pure.

The form of -Y: fields with ":" between them, the characters of mmclidecode percent-encoded; a line whose third field is
HEADER names the fields of the lines with the same first two (IBM Storage Scale command reference, "-Y"). The fields
that are used here are from public outputs; none was read from a cluster by this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleError, ScaleRequest

COMMANDS = "/usr/lpp/mmfs/bin"
CLUSTER, STATE, CONFIG, HEALTH = "mmlscluster -Y", "mmgetstate -Y", "mmdiag --config -Y", "mmhealth node show -Y"
ANYWHERE = (CLUSTER, STATE, CONFIG, HEALTH)
# Command, tag, "HEADER" or a number, version, and two reserved fields.
FIXED = 6


@dataclass(frozen=True)
class Record:
    """A line of an output: its fields by name, those of a repeated name by the last one, and all in order."""

    fields: dict[str, str]
    ordered: tuple[str, ...]


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA device. ``link_layer`` is "InfiniBand" or "Ethernet"."""

    device: str
    port: int
    link_layer: str
    numa_node: int | None


@dataclass(frozen=True)
class NodeReading:
    """One node. ``outputs`` is by command; None: it could not be run. ``mounts`` are mount points by device."""

    ports: tuple[RdmaPort, ...]
    outputs: dict[str, str | None]
    mounts: dict[str, str]

    def records(self, command: str, tag: str = "") -> list[Record] | None:
        """Return the lines of a command's output with this tag; None if it could not be run or has no header."""
        return parse(self.outputs.get(command) or "").get(tag)

    def one(self, command: str, name: str, tag: str = "") -> str | None:
        """Return a field of the first line; None if there is none."""
        records = self.records(command, tag)
        return records[0].fields.get(name) if records else None


def mounts_of(file_system: str) -> str:
    """Return the command that lists the nodes with a file system."""
    return f"mmlsmount {file_system} -L -Y"


def filesets_of(file_system: str) -> str:
    """Return the command that lists the filesets of a file system with their AFM."""
    return f"mmlsfileset {file_system} --afm -Y"


def commands(request: ScaleRequest) -> list[str]:
    """Return all commands that the claims need."""
    return [
        *ANYWHERE,
        *(mounts_of(item.name) for item in request.file_systems),
        *(filesets_of(name) for name in sorted({item.file_system for item in request.caches})),
    ]


def parse(text: str) -> dict[str, list[Record]]:
    """Return the lines of an output by their tag, "" for an output with one kind of lines; [] for a lone header."""
    names: dict[str, list[str]] = {}
    records: dict[str, list[Record]] = {}
    for line in text.splitlines():
        fields = line.strip().split(":")
        if len(fields) <= FIXED:
            continue
        tag, kind, values = fields[1], fields[2], fields[FIXED:]
        if kind == "HEADER":
            names[tag] = values
            records.setdefault(tag, [])
        elif tag in names:
            ordered = tuple(unquote(field) for field in values)
            records[tag].append(Record(dict(zip((name for name in names[tag] if name), ordered)), ordered))
    return records


def read(data: Mapping[str, Any]) -> dict[str, NodeReading]:
    """Return the readings by node, from the results of storage_scale_info. Raises ScaleError."""
    return {node: _node_reading(node, reading) for node, reading in data.items()}


def _node_reading(node: str, reading: Any) -> NodeReading:
    try:
        return NodeReading(
            tuple(RdmaPort(**port) for port in reading["ports"]),
            dict(reading["outputs"]),
            dict(reading["mounts"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        cause = reading.get("msg") if isinstance(reading, Mapping) else ""
        raise ScaleError(
            f"it was not read: {cause or 'this is no result of storage_scale_info'}",
            "read the node again, or leave it out of readings",
            subject=node,
        ) from error
