# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the partitions of a UFM to the planned members, by its REST API.

The requests and answers are those of NVIDIA's UFM Enterprise REST API Guide 6.15 to 6.22, "PKey GUIDs Rest API".
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.error import HTTPError

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.request import DEFAULT_PKEY

ARGUMENTS: dict[str, Any] = {
    "ufm_url": {"type": "str", "required": True},
    "ufm_username": {"type": "str"},
    "ufm_password": {"type": "str", "no_log": True},
    "ufm_token": {"type": "str", "no_log": True},
    "validate_certs": {"type": "bool", "default": True},
}
# A request with GUIDs in its data, and one with GUIDs in its URL, which may have some thousand characters.
ADDED_AT_ONCE, REMOVED_AT_ONCE = 500, 50
TIMEOUT_S = 300
REMEDIES = {
    401: "check user and password, or the token",
    403: "check the role of the user",
    404: "check the URL",
}


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


class UfmApi:
    """A connection to one UFM. ``open_url`` is Ansible's function of that name, or a substitute."""

    def __init__(self, arguments: Mapping[str, Any], open_url: Callable[..., Any]) -> None:
        """Take the values of ``ARGUMENTS``. Raises InfinibandError without a login."""
        token, user = arguments["ufm_token"], arguments["ufm_username"]
        if not token and not (user and arguments["ufm_password"]):
            raise InfinibandError("there is no login", "set ufm_token, or ufm_username and ufm_password", subject="UFM")
        login = token or b64encode(f"{user}:{arguments['ufm_password']}".encode()).decode()
        self._url = f"{arguments['ufm_url'].rstrip('/')}/{'ufmRestV3' if token else 'ufmRest'}"
        self._open_url, self._verified = open_url, arguments["validate_certs"]
        self._headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}

    def ask(self, method: str, path: str, data: Mapping[str, Any] | None = None) -> str:
        """Return the text of an answer. Raises InfinibandError."""
        url = f"{self._url}/{path}"
        try:
            with self._open_url(
                url,
                method=method,
                headers=self._headers,
                data=None if data is None else json.dumps(data),
                validate_certs=self._verified,
                timeout=TIMEOUT_S,
            ) as answer:
                return str(answer.read().decode(errors="replace"))
        except HTTPError as error:
            text = error.read().decode(errors="replace").strip()[:200]
            raise InfinibandError(
                f"{method} {url}: {error}: {text}", REMEDIES.get(error.code, "see UFM's log"), subject="UFM"
            ) from None
        except OSError as error:
            raise InfinibandError(
                f"{method} {url}: {error}", "check the URL and its certificate", subject="UFM"
            ) from None

    def partitions(self) -> dict[int, UfmPartition]:
        """Return all partitions by P_Key. Raises InfinibandError."""
        text = self.ask("GET", "resources/pkeys?guids_data=true")
        try:
            return {
                int(pkey, 16) & DEFAULT_PKEY: UfmPartition(
                    bool(partition["ip_over_ib"]),
                    {
                        _digits(row["guid"]): Member(row["membership"], bool(row["index0"]))
                        for row in partition["guids"]
                    },
                )
                for pkey, partition in json.loads(text).items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InfinibandError(
                f"this is no list of its partitions: {error!r}", "check the URL", subject="UFM"
            ) from None


def planned_partitions(plan: FabricPlan) -> dict[int, UfmPartition]:
    """Return the planned partitions by P_Key, without the default one."""
    return {
        one.pkey: UfmPartition(
            one.ipoib,
            {
                _digits(plan.guids.known[hca]): Member(membership, one.index0)
                for hca, membership in one.members.items()
                if hca in plan.guids.known
            },
            sum(hca not in plan.guids.known for hca in one.members),
        )
        for one in plan.request.partitions
    }


def steps(planned: Mapping[int, UfmPartition], present: Mapping[int, UfmPartition]) -> list[UfmRequest]:
    """Return the requests that bring the planned partitions about: additions first, so that no job loses its partition.

    Other partitions stay as they are, and so do the members of one with unknown planned members: these may be among
    them.
    """
    added, removed = [], []
    for pkey, partition in planned.items():
        path, name = f"resources/pkeys/0x{pkey:x}", f"0x{pkey:04x}"
        held = present[pkey].members if pkey in present else {}
        new = {guid: member for guid, member in partition.members.items() if held.get(guid) != member}
        for part in _parts(sorted(new), ADDED_AT_ONCE):
            data = {
                "pkey": f"0x{pkey:x}",
                "guids": part,
                "memberships": [new[guid].membership for guid in part],
                "index0": new[part[0]].index0,
                "ip_over_ib": partition.ip_over_ib,
            }
            added.append(UfmRequest("POST", "resources/pkeys/", data, f"{name}: add or change {len(part)} members"))
        spare = _spare(partition, present.get(pkey))
        for part in _parts([] if partition.unknown else spare, REMOVED_AT_ONCE):
            step = UfmRequest("DELETE", f"{path}/guids/{','.join(part)}", None, f"{name}: remove {len(part)} members")
            removed.append(step)
    return [*added, *removed]


def not_changed(planned: Mapping[int, UfmPartition], present: Mapping[int, UfmPartition]) -> list[str]:
    """Return lines about what differs and is left: other partitions, members, IP over InfiniBand."""
    others = [f"0x{pkey:04x}: not planned" for pkey in sorted({*present} - {*planned} - {DEFAULT_PKEY})]
    members = [
        f"0x{pkey:04x}: {len(spare)} members are not planned, but {one.unknown} planned GUIDs are not known; find these"
        for pkey, one in planned.items()
        if one.unknown and (spare := _spare(one, present.get(pkey)))
    ]
    return (
        others
        + members
        + [
            f"0x{pkey:04x}: ip_over_ib is {present[pkey].ip_over_ib}, but {one.ip_over_ib} is planned; change it in UFM"
            for pkey, one in planned.items()
            if pkey in present and present[pkey].ip_over_ib != one.ip_over_ib
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


def _digits(guid: str) -> str:
    return f"{int(guid, 16):016x}"


def _parts(guids: list[str], size: int) -> list[list[str]]:
    return [guids[start : start + size] for start in range(0, len(guids), size)]
