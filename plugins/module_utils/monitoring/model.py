# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts, jobs and alerts in plain data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES = (CRITICAL, WARNING, INFO)
# Who repairs it.
DATACENTER, HARDWARE, NETWORK, PLATFORM, MONITORING = "datacenter", "hardware", "network", "platform", "monitoring"
OWNERS = (DATACENTER, HARDWARE, NETWORK, PLATFORM, MONITORING)

# How far out a fault is. Alerts of outer levels hide those of inner ones (INHIBITIONS in alertmanager.py).
SITE, FEED, RACK, SWITCH, HOST, GUEST = "site", "feed", "rack", "switch", "host", "guest"
PART, PORT, GPU, OWN = "part", "port", "gpu", "monitoring"
LEVELS = (SITE, FEED, RACK, SWITCH, HOST, GUEST, PART, PORT, GPU, OWN)

# A series of a test: its value, "+60" for one that grows by 60 each minute, NOW for the time, or GONE for no series.
NOW, GONE = "now", "gone"
Value = Union[float, str]


@dataclass(frozen=True)
class MonitoredHost:
    """A host of the inventory. ``blocks``: the numbers of the blocks around it, by kind of block: {"pod": 1}."""

    name: str
    groups: tuple[str, ...]
    address: str  # of Ansible: an IP address, or a name
    addresses: Mapping[str, str] = field(default_factory=dict)  # by network
    listens_on: str = ""  # the address of its exporters, if it is not that of Ansible
    ssh_port: int | None = None
    rack: str = ""
    unit: int | None = None  # of the rack, from its foot
    blocks: Mapping[str, int] = field(default_factory=dict)
    feed: str = ""  # of the rack's power
    hypervisor: str = ""  # of a guest
    spare: bool = False
    peers: tuple[tuple[str, int], ...] = ()  # (switch, rail) of its ports


@dataclass(frozen=True)
class ScrapeJob:
    """A kind of target: on which hosts, and how it is reached. ``network``: "" is the address of Ansible."""

    groups: tuple[str, ...]
    port: int
    interval_s: int = 60
    network: str = ""
    module: str = ""  # of the blackbox exporter, which then asks the target
    plain: bool = False  # HTTP without a password, although the site's exporters have TLS


@dataclass(frozen=True)
class Case:
    """A fault as series, each with its healthy and its sick value; the times are for the test of the alert."""

    series: Mapping[str, tuple[Value, Value]]
    delay_m: int = 0  # minutes from the fault until the expression holds
    ends_m: int = 1  # minutes from the end of the fault until it no longer holds


@dataclass(frozen=True)
class Alert:
    """An alert: ``expr`` holds for ``minutes``.

    In ``expr`` "LIMIT" stands for the limit, and "OF" for the matcher of the hosts that have it.
    """

    name: str
    expr: str
    minutes: int
    severity: str
    owner: str
    level: str  # one of LEVELS
    summary: str  # with the labels of ``place`` as {{ $labels.NAME }}
    cause: str  # the likely one
    step: str  # the first one
    runbook: str  # section of docs/reference/runbooks.md
    place: tuple[str, ...]  # the labels that say where it is
    cases: tuple[Case, ...]
    limit: str = ""  # a name of LIMITS in alerts/table.py
    hides: bool = False  # the alerts of inner levels at the same place
    checks: str = ""  # the checks of sailloft-health whose faults it covers, as a regular expression


@dataclass(frozen=True)
class Recording:
    """A recording rule."""

    name: str
    expr: str


@dataclass(frozen=True)
class Limit:
    """A limit that a site may set for all or for groups."""

    value: float
    least: float
    most: float
    unit: str
