# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts and settings of a small site."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost

GROUPS = ("nodes", "gpu_nodes", "gpu_hosts", "gpu_guests", "roce_switches", "boot_servers", "monitoring_servers", "hot")
RECEIVERS = {
    "noc": {"slack": {"api_url_file": "/etc/prometheus/slack", "channel": "#noc"}},
    "pager": {"pagerduty": {"routing_key_file": "/etc/prometheus/pagerduty"}},
    "mail": {
        "email": {"to": "a@example.com", "from": "b@example.com", "smarthost": "mail.example.com:587"},
        "webhook": {"url": "http://127.0.0.1:9999/", "credentials_file": "/etc/prometheus/token"},
    },
}
ROUTES = [
    {"receiver": "pager", "severity": ["critical"]},
    {"receiver": "mail", "owner": ["network", "platform"], "severity": ["warning"]},
    {"receiver": "noc"},
]
SETTINGS = {"site": "harbour", "receivers": RECEIVERS, "routes": ROUTES, "alertmanagers": ["127.0.0.1:9093"]}


def node(number: int, **given: object) -> MonitoredHost:
    """Return a node with a BMC, four in a rack."""
    rack = (number - 1) // 4 + 1
    fields: dict[str, object] = {
        "groups": ("nodes", "gpu_nodes"),
        "address": f"10.0.{number // 250}.{number % 250 + 1}",
        "addresses": {"bmc": f"10.1.{number // 250}.{number % 250 + 1}"},
        "rack": f"rack-{rack:03}",
        "unit": 6 * ((number - 1) % 4) + 1,
        "blocks": {"pod": rack // 32 + 1, "rack": rack},
        "peers": (("leaf1", 0), ("leaf2", 1)),
    }
    return MonitoredHost(f"node-{number:05}", **{**fields, **given})


def site(nodes: int = 8) -> list[MonitoredHost]:
    """Return nodes and one host of each other role."""
    return [
        *(node(number) for number in range(1, nodes + 1)),
        MonitoredHost("hv1", ("gpu_hosts", "hot"), "10.9.0.1", {"bmc": "10.9.1.1"}, rack="rack-900", feed="a"),
        MonitoredHost("vm1", ("gpu_guests",), "10.9.0.2", hypervisor="hv1", rack="rack-900", spare=True),
        MonitoredHost("leaf1", ("roce_switches",), "10.9.0.3", rack="rack-001"),
        MonitoredHost("leaf2", ("roce_switches",), "fd00::3", rack="rack-001"),
        MonitoredHost("boot1", ("boot_servers",), "10.9.0.4", {"bmc": "10.9.1.4"}),
        MonitoredHost("mon1", ("monitoring_servers",), "10.9.0.5", {"bmc": "10.9.1.5"}),
        MonitoredHost("store1", ("storage",), "10.9.0.6"),
    ]
