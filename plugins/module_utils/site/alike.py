# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Failures that are alike: one line for each, with the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.fold import fold

# A message of a page's length is cut: the whole one is where the task failed.
MESSAGE_MAX = 300


def common(message: str, names: Iterable[str]) -> str:
    """Return a message as one line in which a host's own names are HOST, so that it is the same on other hosts."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        message = message.replace(name, "HOST")
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE_MAX else f"{line[:MESSAGE_MAX]}..."


def lines(failures: Mapping[Any, Iterable[str]]) -> list[str]:
    """Return a line for each failure, a tuple of the parts of its text, with its hosts, the most frequent first."""
    found = []
    for failure, hosts in failures.items():
        names = set(hosts)
        if names:
            found.append((-len(names), f"{len(names)} hosts: {': '.join(failure)}: {fold(names)}"))
    return [line for _count, line in sorted(found)]
