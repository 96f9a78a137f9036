# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Silence the alerts of hosts while a run restarts them, by Alertmanager's API v2.

A silence ends by itself if the run is killed. After a restart only its news, HostRestarted, stays silent, as long as
its expression holds: a host that fails later is alerted.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError

CREATOR = "sailloft"
RESTARTED = "HostRestarted"
# The expression of RESTARTED holds for 15 minutes, and its evaluation and group follow within five.
RESTARTED_S = 1200
TIMEOUT_S = 10
_ANSWER_MOST = 200


def silence(hosts: Iterable[str], comment: str, now_s: float, seconds: float, alert: str = "") -> dict[str, Any]:
    """Return the silence of the alerts of hosts, their guests and parts; ``alert``: of that name only."""
    names = "|".join(re.escape(host) for host in sorted({*hosts}))
    matchers = [{"name": "host", "value": names, "isRegex": True, "isEqual": True}]
    if alert:
        matchers.append({"name": "alertname", "value": alert, "isRegex": False, "isEqual": True})
    return {
        "matchers": matchers,
        "startsAt": _time(now_s),
        "endsAt": _time(now_s + seconds),
        "createdBy": CREATOR,
        "comment": comment,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def login_of(text: str) -> str:
    """Return the header of a login in a file's first line, USER:PASSWORD. Raises MonitoringError, without the login."""
    line = text.strip()
    if ":" not in line or "\n" in line:
        raise MonitoringError("it has not one line USER:PASSWORD", "write the login so", subject="credentials_file")
    return f"Basic {b64encode(line.encode()).decode()}"


class SilenceApi:
    """The Alertmanagers of a cluster, which tell each other: the first that answers is enough.

    ``open_url`` is Ansible's function of that name, or a substitute. ``authorization``: of login_of, or "".
    """

    def __init__(
        self, urls: Sequence[str], open_url: Callable[..., Any], authorization: str = "", ca_path: str | None = None
    ) -> None:
        """Raises MonitoringError for a URL that is not one, or that would send the login in clear text."""
        if not urls:
            raise MonitoringError("there is no URL", "write urls: [https://HOST:9093]", subject="play_silences")
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("https", "http") or not parts.hostname or parts.username is not None:
                raise MonitoringError("it is no URL without a user", "write https://HOST:9093", subject=url)
            if authorization and parts.scheme != "https":
                raise MonitoringError("it would get the login in clear text", "use https", subject=url)
        self._urls = urls
        self._open_url = open_url
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": authorization} if authorization else {}),
        }
        self._ca_path = ca_path

    def create(self, body: Mapping[str, Any]) -> str:
        """Create a silence, and return its ID. Raises MonitoringError."""
        answer = self._ask("POST", "silences", body)
        if not isinstance(answer, dict) or not answer.get("silenceID"):
            raise MonitoringError("the answer has no silenceID", "check the URL", subject=self._urls[0])
        return str(answer["silenceID"])

    def expire(self, silence_id: str) -> None:
        """End a silence, if it has not ended yet. Raises MonitoringError."""
        answer = self._ask("GET", f"silence/{silence_id}")
        status = answer.get("status") if isinstance(answer, dict) else None
        # Alertmanager refuses to end one that has ended.
        if not isinstance(status, dict) or status.get("state") != "expired":
            self._ask("DELETE", f"silence/{silence_id}")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        failures = []
        for url in self._urls:
            address = f"{url.rstrip('/')}/api/v2/{path}"
            try:
                with self._open_url(
                    address,
                    method=method,
                    headers=self._headers,
                    data=None if body is None else json.dumps(body),
                    timeout=TIMEOUT_S,
                    follow_redirects="none",
                    ca_path=self._ca_path,
                ) as answer:
                    return json.loads(answer.read() or b"null")
            except (OSError, HTTPException, ValueError) as error:  # of HTTP's status, too
                failures.append(f"{address}: {' '.join(str(error).split())[:_ANSWER_MOST]}")
        raise MonitoringError("; ".join(failures), "check URL, login and certificate", subject="Alertmanager")
