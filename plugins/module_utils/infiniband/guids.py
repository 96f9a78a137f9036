# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GUIDs of a fabric's HCAs and switches: those of the inventory, and those that were found. Pure.

Of an HCA it is the port's GUID, which partitions name. On the ConnectX generations with one port for each RDMA device
the node's GUID is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric, Hca
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import (
    infiniband_device,
    read_guids,
)

# An HCA, or a switch by its name.
Node = Union[Hca, str]
_IN_QUOTES = 'write it in quotes, like "0x946dae0300f1b2c4"'
_TEXT = re.compile(r"(?:0x)?([0-9a-f]{1,16})", re.IGNORECASE)


def guid_text(subject: str, value: Any) -> str:
    """Return a GUID as 0x and 16 digits. YAML reads 0x946dae0300f1b2c4 without quotes as a number.

    A number of 16 decimal digits or less is refused: it may be a GUID without 0x, whose digits are decimal ones.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**64:
        if value < 10**16:
            raise InfinibandError(
                f"{value} may be a GUID that YAML took for a decimal number", _IN_QUOTES, subject=subject
            )
        return f"0x{value:016x}"
    match = _TEXT.fullmatch(value.replace(":", "")) if isinstance(value, str) else None
    if not match or not int(match[1], 16):
        raise InfinibandError(f"{value!r} is not a GUID", _IN_QUOTES, subject=subject)
    return f"0x{int(match[1], 16):016x}"


@dataclass
class Guids:
    """The GUIDs that are known, and lines about ``conflicts``: other GUIDs that were found, descriptions of many."""

    known: dict[Node, str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)

    def add_found(self, fabric: Fabric, text: str) -> None:
        """Add the GUIDs in an output of ``ibnetdiscover -p`` that are not known, and record the conflicts."""
        nodes: set[Node] = {*fabric.hcas, *fabric.switches}
        for description, texts in read_guids(text).items():
            device, name = infiniband_device(description)
            seen: Node = Hca(device, name) if name else device
            if seen not in nodes:
                continue
            seen_guids = sorted(guid_text(description, guid) for guid in texts)
            if len(seen_guids) > 1:
                self.conflicts.append(f"{seen}: {' and '.join(seen_guids)} have this node description; correct one")
            elif self.known.setdefault(seen, seen_guids[0]) != seen_guids[0]:
                self.conflicts.append(
                    f"{seen}: {seen_guids[0]} was found, but the inventory has {self.known[seen]}; correct the "
                    f"inventory if the device was replaced"
                )

    def unknown(self, fabric: Fabric) -> list[str]:
        """Return the HCAs and switches without a GUID as lines, one for each RDMA device of all hosts."""
        switches = [switch for switch in fabric.switches if switch not in self.known]
        by_name: dict[str, list[str]] = {}
        for hca in fabric.hcas:
            if hca not in self.known:
                by_name.setdefault(hca.name, []).append(hca.host)
        lines = [f"{fold(switches)}: the GUIDs are not known"] if switches else []
        return lines + [f"{name} of {fold(hosts)}: the GUIDs are not known" for name, hosts in sorted(by_name.items())]


def know(fabric: Fabric, inventory: Mapping[str, Any], discovered: Iterable[str]) -> Guids:
    """Return the GUIDs of a fabric.

    ``inventory``: host -> RDMA device -> GUID, switch -> GUID. ``discovered``: texts of ``ibnetdiscover -p``. Where
    both have a GUID and differ, the inventory's is taken and the other one is a conflict. Raises InfinibandError for a
    text that is no GUID, and for one that two ports have.
    """
    guids = Guids()
    nodes: set[Node] = {*fabric.hcas, *fabric.switches}
    hosts = {hca.host for hca in fabric.hcas}
    for host, value in inventory.items():
        if value is not None and host in hosts and not isinstance(value, Mapping):
            raise InfinibandError(f"{value!r} is no GUID by RDMA device", "write it like {mlx5_0: GUID}", subject=host)
        if host in fabric.switches and isinstance(value, Mapping):
            raise InfinibandError("a switch has one GUID", _IN_QUOTES, subject=host)
        guid_by_node = (
            {Hca(host, name): guid for name, guid in value.items()} if isinstance(value, Mapping) else {host: value}
        )
        for node, guid in guid_by_node.items():
            if guid is not None and node in nodes:
                guids.known[node] = guid_text(str(node), guid)
    for text in discovered:
        guids.add_found(fabric, text)
    _refuse_twice(guids.known)
    return guids


def _refuse_twice(guids: Mapping[Node, str]) -> None:
    by_guid: dict[str, Node] = {}
    for node, guid in guids.items():
        first = by_guid.setdefault(guid, node)
        if first != node:
            raise InfinibandError(f"{node} has the same GUID {guid}", "correct one of them", subject=f"{first}")
