# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Divide an inventory by the gateways from which its hosts are reached. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.errors import GatewayError

# Groups that Ansible adds to every inventory.
IMPLICIT = ("_meta", "all", "ungrouped")


def by_gateway(gateways: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts of each gateway, from the gateway of each host. Raises GatewayError where one has none."""
    without = [host for host, gateway in gateways.items() if not gateway]
    if without:
        raise GatewayError(
            "no gateway",
            "set runner_gateway, or name the hosts of the run with -e gateways_hosts=PATTERN or --limit",
            subject=fold(without),
        )
    slices: dict[str, list[str]] = {}
    for host, gateway in gateways.items():
        slices.setdefault(gateway, []).append(host)
    for gateway in slices:
        # The gateway's name is an argument of ssh, and the name of a directory.
        if gateway.startswith(("-", ".")) or "/" in gateway or not gateway.isprintable():
            raise GatewayError(
                f"runner_gateway {gateway!r} is not valid",
                "write a host name, or USER@HOST",
                subject=fold(slices[gateway]),
            )
    return slices


def cut(listed: Mapping[str, Any], hosts: Collection[str], decrypt: Callable[[str], str]) -> dict[str, Any]:
    """Return the slice of an inventory that has these hosts, in the form of a file for the inventory plugin ``yaml``.

    ``listed`` is the output of ``ansible-inventory --list --export``. Groups without a host of the slice are included,
    but empty and without variables. ``decrypt`` is given the text of each value that is encrypted with Ansible Vault.
    """
    chosen = set(hosts)
    variables = listed.get("_meta", {}).get("hostvars", {})
    groups = [name for name in listed if name not in IMPLICIT]
    members = {name: set(listed[name].get("hosts", [])) & chosen for name in groups}
    # A group concerns the slice if it, or a group below it, has a host of the slice.
    concerned = {name for name in groups if members[name]}
    while True:
        parents = {name for name in groups if concerned.intersection(listed[name].get("children", []))} - concerned
        if not parents:
            break
        concerned |= parents
    every = listed.get("all", {})
    inventory: dict[str, Any] = {
        "all": {
            "hosts": {host: _plain(variables.get(host, {}), decrypt) for host in hosts},
            "vars": _plain(every.get("vars", {}), decrypt),
            "children": {name: {} for name in every.get("children", []) if name != "ungrouped"},
        }
    }
    for name in groups:
        inventory[name] = {
            "hosts": {host: {} for host in listed[name].get("hosts", []) if host in chosen},
            "children": {child: {} for child in listed[name].get("children", [])},
            "vars": _plain(listed[name].get("vars", {}), decrypt) if name in concerned else {},
        }
    return inventory


def _plain(value: Any, decrypt: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__ansible_vault"}:
            return decrypt(value["__ansible_vault"])
        return {name: _plain(item, decrypt) for name, item in value.items()}
    return [_plain(item, decrypt) for item in value] if isinstance(value, list) else value
