# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings that each monitoring server has besides those of the site: names and addresses. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import JOBS, MONITORING, host_port

# The files of the plan that a server's programs read: one, or all of a directory.
FILES = ("prometheus.yml", "rules/", "targets/", "alertmanager.yml", "blackbox.yml")


def server_addresses(hosts: Iterable[MonitoredHost]) -> dict[str, str]:
    """Return the address on which each monitoring server listens. Raises MonitoringError."""
    servers = [host for host in hosts if not set(MONITORING).isdisjoint(host.groups)]
    by_address: dict[str, str] = {}
    for host in servers:
        address = listening_address(host.name, host.listens_on or host.address)
        first = by_address.setdefault(address, host.name)
        if first != host.name:
            raise MonitoringError(
                f"{first} and {host.name} have the same address {address}",
                "correct the address of one of them in the inventory",
                subject=MONITORING[0],
            )
    return {name: address for address, name in by_address.items()}


def listening_address(name: str, text: str) -> str:
    """Return the address of a host on which its programs can listen. Raises MonitoringError."""
    remedy = "set monitoring_address to the IP address of the host in the management network"
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise MonitoringError(f"{text!r} is no IP address", remedy, subject=name) from None
    if address.is_unspecified or address.is_multicast:
        raise MonitoringError(f"{text} is not the address of one host", remedy, subject=name)
    return str(address)


def server_settings(settings: Mapping[str, Any], name: str, addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the plan for one server: its name, its blackbox exporter, and all Alertmanagers.

    Raises MonitoringError for a host that is no server.
    """
    if name not in addresses:
        raise MonitoringError(f"it is not in the group {MONITORING[0]}", "add it, or leave the host out", subject=name)
    alertmanagers = [host_port(address, JOBS["alertmanager"].port) for address in addresses.values()]
    return {
        "blackbox": host_port(addresses[name], JOBS["blackbox"].port),
        "alertmanagers": alertmanagers if settings.get("routes") else None,
        **{key: value for key, value in settings.items() if value},
        "replica": name,
    }


def server_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Return those of a plan's texts that a server's programs read."""
    return {name: text for name, text in texts.items() if name.startswith(FILES)}
