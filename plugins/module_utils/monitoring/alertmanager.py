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

# By level, from the outside in: the levels that its alerts hide, and the labels that are then equal.
INHIBITIONS = {
    SITE: ((FEED, RACK, SWITCH, HOST, GUEST, PART, PORT, GPU), ()),
    FEED: ((RACK, SWITCH, HOST, GUEST, PART, PORT, GPU), ("feed",)),
    RACK: ((SWITCH, HOST, GUEST, PART, PORT, GPU), ("rack",)),
    SWITCH: ((PORT,), ("rack",)),
    HOST: ((GUEST, PART, PORT, GPU), ("host",)),
    GUEST: ((PART, PORT, GPU), ("instance",)),
    GPU: ((GPU,), ("instance",)),
    OWN: ((OWN,), ("job",)),
}
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
    inhibitions = []
    for level, (hidden, equal) in INHIBITIONS.items():
        names = "|".join(alert.name for alert in ALERTS.values() if alert.hides and alert.level == level)
        rule: dict[str, Any] = {
            "source_matchers": [f'alertname=~"{names}"'],
            "target_matchers": [f'level=~"{"|".join(hidden)}"'],
        }
        inhibitions.append({**rule, "equal": list(equal)} if equal else rule)
    return inhibitions


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
