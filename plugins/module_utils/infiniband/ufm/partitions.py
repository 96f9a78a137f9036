# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the partitions of a UFM to the planned members, by its REST API.

The requests and answers are those of the guide's "PKey GUIDs Rest API".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.request import DEFAULT_PKEY
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import Api, digits, not_as_documented

PATH = "resources/pkeys"
# A request with GUIDs in its data, and one with GUIDs in its URL, which may have some thousand characters.
ADDED_AT_ONCE, REMOVED_AT_ONCE = 500, 50


class Member(NamedTuple):
    """A member of a partition: its membership, and whether the P_Key has the first place in its table."""

    membership: str
    index0: bool


# The members of a partition by GUID, 16 digits.
Members = dict[str, Member]


class UfmPartition(NamedTuple):
    """A partition, with IP over InfiniBand or not. A planned one has ``unknown`` members, whose GUIDs are not known."""

    ip_over_ib: bool
    members: Members
    unknown: int = 0


class UfmRequest(NamedTuple):
    """A request that changes UFM, and what it does."""

    method: str
    path: str
    data: dict[str, Any] | None
    title: str


def present_partitions(api: Api) -> dict[int, UfmPartition]:
    """Return all partitions by P_Key. Raises InfinibandError."""
    path = f"{PATH}?guids_data=true"
    data = api.read(path)
    try:
        return {
            int(pkey, 16) & DEFAULT_PKEY: UfmPartition(
                bool(partition["ip_over_ib"]),
                {digits(row["guid"]): Member(row["membership"], bool(row["index0"])) for row in partition["guids"]},
            )
            for pkey, partition in data.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise not_as_documented(path) from None


def planned_partitions(plan: FabricPlan) -> dict[int, UfmPartition]:
    """Return the planned partitions by P_Key, without the default one."""
    return {
        partition.pkey: UfmPartition(
            partition.ipoib,
            {
                digits(plan.guids.known[hca]): Member(membership, partition.index0)
                for hca, membership in partition.members.items()
                if hca in plan.guids.known
            },
            sum(hca not in plan.guids.known for hca in partition.members),
        )
        for partition in plan.request.partitions
    }


def steps(planned: Mapping[int, UfmPartition], present: Mapping[int, UfmPartition]) -> list[UfmRequest]:
    """Return the requests that bring the planned partitions about: additions first, so that no job loses its partition.

    Other partitions stay as they are, and so do the members of one with unknown planned members: these may be among
    them.
    """
    added, removed = [], []
    for pkey, partition in planned.items():
        path, name = f"{PATH}/0x{pkey:x}", f"0x{pkey:04x}"
        present_members = present[pkey].members if pkey in present else {}
        new = {guid: member for guid, member in partition.members.items() if present_members.get(guid) != member}
        for part in _parts(sorted(new), ADDED_AT_ONCE):
            data = {
                "pkey": f"0x{pkey:x}",
                "guids": part,
                "memberships": [new[guid].membership for guid in part],
                "index0": new[part[0]].index0,
                "ip_over_ib": partition.ip_over_ib,
            }
            added.append(UfmRequest("POST", f"{PATH}/", data, f"{name}: add or change {len(part)} members"))
        spare = _spare(partition, present.get(pkey))
        for part in _parts([] if partition.unknown else spare, REMOVED_AT_ONCE):
            step = UfmRequest("DELETE", f"{path}/guids/{','.join(part)}", None, f"{name}: remove {len(part)} members")
            removed.append(step)
    return [*added, *removed]


def not_changed(planned: Mapping[int, UfmPartition], present: Mapping[int, UfmPartition]) -> list[str]:
    """Return lines about what differs and is left: other partitions, members, IP over InfiniBand."""
    unplanned = [f"0x{pkey:04x}: not planned" for pkey in sorted({*present} - {*planned} - {DEFAULT_PKEY})]
    members = [
        f"0x{pkey:04x}: {len(spare)} members are not planned, but {row.unknown} planned GUIDs are not known; find these"
        for pkey, row in planned.items()
        if row.unknown and (spare := _spare(row, present.get(pkey)))
    ]
    return (
        unplanned
        + members
        + [
            f"0x{pkey:04x}: ip_over_ib is {present[pkey].ip_over_ib}, but {row.ip_over_ib} is planned; change it in UFM"
            for pkey, row in planned.items()
            if pkey in present and present[pkey].ip_over_ib != row.ip_over_ib
        ]
    )


def shown(partitions: Mapping[int, UfmPartition], pkeys: Mapping[int, Any]) -> str:
    """Return the members of some partitions as lines, for a difference."""
    lines = [
        f"0x{pkey:04x} 0x{guid} {member.membership}{' index0' if member.index0 else ''}\n"
        for pkey in sorted({*pkeys} & {*partitions})
        for guid, member in sorted(partitions[pkey].members.items())
    ]
    return "".join(lines)


def _spare(planned: UfmPartition, present: UfmPartition | None) -> list[str]:
    return sorted({*(present.members if present else ())} - {*planned.members})


def _parts(guids: list[str], size: int) -> list[list[str]]:
    return [guids[start : start + size] for start in range(0, len(guids), size)]
