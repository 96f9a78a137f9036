# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of Alertmanager: who gets which alert, in which groups, and which alert hides others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    FEED,
    GPU,
    GUEST,
    HOST,
    OWN,
    PART,
    PORT,
    RACK,
    SITE,
    SWITCH,
)


@dataclass(frozen=True)
class Inhibition:
    """The alerts of a level that hide others, where the ``equal`` labels are; an alert without them hides nothing.

    Alertmanager takes two labels that are both missing for equal: without the matcher, a switch without a rack would
    hide the ports of all hosts without one.
    """

    level: str
    hidden: tuple[str, ...]  # levels
    equal: tuple[str, ...] = ()
    source: tuple[str, ...] = ()  # matchers, if not of all alerts of the level that hide others
    targets: str = ""  # names of the hidden alerts, as a regular expression; "" for all of their levels


# From the outside in. A leaf hides ports by the hosts' label "uplinks", the switches that they are connected with;
# without the blueprint's cables, those in its rack.
INHIBITIONS = (
    Inhibition(SITE, (FEED, RACK, SWITCH, HOST, GUEST, PART, PORT, GPU)),
    Inhibition(FEED, (RACK, SWITCH, HOST, GUEST, PART, PORT, GPU), ("feed",)),
    Inhibition(RACK, (SWITCH, HOST, GUEST, PART, PORT, GPU), ("rack",)),
    Inhibition(SWITCH, (SWITCH, PORT), ("uplinks",), ('alertname="SwitchDown"',), "RackPortsDown|PortDown"),
    Inhibition(SWITCH, (PORT,), ("uplinks", "place"), ('alertname="RackPortsDown"',)),
    Inhibition(SWITCH, (PORT,), ("rack", "place"), ('alertname="RackPortsDown"',)),
    Inhibition(SWITCH, (SWITCH, PORT), ("rack",), ('alertname="SwitchDown"', 'uplinks=""'), "RackPortsDown|PortDown"),
    Inhibition(HOST, (GUEST, PART, PORT, GPU), ("host",)),
    Inhibition(GUEST, (PART, PORT, GPU), ("instance",)),
    Inhibition(GPU, (GPU,), ("instance",)),
    Inhibition(OWN, (OWN,), ("job",)),
)
TEXT = (
    "{{ range .Alerts }}{{ .Annotations.summary }}: {{ .Annotations.cause }}? {{ .Annotations.first_step }}"
    " ({{ .Annotations.runbook_url }})\n{{ end }}"
)
TITLE = "{{ .Status }}: {{ .CommonLabels.alertname }} {{ .CommonLabels.rack }} ({{ .Alerts | len }})"


@dataclass(frozen=True)
class Route:
    """A receiver and the alerts that it gets; without severities and owners all that no other route has."""

    receiver: str
    severity: Sequence[str] = ()
    owner: Sequence[str] = ()


@dataclass(frozen=True)
class Timing:
    """Seconds between evaluations of the rules; until a group's first message, its next one, and its repetition."""

    evaluation_s: int = 30
    group_wait_s: int = 30
    group_interval_s: int = 300
    repeat_s: int = 14400


def alertmanager(
    receivers: Mapping[str, Mapping[str, Mapping[str, Any]]],
    routes: Iterable[Route],
    blocks: Iterable[str],
    timing: Timing,
) -> dict[str, Any]:
    """Return the configuration. ``receivers``: settings by kind, by name. ``blocks``: the labels of the blocks."""
    routes = list(routes)
    default = next(route.receiver for route in routes if not route.severity and not route.owner)
    return {
        "route": {
            "receiver": default,
            "group_by": ["alertname", *blocks, "rack"],
            "group_wait": f"{timing.group_wait_s}s",
            "group_interval": f"{timing.group_interval_s}s",
            "repeat_interval": f"{timing.repeat_s}s",
            "routes": [_route(route) for route in routes if route.severity or route.owner],
        },
        "inhibit_rules": _inhibitions(),
        "receivers": [_receiver(name, kinds) for name, kinds in receivers.items()],
    }


def _route(route: Route) -> dict[str, Any]:
    matchers = [
        f'{label}=~"{"|".join(values)}"'
        for label, values in (("severity", route.severity), ("owner", route.owner))
        if values
    ]
    return {"receiver": route.receiver, "matchers": matchers}


def _inhibitions() -> list[dict[str, Any]]:
    return [_rule(inhibition) for inhibition in INHIBITIONS]


def _rule(inhibition: Inhibition) -> dict[str, Any]:
    names = "|".join(alert.name for alert in ALERTS.values() if alert.hides and alert.level == inhibition.level)
    source = inhibition.source or (f'alertname=~"{names}"',)
    targets = [f'alertname=~"{inhibition.targets}"'] if inhibition.targets else []
    rule: dict[str, Any] = {
        "source_matchers": [*source, *(f'{label}!=""' for label in inhibition.equal)],
        "target_matchers": [f'level=~"{"|".join(inhibition.hidden)}"', *targets],
    }
    return {**rule, "equal": list(inhibition.equal)} if inhibition.equal else rule


def _receiver(name: str, kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    receiver: dict[str, Any] = {"name": name}
    for kind, settings in kinds.items():
        fields = {"send_resolved": True, **settings}
        credentials = fields.pop("credentials_file", None)
        if credentials:
            fields["http_config"] = {"authorization": {"credentials_file": credentials}}
        if kind == "slack":
            fields.update(title=TITLE, text=TEXT)
        receiver[f"{kind}_configs"] = [fields]
    return receiver
