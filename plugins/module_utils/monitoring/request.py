# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The site's settings of the monitoring, each checked before anything is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import valid_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import (
    Check,
    among,
    distinct,
    each,
    flag,
    items,
    matching,
    number,
    path,
    text,
    texts,
    within,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alertmanager import Route, Timing
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS, LIMITS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import (
    OWNERS,
    SEVERITIES,
    Limit,
    ScrapeJob,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.prometheus import BLACKBOX, ScrapeLogin
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.retention import (
    LEAST_FIVE_MINUTES_DAYS,
    LEAST_RAW_DAYS,
    Retention,
    Thanos,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.rules import ALL, RUNBOOKS, GroupLimits
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import JOBS

NAME = matching(re.compile(r"[a-zA-Z_]\w*", re.ASCII), "use letters, digits and _")
URL = matching(re.compile(r"https?://\S+"), "begin it with https:// or http://")
PLACE = matching(re.compile(r"[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+"), "write HOST:PORT")
JOB: dict[str, Check] = {
    "groups": texts,
    "port": within(1, 65535),
    "interval_s": within(1, 3600, "s"),
    "network": text,
    "module": among(*BLACKBOX["modules"]),
    "plain": flag,
}
TIMING: dict[str, Check] = {
    "evaluation_s": within(1, 300, "s"),
    "group_wait_s": within(0, 3600, "s"),
    "group_interval_s": within(1, 86400, "s"),
    "repeat_s": within(60, 30 * 86400, "s"),
}
CLIENT: dict[str, Check] = {"ca_file": path, "username": text, "password_file": path}
RETENTION: dict[str, Check] = {
    "raw_days": within(LEAST_RAW_DAYS, 3650, "days"),
    "five_minutes_days": within(LEAST_FIVE_MINUTES_DAYS, 3650, "days"),
    "hour_days": within(LEAST_FIVE_MINUTES_DAYS, 36500, "days"),
}
THANOS: dict[str, Check] = {
    "bucket": matching(re.compile(r"[a-z0-9][a-z0-9.-]{2,62}"), "use small letters, digits, '.' and '-'"),
    "endpoint": matching(re.compile(r"[\w.-]+(:\d+)?", re.ASCII), "write HOST or HOST:PORT, without https://"),
    "sidecars": distinct(PLACE),
}
# The settings of each kind of receiver, with Alertmanager's names, and those that are required. Secrets are files.
RECEIVERS: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {
    "slack": ({"api_url_file": path, "channel": text}, ("api_url_file", "channel")),
    "email": (
        {"to": text, "from": text, "smarthost": PLACE, "auth_username": text, "auth_password_file": path},
        ("to", "from", "smarthost"),
    ),
    "pagerduty": ({"routing_key_file": path}, ("routing_key_file",)),
    "webhook": ({"url": URL, "credentials_file": path}, ("url",)),
}

# The file of our rules in the directory rules.
OWN_RULES = "sailloft"


@dataclass(frozen=True)
class MonitoringRequest:
    """The settings of a site."""

    site: str
    jobs: dict[str, ScrapeJob]
    limits: GroupLimits
    disabled: tuple[str, ...]
    receivers: dict[str, dict[str, dict[str, Any]]]
    routes: tuple[Route, ...]
    runbooks: str
    blackbox: str
    alertmanagers: tuple[str, ...]
    timing: Timing
    client: ScrapeLogin | None
    replica: str
    rules: dict[str, list[Any]]
    retention: Retention
    thanos: Thanos | None


def read_request(data: Mapping[str, Any], groups: Collection[str]) -> MonitoringRequest:
    """Return the checked settings. ``groups``: those of the inventory. Raises MonitoringError."""
    settings = Settings(MonitoringError, "", data)
    settings.only(
        *("site", "jobs", "limits", "disabled_alerts", "receivers", "routes", "runbooks", "blackbox", "alertmanagers"),
        *("timing", "client", "replica", "rules"),
        *("retention", "thanos"),
    )
    receivers = _receivers(settings.part("receivers"))
    return MonitoringRequest(
        site=settings.value("site", NAME, "site"),
        jobs=_jobs(settings.part("jobs"), groups),
        limits=_limits(settings.part("limits"), groups),
        disabled=_disabled(settings.part("disabled_alerts")),
        receivers=receivers,
        routes=_routes(settings, receivers),
        runbooks=settings.value("runbooks", text, RUNBOOKS),
        blackbox=settings.value("blackbox", PLACE, "127.0.0.1:9115"),
        alertmanagers=tuple(settings.value("alertmanagers", each(PLACE), [])),
        timing=settings.part("timing").load(Timing, TIMING),
        client=_client(settings),
        replica=settings.value("replica", text, ""),
        rules=_rules(settings.part("rules")),
        retention=_retention(settings.part("retention")),
        thanos=settings.part("thanos").load(Thanos, THANOS) if settings.data.get("thanos") else None,
    )


def _client(settings: Settings) -> ScrapeLogin | None:
    part = settings.part("client")
    if not part.data:
        return None
    client: ScrapeLogin = part.load(ScrapeLogin, CLIENT)
    if bool(client.username) != bool(client.password_file):
        raise part.refuse("username and password_file belong together", "set both, or none")
    return client


def _rules(settings: Settings) -> dict[str, list[Any]]:
    """Return the groups of the site's own rules by the name of their file. promtool checks what is in them."""
    for name in settings.data:
        if not re.fullmatch(r"[a-z]\w*", str(name), re.ASCII) or name == OWN_RULES:
            raise settings.refuse(
                f"{name!r} is not valid as the name of a file of rules",
                f"use small letters, digits and _, and not {OWN_RULES}",
            )
    return {name: settings.value(name, items) for name in settings.data}


def _retention(settings: Settings) -> Retention:
    retention: Retention = settings.load(Retention, RETENTION)
    if not retention.raw_days <= retention.five_minutes_days <= retention.hour_days:
        raise settings.refuse(
            "coarse samples are kept for less time than fine ones", "raise the days of the coarse ones"
        )
    return retention


def _jobs(settings: Settings, groups: Collection[str]) -> dict[str, ScrapeJob]:
    """Return our jobs with the site's settings, and the site's own; an empty list of groups drops a job."""
    jobs = dict(JOBS)
    for name in settings.data:
        part = settings.part(name)
        if not re.fullmatch(r"[a-z]\w*", str(name), re.ASCII):
            raise part.refuse("the name of a job is not valid", "use small letters, digits and _")
        defaults = asdict(JOBS[name]) if name in JOBS else {}
        if "groups" in part.data:
            _known(part, part.value("groups", distinct(text)), groups)
        jobs[name] = part.load(ScrapeJob, JOB, **defaults)
    return jobs


def _known(settings: Settings, used: Collection[str], groups: Collection[str]) -> None:
    for group in used:
        if group not in groups:
            raise settings.refuse(f"the inventory has no group {group!r}", valid_settings(group, sorted(groups)))


def _limits(settings: Settings, groups: Collection[str]) -> dict[str, dict[str, float]]:
    settings.only(*LIMITS)
    limits = {}
    for name, value in settings.data.items():
        values = value if isinstance(value, Mapping) else {ALL: value}
        by_group = Settings(MonitoringError, f"limits.{name}", values)
        _known(by_group, [group for group in by_group.data if group != ALL], groups)
        check = _between(LIMITS[name])
        limits[name] = {group: by_group.value(group, check) for group in by_group.data}
    return limits


def _between(limit: Limit) -> Check:
    return lambda value: number(value, limit.least, limit.most)


def _disabled(settings: Settings) -> tuple[str, ...]:
    settings.only(*ALERTS)
    for name in settings.data:
        settings.value(name, text)  # the reason
    return tuple(settings.data)


def _receivers(settings: Settings) -> dict[str, dict[str, dict[str, Any]]]:
    receivers: dict[str, dict[str, dict[str, Any]]] = {}
    for name in settings.data:
        kinds = settings.part(name)
        kinds.only(*RECEIVERS)
        if not kinds.data:
            raise kinds.refuse("the receiver has no way to get a message", f"set one of {', '.join(RECEIVERS)}")
        receivers[name] = {}
        for kind in kinds.data:
            fields, required = RECEIVERS[kind]
            part = kinds.part(kind)
            part.only(*fields)
            part.need(*required)
            receivers[name][kind] = {field: part.value(field, fields[field]) for field in part.data}
    return receivers


def _routes(settings: Settings, receivers: Collection[str]) -> tuple[Route, ...]:
    checks: dict[str, Check] = {
        "receiver": text,
        "severity": distinct(among(*SEVERITIES)),
        "owner": distinct(among(*OWNERS)),
    }
    routes = []
    for part in settings.parts("routes"):
        route = part.load(Route, checks)
        if route.receiver not in receivers:
            remedy = valid_settings(route.receiver, receivers) if receivers else "define it in receivers"
            raise part.refuse(f"there is no receiver {route.receiver!r}", remedy)
        routes.append(route)
    defaults = [route for route in routes if not route.severity and not route.owner]
    if (routes or receivers) and len(defaults) != 1:
        raise settings.refuse_setting(
            "routes",
            f"{len(defaults)} routes are for all other alerts",
            "write one route with nothing but a receiver, as the last one",
        )
    unused = [name for name in receivers if name not in {route.receiver for route in routes}]
    if unused:
        raise settings.refuse_setting(
            "receivers", f"no route has the receiver {unused[0]}", "add a route, or remove it"
        )
    return tuple(routes)
