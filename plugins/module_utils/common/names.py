# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find names that are not known, with the nearest known name, and missing ones. Pure: names only.

A name of a dictionary in YAML may be no text: ``on`` is true there, and ``5`` a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt

# The difflib ratio of two names of one role without its prefix, or of one dictionary, above which one is a likely
# misspelling of the other: "headrom" and "headroom" have 0.93, "domian" and "domain" 0.83, "speed" and "peer" 0.67,
# "asicc" and "policy" 0.36.
NEAR = 0.7
# The same for all variables of a site: "recoding" and "recording" have 0.94, "record" and "recording" 0.8.
NEAR_WHOLE = 0.85


def is_of(name: str, role: str, roles: Iterable[str]) -> bool:
    """Return True if a variable begins with the role's name, and not with another role's name that extends it."""
    longer_roles = (longer_role for longer_role in roles if longer_role.startswith(f"{role}_"))
    return name.startswith(f"{role}_") and not any(name.startswith(f"{longer_role}_") for longer_role in longer_roles)


def nearest(name: object, valid_names: Iterable[str]) -> str:
    """Return the name of ``valid_names`` of which ``name`` is a likely misspelling; "" if there is none."""
    return next(iter(get_close_matches(str(name), sorted(valid_names), n=1, cutoff=NEAR_WHOLE)), "")


def _near(name: str, valid_names: list[str]) -> list[str]:
    """Return the name of which ``name`` is a likely misspelling, also one with the same letters ("nsf", "nfs")."""
    matches = get_close_matches(name, valid_names, n=1, cutoff=NEAR)
    return matches or [valid for valid in valid_names if sorted(valid) == sorted(name)][:1]


def valid_settings(setting: object, valid_names: Iterable[str]) -> str:
    """Return the remedy for an unknown setting: the name of which it is a likely misspelling, or all valid ones."""
    names = sorted(valid_names)
    matches = _near(str(setting), names)
    return f"did you mean {matches[0]}?" if matches else f"valid settings: {', '.join(names)}"


def unknown_names(role: str, hosts_by_name: dict[str, list[str]], valid_names: Iterable[str]) -> list[str]:
    """Return a text for each name of ``hosts_by_name`` that is not one of ``valid_names``, sorted by name."""
    names = sorted(valid_names)
    start = len(f"{role}_")
    texts = []
    for name in sorted(set(hosts_by_name) - set(names)):
        matches = _near(name[start:], [valid_name[start:] for valid_name in names])
        listed = f"ansible-doc -t role sailloft.fleet.{role} lists its variables"
        remedy = f"did you mean {role}_{matches[0]}?" if matches else listed
        hosts = excerpt(sorted(hosts_by_name[name]))
        texts.append(f"{hosts}: the role {role} has no variable {name}, which is ignored; {remedy}")
    return texts


def missing_names(role: str, hosts: Iterable[str], hosts_by_name: dict[str, list[str]], required: Iterable[str]) -> str:
    """Return one text with the ``required`` variables that hosts lack, and those hosts; empty if none is missing."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        names = tuple(name for name in sorted(required) if host not in hosts_by_name.get(name, ()))
        if names:
            lacking.setdefault(names, []).append(host)
    texts = [
        f"{excerpt(sorted(lacking_hosts))}: {', '.join(names)} not set"
        for names, lacking_hosts in sorted(lacking.items())
    ]
    if not texts:
        return ""
    return f"{'; '.join(texts)}. Set them in the inventory: ansible-doc -t role sailloft.fleet.{role} describes them"
