# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a node's logs, each checked before anything is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import (
    Check,
    InvalidValueError,
    distinct,
    matching,
    path,
    within,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

# No character of these has a meaning in rsyslog's strings.
NAME = matching(re.compile(r"[\w.-]*", re.ASCII), "use letters, digits, '.', '_' and '-'")
INDEX = matching(re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII), "use small letters, digits, '.', '_' and '-'")
BROKER = matching(re.compile(r"[\w.-]+:\d+|\[[0-9a-fA-F:]+\]:\d+", re.ASCII), "write HOST:PORT")
SERVER = matching(re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:]+\]):\d+", re.ASCII), "write https://HOST:PORT")
LEAST_MIB, MOST_MIB = 1, 1024 * 1024


def plain_path(value: Any) -> str:
    """Return an absolute path that rsyslog's strings can hold. Raises InvalidValueError."""
    checked = path(value)
    if not re.fullmatch(r"/[\w./@:+-]+", checked, re.ASCII):
        raise InvalidValueError(f"{checked!r} is no path of plain characters", "begin it with /, without spaces")
    return checked


@dataclass(frozen=True)
class Kafka:
    """Brokers, and the PEM files of TLS on the node; without ``ca`` the connection has no TLS."""

    brokers: tuple[str, ...]
    topic: str = "logs"
    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class Elasticsearch:
    """Servers, the beginning of the daily index, PEM files of TLS and the file of the password, all on the node."""

    servers: tuple[str, ...]
    index: str = "logs"
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""


@dataclass(frozen=True)
class LogsRequest:
    """Receivers and labels. ``host``: "" is the node's own name. ``counts_file``: "" writes no metrics."""

    host: str
    rack: str
    kafka: Kafka | None
    elasticsearch: Elasticsearch | None
    queue_mib: int  # on disk, for each receiver
    counts_file: str


TLS: dict[str, Check] = {"ca": plain_path, "certificate": plain_path, "key": plain_path}


def read_request(data: Mapping[str, Any]) -> LogsRequest:
    """Return the checked settings. Raises RequestError."""
    settings = Settings(RequestError, "node_logs", data)
    kafka = elasticsearch = None
    if settings.data.get("kafka"):
        part = settings.part("kafka")
        kafka = part.load(Kafka, {"brokers": _several(BROKER), "topic": NAME, **TLS})
        _check_tls(part, kafka.ca, kafka.certificate, kafka.key)
    if settings.data.get("elasticsearch"):
        part = settings.part("elasticsearch")
        checks = {"index": INDEX, "user": NAME, "password_file": plain_path}
        elasticsearch = part.load(Elasticsearch, {"servers": _several(SERVER), **checks, **TLS})
        _check_tls(part, elasticsearch.ca, elasticsearch.certificate, elasticsearch.key)
        _check_servers(part, elasticsearch)
    if not kafka and not elasticsearch:
        raise settings.refuse("no receiver is set", "set kafka or elasticsearch, or state: absent")
    counts_file = settings.value("counts_file", plain_path, "") if settings.data.get("counts_file") else ""
    if counts_file and not counts_file.endswith(".prom"):
        raise settings.refuse_setting("counts_file", f"{counts_file} does not end in .prom", "node exporter needs it")
    return LogsRequest(
        settings.value("host", NAME, ""),
        settings.value("rack", NAME, ""),
        kafka,
        elasticsearch,
        settings.value("queue_mib", within(LEAST_MIB, MOST_MIB, "MiB"), 256),
        counts_file,
    )


def _several(check: Check) -> Check:
    def checked(value: Any) -> tuple[str, ...]:
        values = tuple(distinct(check)(value))
        if not values:
            raise InvalidValueError("the list is empty", "name at least one")
        return values

    return checked


def _check_tls(settings: Settings, ca: str, certificate: str, key: str) -> None:
    if bool(certificate) != bool(key):
        raise settings.refuse("certificate and key belong together", "set both or none")
    if certificate and not ca:
        raise settings.refuse_setting("ca", "is missing beside certificate", "set it")


def _check_servers(settings: Settings, elasticsearch: Elasticsearch) -> None:
    schemes = {server.partition(":")[0] for server in elasticsearch.servers}
    if len(schemes) > 1:
        raise settings.refuse_setting("servers", "some have TLS and some have not", "use https for all")
    if elasticsearch.ca and "http" in schemes:
        raise settings.refuse_setting("ca", "the servers have no TLS", "begin them with https://")
    if bool(elasticsearch.user) != bool(elasticsearch.password_file):
        raise settings.refuse("user and password_file belong together", "set both or none")
