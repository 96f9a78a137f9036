# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a node has in common with others: its rack, leaf switches, feeds and whatever else the inventory names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError


def domains_of(name: str, variables: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of a node's domains by kind, such as {"rack": ["r1"], "leaf": ["leaf1", "leaf2"]}.

    Rack and leaf switches are those of the blueprint (``site_rack``, ``site_ports``); ``site_domains`` adds kinds, or
    replaces these. Raises InvalidValueError.
    """
    domains: dict[str, list[str]] = {}
    for kind, value in (("rack", variables.get("site_rack")), ("feed", variables.get("site_feed"))):
        if value:
            domains[kind] = [str(value)]
    ports = variables.get("site_ports") or {}
    peers = {str(port["peer"]).split()[0] for port in ports.values() if isinstance(port, Mapping) and port.get("peer")}
    if peers:
        domains["leaf"] = sorted(peers)
    settings = Settings(InvalidValueError, f"{name}: site_domains", variables.get("site_domains") or {})
    for kind in settings.data:
        domains[str(kind)] = settings.required(kind, _names)
    return domains


def _names(value: Any) -> list[str]:
    """Return the names in a name or a list of names; a number is a name, too."""
    names = value if isinstance(value, (list, tuple)) else [value]
    return values.texts([str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in names])
