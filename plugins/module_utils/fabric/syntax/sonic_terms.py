# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Terms that the community's and Dell's SONiC share, whatever the form of the settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Ecn, Octet, Queue

OWN = "SAILLOFT_"  # the prefix of the names of this project's entries


def name_from_content(kind: str, content: Any) -> str:
    """Return the name for this content: the same content has the same name.

    It has at most 32 characters, as SONiC's models require, if ``kind`` has at most 14.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{OWN}{kind}_{digest[:8]}"


def queues_of(read: Mapping[int, tuple[bool, int | None, Ecn | None]]) -> tuple[Queue | None, ...]:
    """Return the queues of one port, from (strict, weight, ECN) by number.

    A queue's share is its weight in whole percent of the sum of the port's weights; None where no scheduler is set.
    DWRR shares bytes and WRR shares packets, which is the same for packets of one size.
    """
    total = sum(weight or 0 for _strict, weight, _ecn in read.values())
    queues: list[Queue | None] = [None] * CLASSES
    for number, (strict, weight, ecn) in read.items():
        percent = None if weight is None else max(1, (200 * weight + total) // (2 * total))  # rounded
        queues[number] = Queue(strict, percent, ecn)
    return tuple(queues)


def paused_priorities(groups: Octet, group_of: Octet, pfc: tuple[int, ...]) -> Octet:
    """Return the priority by which the port pauses each traffic class.

    ``groups``: the priority group of each class; ``group_of``: the priority group of each priority. Where several
    priorities have one group, the one with PFC is returned, else the lowest.
    """
    paused: list[int | None] = []
    for group in groups:
        priorities = [
            priority
            for priority, priority_group in enumerate(group_of)
            if group is not None and priority_group == group
        ]
        paused.append(
            next((priority for priority in priorities if priority in pfc), priorities[0] if priorities else None)
        )
    return tuple(paused)


def natural_sort_key(port: str) -> list[Any]:
    """Return a sort key that puts Ethernet4 before Ethernet10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", port)]
