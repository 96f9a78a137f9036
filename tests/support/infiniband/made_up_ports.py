# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Readings of a planned fabric's ports that are made up: links that were found, counters of ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Fabric

Port = tuple[str, int]


def found(fabric: Fabric, without: Collection[Port] = (), guids: Mapping[str, Any] | None = None) -> str:
    """Return what ``ibnetdiscover -p`` prints of a fabric, without the links of some ports."""
    of_node = {name: guid for name, guid in (guids or {}).items() if isinstance(guid, str)}
    of_node |= {str(hca): guids[hca.host][hca.name] for hca in fabric.hcas if guids}
    lines = [(str(hca), 1, port.switch, port.number) for hca, port in fabric.hcas.items()]
    lines += [(low.switch, low.number, up.switch, up.number) for low, up in fabric.uplinks]
    return "".join(
        f"{'CA' if ' ' in one else 'SW'}  1  {port} {of_node.get(one, '0x1')} 4x SDR - SW  2 {far} "
        f"{of_node.get(other, '0x2')} ( '{one}' - '{other}' )\n"
        for one, port, other, far in lines
        if not {(one, port), (other, far)} & {*without}
    )


def counters(counted: Mapping[Port, Mapping[str, int]], unread: Collection[Port] = ()) -> str:
    """Return what ibqueryerrors prints of counters that are not 0, and of ports that did not answer."""
    lines = []
    for (name, number), values in counted.items():
        shown = " ".join(f"[{counter} == {value}]" for counter, value in values.items())
        guid = "" if " " in name else "0x200000 "
        lines += [f'Errors for {guid}"{name}"', f"   GUID 0x200000 port ALL: {shown}"]
        lines += [f"   GUID 0x200000 port {number}: {shown}"]
    lines += ["", "## Summary: 14 nodes checked, 2 bad nodes found", "## Thresholds: "]
    lines += [f"##          {2 * len(unread)} PMA query failures"] if unread else []
    for name, number in unread:
        lines.append(f"ibwarn: [1] print_errors: IB_GSI_PORT_COUNTERS query failed on {name}, Lid 3 port {number}")
    return "\n".join(lines) + "\n"
