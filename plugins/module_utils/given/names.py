# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find variables that a role does not know, with the nearest known name, and missing ones. Pure: names only."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Hosts that a warning names before it counts the rest.
NAMED_HOSTS = 3
# The difflib ratio of two names, without the role's prefix, above which one is a likely misspelling of the other:
# "headrom" and "headroom" have 0.93, "hugepage" and "hugepages" 0.94, "asicc" and "policy" 0.36.
NEAR = 0.7


def is_of(name: str, role: str, roles: Iterable[str]) -> bool:
    """Return True if a variable begins with the role's name, and not with another role's name that extends it."""
    longer = (other for other in roles if other.startswith(f"{role}_"))
    return name.startswith(f"{role}_") and not any(name.startswith(f"{other}_") for other in longer)


def unknown_names(role: str, given: dict[str, list[str]], known: Iterable[str]) -> list[str]:
    """Return a text for each name of ``given`` (name -> hosts that have it) that is not ``known``, sorted by name."""
    names = sorted(known)
    start = len(f"{role}_")
    texts = []
    for name in sorted(set(given) - set(names)):
        near = get_close_matches(name[start:], [other[start:] for other in names], n=1, cutoff=NEAR)
        listed = f"ansible-doc -t role sailloft.fleet.{role} lists its variables"
        remedy = f"did you mean {role}_{near[0]}?" if near else listed
        texts.append(f"{some(given[name])}: the role {role} has no variable {name}, which is ignored; {remedy}")
    return texts


def missing_names(role: str, hosts: Iterable[str], given: dict[str, list[str]], required: Iterable[str]) -> str:
    """Return one text with the ``required`` variables that hosts lack, and those hosts; empty if none is missing."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        names = tuple(name for name in sorted(required) if host not in given.get(name, ()))
        if names:
            lacking.setdefault(names, []).append(host)
    texts = [f"{some(those)}: {', '.join(names)} not set" for names, those in sorted(lacking.items())]
    if not texts:
        return ""
    return f"{'; '.join(texts)}. Set them in the inventory: ansible-doc -t role sailloft.fleet.{role} describes them"


def some(hosts: Iterable[str]) -> str:
    """Return the first hosts by name, and the number of others."""
    names = sorted(hosts)
    rest = len(names) - NAMED_HOSTS
    some = ", ".join(names[:NAMED_HOSTS])
    return f"{some} and {rest} more" if rest > 0 else some
