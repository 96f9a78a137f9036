# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Combine equal failures of several hosts: one line for each failure, with its hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold

# A long message is cut; the output of the failed task has all of it.
MESSAGE_MAX = 300


def common(message: str, names: Iterable[str]) -> str:
    """Return a message as one line, with HOST in place of the host's names, so that it is equal on all hosts."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        # In a longer word or name it is no name of the host: "a" in "unreachable", "gpu-1" in "gpu-10".
        message = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "HOST", message)
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE_MAX else f"{line[:MESSAGE_MAX]}..."


def hosts_text(count: int) -> str:
    """Return a number of hosts in words: "1 host", "2 hosts"."""
    return "1 host" if count == 1 else f"{count} hosts"


def lines(failures: Mapping[Any, Iterable[str]]) -> list[str]:
    """Return a line with the hosts for each failure, the most frequent first. A failure is a tuple of texts."""
    counted = []
    for failure, hosts in failures.items():
        names = set(hosts)
        if names:
            counted.append((-len(names), f"{hosts_text(len(names))}: {': '.join(failure)}: {fold(names)}"))
    return [line for _count, line in sorted(counted)]
